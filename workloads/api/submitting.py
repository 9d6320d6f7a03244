"""What every submission over REST shares: the project and manifest it names, its key, the forecast of a rehearsal."""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.attempts import attempt
from portal.core.bodies import REFUSALS, ErrorSchema
from portal.core.errors import BadRequest, Refused, RungError
from portal.core.filtering import flag_in, id_number
from portal.core.http import actor_of
from portal.core.repeats import checked_key
from portal.core.routes import Route, Rule
from tenants.models import Project
from tenants.permissions import Verb, can
from tenants.selectors import project_by_id
from workloads.api.forecasts import ForecastSchema, forecast_json
from workloads.intake import Explicit, WorkloadSpec
from workloads.models import Workload
from workloads.services.preview import forecast
from workloads.services.reading import read_manifest, read_text, refusals, refuse_category
from workloads.services.submission import category_of, submit, type_of

ANSWERS: Final = {409: ErrorSchema, 413: ErrorSchema, 422: ErrorSchema, **REFUSALS}
NATIVE_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "workspaces": frozenset({"Workspace"}),
    "trainings": frozenset({"Training"}),
    "distributed": frozenset({"Distributed"}),
    "inferences": frozenset({"Inference", "NIMInference", "HuggingFaceInference"}),
    "distributed-inferences": frozenset({"DistributedInference"}),
    "nim-services": frozenset({"NIMInference"}),
}
"""By the word in the address: the workload types that are found below it."""


_IN_METADATA: Final[Mapping[str, str]] = {
    "/priority": "/metadata/priority",
    "/preemptibility": "/metadata/preemptibility",
    "/category": "/metadata/category",
}


class RehearsedForecastSchema(ForecastSchema):
    """Beyond Run:ai, with `dryRun=true`: what would happen now. A model on a snapshot, no promise."""

    estimate = serializers.BooleanField(help_text="Always true.")
    flavour = serializers.CharField(help_text="The scheduler that was modelled.")


class Submission(Route):
    """A route that accepts workloads. The service keeps the key beside what it made."""

    access = {"POST": Rule("submit", "project")}
    own_repeats = True

    def accept(self, request: Request, *, spec: WorkloadSpec, project: Project, raw: Mapping[str, Any]) -> Workload:
        """Submit it. In a rehearsal it is taken back before the model is asked, which would see it otherwise."""
        self.foreseen: dict[str, Any] = {}
        actor, key = actor_of(request), key_of(request)
        if not flag_in(request.query_params, "dryRun"):
            return submit(spec=spec, project=project, actor=actor, raw=raw, key=key)
        try:
            with attempt():
                workload = submit(spec=spec, project=project, actor=actor, raw=raw, key=key)
                transaction.set_rollback(True)
        except Refused:
            self.foreseen = _forecast(spec, project, actor, refused=True)
            raise
        self.foreseen = _forecast(spec, project, actor)
        return workload

    def handle_exception(self, exc: Exception) -> Response:
        """A rehearsal's refusal tells what the model says of it, too: what would be better."""
        response = super().handle_exception(exc)
        if isinstance(response.data, dict):
            response.data |= getattr(self, "foreseen", {})
        return response


class BesideAManifest(Route):
    """A route whose body has in `metadata` what is asked for outright."""

    def handle_exception(self, exc: Exception) -> Response:
        """What is refused of it is refused there."""
        told = told_at(exc, lambda each: _IN_METADATA.get(each, each)) if isinstance(exc, RungError) else exc
        return super().handle_exception(told)


def told_at(error: RungError, place: Callable[[str], str]) -> RungError:
    """The same error with the pointers of the body that was sent."""
    problems = [replace(each, pointer=place(each.pointer)) for each in error.problems]
    told = type(error)(error.message, code=error.code, problems=problems, retry_after=error.retry_after)
    told.recorded = error.recorded
    return told


def key_of(request: Request) -> str | None:
    """The idempotency key that was sent, checked."""
    key = request.headers.get("Idempotency-Key")
    return None if key is None else checked_key(key)


def project_named(actor: Actor, project_id: str, cluster_id: object, *, at: str = "") -> Project:
    """The project a body names; one that is absent or foreign is refused alike, at its field below `at`."""
    number = id_number(project_id)
    found = project_by_id(number) if number is not None else None
    if found is None or not can(actor, Verb.VIEW_PROJECT, project=found):
        raise Refused.at(f"{at}/projectId", "unknown_id", "projectId names no project of yours.")
    if cluster_id is not None and str(cluster_id) != str(found.cluster_id):
        raise Refused.at(f"{at}/clusterId", "wrong_cluster", f"{found.name} is on cluster {found.cluster_id}.")
    return found


def read_submitted(
    body: Mapping[str, Any], project: Project, actor: Actor, *, keep: bool = True, workload: Workload | None = None
) -> WorkloadSpec:
    """The one manifest of a body with what its `metadata` asks for outright; `workload` is the one to become it.

    `keep=False`: refusals are not recorded, or by the caller.
    """
    metadata = body["metadata"]
    with refusals(project=project, actor=actor, keep=keep, workload=workload):
        spec = _read(body, project, actor, workload)
        refuse_category(metadata.get("category"), category_of(type_of(spec)))
        return spec


def _read(body: Mapping[str, Any], project: Project, actor: Actor, workload: Workload | None) -> WorkloadSpec:
    metadata = body["metadata"]
    explicit = Explicit(
        metadata.get("priority"),
        metadata.get("preemptibility"),
        name=metadata.get("name"),
        prefix=metadata.get("useGivenNameAsPrefix", False),
    )
    how: dict[str, Any] = {"project": project, "actor": actor, "explicit": explicit, "keep": False}
    if ("manifest" in body) == ("manifestBase64Encoded" in body):
        message = "Exactly one of manifest and manifestBase64Encoded is needed."
        raise BadRequest.at("/manifest", "one_manifest", message)
    if "manifest" in body:
        return read_manifest(manifest=body["manifest"], workload=workload, **how)
    specs = read_text(data=_decoded(body["manifestBase64Encoded"]), workload=workload, **how)
    if len(specs) != 1:
        raise Refused.at("/manifestBase64Encoded", "one_document", f"One document is taken here, not {len(specs)}.")
    return specs[0]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest.at("/manifestBase64Encoded", "not_base64", "This is not Base64.") from None


def _forecast(spec: WorkloadSpec, project: Project, actor: Actor, *, refused: bool = False) -> dict[str, Any]:
    try:
        found = forecast(spec=spec, project=project, actor=actor)
    except RungError:
        if not refused:
            raise
        return {}
    return {"forecast": {**forecast_json(found), "flavour": found.flavour, "estimate": True}}
