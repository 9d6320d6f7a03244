"""The only door for tenant input: form, native fields, JSON, YAML go in, a `WorkloadSpec` comes out, or IntakeRefused.

Allowlist and rebuild, never filter: known fields are taken into a fresh object, everything else is refused at its exact
JSON pointer. Pure: no database, no cluster, no clock.
"""

from portal.kit.security.strict_json import DocumentInvalid as IntakeRefused
from portal.kit.security.strict_json import DocumentProblem, ParseLimits
from workloads.intake.rules.forms import FormFields, form_pointer, read_form
from workloads.intake.rules.manifests import read_json, read_object, read_yaml
from workloads.intake.rules.native.reader import NativeBody, read_count, read_native
from workloads.intake.rules.refused import ReadSpec, SpecRefused
from workloads.intake.rules.spec import PodRole, WorkloadSpec
from workloads.intake.rules.values import Explicit, ProjectGrants

__all__ = [
    "DocumentProblem",
    "Explicit",
    "FormFields",
    "IntakeRefused",
    "NativeBody",
    "ParseLimits",
    "PodRole",
    "ProjectGrants",
    "ReadSpec",
    "SpecRefused",
    "WorkloadSpec",
    "form_pointer",
    "read_count",
    "read_form",
    "read_json",
    "read_native",
    "read_object",
    "read_yaml",
]
