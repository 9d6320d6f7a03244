"""Reads tenant input for a project: what a form, a text or an API body asks for becomes specs, or a recorded refusal.

Every door calls these verbs, so scope, error shape and the audit of refusals are the same everywhere.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.conf import settings

from portal.audit.services import record_refusal
from portal.core.actors import Actor
from portal.core.errors import BadRequest, Problem, Refused, RungError, TooLarge
from tenants.models import Project
from tenants.permissions import Verb, require
from workloads import intake
from workloads.intake import Explicit, FormFields, IntakeRefused, Native, Scope, WorkloadSpec
from workloads.models import Workload

NOTHING_EXPLICIT = Explicit()
_ERRORS: Mapping[int, type[RungError]] = {400: BadRequest, 413: TooLarge, 422: Refused}


def scope_of(project: Project) -> Scope:
    """What the project's people may write."""
    return Scope(
        namespace=project.namespace,
        allowed_registries=tuple(settings.RUNG_IMAGE_REGISTRIES),
        secrets=tuple(settings.RUNG_PROJECT_SECRETS),
    )


def read_text(
    *, data: bytes, project: Project, actor: Actor, explicit: Explicit = NOTHING_EXPLICIT, keep: bool = True
) -> tuple[WorkloadSpec, ...]:
    """Every workload of a YAML text (JSON is YAML), all or none. `keep=False`: a live check, refusals unrecorded."""
    with refusals(project=project, actor=actor, keep=keep):
        return intake.read_yaml(data, scope=scope_of(project), explicit=explicit)


def read_fields(*, fields: FormFields, project: Project, actor: Actor, keep: bool = True) -> WorkloadSpec:
    """The workload of a filled form."""
    with refusals(project=project, actor=actor, keep=keep):
        return intake.read_form(fields, scope=scope_of(project))


def read_manifest(
    *, manifest: Mapping[str, Any], project: Project, actor: Actor, explicit: Explicit = NOTHING_EXPLICIT
) -> WorkloadSpec:
    """The workload of an already parsed object."""
    with refusals(project=project, actor=actor):
        return intake.read_object(manifest, scope=scope_of(project), explicit=explicit)


def read_native_body(*, native: Native, project: Project, actor: Actor) -> WorkloadSpec:
    """The workload of a native submission; pointers are those of its own body."""
    with refusals(project=project, actor=actor):
        return intake.read_native(native, scope=scope_of(project))


def read_scaled(*, workload: Workload, kind: str, spec: Mapping[str, Any], actor: Actor) -> WorkloadSpec:
    """A workload that came by another door than its kind's, with as many replicas as these native fields say."""
    before = WorkloadSpec.from_json(workload.spec)
    with refusals(project=workload.project, actor=actor):
        count = intake.read_count(kind, spec)
        manifest = {**before.manifest, "spec": {**before.manifest["spec"], "replicas": count}}
        found = intake.read_object(manifest, scope=scope_of(workload.project), type_name=before.type_name)
    return replace(found, request=before.request, node_pools=before.node_pools, source=before.source)


@contextmanager
def refusals(*, project: Project, actor: Actor, keep: bool = True) -> Iterator[None]:
    """Only people who may submit here are read at all; what intake refuses becomes an error of the one tree."""
    require(actor, Verb.SUBMIT, project=project)
    try:
        yield
    except IntakeRefused as refusal:
        error = as_rung_error(refusal)
        if keep:
            record_refusal(actor, "workload.submit", error, entity_type="workload", project_id=str(project.pk))
        raise error from None


def as_rung_error(refusal: IntakeRefused) -> RungError:
    """The same status, pointers, lines and codes."""
    problems = [
        Problem(each.pointer, each.code, each.message, allowed=each.allowed, line=each.line)
        for each in refusal.problems
    ]
    return _ERRORS[refusal.status](str(refusal), code=problems[0].code, problems=problems)
