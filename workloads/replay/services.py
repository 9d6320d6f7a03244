"""Start and cancel replays; workers run them, and every step may be repeated.

1. a replay that is due is claimed by compare-and-set: the lease moves `due_at` ahead and counts the try
2. what it is about is read, and both runs are computed in memory; nothing is locked meanwhile
3. every few moments its progress is written under the number of the try, and the lease moves on: a write that changes
   no row means that it was cancelled, or that another worker has taken it over
A replay whose worker died starts again when the lease has run out; one that ends every worker is given up.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db.models import F, QuerySet
from django.utils import timezone

from clusters.connection.services.scheduler_config import eviction_assumption, proposals_of, with_scheduler
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster, NodePool
from portal.audit.services import audited_transaction, record
from portal.kit.api.parsers import csv_text
from portal.kit.errors import Conflict, NotFound, Problem, ValidationFailed
from portal.kit.messaging.publisher import notify_worker
from portal.kit.security.actors import Actor, ActorKind
from scheduling.forecast.replay import ClusterReplay, RecordedSubmission
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Queue, Snapshot
from tenants.organisation.models import Department, Project
from tenants.quotas.models import ProjectQuota
from workloads.dictionary.models import PreemptionPolicy, Priority
from workloads.dictionary.selectors import require_dictionary
from workloads.forecast.selectors.observed_groups import ANY_POOL, namespace_queue
from workloads.forecast.selectors.snapshot import snapshot_after
from workloads.replay.models import Replay, ReplayStatus
from workloads.replay.rules import (
    HEAD,
    MOST_ROWS,
    SECOND,
    TraceMapping,
    TraceRow,
    bounds_of,
    check_period,
    comparison,
    interval_of,
    is_preemptible,
    parse_trace,
    problems_of_proposal,
    sum_of_bounds,
    table_of,
)
from workloads.state.models import Workload

log = structlog.get_logger(__name__)

LEASE: Final = timedelta(minutes=2)
PAUSE: Final = timedelta(seconds=20)
TRIES: Final = 3
KEPT: Final = timedelta(days=30)
LONGEST: Final = timedelta(minutes=8)
"""What takes longer has failed, and says how far it has come."""
TICK: Final = timedelta(seconds=1)
"""How often progress is written."""
RUN: Final = timedelta(seconds=30)
MOST_UNFINISHED: Final = 3
MOMENTS: Final = 20
GRACE, REQUEUE_PAUSE = 30 * SECOND, 1 * SECOND
"""Of evicted pods; of Kueue, before it tries again what it refused (`requeueBatchPeriod` of Kueue 0.19)."""
UNFINISHED: Final = (ReplayStatus.PENDING, ReplayStatus.RUNNING)
MAINTENANCE: Final = "maintenance"
RUN_REPLAY: Final = "workloads.run_replay"
Body = Mapping[str, Any]


class _Stopped(Exception):
    """It was cancelled, or another worker has it."""


def create_replay(*, name: str, cluster: Cluster, body: Body, actor: Actor) -> Replay:
    """Start a replay. Refused at the field, with nothing stored. body: as REST has it, of known fields."""
    with audited_transaction(actor=actor, action="replay.create", entity_type="replay", entity_name=name):
        require_dictionary(actor)
        if actor.kind is ActorKind.SYSTEM:
            raise NotFound
        if not name.strip() or not name.isprintable():
            raise ValidationFailed.at("/name", "bad_name", "A name must be one line of printable characters.")
        _check_proposal(cluster, body)
        rows = _uploaded(cluster, body["trace"]) if body.get("trace") else []
        if not rows:
            check_period(body)
        if Replay.objects.filter(status__in=UNFINISHED).count() >= MOST_UNFINISHED:
            raise Conflict(f"{MOST_UNFINISHED} replays are running. Cancel one, or wait.", code="too_many")
        now = timezone.now()
        request = {key: value for key, value in body.items() if key != "trace"}
        row = Replay(name=name, cluster=cluster, request=request, trace=[each.as_json() for each in rows])
        row.created_at = row.status_at = row.due_at = now
        row.total = 2 * len(rows)
        row.ask(actor)
        row.save(force_insert=True)
        record(actor, "replay.create", row, detail={"cluster": cluster.name, "rows": len(rows), **request})
        notify_worker(RUN_REPLAY, str(row.pk), queue=MAINTENANCE)
    return row


def cancel_replay(*, key: UUID, actor: Actor) -> Replay:
    """Stop it. Conflict where it has ended."""
    with audited_transaction(actor=actor, action="replay.cancel", entity_type="replay", entity_name=str(key)):
        require_dictionary(actor)
        row = replay_of(key=key)
        if _unfinished(row).update(status=ReplayStatus.CANCELLED, status_at=timezone.now(), due_at=None) != 1:
            raise Conflict(f"This replay has ended: {row.status}.", code="ended")
        record(actor, "replay.cancel", row, detail={"done": row.done, "total": row.total})
        row.refresh_from_db()
    return row


def replays() -> QuerySet[Replay]:
    """All, without their rows and files."""
    return Replay.objects.select_related("cluster").defer("trace", "content")


def replay_of(*, key: UUID) -> Replay:
    row = replays().filter(pk=key).first()
    if row is None:
        raise NotFound
    return row


def file_of_replay(*, key: UUID) -> tuple[Replay, str]:
    """The rows of every submission. Conflict until it is ready."""
    row = replay_of(key=key)
    if row.status != ReplayStatus.READY:
        raise Conflict(f"This replay has no result. {row.message or row.status}", code="replay_not_ready")
    return row, row.content


def _check_proposal(cluster: Cluster, body: Body) -> None:
    pools = set(cluster.node_pools.values_list("name", flat=True))
    owners: dict[str, Collection[str]] = {"project": _projects(cluster), "department": _departments(cluster)}
    problems = list(problems_of_proposal(body, known=_values(), owners=owners, pools=pools))
    flavour = FLAVOURS.get(body.get("proposedScheduler") or body.get("scheduler") or cluster.flavour)
    if flavour and (name := body.get("proposedConfiguration")) and name not in (proposals := proposals_of(flavour)):
        text = f"Configurations of {flavour.title} to choose from: {', '.join(proposals) or 'none'}."
        problems.append(Problem("/proposedConfiguration", "unknown", text))
    if flavour and not flavour.traits.queues_by_pool:
        text = f"{flavour.title} has no quotas of departments."
        named = [each.get("department") for each in body.get("quotas") or []]
        problems += [Problem(f"/quotas/{at}/department", "unsupported", text) for at, each in enumerate(named) if each]
    if problems:
        raise ValidationFailed(problems[0].message, code="invalid", problems=problems)


def _uploaded(cluster: Cluster, trace: Body) -> list[TraceRow]:
    projects, known, pool = _projects(cluster), _values(), trace.get("nodePool") or ""
    if pool and not cluster.node_pools.filter(name=pool).exists():
        raise ValidationFailed.at("/trace/nodePool", "unknown", "Not a node pool of this cluster.")
    project, priority = trace.get("project") or "", trace.get("priority") or ""
    if project and project not in projects:
        raise ValidationFailed.at("/trace/project", "unknown", "Not a project of this cluster.")
    if priority and priority not in known:
        raise ValidationFailed.at("/trace/priority", "unknown", f"Not one of {', '.join(sorted(known))}.")
    for theirs, ours in (trace.get("priorities") or {}).items():
        if ours not in known:
            message = f'"{theirs}" is mapped to "{ours}", which is not one of {", ".join(sorted(known))}.'
            raise ValidationFailed.at("/trace/priorities", "unknown", message)
    columns = {ours: theirs for ours, theirs in (trace.get("columns") or {}).items() if theirs}
    mapping = TraceMapping(columns, trace.get("priorities") or {}, project, priority, projects, known)
    return [replace(row, pool=pool) for row in parse_trace(trace["csv"], mapping)]


def _projects(cluster: Cluster) -> dict[str, Project]:
    return {row.name: row for row in Project.objects.filter(cluster=cluster)}


def _departments(cluster: Cluster) -> dict[str, Department]:
    return {row.name: row for row in Department.objects.filter(cluster=cluster)}


def _values() -> dict[str, int]:
    return dict(Priority.objects.values_list("name", "value"))


def sweep() -> int:
    """Run what is due, oldest first; answers how many were taken."""
    began, taken = timezone.now(), 0
    due = Replay.objects.filter(status__in=UNFINISHED, due_at__lte=began).order_by("due_at")
    for key in list(due.values_list("pk", flat=True)[:20]):
        if timezone.now() - began < RUN:
            taken += run(key)
    return taken


def forget_old() -> int:
    """Drop replays that ended long ago; answers how many."""
    ended = Replay.objects.exclude(status__in=UNFINISHED)
    return ended.filter(status_at__lt=timezone.now() - KEPT).delete()[0]


def run(key: UUID | str) -> bool:
    """Run one replay if it is due and no other worker has it. False: nothing to do."""
    now = timezone.now()
    due = Replay.objects.filter(pk=UUID(str(key)), status__in=UNFINISHED, due_at__lte=now)
    lease = {"due_at": now + LEASE, "attempts": F("attempts") + 1, "done": 0}
    if due.update(status=ReplayStatus.RUNNING, status_at=now, **lease) != 1:
        return False
    row = Replay.objects.filter(pk=UUID(str(key))).first()
    if row is not None:
        _try(row)
    return True


def _try(row: Replay) -> None:
    if row.attempts > TRIES:
        _end(row, status=ReplayStatus.FAILED, message="Failed after several attempts. Replay a shorter period.")
        return
    try:
        _run(row)
    except _Stopped:
        log.info("replay.stopped", replay=str(row.pk))
    except Exception:  # retried; after the last try the message names no internal detail
        log.exception("replay.failed", replay=str(row.pk), attempts=row.attempts)
        if row.attempts == TRIES:
            message = "The replay could not be computed. See the operator's log for the cause."
            _end(row, status=ReplayStatus.FAILED, message=message)
        else:
            _mine(row).update(due_at=timezone.now() + PAUSE * row.attempts, status=ReplayStatus.PENDING)


def _run(row: Replay) -> None:
    rows, left_out = ([TraceRow(**each) for each in row.trace], 0) if row.trace else recorded(row)
    if not rows:
        _end(row, status=ReplayStatus.FAILED, message="No submission of this period has run. Choose another period.")
        return
    if len(rows) > MOST_ROWS:
        message = f"{len(rows)} submissions; at most {MOST_ROWS} can be replayed. Choose a shorter period."
        _end(row, status=ReplayStatus.FAILED, message=message)
        return
    if _mine(row).update(total=2 * len(rows)) != 1:
        raise _Stopped
    today = row.request.get("scheduler") or row.cluster.flavour
    proposed = row.request.get("proposedScheduler") or today
    facts = proposals_of(flavour_for(proposed)).get(name := row.request.get("proposedConfiguration") or "")
    models = [with_scheduler(row.cluster, today), with_scheduler(row.cluster, proposed, facts)]
    sides = [replay_on(model, rows, proposal=each) for model, each in zip(models, ({}, row.request), strict=True)]
    if not _advance(row, sides):
        return
    capacity = sum(node.capacity.gpu for node in sides[0][1].nodes if node.ready)
    before, after = (replay for replay, _base in sides)
    result = comparison(rows, before, after, capacity)
    result |= {"scheduler": today, "proposedScheduler": proposed, "leftOut": left_out}
    result["proposedConfiguration"] = name if facts else ""  # another scheduler by now may have none of that name
    result["intervalSeconds"] = max(interval_of(rows, each) for each in (today, proposed))
    result["assumptions"] = list(dict.fromkeys(filter(None, map(eviction_assumption, models))))
    text = csv_text(HEAD, table_of(rows, before.runs, after.runs))
    _end(row, status=ReplayStatus.READY, result=result, content=text, done=2 * len(rows))


def _advance(row: Replay, sides: Sequence[tuple[ClusterReplay, Snapshot]]) -> bool:
    """Run both to their ends, with progress. False: it took too long, and has failed."""
    began = written = timezone.now()
    for replay, _base in sides:
        while replay.advance(MOMENTS):
            now = timezone.now()
            if now - written < TICK:
                continue
            written, done = now, sum(each.ended for each, _ in sides)
            if _mine(row).update(done=done, due_at=now + LEASE) != 1:
                raise _Stopped
            if now - began > LONGEST:
                minutes = int(LONGEST.total_seconds() // 60)
                message = f"Stopped after {minutes} minutes at {100 * done // (2 * len(replay.runs))} %. "
                _end(row, status=ReplayStatus.FAILED, message=message + "Replay a shorter period.", done=done)
                return False
    return True


def _end(row: Replay, **fields: object) -> None:
    if _mine(row).update(due_at=None, status_at=timezone.now(), **fields) != 1:
        raise _Stopped


def _unfinished(row: Replay) -> QuerySet[Replay]:
    return Replay.objects.filter(pk=row.pk, status__in=UNFINISHED)


def _mine(row: Replay) -> QuerySet[Replay]:
    """The row while it is not ended, nor taken over by a later try."""
    return _unfinished(row).filter(attempts=row.attempts)


def recorded(row: Replay) -> tuple[list[TraceRow], int]:
    """The cluster's submissions of the period, in order, and how many are left out because they never ran.

    What still runs counts with its time so far.
    """
    start, end = (datetime.fromisoformat(row.request[name]) for name in ("start", "end"))
    found = Workload.objects.filter(project__cluster=row.cluster, created_at__gte=start, created_at__lt=end)
    now = timezone.now()
    submissions = list(found.select_related("project", "priority").defer("spec", "raw").order_by("created_at", "pk"))
    rows = []
    for each in submissions:
        going = (now - each.phase_at).total_seconds() if each.allocated_gpu_milli or each.phase == "Running" else 0
        if lasted := each.running_seconds + int(max(going, 0)):
            rows.append(_recorded_row(each, lasted, submissions[0].created_at))
    return rows, len(submissions) - len(rows)


def _recorded_row(each: Workload, lasted: int, first: datetime) -> TraceRow:
    workers = max(each.pod_count, 1)
    return TraceRow(
        name=f"{each.project.name}/{each.name} {str(each.pk)[:8]}".replace("/", " "),
        submitted=int((each.created_at - first).total_seconds()),
        duration=lasted,
        gpu=each.gpu_milli // workers,
        workers=workers,
        project=each.project.name,
        priority=each.priority.name,
        preemptible=each.preemptibility != Preemptibility.NON_PREEMPTIBLE,
        pool=each.pool_name or next(iter(each.node_pools), ""),
        cpu=each.cpu_milli // workers,
        memory=each.memory_bytes // workers,
    )


def replay_on(cluster: Cluster, rows: Sequence[TraceRow], *, proposal: Body) -> tuple[ClusterReplay, Snapshot]:
    """The cluster's nodes without pods, and the rows as its scheduler would get them under the proposal."""
    after = snapshot_after(cluster, ())
    base = Snapshot(
        nodes=after.nodes,
        queues=_proposed_queues(cluster, after.queues, proposal.get("quotas") or []),
        strategies=after.strategies,
        exempt=after.exempt,
        fair_sharing=after.fair_sharing,
        levels=after.levels,
    )
    submission = _submissions(cluster, proposal)
    times = {"grace": GRACE, "interval": interval_of(rows, cluster.flavour) * SECOND, "pause": REQUEUE_PAUSE}
    return ClusterReplay(base, [submission(row) for row in rows], flavour=cluster.flavour, **times), base


def _submissions(cluster: Cluster, proposal: Body) -> Callable[[TraceRow], RecordedSubmission]:
    flavour = flavour_for(cluster.flavour)
    by_pool, projects = flavour.traits.queues_by_pool, _projects(cluster)
    pools: dict[str, NodePool] = {pool.name: pool for pool in cluster.node_pools.order_by("-is_default", "name")}
    first = next(iter(pools), "")
    values = _values() | {each["name"]: each["value"] for each in proposal.get("priorities") or []}
    never = set(Priority.objects.filter(preemption_policy=PreemptionPolicy.NEVER).values_list("name", flat=True))

    def submission(row: TraceRow) -> RecordedSubmission:
        project, pool = projects[row.project], row.pool if row.pool in pools else first
        owned = flavour.queue_name(project.owner, pool) if by_pool else namespace_queue(project.namespace)
        labels = {} if by_pool or pool not in pools else {pools[pool].label_key: pools[pool].label_value}
        return RecordedSubmission(
            name=row.name,
            submitted=row.submitted * SECOND,
            duration=row.duration * SECOND,
            queue=owned,
            priority=values[row.priority],
            preemptible=is_preemptible(row, values[row.priority]),
            requests=Resources(row.gpu, row.cpu, row.memory),
            workers=row.workers,
            pool=pool if by_pool else ANY_POOL,
            never_preempts=row.priority in never,
            node_selector=labels,
        )

    return submission


def _proposed_queues(cluster: Cluster, queues: Sequence[Queue], quotas: Sequence[Body]) -> tuple[Queue, ...]:
    flavour, projects, departments = flavour_for(cluster.flavour), _projects(cluster), _departments(cluster)
    found = {queue.name: queue for queue in queues}
    for each in quotas:
        above = departments.get(each.get("department") or "")
        if flavour.traits.queues_by_pool:
            owner = above or projects[each["project"]]
            name = flavour.queue_name(owner.owner, each["nodePool"])
            bounds = bounds_of(each)
        else:
            project = projects[each["project"]]
            name = namespace_queue(project.namespace)
            rows = ProjectQuota.objects.filter(project=project).select_related("node_pool")
            bounds = sum_of_bounds(
                dict.fromkeys(cluster.node_pools.values_list("name", flat=True), (0, None))
                | {row.node_pool.name: (row.gpu_deserved, row.gpu_limit) for row in rows}
                | {other["nodePool"]: bounds_of(other) for other in quotas if other.get("project") == project.name}
            )
        if (queue := found.get(name)) is None:
            continue
        weight = each.get("overQuotaWeight")
        found[name] = replace(
            queue,
            deserved=Limit(bounds[0], queue.deserved.cpu, queue.deserved.memory),
            limit=Limit(bounds[1], queue.limit.cpu, queue.limit.memory),
            weight=queue.weight if weight is None else round(weight * 1000),
        )
    return tuple(found.values())
