"""What each detector looks for, and what it must not report. Pure: facts of one cluster in, detections out.

Sentences name workloads as `{0}`, `{1}`: the reader of a finding may not see every one of them. A detector says only
what its facts show: GPUs are compared, not CPU, memory or topology.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from portal.kit.pages.formatting import duration_text, gpus_text
from scheduling.state.shortage import NodeGpus, PodMove, helpful_moves
from workloads.forecast.rules.messages import gpu_time_text
from workloads.state.rules import HOLDING, WAITING


class FindingKind(StrEnum):
    """What can be found."""

    SHORT_EVICTS_LONG = "short-evicts-long"
    INSIDE_MIN_RUNTIME = "inside-min-runtime"
    PRIORITY_INVERSION = "priority-inversion"
    STARVATION = "starvation"
    FRAGMENTATION = "fragmentation"
    THRASHING = "thrashing"
    QUOTA_ABOVE_PHYSICAL = "quota-above-physical"
    IDLE_GPUS = "idle-gpus"
    PINNED_QUOTA = "pinned-quota"


LONG_RUN, SHORT_RUN, SHORT_SHARE = timedelta(hours=1), timedelta(minutes=15), 10
LEAST_LOSS: Final = 1800  # GPU-seconds
WAITED: Final = timedelta(minutes=10)
STARVED, PASSED_BY = timedelta(hours=4), 3
THRASH_WINDOW, THRASH_TIMES = timedelta(hours=2), 3
IDLE_WHILE_OTHERS_WAIT, IDLE_ALWAYS = timedelta(hours=1), timedelta(hours=8)

SHORT_OF_ROOM: Final = frozenset(
    {"", "NoRoom", "Unschedulable", "NoDomain", "PreemptionNever", "WaitingForQuota", "Queued", "HandedOver"}
    | {"Preempted", "Reclaimed", "Evicted", "PreemptionByScheduler", "LargerThanDeserved", "NextPool"}
)
"""Reasons of a workload that would start if there were room. Any other reason is its own: a quota, an image, a hold."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A workload. `queue`: those of one queue compete by priority. `gpu_milli`: of all pods, requested or allocated."""

    id: str
    name: str
    project: int
    queue: str
    pool: str
    priority: str
    value: int
    gpu_milli: int
    pods: int
    phase: str
    reason: str
    phase_at: datetime
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None

    @property
    def pod_milli(self) -> int:
        return self.gpu_milli // max(1, self.pods)

    @property
    def entry(self) -> str:
        return f"{self.priority} {self.value}"

    @property
    def began(self) -> datetime:
        """Start of its run; of one that has none, of its phase."""
        return self.started_at or self.phase_at


Jobs = Sequence[JobFacts]


@dataclass(frozen=True, slots=True)
class EvictionFacts:
    """One eviction, all its pods together. `minimum`: the runtime that its victim was guaranteed."""

    id: int
    at: datetime
    reclaim: bool
    moved: bool
    victim: JobFacts
    preemptor: JobFacts | None
    ran: timedelta
    gpu_milli: int
    lost_gpu_seconds: int
    minimum: timedelta = timedelta()

    @property
    def loss(self) -> str:
        return gpu_time_text(self.lost_gpu_seconds)


@dataclass(frozen=True, slots=True)
class PoolGpus:
    """What is promised of a node pool, and what all of its nodes have, also those that are down or cordoned."""

    pool: str
    physical: int
    projects: int
    departments: int


@dataclass(frozen=True, slots=True)
class PinnedQueue:
    """A project's non-preemptible work in a pool, newest first, and its deserved quota there before a later cut."""

    project: str
    pool: str
    deserved: int
    jobs: tuple[JobFacts, ...]
    before_cut: int = 0
    cut_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Detection:
    """What one detector found: about the first of `jobs`, which its sentences name.

    GPU-seconds so far: `cost`, and `rate` thousandths of a GPU since `since` (None: since it is found). `ended`: it is
    over already.
    """

    kind: FindingKind
    key: str
    evidence: tuple[str, ...]
    advice: str
    jobs: tuple[JobFacts, ...] = ()
    pool: str = ""
    since: datetime | None = None
    ended: datetime | None = None
    cost: int = 0
    rate: int = 0


def short_evicts_long(evictions: Iterable[EvictionFacts]) -> Iterator[Detection]:
    """A job that completed within 15 min evicted one that had run an hour and ten times as long.

    Not reported: a preemptor that still runs, failed or was stopped, since its length is not known; a loss below half
    a GPU-hour, as after a recent checkpoint; a move by the scheduler.
    """
    for each in evictions:
        run = _completed_run(each.preemptor)
        if each.moved or each.preemptor is None or run is None or run > SHORT_RUN:
            continue
        if each.ran < max(LONG_RUN, SHORT_SHARE * run) or each.lost_gpu_seconds < LEAST_LOSS:
            continue
        how = "reclaimed its project's quota from" if each.reclaim else f"({each.preemptor.entry}) evicted"
        evidence = (
            f"{{1}} {how} {{0}} ({each.victim.entry}) at {_utc(each.at)} and completed after {duration_text(run)}.",
            f"{{0}} had run {duration_text(each.ran)} on {gpus_text(each.gpu_milli)}: about {each.loss} lost.",
        )
        advice = "Priority does not protect from reclaim. For {0}, raise the deserved quota of its project"
        if not each.reclaim:
            advice = f"If {{1}} can wait, submit it with a priority of at most {each.victim.priority}. For {{0}}"
        advice += ", set a minimum runtime, save checkpoints more often, or make it non-preemptible."
        yield _of_eviction(FindingKind.SHORT_EVICTS_LONG, each, evidence, advice)


def inside_min_runtime(evictions: Iterable[EvictionFacts], *, deferring: bool) -> Iterator[Detection]:
    """A victim had run for less than its guaranteed minimum runtime.

    Not reported: a victim whose pods had not started, since the time starts with them; one that had run for the whole
    minimum; a move by the scheduler. `deferring`: Rung defers preemptors on this cluster.
    """
    for each in evictions:
        if each.moved or not timedelta() < each.ran < each.minimum:
            continue
        evidence = (
            f"{{0}} had run {duration_text(each.ran)} of its minimum runtime of {duration_text(each.minimum)}.",
            f"{'{1}' if each.preemptor else 'The scheduler'} evicted it at {_utc(each.at)}: about {each.loss} lost.",
        )
        advice = "The scheduler did not keep the minimum runtime. Let Rung defer preemptors on this cluster."
        if deferring:
            advice = "Rung defers preemptors on this cluster, but not those that other tools submit: check who did."
        yield _of_eviction(FindingKind.INSIDE_MIN_RUNTIME, each, evidence, advice)


def thrashing(evictions: Iterable[EvictionFacts]) -> Iterator[Detection]:
    """A workload was evicted three times within two hours.

    Not reported: the pods of one decision, which count once; moves by the scheduler; a workload that has ended.
    """
    by_victim: dict[str, list[EvictionFacts]] = defaultdict(list)
    for each in sorted(evictions, key=lambda each: each.at):
        if not each.moved and each.victim.phase in WAITING | HOLDING:
            by_victim[each.victim.id].append(each)
    for found in by_victim.values():
        if len(found) < THRASH_TIMES:
            continue
        first, last, lost = found[0].at, found[-1].at, sum(each.lost_gpu_seconds for each in found)
        ran, reclaims = sum((each.ran for each in found), timedelta()), sum(each.reclaim for each in found)
        evidence = (
            f"{{0}} was evicted {len(found)} times from {_utc(first)} to {_utc(last)}, {reclaims} of them by reclaim.",
            f"It ran {duration_text(ran)} in total before these; {gpu_time_text(lost)} lost.",
        )
        advice = "Stop it until the work of higher priority is done, or set a minimum runtime so that a start pays off."
        if reclaims * 2 > len(found):
            advice = "It runs over its project's quota: stop it until there is room, or raise the deserved quota."
        yield _about(FindingKind.THRASHING, (found[-1].victim,), evidence, advice, since=first, cost=lost)


def priority_inversion(waiting: Jobs, running: Jobs, now: datetime) -> Iterator[Detection]:
    """A workload waits for 10 min while lower priorities of its queue started later on as many GPUs as it needs.

    Not reported: small peers that filled a gap, since only pods of its size count; peers of another queue or pool; a
    workload that waits for a reason of its own, as a quota or an image.
    """
    for job in _short_of_room(waiting, now, WAITED):
        lower = [each for each in _later(job, running) if each.value < job.value]
        held = sum(each.gpu_milli for each in lower)
        if held < job.gpu_milli:
            continue
        newest = lower[0]
        evidence = (
            _waits(job),
            f"{{1}} ({newest.entry}) started at {_utc(newest.began)}. All that started later with a lower priority "
            f"({len(lower)}) have {gpus_text(held)}.",
        )
        advice = (
            "Check whether its priority may evict others, and whether {1} is non-preemptible or inside its minimum "
            "runtime. GPUs are not reserved for it: small pods may pass a gang."
        )
        since, jobs = lower[-1].began, (job, newest)
        yield _about(FindingKind.PRIORITY_INVERSION, jobs, evidence, advice, since=since, rate=job.gpu_milli)


def starvation(waiting: Jobs, running: Jobs, now: datetime) -> Iterator[Detection]:
    """A workload waits for 4 h while three submitted after it have started in its queue on as many GPUs as it needs.

    Not reported: a queue that is merely full; peers with smaller pods; peers of lower priority, which are an inversion;
    a workload that waits for a reason of its own.
    """
    for job in _short_of_room(waiting, now, STARVED):
        later = [each for each in _later(job, running) if each.value >= job.value and each.created_at > job.created_at]
        held, higher = sum(each.gpu_milli for each in later), sum(each.value > job.value for each in later)
        if len(later) < PASSED_BY or held < job.gpu_milli:
            continue
        evidence = (
            _waits(job),
            f"{len(later)} workloads that were submitted later run on {gpus_text(held)}: {higher} of higher and "
            f"{len(later) - higher} of the same priority. {{1}} started last.",
        )
        advice = "Its pods need more GPUs at once than become free: reduce its size, or raise its priority."
        if higher:
            advice = (
                "Raise its priority if it is urgent, or the default priority of its type if such work always waits."
            )
        yield _about(FindingKind.STARVATION, (job, later[0]), evidence, advice, since=job.phase_at, rate=job.gpu_milli)


def fragmentation(
    waiting: Jobs, nodes: Iterable[NodeGpus], named: Mapping[str, JobFacts], now: datetime
) -> Iterator[Detection]:
    """A pod waits for 10 min for more GPUs than any node of its pool has free, while the pool has that many.

    One per project and pool, about the workload that waits longest. Not reported: free GPUs that no waiting pod needs;
    nodes that are cordoned, tainted or down; a workload of several pods, or one that waits for a reason of its own.
    """
    found = list(nodes)
    by_pool = {pool: [node for node in found if node.pool == pool] for pool in {node.pool for node in found}}
    free_in = {pool: [node.free for node in known if node.free] for pool, known in by_pool.items()}
    blocked: dict[tuple[str, int], list[JobFacts]] = defaultdict(list)
    for job in sorted(_short_of_room(waiting, now, WAITED), key=lambda each: each.phase_at):
        if job.pods == 1 and (free := free_in.get(job.pool)) and max(free) < job.gpu_milli <= sum(free):
            blocked[job.pool, job.project].append(job)
    needs = {(pool, jobs[0].gpu_milli) for (pool, _project), jobs in blocked.items()}
    helpful = {(pool, need): helpful_moves(by_pool[pool], need) for pool, need in needs}
    for (pool, project), jobs in blocked.items():
        job, free = jobs[0], free_in[pool]
        more = f" Others of its project that cannot start: {len(jobs) - 1}." if jobs[1:] else ""
        evidence = (
            f"{gpus_text(sum(free))} are free in {pool} (nodes: {len(free)}), at most {gpus_text(max(free))} on one.",
            f"{_waits(job)} It needs them on one node.{more}",
        )
        moves = [move for move in helpful[pool, job.gpu_milli] if move.pod.workload in named]
        about, key = (job, *(named[move.pod.workload] for move in moves)), f"{project} {pool}"
        yield _about(FindingKind.FRAGMENTATION, about, evidence, _moving(moves), key=key, rate=job.gpu_milli)


def quota_above_physical(pools: Iterable[PoolGpus]) -> Iterator[Detection]:
    """Projects, or departments, deserve more GPUs of a pool than its nodes have.

    Not reported: equal amounts; a pool of which no node was seen; GPUs of nodes that are down or cordoned, which count.
    """
    for each in pools:
        promised = max(each.projects, each.departments)
        if not 0 < each.physical < promised:
            continue
        who, rate = ("Projects" if each.projects == promised else "Departments"), promised - each.physical
        evidence = (f"{who} deserve {gpus_text(promised)} in {each.pool}; its nodes have {gpus_text(each.physical)}.",)
        advice = f"Lower deserved quotas by {gpus_text(rate)}, or add nodes: not every guarantee can be kept now."
        yield Detection(FindingKind.QUOTA_ABOVE_PHYSICAL, each.pool, evidence, advice, pool=each.pool, rate=rate)


def idle_gpus(idle: Iterable[tuple[JobFacts, datetime]], waiting: Jobs, now: datetime) -> Iterator[Detection]:
    """All GPUs of a workload did nothing for an hour while others wait in its pool, or for 8 h.

    Not reported: a workload with one busy pod or one that was not measured in the last 5 min (`idle` leaves it out);
    an hour of idleness while nothing waits in the pool.
    """
    wanted = {job.pool for job in _short_of_room(waiting, now, WAITED)}
    for job, since in idle:
        others = job.pool in wanted
        if not job.gpu_milli or now - since < (IDLE_WHILE_OTHERS_WAIT if others else IDLE_ALWAYS):
            continue
        evidence = (
            f"{{0}} holds {gpus_text(job.gpu_milli)} in {job.pool} and has used none of them since {_utc(since)}.",
            "Other workloads wait in this pool." if others else "Nothing waits in this pool now.",
        )
        advice = "Stop it; it can be resumed. An idle limit for its project stops such work automatically."
        yield _about(FindingKind.IDLE_GPUS, (job,), evidence, advice, since=since, rate=job.gpu_milli)


def pinned_quota(queues: Iterable[PinnedQueue]) -> Iterator[Detection]:
    """Non-preemptible work of a project holds more than its deserved quota, and no scheduler may take it back.

    Not reported: preemptible work over quota; non-preemptible work inside it; workloads that are being stopped;
    schedulers that evict non-preemptible work as any other.
    """
    for each in queues:
        held = sum(job.gpu_milli for job in each.jobs)
        if held <= each.deserved:
            continue
        job = each.jobs[0]
        cut = (
            f"It was {gpus_text(each.before_cut)} until {_utc(each.cut_at)}." if each.cut_at else "It was not lowered."
        )
        evidence = (
            f"Non-preemptible workloads of {each.project} hold {gpus_text(held)} in {each.pool}; its deserved quota "
            f"there is {gpus_text(each.deserved)}. {cut}",
            f"The newest of these {len(each.jobs)} is {{0}} with {gpus_text(job.gpu_milli)}.",
        )
        advice = f"Raise the deserved quota to {gpus_text(held)}, or submit {{0}} again as preemptible."
        key, rate = f"{job.project} {each.pool}", held - each.deserved
        yield _about(FindingKind.PINNED_QUOTA, (job,), evidence, advice, key=key, since=each.cut_at, rate=rate)


def _about(
    kind: FindingKind, jobs: tuple[JobFacts, ...], evidence: tuple[str, ...], advice: str, key: str = "", **more: Any
) -> Detection:
    return Detection(kind, key or jobs[0].id, evidence, advice, jobs, jobs[0].pool, **more)


def _of_eviction(kind: FindingKind, each: EvictionFacts, evidence: tuple[str, ...], advice: str) -> Detection:
    jobs, cost = (each.victim, each.preemptor) if each.preemptor else (each.victim,), each.lost_gpu_seconds
    over = None if each.victim.phase in WAITING else max(each.at, each.victim.phase_at)
    return _about(kind, jobs, evidence, advice, key=str(each.id), since=each.at, ended=over, cost=cost)


def _completed_run(job: JobFacts | None) -> timedelta | None:
    if job is None or job.phase != "Completed" or job.started_at is None or job.completed_at is None:
        return None
    return job.completed_at - job.started_at


def _short_of_room(waiting: Jobs, now: datetime, waited: timedelta) -> Iterator[JobFacts]:
    short = (job for job in waiting if job.gpu_milli and job.reason in SHORT_OF_ROOM)
    return (job for job in short if now - job.phase_at >= waited)


def _later(job: JobFacts, running: Jobs) -> list[JobFacts]:
    """Of its queue and pool, started after it began to wait, with pods at least as large; the newest first."""
    peers = (each for each in running if (each.queue, each.pool) == (job.queue, job.pool))
    found = [each for each in peers if each.began > job.phase_at and each.pod_milli >= job.pod_milli]
    return sorted(found, key=lambda each: each.began, reverse=True)


def _moving(moves: Sequence[PodMove]) -> str:
    if not moves:
        no_move = "No move of up to three preemptible workloads of one pod frees a node. Wait until a workload ends, or"
        return f"{no_move} fill nodes one after the other in this pool (placement binpack)."
    named = (
        f"{{{number}}} ({gpus_text(move.pod.gpu_milli)}) from {move.source} to {move.target}"
        for number, move in enumerate(moves, 1)
    )
    lost = gpu_time_text(sum(move.pod.at_risk for move in moves))
    return (
        f"Move {', '.join(named)}: then {moves[0].source} has room for {{0}}. Moving restarts it: about {lost} lost. "
        "Checked for GPUs, not for CPU, memory or topology."
    )


def _waits(job: JobFacts) -> str:
    return f"{{0}} ({job.entry}) waits since {_utc(job.phase_at)} for {gpus_text(job.gpu_milli)} in {job.pool}."


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
