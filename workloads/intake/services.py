"""Reads tenant input for a project: what a form, a text or an API body asks for becomes specs, or a recorded refusal.

Every door calls these verbs, so scope, error shape and the audit of refusals are the same everywhere.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from django.conf import settings

from portal.audit.services import record_refusals
from portal.kit.errors import BadRequest, PayloadTooLarge, Problem, RungError, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.strict_yaml import documents_from_yaml
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.organisation.models import Project
from workloads import intake
from workloads.dictionary.selectors import category_names, current_dictionary
from workloads.intake import (
    Explicit,
    FormFields,
    IntakeRefused,
    NativeBody,
    ProjectGrants,
    ReadSpec,
    SpecRefused,
    WorkloadSpec,
)
from workloads.intake.rules.manifests import DEFAULT_LIMITS
from workloads.intake.rules.native.reader import COUNTS
from workloads.state.models import Workload
from workloads.state.selectors.workloads import require_manage
from workloads.state.services import audit_entity


class SubmissionRefused(ValidationFailed):
    """A submission with refused fields. `read` is the rest of it, to be checked before the refusal is answered."""

    read: ReadSpec | None = None


NOTHING_EXPLICIT = Explicit()
_ERRORS: Mapping[int, type[RungError]] = {400: BadRequest, 413: PayloadTooLarge, 422: ValidationFailed}


def grants_of(project: Project | None) -> ProjectGrants:
    """What the project's people may write; without one, what holds for all of them."""
    return ProjectGrants(
        namespace=project.namespace if project else "",
        priorities=current_dictionary(),
        categories=category_names(),
        allowed_registries=tuple(settings.RUNG_IMAGE_REGISTRIES),
        secrets=tuple(settings.RUNG_PROJECT_SECRETS),
    )


def read_text(
    *,
    data: bytes,
    project: Project,
    actor: Actor,
    explicit: Explicit = NOTHING_EXPLICIT,
    keep: bool = True,
    workload: Workload | None = None,
) -> tuple[WorkloadSpec, ...]:
    """Every workload of a YAML text (JSON is YAML), all or none. `keep=False`: a live check, refusals unrecorded.

    Here and below, `workload`: the one that is to become what is read.
    """
    with refusals(project=project, actor=actor, keep=keep, workload=workload):
        return intake.read_yaml(data, scope=grants_of(project), explicit=explicit)


def read_fields(*, fields: FormFields, project: Project, actor: Actor, keep: bool = True) -> WorkloadSpec:
    """The workload of a filled form."""
    with refusals(project=project, actor=actor, keep=keep):
        return intake.read_form(fields, scope=grants_of(project))


def read_manifest(
    *,
    manifest: Mapping[str, Any],
    project: Project,
    actor: Actor,
    explicit: Explicit = NOTHING_EXPLICIT,
    keep: bool = True,
    workload: Workload | None = None,
) -> WorkloadSpec:
    """The workload of an already parsed object."""
    with refusals(project=project, actor=actor, keep=keep, workload=workload):
        return intake.read_object(manifest, scope=grants_of(project), explicit=explicit)


def read_document(data: bytes) -> dict[str, Any]:
    """The one object of a YAML text that was accepted, as it was sent."""
    (document,) = documents_from_yaml(data, DEFAULT_LIMITS)
    return dict(document.value)


def read_native_body(
    *, native: NativeBody, project: Project, actor: Actor, workload: Workload | None = None
) -> WorkloadSpec:
    """The workload of a native submission; pointers are those of its own body."""
    with refusals(project=project, actor=actor, workload=workload):
        return intake.read_native(native, scope=grants_of(project))


def read_scaled(
    *, workload: Workload, kind: str, spec: Mapping[str, Any], actor: Actor
) -> tuple[WorkloadSpec, Mapping[str, Any]]:
    """A workload that came by another door than its kind's, with as many replicas as these native fields say.

    Beside it: what was sent for it, saying the same.
    """
    before = WorkloadSpec.from_json(workload.spec)
    with refusals(project=workload.project, actor=actor, workload=workload):
        count = intake.read_count(kind, spec)
        manifest = {**before.manifest, "spec": {**before.manifest["spec"], "replicas": count}}
        found = intake.read_object(manifest, scope=grants_of(workload.project), type_name=before.type_name)
    scaled = replace(found, request=before.request, node_pools=before.node_pools, source=before.source)
    return scaled, workload.raw if found.manifest == before.manifest else _counted(workload.raw, count)


def _counted(raw: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    """Without a `spec` it says nothing of replicas."""
    if not isinstance(raw.get("spec"), dict):
        return raw
    others = {name: value for name, value in raw["spec"].items() if name not in COUNTS}
    return {**raw, "spec": {**others, "replicas": count}}


@contextmanager
def refusals(*, project: Project, actor: Actor, keep: bool = True, workload: Workload | None = None) -> Iterator[None]:
    """What intake refuses becomes an error of the one tree, and every "no" a record, unless `keep` says otherwise.

    Only people who may submit here are read at all; with `workload`, only those who may change that one.
    """
    with _recorded(project, actor, workload) if keep else nullcontext():
        if workload is None:
            require(actor, Permission.SUBMIT, project=project)
        else:
            require_manage(actor, workload)
        try:
            yield
        except IntakeRefused as refusal:
            raise as_rung_error(refusal) from None


def _recorded(project: Project, actor: Actor, workload: Workload | None) -> AbstractContextManager[None]:
    if workload is not None:
        return record_refusals(actor=actor, action="workload.change", **audit_entity(workload))
    return record_refusals(
        actor=actor, action="workload.submit", entity_type="workload", entity_name="", project_id=str(project.pk)
    )


def as_rung_error(refusal: IntakeRefused) -> RungError:
    """The same status, pointers, lines and codes."""
    problems = [
        Problem(each.pointer, each.code, each.message, allowed=each.allowed, line=each.line)
        for each in refusal.problems
    ]
    if not isinstance(refusal, SpecRefused):
        return _ERRORS[refusal.status](str(refusal), code=problems[0].code, problems=problems)
    error = SubmissionRefused(str(refusal), code=problems[0].code, problems=problems)
    error.read = refusal.read
    return error
