"""Accept workloads, each idempotency key once. A worker applies the row later, or the sweep does.

Scope: project, subject, key. The key is stored in the transaction of what it made, so it exists exactly when that
does; two at once are separated by the unique constraint, and the loser replays the winner's answer.

The ways out of a workload that waits: what its preview would offer, tried on the workload as it is, and taken.

Another priority is a change of the workload itself. What describes its pods is never rewritten while there are some:
the workload is replaced by one that says so. It is deleted only after the new one was accepted: a stop in between
leaves both, and no work is lost.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from clusters.inventory.models import NodePool
from portal.audit.services import audited_transaction, record
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import BadRequest, Conflict, RungError, ValidationFailed
from portal.kit.pages.formatting import source_text
from portal.kit.security.actors import Actor
from scheduling.model.resources import MILLI, parse_quantity
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.organisation.models import Project
from workloads import intake
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.rules.resolution import Effective
from workloads.dictionary.selectors import category_of, current_rows
from workloads.forecast.rules.forecast import Alternative
from workloads.forecast.rules.messages import GIB
from workloads.forecast.selectors.alternatives import is_waiting
from workloads.intake import WorkloadSpec
from workloads.intake.rules.scalars import GPU
from workloads.intake.services import grants_of, refusals
from workloads.lifecycle.services.actions import check_not_fixed, clone_spec, delete, ready
from workloads.policies.services import effective_pair, type_of
from workloads.state.models import EventType, IdempotencyKey, Workload, WorkloadEvent
from workloads.state.services import audit_entity, note, notify_apply
from workloads.submission.selectors import checked

LONGEST: Final = 200
KEPT: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A key as it is stored: whose, where, and a fingerprint of what it was sent with."""

    project: Project
    subject: str
    key: str
    fingerprint: str


def ticket_for(key: str, payload: Mapping[str, Any], *, project: Project, actor: Actor) -> Ticket:
    """Check the key. BadRequest when it is empty, longer than 200 characters or not printable ASCII."""
    if not (0 < len(key) <= LONGEST and key.isascii() and key.isprintable()):
        message = f"An idempotency key must have 1 to {LONGEST} printable ASCII characters."
        raise BadRequest(message, code="idempotency_key")
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), default=str)
    fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Ticket(project, f"{actor.kind}:{actor.id}", key, fingerprint)


def replay(ticket: Ticket | None) -> Workload | None:
    """The workload this key made before; None when it is new. Refused when it came with another payload."""
    if ticket is None:
        return None
    rows = IdempotencyKey.objects.select_related("workload__type", "workload__priority", "workload__project")
    seen = rows.filter(project=ticket.project, subject=ticket.subject, key=ticket.key).first()
    if seen is None:
        return None
    if seen.fingerprint != ticket.fingerprint:
        message = "This idempotency key was already used with a different payload."
        raise ValidationFailed.at("", "idempotency_mismatch", message, key=ticket.key)
    seen.workload.replayed = True
    return seen.workload


def keep(ticket: Ticket | None, workload: Workload) -> None:
    """Store the key beside the workload it made."""
    if ticket is not None:
        IdempotencyKey.objects.create(
            project=ticket.project,
            subject=ticket.subject,
            key=ticket.key,
            fingerprint=ticket.fingerprint,
            workload=workload,
            created_at=workload.created_at,
        )


def forget_old() -> int:
    """Drop keys older than a week; answers how many."""
    return IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEPT).delete()[0]


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
    """
    tickets = _tickets(specs, project, actor, key)
    together = list(zip(specs, _padded(raws, len(specs)), tickets, strict=True))
    try:
        return _accept_all(together, project, actor)
    except IntegrityError:
        return _after_race(specs, project, actor, tickets)


def _accept_all(
    together: Sequence[tuple[WorkloadSpec, Mapping[str, Any], Ticket | None]],
    project: Project,
    actor: Actor,
) -> list[Workload]:
    names = ", ".join(spec.name for spec, _, _ in together)[:254]
    scope = {"entity_type": "workload", "entity_name": names, "project_id": str(project.pk)}
    with audited_transaction(actor=actor, action="workload.submit", **scope), cached_reads():
        require(actor, Permission.SUBMIT, project=project)
        return [replay(ticket) or _accept(spec, project, actor, raw, ticket) for spec, raw, ticket in together]


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
    effective, pools, pool = checked(spec, type_, project)
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
        classification=spec.classification or category_of(type_),
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
    """The row with the first entry of its timeline, the key, the audit record, and a wake-up after the commit."""
    resolved = {
        "priority": effective.priority.name,
        "value": effective.priority.value,
        "priority_source": str(effective.priority_source),
        "preemptibility": str(effective.preemptibility),
        "preemptibility_source": str(effective.preemptibility_source),
        "discarded": workload.discarded,
    }
    workload.save(force_insert=True)
    _note_submission(workload, effective, resolved, actor)
    keep(ticket, workload)
    detail = {**resolved, "type": workload.type.name, "gpu_milli": workload.gpu_milli, "pool": workload.pool_name}
    if template := workload.raw.get("templateId"):
        detail["template"] = template
    record(actor, "workload.submit", workload, detail=detail, project_id=str(workload.project_id))
    notify_apply(workload.project.cluster_id)


def _note_submission(workload: Workload, effective: Effective, resolved: Mapping[str, Any], actor: Actor) -> None:
    name, value = effective.priority.name, effective.priority.value
    sources = (effective.priority_source, effective.preemptibility_source)
    why, so = (source_text(each, workload.type.title, value) for each in sources)
    message = f"Submitted with priority {name} {value} ({why}), {effective.preemptibility} ({so})."
    submitted = note(
        workload=workload,
        at=workload.created_at,
        type_=EventType.ACTION,
        reason="Submitted",
        message=message,
        actor=actor,
        detail=resolved,
        store=False,
    )
    creating = note(workload=workload, at=workload.created_at, type_=EventType.PHASE, store=False)
    WorkloadEvent.objects.bulk_create([submitted, creating])


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
    with audited_transaction(actor=actor, action="workload.submit", **scope):
        check_names(specs, project)
        raise _name_taken(project, specs[0].name)


def check_names(specs: Sequence[WorkloadSpec], project: Project) -> None:
    """Conflict where a workload of the project has one of the names. Prefixes that submission completes are free."""
    names = [spec.name for spec in specs if not spec.generate_name]
    if taken := Workload.objects.filter(project=project, name__in=names, deleted_at__isnull=True).first():
        raise _name_taken(project, taken.name)


def _name_taken(project: Project, name: str) -> RungError:
    message = f"{project.name} already has a workload named {name}."
    return Conflict.at("/metadata/name", "name_taken", message, name=name)


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
            _note_replacement(made, "Replaces", f"Replaces the waiting workload {workload.name}.", actor, workload)
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
        message = f"{workload.name} is {workload.phase} and no longer waiting. Nothing was changed."
        raise Conflict(message, code="not_waiting")


def _note_replacement(workload: Workload, reason: str, message: str, actor: Actor, other: Workload) -> None:
    now, detail = timezone.now(), {"workload": str(other.pk)}
    note(workload=workload, at=now, type_=EventType.ACTION, reason=reason, message=message, actor=actor, detail=detail)


def replacement(*, workload: Workload, way: Alternative, actor: Actor) -> WorkloadSpec:
    """What is submitted in its place: a free name that begins with its own, its priority, and what the way changes.

    Its defaults stay defaults, unless they would give another priority or preemptibility now.
    """
    spec = clone_spec(workload=workload, actor=actor)
    wanted = way.preemptibility or workload.preemptibility
    request = replace(spec.request, explicit_preemptibility=wanted) if way.preemptibility else spec.request
    now = effective_pair(request, type_of(spec), workload.project)
    if (now.priority.name, str(now.preemptibility)) != (workload.priority.name, wanted):
        request = replace(request, explicit_priority=workload.priority.name, explicit_preemptibility=wanted)
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
        message = "The pod has several containers. Change their sizes in a clone."
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
