"""Seeded scenarios for a scheduler of quotas: queues in a tree, what was admitted one by one, and a candidate."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.preemptibility import FairSharingStrategy, QueuePreemptionPolicy
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot

PRIORITIES: Final = (25, 40, 65, 80, 90, 125, 150)
JOBS: Final = 6
TRIES: Final = 25
LATER: Final = 10**6
WEIGHTS: Final = (1, 1, 1, 2, 3, 0)
HEAVY: Final = (7, 11)
"""Of every second cohort: between cohorts with equal shares Kueue chooses at random, in each cycle anew."""
FAMILIES: Final = ("one cohort", "two departments", "departments with limits", "other policies", "alone")


@dataclass(frozen=True, slots=True)
class Branch:
    """A cohort with a quota of its own and a parent; borrowing: how much more its queues may use together."""

    name: str
    parent: str
    own: int
    borrowing: int | None = None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """A queue: nominal quota, how much more it may borrow (None: no bound), whom it may evict."""

    name: str
    cohort: str | None
    nominal: int
    borrowing: int | None = None
    preempts: QueuePreemptionPolicy = QueuePreemptionPolicy.LOWER
    reclaims: QueuePreemptionPolicy = QueuePreemptionPolicy.ANY
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """So many pods of so many GPUs."""

    name: str
    queue: str
    pods: int
    gpus: int
    priority: int


@dataclass(frozen=True, slots=True)
class Quotas:
    """A scenario: the jobs are admitted in this order before the candidate comes. fair: Kueue shares fairly."""

    seed: int
    family: str
    branches: tuple[Branch, ...]
    leaves: tuple[Leaf, ...]
    jobs: tuple[Job, ...]
    candidate: Job
    fair: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of the candidate. victims: who goes for it, and for which cause."""

    kind: str
    victims: frozenset[tuple[str, str]] = field(default=frozenset())


def scenario(seed: int, *, fair: bool = False) -> Quotas:
    """The same for ever."""
    chance = Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    branches, leaves = _tree(chance, family)
    if fair:
        sorts = zip(branches, (WEIGHTS, HEAVY), strict=False)
        branches = tuple(replace(branch, weight=chance.choice(weights)) for branch, weights in sorts)
        leaves = tuple(replace(leaf, weight=chance.choice(WEIGHTS)) for leaf in leaves)
    jobs: list[Job] = []
    for _try in range(TRIES):
        job = _job(chance, f"j{len(jobs)}", leaves)
        if len(jobs) < JOBS and _predicted(branches, leaves, jobs, job, fair=fair).kind is OutcomeKind.PLACED:
            jobs.append(job)
    candidate = _job(chance, "candidate", leaves)
    for _try in range(chance.choice([0, TRIES])):  # every other one had better evict somebody
        if not _predicted(branches, leaves, jobs, candidate, fair=fair).victims:
            candidate = _job(chance, "candidate", leaves)
    return Quotas(seed, family, branches, leaves, tuple(jobs), candidate, fair)


def predict(plan: Quotas) -> Answer:
    """What the model says."""
    found = _predicted(plan.branches, plan.leaves, plan.jobs, plan.candidate, fair=plan.fair)
    return Answer(found.kind, frozenset((evict.victim.name, evict.cause.value) for evict in found.victims))


def _tree(chance: Random, family: str) -> tuple[tuple[Branch, ...], tuple[Leaf, ...]]:
    bound = [None, None, 0, 2, 4]
    if family in {"two departments", "departments with limits"}:
        limits = bound if family == "departments with limits" else [None]
        departments = tuple(Branch(name, "root", chance.randint(0, 3), chance.choice(limits)) for name in ("d1", "d2"))
        leaves = enumerate(("d1", "d1", "d2", "d2", "root")[: chance.randint(3, 5)])
        return departments, tuple(_leaf(chance, index, home, [None, None, 2]) for index, home in leaves)
    together: tuple[str | None, ...] = ("co", "co", "co")
    homes = together[: chance.randint(2, 3)] if family != "alone" else (None, "co")
    plain = tuple(_leaf(chance, index, home, bound) for index, home in enumerate(homes))
    if family != "other policies":
        return (), plain
    inside = [QueuePreemptionPolicy.NEVER, QueuePreemptionPolicy.LOWER, QueuePreemptionPolicy.LOWER_OR_NEWER]
    others = [QueuePreemptionPolicy.NEVER, QueuePreemptionPolicy.LOWER, QueuePreemptionPolicy.ANY]
    own = ((leaf, chance.choice(inside), chance.choice(others)) for leaf in plain)
    return (), tuple(
        Leaf(leaf.name, leaf.cohort, leaf.nominal, leaf.borrowing, preempts, reclaims)
        for leaf, preempts, reclaims in own
    )


def _leaf(chance: Random, index: int, home: str | None, bounds: list[int | None]) -> Leaf:
    nominal = chance.choice([0, 1, 2, 3, 4, 6])
    return Leaf(f"q{index}", home, nominal, chance.choice(bounds) if home else None)


def _job(chance: Random, name: str, leaves: tuple[Leaf, ...]) -> Job:
    queue = chance.choice(leaves).name
    return Job(name, queue, chance.choice([1, 1, 1, 2]), chance.choice([1, 1, 2, 2, 3, 4]), chance.choice(PRIORITIES))


def _predicted(
    branches: tuple[Branch, ...],
    leaves: tuple[Leaf, ...],
    jobs: tuple[Job, ...] | list[Job],
    candidate: Job,
    *,
    fair: bool,
) -> Outcome:
    queues = (*(_department(branch, leaves) for branch in branches), *map(_queue, leaves))
    running = tuple(_group(job, start) for start, job in enumerate(jobs))
    strategies = tuple(FairSharingStrategy) if fair else ()
    world = Snapshot(queues=queues, groups=running, fair_sharing=strategies)
    return preview(world, _group(candidate, None), flavour="kueue")


def _department(branch: Branch, leaves: tuple[Leaf, ...]) -> Queue:
    """Its row says the total: its own and what its queues deserve."""
    total = branch.own + sum(leaf.nominal for leaf in leaves if leaf.cohort == branch.name)
    limit = None if branch.borrowing is None else total + branch.borrowing
    bounds = {"deserved": Limit.of(gpu=total), "limit": Limit.of(gpu=limit)}
    return Queue(branch.name, branch.parent, weight=branch.weight, **bounds)


def _queue(leaf: Leaf) -> Queue:
    limit = None if leaf.borrowing is None else leaf.nominal + leaf.borrowing
    return Queue(
        leaf.name,
        leaf.cohort,
        deserved=Limit.of(gpu=leaf.nominal),
        limit=Limit.of(gpu=limit),
        preempts=leaf.preempts,
        reclaims=leaf.reclaims,
        weight=leaf.weight,
    )


def _group(job: Job, start: int | None) -> PodGroup:
    return PodGroup(
        name=job.name,
        queue=job.queue,
        namespace="agree",
        priority=job.priority,
        preemptible=True,
        pods=tuple(Pod(f"{job.name}-{number}", Resources.of(gpu=job.gpus)) for number in range(job.pods)),
        min_member=job.pods,
        started=start,
        created=LATER if start is None else start,
    )
