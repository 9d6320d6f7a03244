"""Who can evict whom by priority: answers of the scheduling model as tables, with the rule behind each cell. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

from scheduling.forecast.cycle import Flavour
from scheduling.forecast.eviction_matrix import (
    Blocker,
    EvictionCase,
    EvictionSettings,
    VictimPlace,
    blockers_of,
    cause_of_eviction,
)
from scheduling.model.preemptibility import Cause
from workloads.dictionary.rules.drafts import Draft, DraftEntry


class Evictable(StrEnum):
    """Which workloads of a priority can be evicted."""

    ALL = "all"
    PREEMPTIBLE = "preemptible"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """Workloads of the priority `candidate` against those of the priority `victim`. rules: sentences that say why."""

    candidate: str
    victim: str
    evicts: Evictable
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MatrixTable:
    """Every priority against every priority, for victims in each of these places. Rows and columns: strongest first."""

    places: tuple[VictimPlace, ...]
    rows: tuple[tuple[MatrixCell, ...], ...]

    @property
    def uniform(self) -> MatrixCell | None:
        """The one cell that all others are like: priority plays no part."""
        first = self.rows[0][0] if self.rows else None
        alike = first and all(_answer(cell) == _answer(first) for row in self.rows for cell in row)
        return first if alike else None

    @property
    def evicts(self) -> dict[tuple[str, str], Evictable]:
        """What each (candidate, victim) evicts; only the pairs in which anything is evicted."""
        cells = (cell for row in self.rows for cell in row)
        return {(cell.candidate, cell.victim): cell.evicts for cell in cells if cell.evicts is not Evictable.NONE}

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """(candidate, victim) of the cells in which anything is evicted."""
        return set(self.evicts)


@dataclass(frozen=True, slots=True)
class EvictionMatrix:
    """A table per place, those alike as one.

    evicts_inside_minimum: workloads inside their minimum runtime can be evicted, too.
    """

    priorities: tuple[DraftEntry, ...]
    tables: tuple[MatrixTable, ...]
    evicts_inside_minimum: bool

    @property
    def own(self) -> MatrixTable:
        """Inside a project."""
        return self.tables[0]

    def table_of(self, place: VictimPlace) -> MatrixTable:
        """Against victims there."""
        return next(table for table in self.tables if place in table.places)

    @property
    def rules(self) -> tuple[str, ...]:
        """Every sentence once, in the order of the cells."""
        cells = (cell for table in self.tables for row in table.rows for cell in row)
        return tuple(dict.fromkeys(rule for cell in cells for rule in cell.rules))


def _answer(cell: MatrixCell) -> tuple[Evictable, tuple[str, ...]]:
    return cell.evicts, cell.rules


def eviction_matrix(draft: Draft, settings: EvictionSettings) -> EvictionMatrix:
    """For the offered priorities of a dictionary on a cluster whose scheduler is configured so."""
    priorities = tuple(reversed(draft.offered))
    tables = [(place, _rows(priorities, settings, place)) for place in VictimPlace]
    alike = [(rows, [place for place, _rows in same]) for rows, same in groupby(tables, key=lambda each: each[1])]
    inside_minimum = any(
        cause_of_eviction(EvictionCase(settings, place, order=1, inside_minimum=True))
        for place in (VictimPlace.OWN, VictimPlace.OVER)
    )
    return EvictionMatrix(
        priorities,
        tuple(MatrixTable(tuple(places), rows) for rows, places in alike),
        evicts_inside_minimum=inside_minimum,
    )


def _rows(
    priorities: Sequence[DraftEntry], settings: EvictionSettings, place: VictimPlace
) -> tuple[tuple[MatrixCell, ...], ...]:
    return tuple(tuple(_cell(candidate, victim, settings, place) for victim in priorities) for candidate in priorities)


def _cell(candidate: DraftEntry, victim: DraftEntry, settings: EvictionSettings, place: VictimPlace) -> MatrixCell:
    order = (candidate.value > victim.value) - (candidate.value < victim.value)
    never = candidate.preemption_policy == "Never"
    preemptible, fixed = (EvictionCase(settings, place, order, never, each) for each in (True, False))
    rules = [*_rules(preemptible)]
    evicts = Evictable.NONE
    if cause_of_eviction(preemptible):
        evicts = Evictable.ALL if cause_of_eviction(fixed) else Evictable.PREEMPTIBLE
        rules += _rules(fixed)
    return MatrixCell(candidate.name, victim.name, evicts, tuple(dict.fromkeys(rules)))


def _rules(case: EvictionCase) -> list[str]:
    flavour = case.settings.flavour
    if cause := cause_of_eviction(case):
        return [EVICTS[flavour, cause]]
    return [_blocked(blocker, case) for blocker in blockers_of(case)]


def _blocked(blocker: Blocker, case: EvictionCase) -> str:
    if blocker is Blocker.CONFIGURATION:
        action = Cause.PREEMPT if case.place is VictimPlace.OWN else Cause.RECLAIM
        if action in case.settings.exempt.causes:
            return (BY_DEFAULT if case.settings.assumed else WITHOUT).format(action=action)
        return ABOVE_MINIMUM if case.settings.exempt.below_minimum else CONFIGURED
    return BLOCKED.get((case.settings.flavour, blocker), BLOCKED[None, blocker])


WITHOUT: Final = "The scheduler is not configured with the action {action}."
BY_DEFAULT: Final = (
    "Assumption: the scheduler lacks the action {action}, as by default. Its configuration on this cluster is unknown."
)
ABOVE_MINIMUM: Final = "By its configuration the scheduler evicts only pods above the minimum of their job."
CONFIGURED: Final = "The scheduler's configuration excludes it."
KUBE: Final = (
    "kube-scheduler evicts pods of lower priority on any node, in any namespace. It knows neither projects nor quotas "
    "nor preemptibility."
)
EVICTS: Final[Mapping[tuple[Flavour, Cause], str]] = {
    (Flavour.KUBE, Cause.PREEMPT): KUBE,
    (Flavour.KUBE_GANGS, Cause.PREEMPT): KUBE,
    (Flavour.KAI, Cause.PREEMPT): "KAI preempts inside the project's queue: preemptible workloads of lower priority.",
    (Flavour.KAI, Cause.RECLAIM): (
        "KAI reclaims for a project within its deserved quota from preemptible workloads of a project above its own, "
        "whatever the priorities. Projects of two departments are compared by their departments. Up to its fair share "
        "it reclaims above the deserved quota, too, from a project above its own fair share."
    ),
    (Flavour.KUEUE, Cause.PREEMPT): (
        "Kueue preempts inside the project's queue (withinClusterQueue: LowerPriority) for a job that alone fits the "
        "deserved quota. It knows no preemptibility."
    ),
    (Flavour.KUEUE, Cause.RECLAIM): (
        "Kueue takes back borrowed quota (reclaimWithinCohort: Any) for a job within its project's deserved quota, "
        "whatever the priorities. It knows no preemptibility."
    ),
    (Flavour.VOLCANO, Cause.PREEMPT): (
        "Volcano's action preempt evicts preemptible workloads of lower priority in the project's queue."
    ),
    (Flavour.VOLCANO, Cause.RECLAIM): (
        "Volcano's action reclaim evicts preemptible workloads of a queue above its deserved quota, whatever the "
        "priorities. Departments are not compared."
    ),
}
BLOCKED: Final[Mapping[tuple[Flavour | None, Blocker], str]] = {
    (None, Blocker.ORDER): "Equal and higher priorities are not evicted.",
    (None, Blocker.NEVER): "The preemption policy of the priority is Never.",
    (None, Blocker.NON_PREEMPTIBLE): "Non-preemptible workloads are not evicted.",
    (None, Blocker.WITHIN_QUOTA): "Nothing is taken from a project within its deserved quota.",
    (Flavour.KAI, Blocker.WITHIN_QUOTA): (
        "Nothing is taken from a project within its deserved quota, unless its department is above its own and the "
        "taker is of another department."
    ),
}


ANYWHERE: Final = "in the whole cluster, in any project"
IN_QUEUE: Final = "within one queue"
ANY_WORK: Final = "including non-preemptible workloads"
PREEMPTIBLE: Final = "preemptible workloads only"
NOWHERE: Final = "no priority evicts another"


def reach_of(matrix: EvictionMatrix) -> str:
    """How far a higher priority goes, in a few words."""
    found = {cell.evicts for row in matrix.own.rows for cell in row} - {Evictable.NONE}
    if not found:
        return NOWHERE
    place = ANYWHERE if VictimPlace.WITHIN in matrix.own.places else IN_QUEUE
    return f"{place}, {ANY_WORK if Evictable.ALL in found else PREEMPTIBLE}"


@dataclass(frozen=True, slots=True)
class PairChanges:
    """Pairs (candidate, victim) that evict from now on, no longer, and other workloads than before."""

    new: frozenset[tuple[str, str]]
    lost: frozenset[tuple[str, str]]
    other: frozenset[tuple[str, str]]

    @property
    def any(self) -> bool:
        """Does any pair change?"""
        return bool(self.new or self.lost or self.other)


def changed_pairs(before: MatrixTable, after: MatrixTable) -> PairChanges:
    """By what is evicted, not by the rules behind it."""
    old, new = before.evicts, after.evicts
    return PairChanges(
        new=frozenset(new.keys() - old.keys()),
        lost=frozenset(old.keys() - new.keys()),
        other=frozenset(pair for pair in old.keys() & new.keys() if old[pair] is not new[pair]),
    )


ELSEWHERE: Final[Mapping[VictimPlace, str]] = {
    VictimPlace.OVER: "In another project above its deserved quota",
    VictimPlace.WITHIN: "In another project within its deserved quota",
}


def changes_elsewhere(before: EvictionMatrix, after: EvictionMatrix) -> Iterable[str]:
    """A sentence for each place outside the project where other pairs evict than before."""
    for place, words in ELSEWHERE.items():
        old, new = before.table_of(place), after.table_of(place)
        changes = changed_pairs(old, new)
        widened = sum(new.evicts[pair] is Evictable.ALL for pair in changes.other)
        counts = (
            (len(changes.new), "gained"),
            (len(changes.lost), "lost"),
            (widened, "extended to non-preemptible workloads"),
            (len(changes.other) - widened, "restricted to preemptible workloads"),
        )
        parts = [f"{number} {'pair' if number == 1 else 'pairs'} {what}" for number, what in counts if number]
        if parts:
            yield f"{words}: {', '.join(parts)}."


def difference(before: MatrixTable, after: MatrixTable, priorities: Iterable[DraftEntry]) -> list[dict[str, Any]]:
    """The table as rows of `{who, value, cells: [{whom, before, evicts, mark}]}`.

    mark: "+" gained, "-" lost, "~" other workloads than before, "" unchanged.
    priorities: of both dictionaries, in the order of rows and columns. A priority that is gone evicts nothing any more.
    """
    changes, old, new = changed_pairs(before, after), before.evicts, after.evicts
    named = list(priorities)

    def cell(pair: tuple[str, str]) -> dict[str, str]:
        mark = "+" if pair in changes.new else "-" if pair in changes.lost else "~" if pair in changes.other else ""
        then, now = (str(table.get(pair, Evictable.NONE)) for table in (old, new))
        return {"whom": pair[1], "before": then, "evicts": now, "mark": mark}

    return [
        {"who": row.name, "value": row.value, "cells": [cell((row.name, column.name)) for column in named]}
        for row in named
    ]
