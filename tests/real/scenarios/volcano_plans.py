"""Seeded scenarios for Volcano: queues in a tree, groups that run on nodes, and a candidate."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, zip_longest
from random import Random
from typing import Final

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome
from scheduling.model.preemptibility import MIN_RUNTIME_CAUSES, EvictionExemptions
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode

PRIORITIES: Final = (25, 40, 65, 80, 90, 125, 150)
RANKS: Final = {"low": 90, "medium-low": 100, "high": 130}
GROUPS: Final = 7
TRIES: Final = 30
LATER: Final = 10**6
RACK: Final = "rack"


@dataclass(frozen=True, slots=True)
class Shelf:
    """A department's or, with a parent, a project's queue. GPUs; limit None: none."""

    name: str
    deserved: int
    limit: int | None = None
    parent: str | None = None
    rank: str = "medium-low"


@dataclass(frozen=True, slots=True)
class Team:
    """So many pods of so many GPUs, on these nodes; a candidate's have none. No two of a scenario start together."""

    name: str
    queue: str
    priority: int
    gpus: int
    least: int
    nodes: tuple[str | None, ...]
    fixed: bool = False
    never: bool = False
    near: bool = False  # all of its pods in one rack
    young: bool = False  # left alone for longer than it has run


@dataclass(frozen=True, slots=True)
class Contest:
    """A scenario: the teams run, in the order in which they came, before the candidate comes."""

    seed: int
    family: str
    nodes: tuple[tuple[str, int], ...]
    departments: tuple[Shelf, ...]
    projects: tuple[Shelf, ...]
    teams: tuple[Team, ...]
    candidate: Team
    racks: tuple[str, ...] = ()  # of the nodes, in their order; none: they are in no rack


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of the candidate. victims: whose pods go, as often as pods of them go, and for which cause."""

    kind: str
    victims: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Family:
    """What the scenarios of one family have that others have not, as chances of one in so many; 0: never."""

    departments: int = 1
    limits: int = 0
    caps: int = 0
    gangs: int = 0
    surplus: int = 0
    ranks: int = 0
    fixed: int = 0
    never: int = 0
    crowded: int = 0  # one queue has most of what runs
    near: int = 0  # gangs that have to be in one rack
    young: int = 0


FAMILIES: Final = {
    "in one queue": Family(crowded=1),
    "between queues": Family(),
    "at the limit": Family(limits=2, crowded=2),
    "gangs": Family(gangs=1),
    "more than the minimum": Family(gangs=1, surplus=1),
    "two departments": Family(departments=2),
    "departments with limits": Family(departments=2, caps=1),
    "ranks": Family(ranks=1, departments=2),
    "not to be evicted": Family(fixed=2, crowded=2),
    "everything": Family(2, 3, 3, 3, 3, 3, 4, 6, 3),
    "one rack": Family(departments=2, gangs=1, fixed=5, near=1),
    "young work": Family(departments=2, gangs=3, surplus=2, young=2),
}


def contest(seed: int) -> Contest:
    """The same as long as the model says the same: it is asked who has room, and how often a candidate is drawn."""
    return _Draw(seed, list(FAMILIES)[seed % len(FAMILIES)]).contest()


def predict(plan: Contest) -> Ruling:
    """What the model says."""
    outcome = _requested(plan, plan.candidate)
    victims = sorted((evict.victim.name, evict.cause.value) for evict in outcome.victims for _pod in evict.pods)
    return Ruling(outcome.kind, tuple(victims))


def by_another_node(plan: Contest) -> set[Ruling]:
    """What the model says where another of equal nodes comes first: preempt asks the best, and that may be several."""
    if plan.racks:
        return set()
    orders = (replace(plan, nodes=nodes) for nodes in permutations(plan.nodes))
    return {found for each in orders if (found := predict(each)).kind == "preempts"}


def _requested(plan: Contest, team: Team) -> Outcome:
    return preview(snapshot(plan), group(team, None), flavour="volcano")


def snapshot(plan: Contest) -> Snapshot:
    """The scenario before its candidate comes."""
    nodes = tuple(
        SnapshotNode(name, "default", Resources.of(gpu=gpus, cpu=192, memory="2Ti"), labels={RACK: rack}, order=order)
        for order, ((name, gpus), rack) in enumerate(zip_longest(plan.nodes, plan.racks, fillvalue=""))
    )
    queues = (queue(shelf, created) for created, shelf in enumerate((*plan.departments, *plan.projects)))
    groups = (group(team, start) for start, team in enumerate(plan.teams))
    exempt = EvictionExemptions(inside_min_runtime=MIN_RUNTIME_CAUSES)  # as the lab configures it
    return Snapshot(nodes, tuple(queues), tuple(groups), now=GROUPS, exempt=exempt)


def queue(shelf: Shelf, created: int) -> Queue:
    """As Rung's snapshots have it."""
    return Queue(
        shelf.name,
        shelf.parent,
        deserved=Limit.of(gpu=shelf.deserved),
        limit=Limit.of(gpu=shelf.limit),
        rank=RANKS[shelf.rank],
        created=created,
    )


def group(team: Team, start: int | None) -> PodGroup:
    """As Rung's snapshots have it."""
    pods = (Pod(f"{team.name}-{index}", Resources.of(gpu=team.gpus), node) for index, node in enumerate(team.nodes))
    return PodGroup(
        name=team.name,
        queue=team.queue,
        namespace="agree",
        priority=team.priority,
        preemptible=not team.fixed,
        pods=tuple(pods),
        min_member=team.least,
        started=start,
        created=LATER if start is None else start,
        never_preempts=team.never,
        topology=RACK if team.near else None,
        min_runtime=LATER if team.young else 0,
    )


class _Draw:
    """Dice for one scenario."""

    def __init__(self, seed: int, family: str) -> None:
        self.seed, self.family = seed, family
        self.dice = Random(seed)
        self.knobs = FAMILIES[family]

    def contest(self) -> Contest:
        """Nodes, queues, teams where there is room for them, a candidate."""
        most = 4 if self.knobs.near else 3
        nodes = tuple((f"n{index}", self.dice.choice((2, 4, 4, 8))) for index in range(self.dice.randint(2, most)))
        departments, projects = self._queues(sum(gpus for _name, gpus in nodes))
        racks = tuple(self.dice.choice("ab") for _node in nodes) if self.knobs.near else ()
        plan = Contest(self.seed, self.family, nodes, departments, projects, (), self._candidate(projects), racks)
        for _try in range(TRIES):
            if len(plan.teams) < GROUPS and (team := self._team(plan)):
                plan = replace(plan, teams=(*plan.teams, team))
        wanted = self.dice.choice(("preempts", "reclaims", "reclaims", "pending", "placed", predict(plan).kind))
        for _try in range(TRIES):
            if predict(plan).kind != wanted:
                plan = replace(plan, candidate=self._candidate(projects))
        return plan

    def _one_in(self, many: int) -> bool:
        return bool(many) and self.dice.randrange(many) == 0

    def _queues(self, gpus: int) -> tuple[tuple[Shelf, ...], tuple[Shelf, ...]]:
        """Projects deserve no more than there is; a department deserves what its projects do."""
        names = [f"d{index}" for index in range(self.knobs.departments)]
        homes = [*names, *(self.dice.choice(names) for _each in range(self.dice.randint(1, 2)))]
        homes = homes if len(homes) > 1 else [*homes, names[0]]
        projects, left = [], gpus
        for index, home in enumerate(homes):
            deserved = min(self.dice.choice((0, 1, 2, 3, 4, 6)), left)
            left -= deserved
            limit = deserved + self.dice.choice((0, 1, 2)) if self._one_in(self.knobs.limits) else None
            rank = self.dice.choice(tuple(RANKS)) if self._one_in(self.knobs.ranks) else "medium-low"
            projects.append(Shelf(f"q{index}", deserved, limit or None, home, rank))
        return tuple(self._department(name, projects) for name in names), tuple(projects)

    def _department(self, name: str, projects: Sequence[Shelf]) -> Shelf:
        deserved = sum(each.deserved for each in projects if each.parent == name)
        least = max((each.limit or 0 for each in projects if each.parent == name), default=0)
        limit = max(deserved + self.dice.choice((0, 1, 2)), least) if self._one_in(self.knobs.caps) else None
        return Shelf(name, deserved, limit or None)

    def _team(self, plan: Contest) -> Team | None:
        """One that runs: None where it found no room or is over a limit."""
        drawn = self._drawn(f"g{len(plan.teams)}", plan.projects)
        placed = _requested(plan, drawn)
        if placed.kind != "placed" or len(placed.placements) < len(drawn.nodes):
            return None
        return replace(drawn, nodes=tuple(placed.placements.values()))

    def _drawn(self, name: str, projects: Sequence[Shelf]) -> Team:
        chosen = projects[0] if self._one_in(self.knobs.crowded) else self.dice.choice(projects)
        pods = self.dice.choice((2, 2, 3)) if self._one_in(self.knobs.gangs) else self.dice.choice((1, 1, 1, 2))
        least = self.dice.randint(1, pods) if self._one_in(self.knobs.surplus) else pods
        gpus = self.dice.choice((1, 1, 2) if pods > 1 else (1, 1, 2, 2, 3, 4))
        priority, fixed = self.dice.choice(PRIORITIES), self._one_in(self.knobs.fixed)
        young = self._one_in(self.knobs.young)
        return Team(name, chosen.name, priority, gpus, least, (None,) * pods, fixed, young=young)

    def _candidate(self, projects: Sequence[Shelf]) -> Team:
        drawn = self._drawn("candidate", projects)
        near = len(drawn.nodes) > 1 and self._one_in(self.knobs.near)
        never = self._one_in(self.knobs.never)
        return replace(drawn, least=len(drawn.nodes), fixed=False, never=never, near=near, young=False)
