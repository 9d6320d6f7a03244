"""Seeded scenarios for KAI as it ships: gangs that want one domain of close nodes, and work that may be moved together.

Levels are written as Rung writes them, down to the single node.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

from clusters.flavours.objects import HOSTNAME
from scheduling.model.decisions import OutcomeKind
from tests.real.scenarios.kai_plans import PRIORITIES, Plan, Share, Work, outcome_of

BLOCK: Final = "example.com/block"
RACK: Final = "example.com/rack"
FAMILIES: Final = ("racks", "blocks and racks", "gangs beside gangs", "moved", "moved by racks")
TRIES: Final = 40
MOST: Final = 10
WISHES: Final[Mapping[str, tuple[OutcomeKind, ...]]] = {
    "moved": (OutcomeKind.CONSOLIDATES, OutcomeKind.CONSOLIDATES, OutcomeKind.PENDING),
    "moved by racks": (OutcomeKind.CONSOLIDATES, OutcomeKind.CONSOLIDATES, OutcomeKind.PENDING),
}
KINDS: Final = (OutcomeKind.PLACED, OutcomeKind.PREEMPTS, OutcomeKind.RECLAIMS, OutcomeKind.PENDING)


def near(seed: int) -> Plan:
    """The same for as long as the model's forecasts stay: each has a kind of outcome that it would rather have."""
    dice = Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    wished = dice.choice(WISHES.get(family, KINDS))
    for _try in range(TRIES):
        plan = _plan(dice, seed, family)
        if outcome_of(plan, consolidates=True).kind is wished:
            break
    return plan


def _plan(dice: Random, seed: int, family: str) -> Plan:
    moved = family.startswith("moved")
    levels = {"moved": (), "blocks and racks": (BLOCK, RACK, HOSTNAME)}.get(family, (RACK, HOSTNAME))
    size = dice.choice((2, 4, 4, 8))
    nodes = {f"n{index}": size if moved else dice.choice((size, size, 4)) for index in range(dice.randint(3, 6))}
    queues = (
        Share("da", None, 64 if moved else dice.choice((4, 8, 16))),
        Share("q0", "da", dice.choice((2, 4, 8)), weight=dice.choice((1, 2))),
        Share("q1", "da", dice.choice((0, 2, 4)), weight=dice.choice((1, 3))),
    )
    places = {name: _place(dice, levels, name) for name in nodes} if levels else {}
    work = _running(dice, family, nodes, places, levels)
    return Plan(seed, family, nodes, queues, work, _candidate(dice, family, levels, size), levels, places)


def _place(dice: Random, levels: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Racks of the same name are in both blocks; now and then a node lacks the last label."""
    values = {BLOCK: dice.choice("ab"), RACK: dice.choice(("r0", "r1", "r2")), HOSTNAME: name}
    place = tuple(values[level] for level in levels)
    return place if dice.random() > 0.05 else place[:-1]


def _running(
    dice: Random, family: str, nodes: Mapping[str, int], places: Mapping[str, tuple[str, ...]], levels: tuple[str, ...]
) -> tuple[Work, ...]:
    """Nearly full nodes, or half full ones where work is to be moved. Gangs of one domain are in one."""
    left, work = dict(nodes), list[Work]()
    most = 0.6 if family.startswith("moved") else 1.0
    for _try in range(3 * MOST):
        each = _one(dice, family, levels, f"w{len(work)}")
        room = [name for name, free in left.items() for _each in range(free // each.gpus)]
        if each.level:
            room = _near(dice, room, places, levels.index(each.level) + 1)
        used = 1 - sum(left.values()) / sum(nodes.values())
        if len(work) == MOST or len(room) < each.pods or used >= most:
            continue
        chosen = tuple(sorted(dice.sample(room, each.pods)))
        for name in chosen:
            left[name] -= each.gpus
        work.append(_at(each, chosen))
    return tuple(work)


def _near(dice: Random, room: list[str], places: Mapping[str, tuple[str, ...]], depth: int) -> list[str]:
    whole = max((len(place) for place in places.values()), default=0)
    paths = sorted({places[name][:depth] for name in room if len(places[name]) == whole})
    path = dice.choice(paths) if paths else None
    return [name for name in room if len(places[name]) == whole and places[name][:depth] == path]


def _at(work: Work, nodes: tuple[str, ...]) -> Work:
    return Work(
        work.name, work.queue, work.priority, work.preemptible, work.gpus, work.pods, work.minimum, nodes, work.level
    )


def _one(dice: Random, family: str, levels: tuple[str, ...], name: str) -> Work:
    gang = dice.random() < (0.6 if family == "gangs beside gangs" else 0.2)
    pods = dice.choice((2, 2, 3)) if gang else 1
    level = dice.choice(("", levels[-2])) if gang and levels and family != "racks" else ""
    return Work(
        name,
        dice.choice(("q0", "q1")),
        dice.choice(PRIORITIES),
        preemptible=dice.random() > 0.1,
        gpus=dice.choice((1, 1, 2)),
        pods=pods,
        minimum=pods,
        level=level,
    )


def _candidate(dice: Random, family: str, levels: tuple[str, ...], size: int) -> Work:
    """Of one domain, or as large as a node where work is to be moved."""
    gang = bool(levels) and (family != "moved by racks" or dice.random() < 0.6)
    pods = dice.choice((2, 2, 3, 4)) if gang else dice.choice((1, 1, 2))
    return Work(
        "x",
        dice.choice(("q0", "q0", "q1")),
        dice.choice(PRIORITIES),
        preemptible=family.startswith("moved") or dice.random() > 0.2,
        gpus=dice.choice((1, 2)) if gang else size,
        pods=pods,
        minimum=pods,
        level=dice.choice(levels[:-1]) if gang else "",
    )
