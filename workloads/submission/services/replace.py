"""The ways out of a workload that waits: what its preview would offer, tried on the workload as it is, and taken.

Another priority is a change of the workload itself. What describes its pods is never rewritten while there are some:
the workload is replaced by one that says so. It is deleted only after the new one was accepted: a stop in between
leaves both, and no work is lost.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.utils import timezone

from portal.audit.services import audited_transaction
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.resources import MILLI, parse_quantity
from workloads import intake
from workloads.forecast.rules.forecast import Alternative
from workloads.forecast.rules.messages import GIB
from workloads.forecast.selectors.alternatives import is_waiting
from workloads.intake import WorkloadSpec
from workloads.intake.rules.scalars import GPU
from workloads.intake.services import grants_of, refusals
from workloads.lifecycle.services.actions import check_not_fixed, clone_spec, delete, ready
from workloads.state.models import EventType, Workload
from workloads.state.services import audit_entity, note
from workloads.submission.services.submit import submit


def replace_waiting(*, workload: Workload, way: Alternative, actor: Actor) -> Workload:
    """Submit the same with another preemptibility, pool or size, and delete this one. The new one waits from then on.

    Refused as a submission of it would be; Conflict where it no longer waits.

    1. refuse what does not wait, or what the actor may not change
    2. submit, which records its own refusals and so has a transaction of its own
    3. delete the one that waited; had it started in between, the new one goes instead
    """
    with _replacing(workload, actor):
        _check_waiting(workload)
    spec = replacement(workload=workload, way=way, actor=actor)
    made = submit(spec=spec, project=workload.project, actor=actor, raw={"manifest": spec.manifest})
    with _replacing(workload, actor):
        waits = is_waiting(workload)
        if waits:
            _note_replacement(workload, "ReplacedBy", f"Replaced by {made.name}.", actor, made)
            _note_replacement(made, "Replaces", f"It replaces {workload.name}, which waited.", actor, workload)
        delete(workload=workload if waits else made, actor=actor)
    if not waits:
        _check_waiting(workload)
    return made


@contextmanager
def _replacing(workload: Workload, actor: Actor) -> Iterator[None]:
    with audited_transaction(actor=actor, action="workload.replace", **audit_entity(workload)):
        ready(workload, actor)
        check_not_fixed(workload, "replaced")
        yield


def _check_waiting(workload: Workload) -> None:
    if not is_waiting(workload):
        message = f"{workload.name} is {workload.phase} and no longer waits: it was left as it is."
        raise Conflict(message, code="not_waiting")


def _note_replacement(workload: Workload, reason: str, message: str, actor: Actor, other: Workload) -> None:
    now, detail = timezone.now(), {"workload": str(other.pk)}
    note(workload=workload, at=now, type_=EventType.ACTION, reason=reason, message=message, actor=actor, detail=detail)


def replacement(*, workload: Workload, way: Alternative, actor: Actor) -> WorkloadSpec:
    """What is submitted in its place: a free name that begins with its own, its priority, and what the way changes."""
    spec = clone_spec(workload=workload, actor=actor)
    request = replace(
        spec.request,
        explicit_priority=workload.priority.name,
        explicit_preemptibility=way.preemptibility or workload.preemptibility,
    )
    if way.resizes:
        spec = _resized(spec, way, workload, actor)
    pools = (way.pool, *(each for each in spec.node_pools if each != way.pool)) if way.pool else spec.node_pools
    name = workload.name[:50].rstrip("-.")
    return replace(spec.named(name), generate_name=True, request=request, node_pools=pools)


def _resized(spec: WorkloadSpec, way: Alternative, workload: Workload, actor: Actor) -> WorkloadSpec:
    most = {
        name: amount
        for name, amount in ((GPU, way.gpus_per_pod), ("cpu", way.cpus_per_pod), ("memory", way.gib_per_pod))
        if amount
    }
    with refusals(project=workload.project, actor=actor, workload=workload):
        manifest = _clamped(spec.manifest, most)
        found = intake.read_object(manifest, scope=grants_of(workload.project), type_name=spec.type_name)
    limits = (most.get(GPU, 0) * MILLI, most.get("cpu", 0) * MILLI, most.get("memory", 0) * GIB)
    amounts = [(each.requests.gpu, each.requests.cpu, each.requests.memory) for each in found.roles]
    if any(limit and part > limit for each in amounts for part, limit in zip(each, limits, strict=True)):
        message = "Several containers of a pod share what it asks for: change their sizes in a clone of it."
        raise ValidationFailed.at("/gpus", "shared_by_containers", message)
    return replace(spec, manifest=found.manifest, roles=found.roles, min_member=found.min_member)


def _clamped(value: Any, most: Mapping[str, int]) -> Any:
    """The same with no container above these amounts: devices, cores, GiB."""
    if isinstance(value, list):
        return [_clamped(each, most) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _sides(part, most) if name == "resources" else _clamped(part, most) for name, part in value.items()}


def _sides(resources: Any, most: Mapping[str, int]) -> Any:
    if not isinstance(resources, dict):
        return resources
    return {
        side: {name: _at_most(name, amount, most) for name, amount in amounts.items()}
        if side in {"limits", "requests"} and isinstance(amounts, dict)
        else amounts
        for side, amounts in resources.items()
    }


def _at_most(name: str, amount: Any, most: Mapping[str, int]) -> Any:
    bound = most.get(name)
    if bound is None or parse_quantity(str(amount)) <= bound * (GIB if name == "memory" else 1):
        return amount
    return f"{bound}Gi" if name == "memory" else str(bound)
