"""Accepting workloads. The request never waits for a cluster: a worker applies the row, or the sweep finds it."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from clusters.models import NodePool
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from portal.core.marks import Kept, Moved, confirmed, marks_now, steady
from scheduling.priority import (
    EXPLICIT_PREEMPTIBILITY,
    EXPLICIT_PRIORITY,
    LABEL_PREEMPTIBILITY,
    LABEL_PRIORITY,
    Effective,
    Refusal,
    resolve,
)
from tenants.models import Project
from tenants.permissions import Verb, require
from workloads.admission import (
    pick_pool,
    pools_for,
    refuse_over_cap,
    refuse_unenforceable,
    refuse_unserved,
)
from workloads.compliance import refuse_noncompliant
from workloads.enqueue import wake_apply
from workloads.gang_room import refuse_larger_gang
from workloads.intake import WorkloadSpec
from workloads.models import EventType, Workload, WorkloadEvent, WorkloadType
from workloads.placing import refuse_left_alone, refuse_placing
from workloads.policies import policy_for
from workloads.policy_rules import defaults_in
from workloads.resolution import current_dictionary, current_rows, defaults_of
from workloads.services.denials import verb
from workloads.services.idempotency import Ticket, keep, replay, ticket_for
from workloads.services.moves import entry

POINTERS: Final = {
    EXPLICIT_PRIORITY: "/priority",
    EXPLICIT_PREEMPTIBILITY: "/preemptibility",
    LABEL_PRIORITY: "/metadata/labels/priorityClassName",
    LABEL_PREEMPTIBILITY: "/metadata/labels/kai.scheduler~1preemptibility",
}


def submit(
    *, spec: WorkloadSpec, project: Project, actor: Actor, raw: Mapping[str, Any] | None = None, key: str | None = None
) -> Workload:
    """Accept one workload; the same key replays its answer. Refused or Conflict with problems, and nothing stored."""
    return submit_all(specs=[spec], project=project, actor=actor, raws=[raw or {}], key=key)[0]


def submit_all(
    *,
    specs: Sequence[WorkloadSpec],
    project: Project,
    actor: Actor,
    raws: Sequence[Mapping[str, Any]] = (),
    key: str | None = None,
) -> list[Workload]:
    """Accept every document of a file, or none of them.

    1. replay the answer if the key was seen with the same spec
    2. resolve priority and preemptibility, with sources and discarded values
    3. check type, pools, caps and quota; a refusal leaves one audit record and nothing else
    4. write workload, first event, audit record and key, and wake a worker after the commit

    Within a `steady` it is decided by the marks of that, and decided anew where they have moved until it is written; a
    refusal says what held when they were read.
    """
    tickets = _tickets(specs, project, actor, key)
    together = list(zip(specs, _padded(raws, len(specs)), tickets, strict=True))
    try:
        if marks_now() is not None:
            with suppress(Moved):
                return _accept_all(together, project, actor, confirmed)
        return _accept_all(together, project, actor, steady)
    except IntegrityError:
        return _after_race(specs, project, actor, tickets)


def _accept_all(
    together: Sequence[tuple[WorkloadSpec, Mapping[str, Any], Ticket | None]],
    project: Project,
    actor: Actor,
    marked: Callable[[], AbstractContextManager[object]],
) -> list[Workload]:
    """`marked`: by marks that were read already, which raises `Moved` when they hold no longer; or by new ones."""
    names = ", ".join(spec.name for spec, _, _ in together)[:254]
    scope = {"entity_type": "workload", "entity_name": names, "project_id": str(project.pk)}
    with verb(actor=actor, action="workload.submit", **scope), marked():
        require(actor, Verb.SUBMIT, project=project)
        return [replay(ticket) or _accept(spec, project, actor, raw, ticket) for spec, raw, ticket in together]


def resolve_for(spec: WorkloadSpec, project: Project) -> Effective:
    """The effective pair for this spec, with sources. Refused where nothing may be resolved."""
    effective = _resolved(spec, type_of(spec), project)
    refuse_unenforceable(effective, project)
    return effective


def type_of(spec: WorkloadSpec) -> WorkloadType:
    """The type's row with its category and priority."""
    return type_named(spec.type_name)


def type_named(name: str) -> WorkloadType:
    """The row of a type by its name."""
    if (found := _types.of("", _read_types).get(name)) is None:
        raise Refused.at("/kind", "type_unknown", f"There is no workload type {name[:63]!r}.")
    return found


def category_of(type_: WorkloadType) -> str:
    """Build, Train, Deploy or another of the dictionary; empty for a type without one."""
    return type_.category.name if type_.category else ""


_types: Final = Kept[Mapping[str, WorkloadType]]("rules")


def _read_types() -> Mapping[str, WorkloadType]:
    return {row.name: row for row in WorkloadType.objects.select_related("category", "priority").order_by()}


def _resolved(spec: WorkloadSpec, type_: WorkloadType, project: Project) -> Effective:
    """Policies fill in before the type's defaults do; their rules are checked against what came out."""
    _refuse_withdrawn(type_)
    policy = policy_for(type_.name, project)
    answer = resolve(
        spec.request, defaults=defaults_of(type_), dictionary=current_dictionary(), policy=defaults_in(policy)
    )
    if isinstance(answer, Refusal):
        pointer = POINTERS.get(answer.field, answer.field)
        raise Refused.at(pointer, answer.code, answer.message, allowed=answer.allowed)
    if type_.fixed:
        raise Refused.at("/kind", "not_submittable", f"{type_.title} workloads are not submitted here.")
    refuse_noncompliant(answer, type_, policy)
    return answer


def _refuse_withdrawn(type_: WorkloadType) -> None:
    if type_.withdrawn_at is not None:
        text = f"{type_.title} workloads ({type_.name}) are no longer submitted here: the type was withdrawn."
        raise Refused.at("/kind", "type_withdrawn", text)


def _tickets(specs: Sequence[WorkloadSpec], project: Project, actor: Actor, key: str | None) -> list[Ticket | None]:
    """One per document: the key itself, or with the document's number where there are several."""
    if key is None:
        return [None] * len(specs)
    keys = [key] if len(specs) == 1 else [f"{key}#{number}" for number in range(len(specs))]
    return [
        ticket_for(each, spec.as_json(), project=project, actor=actor) for each, spec in zip(keys, specs, strict=True)
    ]


def _padded(raws: Sequence[Mapping[str, Any]], length: int) -> Sequence[Mapping[str, Any]]:
    return raws or [{}] * length


def _accept(
    spec: WorkloadSpec, project: Project, actor: Actor, raw: Mapping[str, Any], ticket: Ticket | None
) -> Workload:
    type_ = type_of(spec)
    effective = _resolved(spec, type_, project)
    refuse_unenforceable(effective, project)
    refuse_unserved(spec, project)
    refuse_left_alone(spec, project)
    refuse_placing(spec, project)
    refuse_over_cap(spec, effective, project)
    pools = pools_for(spec, project)
    pool = pick_pool(spec, effective, project, pools)
    refuse_larger_gang(spec, project, pools)
    workload = _draft(spec, type_, effective, project, actor)
    workload.priority = current_rows()[effective.priority.name]
    _place(workload, pools, pool)
    workload.raw = dict(raw)
    _write(workload, effective, actor, ticket)
    return workload


def _draft(spec: WorkloadSpec, type_: WorkloadType, effective: Effective, project: Project, actor: Actor) -> Workload:
    """The row with what was asked and what it became."""
    identity, now = uuid.uuid4(), timezone.now()
    final = spec.named(f"{spec.name[:57].rstrip('-')}-{identity.hex[:5]}") if spec.generate_name else spec
    total = spec.total
    return Workload(
        id=identity,
        name=final.name,
        project=project,
        type=type_,
        spec=final.as_json(),
        category=category_of(type_),
        priority_value=effective.priority.value,
        priority_source=effective.priority_source,
        preemptibility=effective.preemptibility,
        preemptibility_source=effective.preemptibility_source,
        discarded=[
            {"field": each.field, "source": each.source, "value": each.value, "because": each.because}
            for each in effective.discarded
        ],
        warnings=_warnings(spec, effective),
        gpu_milli=total.gpu,
        cpu_milli=total.cpu,
        memory_bytes=total.memory,
        pod_count=spec.pods,
        phase_at=now,
        submitted_by=actor.name,
        submitted_by_kind=actor.kind,
        submitted_by_id=actor.id,
        channel=actor.channel,
        created_at=now,
        due_at=now,
    )


def _warnings(spec: WorkloadSpec, effective: Effective) -> list[dict[str, str]]:
    resolved = [{"code": each.code, "message": each.message} for each in effective.warnings]
    return resolved + [{"code": "intake", "message": message} for message in spec.warnings]


def _place(workload: Workload, pools: Sequence[NodePool], pool: NodePool) -> None:
    workload.node_pools = [each.name for each in pools]
    workload.pool_name = pool.name


def _write(workload: Workload, effective: Effective, actor: Actor, ticket: Ticket | None) -> None:
    """The key, the row with the first entry of its timeline, the audit record, and a wake-up after the commit."""
    resolved = {
        "priority": effective.priority.name,
        "value": effective.priority.value,
        "priority_source": str(effective.priority_source),
        "preemptibility": str(effective.preemptibility),
        "preemptibility_source": str(effective.preemptibility_source),
        "discarded": workload.discarded,
    }
    keep(ticket, workload)
    detail = {**resolved, "type": workload.type.name, "gpu_milli": workload.gpu_milli, "pool": workload.pool_name}
    if template := workload.raw.get("templateId"):
        detail["template"] = template
    rows = (workload, _first_entry(workload, effective, resolved, actor))
    record(actor, "workload.submit", workload, *rows, detail=detail, project_id=str(workload.project_id))
    wake_apply(workload.project.cluster_id)


def _first_entry(workload: Workload, effective: Effective, resolved: Mapping[str, Any], actor: Actor) -> WorkloadEvent:
    message = (
        f"Submitted with priority {effective.priority.name} {effective.priority.value} ({effective.priority_source}), "
        f"{effective.preemptibility} ({effective.preemptibility_source})."
    )
    return entry(
        workload=workload,
        at=workload.created_at,
        type_=EventType.ACTION,
        reason="Submitted",
        message=message,
        actor=actor,
        detail=resolved,
    )


def _after_race(
    specs: Sequence[WorkloadSpec], project: Project, actor: Actor, tickets: Sequence[Ticket | None]
) -> list[Workload]:
    """The key or the name is stored already: replay what the key made, or say that the name is taken."""
    with transaction.atomic():
        seen = [replay(ticket) for ticket in tickets]
    found = [workload for workload in seen if workload is not None]
    if len(found) == len(specs):
        return found
    scope = {"entity_type": "workload", "entity_name": specs[0].name, "project_id": str(project.pk)}
    with verb(actor=actor, action="workload.submit", **scope):
        names = [spec.name for spec in specs]
        taken = Workload.objects.filter(project=project, name__in=names, deleted_at__isnull=True).first()
        name = taken.name if taken else names[0]
        message = f"{project.name} has a workload named {name} already."
        raise Conflict.at("/metadata/name", "name_taken", message, name=name)
