"""Seeded scenarios for KAI: queues in departments, running work on nodes, and a workload that comes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Decision, Evict, Outcome, OutcomeKind, Start
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause, EvictionExemptions
from scheduling.model.reasons import Reason
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode

PRIORITIES: Final = (25, 40, 65, 80, 90, 125, 150)
RANKS: Final = (80, 100, 100, 120)
LATER: Final = 10**6
TRIES: Final = 12
MOST: Final = 8
CYCLES: Final = 4
KINDS: Final = {frozenset({"preempt"}): "preempts", frozenset({"reclaim"}): "reclaims"}
FAMILIES: Final = ("one queue", "two projects", "two departments", "limits", "non-preemptible", "gangs", "three shares")
SAID: Final = frozenset({Reason.OVER_LIMIT, Reason.NON_PREEMPTIBLE_OVER_QUOTA})
"""Reasons that KAI writes in the same words."""


@dataclass(frozen=True, slots=True)
class Share:
    """A queue, with or without a parent. limit: None is no limit."""

    name: str
    parent: str | None
    deserved: int
    limit: int | None = None
    weight: int = 1
    rank: int = 100


@dataclass(frozen=True, slots=True)
class Work:
    """A pod group of equal pods; nodes: where they run, empty while it waits. All of the minimum starts together.

    level: the topology level of which all its pods want one domain.
    """

    name: str
    queue: str
    priority: int
    preemptible: bool
    gpus: int
    pods: int = 1
    minimum: int = 1
    nodes: tuple[str, ...] = ()
    level: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario. nodes: GPUs by name. Work is in the order of its age, the oldest first.

    levels: of the topology, the widest first; places: values of its labels by node, of some perhaps too few. waiting:
    what waits already, in the order in which it came.
    """

    seed: int
    family: str
    nodes: Mapping[str, int]
    queues: tuple[Share, ...]
    work: tuple[Work, ...]
    candidate: Work
    levels: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waiting: tuple[Work, ...] = ()

    def labels(self, node: str) -> dict[str, str]:
        """Where a node stands."""
        return dict(zip(self.levels, self.places.get(node, ()), strict=False))

    def domain(self, nodes: Iterable[str]) -> str:
        """In which domains of its level the candidate is, as paths; empty where it asks for none."""
        if not self.candidate.level:
            return ""
        depth = self.levels.index(self.candidate.level) + 1
        return " ".join(sorted({"/".join(self.places[node][:depth]) for node in nodes}))


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of the candidate. victims: how many pods of which work go for it, and for which cause.

    domain: where it starts at once, if it asks for one. turns: in which order KAI takes the pods of each work, which is
    chance where they are of one second, and decides who of a gang is moved.
    """

    kind: str
    victims: frozenset[tuple[str, int, str]] = field(default=frozenset())
    reason: str = ""
    domain: str = ""
    turns: Mapping[str, tuple[int, ...]] = field(default_factory=dict, compare=False)


def scenario(seed: int) -> Plan:
    """The same for ever. Every other one had better evict somebody."""
    dice = Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    nodes = {f"n{index}": dice.choice((2, 4, 4, 8)) for index in range(dice.randint(1, 3))}
    queues = queues_of(dice, family)
    work = running_on(dice, family, nodes, queues)
    wanted = dice.choice((0, TRIES))
    for _try in range(1 + wanted):
        plan = Plan(seed, family, nodes, queues, work, candidate_of(dice, family, queues))
        if wanted == 0 or outcome_of(plan).victims:
            break
    return plan


def predict(plan: Plan, turns: Mapping[str, tuple[int, ...]] | None = None, *, consolidates: bool = False) -> Answer:
    """What the model says of a KAI that moves running work, or is told not to, over some cycles.

    Who evicts for itself may see others take the room before it has it, and evicts again.
    """
    found = outcome_of(plan, turns, consolidates=consolidates)
    snapshot = before(plan, turns, consolidates=consolidates).with_groups([group_of(plan.candidate, LATER)])
    victims = Counter[tuple[str, str]]()
    for _cycle in range(CYCLES):
        decisions = cycle(snapshot, flavour="kai")
        gone = [each for each in decisions if isinstance(each, Evict)]
        victims.update(
            {
                (each.victim.name, each.cause.value): len(each.pods)
                for each in gone
                if each.for_group == plan.candidate.name
            }
        )
        if not gone:
            break
        snapshot = _carried_out(snapshot, decisions)
    went = frozenset((name, count, cause) for (name, cause), count in victims.items())
    reason = found.pend.reason.value if found.pend and found.pend.reason in SAID else ""
    here = plan.domain(found.placements.values()) if found.kind is OutcomeKind.PLACED else ""
    return Answer(kind_of(went) if went else found.kind, went, reason, here)


def kind_of(victims: frozenset[tuple[str, int, str]]) -> str:
    """Of several causes: that it moves work."""
    return KINDS.get(frozenset(cause for _name, _count, cause in victims)) or "consolidates"


def _carried_out(snapshot: Snapshot, decisions: Iterable[Decision]) -> Snapshot:
    """A cycle later: who goes is on its way out, who starts has its nodes."""
    leaving = {name for each in decisions if isinstance(each, Evict) for name in each.pods}
    nodes = {name: node for each in decisions if isinstance(each, Start) for name, node in each.placements.items()}
    groups = tuple(
        replace(
            group,
            pods=tuple(
                replace(pod, node=pod.node or nodes.get(pod.name), terminating=pod.terminating or pod.name in leaving)
                for pod in group.pods
            ),
        )
        for group in snapshot.groups
    )
    return replace(snapshot, groups=groups)


def queues_of(dice: Random, family: str) -> tuple[Share, ...]:
    homes = {"two departments": ("da", "da", "db"), "one queue": ("da",), "three shares": ("da", "da", "da")}
    leaves = homes.get(family, ("da", "da"))
    limits = (None, 2, 4, 6) if family == "limits" else (None,)
    above = [Share(name, None, dice.choice((2, 4, 8)), dice.choice((None, *limits))) for name in sorted(set(leaves))]
    below = [
        Share(f"q{index}", home, dice.choice((0, 1, 2, 4)), dice.choice(limits), _weight(dice), _rank(dice, family))
        for index, home in enumerate(leaves)
    ]
    return (*above, *below)


def _weight(dice: Random) -> int:
    return dice.choice((0, 1, 1, 2, 3))


def _rank(dice: Random, family: str) -> int:
    return dice.choice(RANKS) if family == "three shares" else 100


def running_on(dice: Random, family: str, nodes: Mapping[str, int], queues: tuple[Share, ...]) -> tuple[Work, ...]:
    """Nearly full nodes. What no queue may have is left out, as KAI would not have started it."""
    left, work = dict(nodes), list[Work]()
    for _try in range(3 * MOST):
        each = _one(dice, family, queues, f"w{len(work)}")
        room = [name for name, free in left.items() for _each in range(free // each.gpus)]
        if len(work) == MOST or len(room) < each.pods or not _allowed(queues, work, each):
            continue
        chosen = tuple(dice.sample(room, each.pods))
        for name in chosen:
            left[name] -= each.gpus
        work.append(_placed(each, chosen))
    return tuple(work)


def _placed(work: Work, nodes: tuple[str, ...]) -> Work:
    return Work(
        work.name, work.queue, work.priority, work.preemptible, work.gpus, work.pods, work.minimum, tuple(sorted(nodes))
    )


def _one(dice: Random, family: str, queues: tuple[Share, ...], name: str) -> Work:
    leaves = [queue.name for queue in queues if queue.parent]
    priority = dice.choice(PRIORITIES)
    odd = 0.4 if family == "non-preemptible" else 0.1
    gang = family == "gangs" and dice.random() < 0.6
    pods = dice.choice((2, 2, 3)) if gang else 1
    minimum = dice.choice((pods, pods, 1)) if gang else 1
    return Work(
        name,
        dice.choice(leaves),
        priority,
        preemptible=dice.random() > odd,
        gpus=dice.choice((1, 1, 1, 2) if gang else (1, 1, 2, 2, 4)),
        pods=pods,
        minimum=minimum,
    )


def candidate_of(dice: Random, family: str, queues: tuple[Share, ...]) -> Work:
    """Somebody who comes. A gang comes whole: how KAI goes on with further pods is another decision."""
    found = _one(dice, family, queues, "x")
    return Work(found.name, found.queue, found.priority, found.preemptible, found.gpus, found.pods, found.pods)


def _allowed(queues: tuple[Share, ...], work: list[Work], more: Work) -> bool:
    shares = {queue.name: queue for queue in queues}
    requested = more.gpus * more.pods
    for name in (more.queue, shares[more.queue].parent):
        assert name is not None
        below = {name, *(queue.name for queue in queues if queue.parent == name)}
        used = [each for each in work if each.queue in below]
        limit = shares[name].limit
        if limit is not None and sum(each.gpus * each.pods for each in used) + requested > limit:
            return False
        fixed = sum(each.gpus * each.pods for each in used if not each.preemptible)
        if not more.preemptible and fixed + requested > shares[name].deserved:
            return False
    return True


def outcome_of(
    plan: Plan, turns: Mapping[str, tuple[int, ...]] | None = None, *, consolidates: bool = False
) -> Outcome:
    """The model's forecast. turns: of the pods of each work, by its name."""
    return preview(before(plan, turns, consolidates=consolidates), group_of(plan.candidate, LATER), flavour="kai")


def before(plan: Plan, turns: Mapping[str, tuple[int, ...]] | None = None, *, consolidates: bool = False) -> Snapshot:
    """What there is when the candidate comes."""
    nodes = tuple(
        SnapshotNode(name, "default", Resources.of(gpu=gpus), labels=plan.labels(name), order=order)
        for order, (name, gpus) in enumerate(plan.nodes.items())
    )
    queues = tuple(map(_queue, plan.queues, range(len(plan.queues))))
    there = (*plan.work, *plan.waiting)
    groups = tuple(group_of(work, age, (turns or {}).get(work.name)) for age, work in enumerate(there))
    exempt = NO_EXEMPTIONS if consolidates else EvictionExemptions(frozenset({Cause.CONSOLIDATE}))
    levels = {"default": plan.levels} if plan.levels else {}
    return Snapshot(nodes, queues, groups, exempt=exempt, levels=levels)


def _queue(share: Share, created: int) -> Queue:
    return Queue(
        share.name,
        share.parent,
        deserved=Limit.of(gpu=share.deserved),
        limit=Limit.of(gpu=share.limit),
        weight=share.weight,
        rank=share.rank,
        created=created,
    )


def group_of(work: Work, created: int, turns: tuple[int, ...] | None = None) -> PodGroup:
    places = work.nodes or (None,) * work.pods
    pods = tuple(Pod(f"{work.name}-{index}", Resources.of(gpu=work.gpus), node) for index, node in enumerate(places))
    return PodGroup(
        name=work.name,
        queue=work.queue,
        namespace="agree",
        priority=work.priority,
        preemptible=work.preemptible,
        pods=tuple(pods[index] for index in turns) if turns else pods,
        min_member=work.minimum,
        started=created if work.nodes else None,
        created=created,
        topology=work.level or None,
    )
