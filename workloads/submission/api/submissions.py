"""What every submission over REST shares: project, template, idempotency key, forecast of a dry run."""

import base64
import binascii
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import flag_in, id_number
from portal.kit.api.routes import REPLAYED_HEADER, Route, RoutePermission, validate_idempotency_key
from portal.kit.api.serializers import ERROR_RESPONSES, ErrorSchema, validated_body
from portal.kit.db.transactions import rollback_scope
from portal.kit.errors import BadRequest, Conflict, Problem, RungError, ValidationFailed, raise_with
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import can
from tenants.organisation.models import Project
from tenants.organisation.selectors import project_by_id
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.serializers import forecast_json, requested_json
from workloads.forecast.services.storage import count_forecast, store
from workloads.intake import Explicit, ReadSpec, WorkloadSpec
from workloads.intake.services import read_document, read_manifest, read_text, refusals
from workloads.state.models import Workload
from workloads.submission.selectors import check_rest, naming_rest
from workloads.submission.services import submit
from workloads.workload_templates.rules import ValueSources
from workloads.workload_templates.services import fill_from_template

ANSWERS: Final = {409: ErrorSchema, 413: ErrorSchema, 422: ErrorSchema, **ERROR_RESPONSES}
NATIVE_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "workspaces": frozenset({"Workspace"}),
    "trainings": frozenset({"Training"}),
    "distributed": frozenset({"Distributed"}),
    "inferences": frozenset({"Inference", "NIMInference", "HuggingFaceInference"}),
    "distributed-inferences": frozenset({"DistributedInference"}),
    "nim-services": frozenset({"NIMInference"}),
}
"""By the word in the address: the workload types that are found below it."""


PLACEHOLDER: Final = "unnamed"
"""In place of a name that is refused already."""
Body = Mapping[str, Any]
_IN_METADATA: Final[Mapping[str, str]] = {
    "/priority": "/metadata/priority",
    "/preemptibility": "/metadata/preemptibility",
    "/category": "/metadata/category",
}


class Submission(Route):
    """A route that accepts workloads. The service keeps the key beside what it made."""

    access = {"POST": RoutePermission("submit", "project")}
    own_repeats = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.replayed = False
        self.forecast_body: dict[str, Any] = {}
        """What the answer to a dry run says beside the result: the forecast. A replay has none: nothing would start."""
        self._store: Callable[[], None] | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Count the forecast of a dry run before the transaction that is rolled back."""
        super().initial(request, *args, **kwargs)
        if _is_dry_run(request):
            count_forecast(actor_of(request))

    def accept(self, request: Request, *, spec: WorkloadSpec, project: Project, raw: Mapping[str, Any]) -> Workload:
        """Submit it. In a dry run it is rolled back before the model is asked, which would see it otherwise."""
        actor, key = actor_of(request), key_of(request) if self.own_repeats else None
        if not _is_dry_run(request):
            workload = submit(spec=spec, project=project, actor=actor, raw=raw, key=key)
            self.replayed = workload.replayed
            return workload
        try:
            with rollback_scope():
                workload = submit(spec=spec, project=project, actor=actor, raw=raw, key=key)
                transaction.set_rollback(True)
        except ValidationFailed:
            with suppress(RungError):
                self._forecast(spec, project, actor)
            raise
        if not workload.replayed:
            self._forecast(spec, project, actor)
        return workload

    def _forecast(self, spec: WorkloadSpec, project: Project, actor: Actor) -> None:
        found = forecast(spec=spec, project=project, actor=actor)
        beside = {"requested": requested_json(spec), "flavour": found.flavour, "estimate": True}
        self.forecast_body = {"forecast": {**forecast_json(found), **beside}}
        self._store = partial(store, found, spec=spec, project=project, actor=actor)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Store the forecast of a dry run, now that the rest is rolled back; name a replay as one."""
        if self._store:
            self._store()
        if self.replayed:
            response.headers[REPLAYED_HEADER] = "true"
        return super().finalize_response(request, response, *args, **kwargs)

    def handle_exception(self, exc: Exception) -> Response:
        """The refusal of a dry run includes the forecast: what would be better."""
        response = super().handle_exception(exc)
        if isinstance(response.data, dict):
            response.data |= self.forecast_body
        return response


def _is_dry_run(request: Request) -> bool:
    return request.method == "POST" and flag_in(request.query_params, "dryRun")


class ManifestRoute(Route):
    """A route whose body has in `metadata` what is asked for outright."""

    def handle_exception(self, exc: Exception) -> Response:
        """What is refused of it is refused there."""
        if not isinstance(exc, RungError):
            return super().handle_exception(exc)
        # A field that the body has beside `metadata` is refused where it was sent.
        unknown = {each.pointer for each in exc.problems if each.code == "unknown_field"}
        moved = {name: place for name, place in _IN_METADATA.items() if name not in unknown}
        return super().handle_exception(relocated_error(exc, lambda each: moved.get(each, each)))


def relocated_error(error: RungError, place: Callable[[str], str]) -> RungError:
    """The same error with the pointers of the body that was sent."""
    problems = [replace(each, pointer=place(each.pointer)) for each in error.problems]
    renamed = type(error)(error.message, code=error.code, problems=problems, retry_after=error.retry_after)
    renamed.recorded = error.recorded
    return renamed


def key_of(request: Request) -> str | None:
    """The idempotency key that was sent, checked."""
    key = request.headers.get("Idempotency-Key")
    return None if key is None else validate_idempotency_key(key)


def names_project(placed: Mapping[str, Any]) -> bool:
    """Without a readable id nothing is said of the project: the body's own refusal names the field."""
    return isinstance(placed.get("projectId"), str | int)


def project_named(actor: Actor, project_id: str, *, at: str = "") -> Project:
    """The project a body names; one that is absent or foreign is refused alike, at its field below `at`."""
    number = id_number(project_id)
    found = project_by_id(number) if number is not None else None
    if found is None or not can(actor, Permission.VIEW_PROJECT, project=found):
        raise ValidationFailed.at(f"{at}/projectId", "unknown_id", "projectId is not one of your projects.")
    return found


def read_on_cluster(
    project: Project,
    cluster_id: object,
    *,
    read: Callable[[], WorkloadSpec],
    check: Callable[[ReadSpec, Project], None],
    at: str = "",
) -> WorkloadSpec:
    """What `read` answers. Another cluster than the project's is refused with all that is refused besides."""
    if cluster_id is not None and str(cluster_id) != str(project.cluster_id):
        message = f"{project.name} is on cluster {project.cluster_id}."
        wrong = ValidationFailed.at(f"{at}/clusterId", "wrong_cluster", message)
        raise_with(wrong, lambda: check(ReadSpec(read()), project))
    return read()


def read_body(schema: type[Any], data: Any, actor: Actor, *, keep: bool = True) -> tuple[Body, Project, WorkloadSpec]:
    """The body of a manifest's submission, its project and its spec. One refusal names all that is wrong with it."""
    try:
        body = validated_body(schema, data)
    except ValidationFailed as error:
        known = {each.pointer for each in error.problems}
        raise_with(error, lambda: _check_manifest(data, known, actor, keep=keep))
    metadata = body["metadata"]
    project = project_named(actor, metadata["projectId"], at="/metadata")
    spec = read_on_cluster(
        project,
        metadata.get("clusterId"),
        read=lambda: read_submitted(body, project, actor, keep=keep),
        check=check_rest,
        at="/metadata",
    )
    return body, project, spec


def _check_manifest(data: Any, known: Container[str], actor: Actor, *, keep: bool) -> None:
    """What else is wrong with a body whose shape is refused at the `known` pointers."""
    metadata = data.get("metadata") if isinstance(data, dict) else None
    if not isinstance(metadata, dict) or not names_project(metadata):
        return
    project = project_named(actor, str(metadata["projectId"]), at="/metadata")
    given = {
        name: data[name]
        for name, type_ in (("manifest", dict), ("manifestBase64Encoded", str))
        if isinstance(data.get(name), type_)
    }
    requested = {at[1:]: metadata.get(at[1:]) for at, place in _IN_METADATA.items() if place not in known}
    if "/metadata/name" in known:  # it replaces that of the manifest
        requested["name"] = PLACEHOLDER
    spec = read_submitted({"metadata": requested, **given}, project, actor, keep=keep)
    check_rest(ReadSpec(spec), project)


def read_submitted(
    body: Mapping[str, Any], project: Project, actor: Actor, *, keep: bool = True, workload: Workload | None = None
) -> WorkloadSpec:
    """The one manifest of a body with what its `metadata` asks for outright; `workload` is the one to become it.

    `keep=False`: refusals are not recorded, or by the caller.
    """
    with (
        nullcontext() if workload else naming_rest(project),
        refusals(project=project, actor=actor, keep=keep, workload=workload),
    ):
        return _read(body, project, actor, workload)


def _read(body: Mapping[str, Any], project: Project, actor: Actor, workload: Workload | None) -> WorkloadSpec:
    metadata = body["metadata"]
    explicit = Explicit(
        metadata.get("priority"),
        metadata.get("preemptibility"),
        metadata.get("category"),
        name=metadata.get("name"),
        prefix=metadata.get("useGivenNameAsPrefix", False),
    )
    how: dict[str, Any] = {"project": project, "actor": actor, "explicit": explicit, "keep": False}
    if ("manifest" in body) == ("manifestBase64Encoded" in body):
        message = "Send exactly one of manifest and manifestBase64Encoded."
        raise BadRequest.at("/manifest", "one_manifest", message)
    if "manifest" in body:
        return read_manifest(manifest=body["manifest"], workload=workload, **how)
    specs = read_text(data=_decoded(body["manifestBase64Encoded"]), workload=workload, **how)
    if len(specs) != 1:
        raise ValidationFailed.at("/manifestBase64Encoded", "one_document", f"Send one document, not {len(specs)}.")
    return specs[0]


def sent_manifest(body: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a body that was read, as it was sent, with its labels."""
    if "manifest" in body:
        return dict(body["manifest"])
    return read_document(_decoded(body["manifestBase64Encoded"]))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest.at("/manifestBase64Encoded", "not_base64", "Not valid Base64.") from None


def from_template(kind: str, body: Body, project: Project) -> dict[str, Any]:
    """What the template makes of the body, to be kept instead of what was sent; empty where it names none."""
    if body.get("templateId") is None:
        return {}
    found = fill_from_template(kind=kind, body=body, template_id=body["templateId"], project=project)
    filled: dict[str, Any] = {"spec": found.spec, "templateSources": dict(found.sources)}
    if kind == "distributed":
        filled |= {"masterSpec": found.master, "masterSpecSameAsWorker": found.master_same}
    return filled


def remaining_sources(sent: Body, changed: Container[str]) -> dict[str, Any]:
    """The sources of what was sent, without those of fields of its `spec` that are another now."""
    if "templateSources" not in sent:
        return {}
    sources: Mapping[str, str] = sent["templateSources"]
    return {"templateSources": {at: who for at, who in sources.items() if at.split("/")[2] not in changed}}


@contextmanager
def naming_sources(filled: Body) -> Iterator[None]:
    """A refused value that was not sent names who said it."""
    try:
        yield
    except (BadRequest, ValidationFailed, Conflict) as error:
        sources = ValueSources(filled.get("templateSources", {}))
        if sources:
            error.problems = tuple(_with_source(each, sources) for each in error.problems)
        raise


def _with_source(problem: Problem, sources: ValueSources) -> Problem:
    source = sources.of(problem.pointer)
    return replace(problem, message=f"{problem.message} Set by {source}.") if source else problem
