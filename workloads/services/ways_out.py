"""The ways out of a workload that waits: what its preview would offer, tried on the workload as it is, and taken.

Another priority is a change of the workload itself. What describes its pods is never rewritten while there are some:
the workload is replaced by one that says so. It is deleted only after the new one was accepted: a stop in between
leaves both, and no work is lost.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.utils import timezone

from clusters.models import NodePool
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from portal.core.marks import Kept, steady
from scheduling.cycle import FLAVOURS, preview
from scheduling.decisions import Kind
from scheduling.priority import Preemptibility
from scheduling.resources import DIMENSIONS, MILLI, parse_quantity
from workloads import intake
from workloads.forecasts import Alternative
from workloads.intake import WorkloadSpec
from workloads.intake.resources import GPU
from workloads.lifecycle import WAITING
from workloads.models import DesiredPhase, EventType, Phase, Workload
from workloads.permissions import may_manage
from workloads.policies import policy_for
from workloads.quota_hold import quota_hold_for
from workloads.resolution import effective_as, level_of
from workloads.selectors.waiting import state_of
from workloads.sentences import GIB
from workloads.services.alternatives import Trial, alternatives
from workloads.services.denials import verb
from workloads.services.lifecycle import clone_spec, delete, entity_of, ready, refuse_fixed
from workloads.services.moves import note
from workloads.services.reading import refusals, scope_of
from workloads.services.submission import submit
from workloads.services.victim_names import named_victims
from workloads.snapshots import groups_of, snapshot_of, wanted_of, workload_of

STALE: Final = timedelta(minutes=5)
# What the model found on a snapshot: the page asks every few seconds, and its answer stays the same meanwhile.
_found: Final = Kept[tuple[Alternative, ...]]("rules")


def ways_out(*, workload: Workload, actor: Actor) -> tuple[Alternative, ...]:
    """Changes with which it would start by the model, for who may change it; none where it starts as it is."""
    if not _waits(workload) or workload.phase != Phase.PENDING or workload.type.fixed:
        return ()
    if not may_manage(actor, workload):
        return ()
    seen = workload.project.cluster.observed_at
    if seen is None or timezone.now() - seen > STALE:
        return ()
    with steady():
        key = (state_of(workload), str(actor.kind), actor.id)
        return _found.of(key, lambda: _tried(workload, actor))


def _waits(workload: Workload) -> bool:
    wanted = workload.desired_phase == DesiredPhase.RUNNING
    return wanted and workload.phase in WAITING and not workload.running_pods


def _tried(workload: Workload, actor: Actor) -> tuple[Alternative, ...]:
    cluster, flavour = workload.project.cluster, workload.project.cluster.flavour
    pool = NodePool.objects.filter(cluster=cluster, name=workload.pool_name).first()
    if pool is None or flavour not in FLAVOURS:
        return ()
    observed, _at = snapshot_of(cluster)
    others = (each for each in observed.groups if workload_of(each.name) != str(workload.pk))
    snapshot = replace(observed, groups=tuple(others))
    wanted = wanted_of(workload, pool)
    outcome = preview(snapshot, *groups_of(wanted, flavour), flavour=flavour)
    if outcome.kind is not Kind.PENDING and not quota_hold_for(wanted):
        return ()
    short = outcome.pend.short if outcome.pend else ()
    spec = WorkloadSpec.from_json(workload.spec)
    trial = Trial(
        spec=spec,
        effective=effective_as(workload, level_of(workload.priority), Preemptibility(workload.preemptibility)),
        project=workload.project,
        pool=pool,
        snapshot=snapshot,
        now=workload.created_at,
        policy=policy_for(spec.type_name, workload.project),
        short=tuple(name for name in DIMENSIONS if name in short),
        named=partial(named_victims, cluster, actor, timezone.now()),
    )
    return tuple(alternatives(trial))


def replace_waiting(*, workload: Workload, way: Alternative, actor: Actor) -> Workload:
    """Submit the same with another preemptibility, pool or size, and delete this one. The new one waits from then on.

    Refused as a submission of it would be; Conflict where it no longer waits.

    1. refuse what does not wait, or what the actor may not change
    2. submit, which records its own refusals and so has a transaction of its own
    3. delete the one that waited; had it started in between, the new one goes instead
    """
    with _replacing(workload, actor):
        _refuse_not_waiting(workload)
    spec = replacement(workload=workload, way=way, actor=actor)
    made = submit(spec=spec, project=workload.project, actor=actor, raw={"manifest": spec.manifest})
    with _replacing(workload, actor):
        waits = _waits(workload)
        if waits:
            _tell(workload, "ReplacedBy", f"Replaced by {made.name}.", actor, made)
            _tell(made, "Replaces", f"It replaces {workload.name}, which waited.", actor, workload)
        delete(workload=workload if waits else made, actor=actor)
    if not waits:
        _refuse_not_waiting(workload)
    return made


@contextmanager
def _replacing(workload: Workload, actor: Actor) -> Iterator[None]:
    with verb(actor=actor, action="workload.replace", **entity_of(workload)):
        ready(workload, actor)
        refuse_fixed(workload, "replaced")
        yield


def _refuse_not_waiting(workload: Workload) -> None:
    if not _waits(workload):
        message = f"{workload.name} is {workload.phase} and no longer waits: it was left as it is."
        raise Conflict(message, code="not_waiting")


def _tell(workload: Workload, reason: str, message: str, actor: Actor, other: Workload) -> None:
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
        found = intake.read_object(manifest, scope=scope_of(workload.project), type_name=spec.type_name)
    limits = (most.get(GPU, 0) * MILLI, most.get("cpu", 0) * MILLI, most.get("memory", 0) * GIB)
    amounts = [(each.requests.gpu, each.requests.cpu, each.requests.memory) for each in found.roles]
    if any(limit and part > limit for each in amounts for part, limit in zip(each, limits, strict=True)):
        message = "Several containers of a pod share what it asks for: change their sizes in a clone of it."
        raise Refused.at("/gpus", "shared_by_containers", message)
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
