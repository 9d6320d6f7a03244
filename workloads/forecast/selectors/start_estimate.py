"""When waiting workloads will probably start: the model run forward from the observed cluster.

A running workload ends when comparable runs did that lasted longer (`rules.estimates`), at the latest at its time
limit. What has neither history nor limit is taken to go on, as are pods that Rung did not create.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from clusters.connection.services.scheduler_config import shard_forecast_warnings, unserved_because
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import ObservedPod
from portal.kit.db.read_cache import cached_reads
from scheduling.forecast.cycle import FLAVOURS, empty_pools, never_fits_empty, preview
from scheduling.forecast.start_times import GRACE, AwaitedStart, RunSample, start_times
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.workspace import OutOfTime
from tenants.organisation.models import Project
from tenants.quotas.selectors.runtime_rules import Allowance, allowances
from workloads.forecast.rules.estimates import (
    ENOUGH_RUNS,
    ENOUGH_SAMPLES,
    HORIZON,
    SAMPLES,
    EstimateBasis,
    ExpectedMove,
    RunClass,
    RunHistory,
    RunKind,
    RunLengths,
    StartEstimate,
    quantile,
    size_class,
    time_in_pool,
)
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.pod_groups import groups_of, pod_group_request
from workloads.forecast.selectors.pool_selection import quota_hold_of, tried_pools, waited_here
from workloads.forecast.selectors.runtime_rules import expected_deferral, is_deferred
from workloads.forecast.selectors.snapshot import observed_cluster
from workloads.forecast.selectors.time_budget import TOO_LONG, time_budget, too_long
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import HELD, HOLDING, NO_CONTROLLER
from workloads.state.selectors.usage import could_hold
from workloads.state.selectors.workloads import workload_ids

SECOND: Final = 1_000_000  # microseconds, the unit of time stamps in a snapshot
STALE: Final = timedelta(minutes=5)
HISTORY: Final = timedelta(days=90)
MOST_RUNS: Final = 5_000
"""Of the ended runs the newest are read, of the running ones some: 10,000 in all take 0.15 s of processor time."""
CERTAIN: Final = 0.9
"""In so many of the model's runs a workload has to start; else there is no estimate."""


OUT_OF_TIME: Final = "out_of_time"


def start_estimate(workload: Workload, *, seconds: float | None = None) -> StartEstimate | None:
    """When it will probably start. None: it does not wait for its scheduler. seconds: as of `start_estimates`."""
    return start_estimates([workload], seconds=seconds).get(workload)


def start_estimates(workloads: Sequence[Workload], *, seconds: float | None = None) -> dict[Workload, StartEstimate]:
    """Of workloads that wait in one node pool of one cluster, by one run of the model.

    seconds: how long the model may take; None: as long as a page may.
    """
    requested = [
        each for each in workloads if each.phase == Phase.PENDING and each.desired_phase == DesiredPhase.RUNNING
    ]
    if not requested:
        return {}
    cluster, now = requested[0].project.cluster, timezone.now()
    if (refusal := _no_model(cluster, requested[0].pool_name, now)) is not None:
        return {each: StartEstimate(now, cluster.observed_at, code=refusal[0], why=refusal[1]) for each in requested}
    held = {each for each in requested if each.phase_reason in {*HELD, NO_CONTROLLER}}
    found = {each: StartEstimate(now, cluster.observed_at, code="held", why=HELD_BACK) for each in held}
    if rest := [each for each in requested if each not in held]:
        with cached_reads(), time_budget(seconds):
            found |= _by_model(cluster, rest, now, TOO_LONG if seconds is None else too_long(seconds))
    return found


HELD_BACK: Final = "it is not with the scheduler yet"
NEVER_FITS: Final = "it does not fit the nodes of its pool even if nothing else runs there"


def without(snapshot: Snapshot, workload: Workload) -> Snapshot:
    """The cluster without the pods of the workload."""
    own = str(workload.pk)
    return snapshot.without_groups(each.name for each in snapshot.groups if workload_of(each.name) == own)


def outcome_in(snapshot: Snapshot, workload: Workload, pool: NodePool) -> Outcome:
    """What the model makes of it in this node pool. snapshot: `without` it."""
    flavour = workload.project.cluster.flavour
    return preview(snapshot, *groups_of(pod_group_request(workload, pool), flavour), flavour=flavour)


def starts_here(workload: Workload, here: Outcome) -> bool:
    """Whether its present node pool lets it start, as far as Rung does not defer it there."""
    return here.kind is not OutcomeKind.PENDING and not is_deferred(workload)


def elsewhere(
    snapshot: Snapshot, workload: Workload, chain: Sequence[NodePool], present: NodePool
) -> tuple[NodePool, Outcome] | None:
    """The first other pool, in its order, that could hold it by quota and lets it start by the model."""
    for pool in chain:
        if pool != present and could_hold(workload, pool):
            outcome = outcome_in(snapshot, workload, pool)
            held = quota_hold_of(workload, pool) or expected_deferral(outcome, workload.project)
            if outcome.kind is not OutcomeKind.PENDING and not held:
                return pool, outcome
    return None


HOW: Final = {
    OutcomeKind.PLACED: "it starts there now",
    OutcomeKind.PREEMPTS: "it starts there after an eviction",
    OutcomeKind.RECLAIMS: "it reclaims its share there",
    OutcomeKind.CONSOLIDATES: "it starts there after other workloads are moved",
    OutcomeKind.PREEMPTS_AND_RECLAIMS: "it starts there after an eviction",
}


def expected_move(workload: Workload) -> ExpectedMove | None:
    """Which of its other node pools Rung tries by itself, and when. None: it has no other, or Rung leaves it there."""
    now, cluster = timezone.now(), workload.project.cluster
    pools = {pool.name: pool for pool in cluster.node_pools.all()}
    present, others = pools.get(workload.pool_name), [each for each in tried_pools(workload) if each in pools]
    if present is None or not others:
        return None
    move = ExpectedMove(present.name, tuple(others), now)
    try:
        with time_budget():
            snapshot = without(observed_cluster(cluster).snapshot, workload)
            here = starts_here(workload, outcome_in(snapshot, workload, present))
            found = elsewhere(snapshot, workload, [pools[each] for each in others], present)
    except OutOfTime:
        return move
    if found is None:
        return move
    at = now - waited_here(workload, now) + time_in_pool(starts_here=here)
    return replace(move, pool=found[0].name, how=HOW[found[1].kind], at=at, starts_here=here)


def _no_model(cluster: Cluster, pool: str, now: datetime) -> tuple[str, str] | None:
    """Code and reason why the model has nothing to say."""
    if cluster.flavour not in FLAVOURS:
        return "no_model", "Rung has no model of this cluster's scheduler"
    if cluster.observed_at is None or now - cluster.observed_at > STALE:
        return "stale", "the cluster has not been observed for 5 min"
    if not NodePool.objects.filter(cluster=cluster, name=pool).exists():
        return "no_pool", "it has no node pool"
    if closed := unserved_because(cluster, pool):
        return "not_served", closed
    if doubts := list(shard_forecast_warnings(cluster, pool)):
        return "scheduler_shared", doubts[0]
    return None


def _by_model(
    cluster: Cluster, requested: Sequence[Workload], now: datetime, stopped: str
) -> dict[Workload, StartEstimate]:
    found: list[tuple[int | None, ...]] = []
    try:
        snapshot, awaited = _snapshot(cluster, requested)
        course = _Runs(cluster, snapshot, now)
        until = (snapshot.now or 0) + int(HORIZON.total_seconds()) * SECOND
        samples = (course.sample() for _ in range(SAMPLES))
        leaves = _leaves(cluster) if snapshot.ending else {}
        graces = _graces(cluster)
        for moments in start_times(
            snapshot, awaited, samples, flavour=cluster.flavour, until=until, leaves=leaves, graces=graces
        ):
            found.append(moments)  # noqa: PERF402 - what is found before the time is over stays
    except OutOfTime:
        if len(found) < ENOUGH_SAMPLES:
            none = StartEstimate(now, cluster.observed_at, code=OUT_OF_TIME, why=stopped)
            return dict.fromkeys(requested, none)
    basis = course.basis
    columns = zip(requested, zip(*found, strict=True), _hopeless(snapshot, awaited), strict=True)
    never = StartEstimate(now, cluster.observed_at, code="never_fits", why=NEVER_FITS)
    return {each: never if hopeless else _estimate(moments, basis, cluster, now) for each, moments, hopeless in columns}


def _leaves(cluster: Cluster) -> dict[str, int]:
    """End of the grace of each terminating pod, by its name in a snapshot."""
    rows = ObservedPod.objects.live().filter(cluster=cluster, deletion_at__isnull=False)
    return {uid: int(at.timestamp()) * SECOND for uid, at in rows.values_list("uid", "deletion_at") if at}


def _graces(cluster: Cluster) -> dict[str, int]:
    """Grace of the pods that ask for another one than the default, by their names in a snapshot."""
    rows = ObservedPod.objects.live().filter(cluster=cluster).exclude(grace_seconds=GRACE // SECOND)
    return {uid: seconds * SECOND for uid, seconds in rows.values_list("uid", "grace_seconds")}


def _hopeless(snapshot: Snapshot, awaited: Sequence[AwaitedStart]) -> Iterator[bool]:
    """Whether each of them waits for a pod group that does not fit its empty node pool."""
    state = empty_pools(snapshot)
    for each in awaited:
        groups = filter(None, (snapshot.group(name) for name in each.groups))
        yield any(group.waiting and never_fits_empty(state, group) for group in groups)


def _estimate(moments: Sequence[int | None], basis: EstimateBasis, cluster: Cluster, now: datetime) -> StartEstimate:
    known = sorted(each for each in moments if each is not None)
    if len(known) < CERTAIN * len(moments):
        if basis.unknown:
            who = "1 running workload has" if basis.unknown == 1 else f"{basis.unknown} running workloads have"
            why = (
                f"{who} no time limit, and fewer than {ENOUGH_RUNS} comparable runs of the last {HISTORY.days} days "
                "lasted as long"
            )
            return StartEstimate(now, cluster.observed_at, code="thin_history", why=why, basis=basis)
        why = f"it starts within {HORIZON.days} days in only {len(known)} of {len(moments)} runs of the model"
        return StartEstimate(now, cluster.observed_at, code="beyond_horizon", why=why, basis=basis)
    late = [*known, *[known[-1]] * (len(moments) - len(known))]
    median, p90 = (datetime.fromtimestamp(quantile(late, share) / SECOND, tz=UTC) for share in (0.5, 0.9))
    return StartEstimate(now, cluster.observed_at, median, p90, basis=basis)


def _snapshot(cluster: Cluster, requested: Sequence[Workload]) -> tuple[Snapshot, list[AwaitedStart]]:
    """What waits in the pool of these, also what its controller pauses for, and what each of them waits for."""
    observed = observed_cluster(cluster)
    pool = NodePool.objects.get(cluster=cluster, name=requested[0].pool_name)
    by_pool = flavour_for(cluster.flavour).traits.queues_by_pool
    paused = [group for each in observed.later.values() for group in each.groups]
    known = {workload_of(group.name) for group in observed.snapshot.groups}
    more = [group for group in paused if workload_of(group.name) not in known]
    known |= {workload_of(group.name) for group in more}
    for each in requested:
        if str(each.pk) not in known:
            more += groups_of(pod_group_request(each, pool), cluster.flavour)
    snapshot = observed.snapshot.with_groups(more)
    snapshot = snapshot.shard(pool.name) if by_pool else snapshot
    names: dict[str, set[str]] = {}
    for group in snapshot.groups:
        names.setdefault(workload_of(group.name), set()).add(group.name)
    return snapshot, [
        AwaitedStart(frozenset(names.get(str(each.pk), ())), int(each.spec.get("min_member") or 1))
        for each in requested
    ]


@dataclass(frozen=True, slots=True)
class _Runner:
    """A workload that runs or will: its pod groups, when its run began, what comparable runs lasted, its time limit.

    ran: seconds so far. longer: of runs, enough of which lasted longer than that; whole: of any.
    """

    groups: tuple[str, ...]
    started: int | None
    ran: int
    longer: RunLengths | None
    whole: RunLengths | None
    limit: int | None

    def lasts(self, chance: random.Random) -> int | None:
        """Seconds of a run that begins later; None: no end is known."""
        return _at_most(self.whole.drawn(0, chance.random()) if self.whole else None, self.limit)

    def ends(self, chance: random.Random) -> int | None:
        """Seconds from its start on, of the run that it has begun."""
        return _at_most(self.longer.drawn(self.ran, chance.random()) if self.longer else None, self.limit)


def _at_most(seconds: int | None, limit: int | None) -> int | None:
    return min((each for each in (seconds, limit) if each is not None), default=None)


class _Runs:
    """The runs of a snapshot, and samples of how long they last. The same cluster always gives the same samples."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot, now: datetime) -> None:
        self._chance = random.Random(str(cluster.pk))  # noqa: S311 - not for secrets
        self._now = now
        self._classes: dict[RunClass, tuple[int, int]] = {}
        self._count: Counter[str] = Counter()
        history, groups = run_history(cluster, now), _groups_by_owner(snapshot)
        rows = Workload.objects.filter(pk__in=workload_ids(groups)).select_related("type")
        rows = rows.only("project_id", "type", "gpu_milli", "started_at", "category")
        projects = Project.objects.filter(cluster=cluster).select_related("department")
        limits = allowances(list(projects))
        self._runners = [self._runner(row, groups[str(row.pk)], history, limits) for row in rows]
        strange = groups.keys() - {str(row.pk) for row in rows}
        self._count["unknown"] += sum(any(group.holding for group in groups[owner]) for owner in strange)

    def _runner(
        self,
        row: Workload,
        groups: Sequence[PodGroup],
        history: RunHistory,
        limits: Mapping[tuple[int, str], Allowance],
    ) -> _Runner:
        kind = RunKind(row.project_id, row.type.name, size_class(row.gpu_milli), row.category)
        starts = [group.started for group in groups if group.holding and group.started is not None]
        started = min(starts, default=None)
        allowance = limits.get((row.project_id, row.category))
        limit = int(allowance.lasts.total_seconds()) if allowance else None
        ran = 0 if started is None else max(int(self._now.timestamp()) - started // SECOND, 0)
        longer, whole = history.longer(kind, ran), history.longer(kind, 0)
        if started is not None:
            self._note(longer, ran, limit)
        return _Runner(
            tuple(group.name for group in groups),
            started,
            ran,
            longer[1] if longer else None,
            whole[1] if whole else None,
            limit,
        )

    def _note(self, longer: tuple[RunClass, RunLengths] | None, ran: int, limit: int | None) -> None:
        if longer:
            runs, workloads = self._classes.get(longer[0], (0, 0))
            self._classes[longer[0]] = max(runs, longer[1].longer(ran)), workloads + 1
        else:
            self._count["unknown" if limit is None else "limits"] += 1

    @property
    def basis(self) -> EstimateBasis:
        return EstimateBasis(self._classes, self._count["limits"], self._count["unknown"])

    def sample(self) -> RunSample:
        """Draw one sample of how long runs still last."""
        ends: dict[str, int] = {}
        lasts: dict[str, int] = {}
        for runner in self._runners:
            end, whole = runner.ends(self._chance), runner.lasts(self._chance)
            if end is not None and runner.started is not None:
                ends |= dict.fromkeys(runner.groups, runner.started + end * SECOND)
            if whole is not None:
                lasts |= dict.fromkeys(runner.groups, whole * SECOND)
        return RunSample(ends, lasts)


def _groups_by_owner(snapshot: Snapshot) -> dict[str, list[PodGroup]]:
    found: dict[str, list[PodGroup]] = {}
    for group in snapshot.groups:
        found.setdefault(workload_of(group.name) or group.name, []).append(group)
    return found


ENDED_RUNS: Final = (Phase.COMPLETED, Phase.FAILED, Phase.STOPPED, Phase.STOPPING, Phase.DELETING)


def run_history(cluster: Cluster, now: datetime) -> RunHistory:
    """Of the newest workloads that have ended, been stopped or deleted in the last 90 days, beside what has not ended.

    That is what runs now, and each run of the 90 days that an eviction ended.
    """
    workloads, since = Workload.objects.filter(project__cluster=cluster, started_at__isnull=False), now - HISTORY
    ended = workloads.filter(phase__in=ENDED_RUNS, phase_at__gte=since).order_by("-phase_at")
    lasted = ended.values_list(*KIND, "started_at", "completed_at", "running_seconds", "preempted_count")[:MOST_RUNS]
    running = workloads.filter(phase__in=HOLDING, deleted_at=None).order_by("pk").values_list(*KIND, "started_at")
    records = PreemptionRecord.objects.filter(cluster=cluster, first=None, at__gte=since, ran_seconds__gt=0)
    evicted = records.values_list(*(f"victim__{name}" for name in KIND), "ran_seconds")[:MOST_RUNS]
    unended = [(_kind(*kind), int((now - started).total_seconds())) for *kind, started in running[:MOST_RUNS]]
    return RunHistory(_lasted(lasted), [*unended, *((_kind(*kind), ran) for *kind, ran in evicted)])


KIND: Final = ("project_id", "type__name", "gpu_milli", "category")
"""What `_kind` takes, as columns of a workload."""


def _kind(project_id: int, type_name: str, gpu_milli: int, category: str) -> RunKind:
    return RunKind(project_id, type_name, size_class(gpu_milli), category)


def _lasted(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[RunKind, int]]:
    """rows: `KIND`, start, completion, seconds in all, and how often it was evicted."""
    for *kind, started, completed, running_seconds, evictions in rows:
        if completed is None and evictions:
            continue  # the sum of several runs
        seconds = running_seconds if completed is None else int((completed - started).total_seconds())
        if seconds > 0:
            yield _kind(*kind), seconds
