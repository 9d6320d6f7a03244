"""The only door for tenant input: form, native fields, JSON, YAML go in, a `WorkloadSpec` comes out, or IntakeRefused.

Allowlist and rebuild, never filter: known fields are taken into a fresh object, everything else is refused at its exact
JSON pointer. Pure: no database, no cluster, no clock.
"""

from portal.core.strict.documents import Limits
from workloads.intake.form_fields import FormFields
from workloads.intake.forms import form_pointer, read_form
from workloads.intake.metadata import another_category
from workloads.intake.native import Native, read_count, read_native
from workloads.intake.problems import IntakeRefused, Problem
from workloads.intake.read import read_json, read_object, read_yaml
from workloads.intake.scope import Explicit, Scope
from workloads.intake.spec import PodRole, WorkloadSpec, check_pod_classes

__all__ = [
    "Explicit",
    "FormFields",
    "IntakeRefused",
    "Limits",
    "Native",
    "PodRole",
    "Problem",
    "Scope",
    "WorkloadSpec",
    "another_category",
    "check_pod_classes",
    "form_pointer",
    "read_count",
    "read_form",
    "read_json",
    "read_native",
    "read_object",
    "read_yaml",
]
