"""Seeded scenarios for KAI in which others wait already when a workload comes."""

from dataclasses import replace
from random import Random
from typing import Final

from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Evict, OutcomeKind, Start
from tests.real.scenarios.kai_plans import (
    FAMILIES,
    LATER,
    Plan,
    Work,
    before,
    candidate_of,
    group_of,
    outcome_of,
    queues_of,
    running_on,
)

MOST: Final = 5
TRIES: Final = 40
KINDS: Final = (
    OutcomeKind.PLACED,
    OutcomeKind.PREEMPTS,
    OutcomeKind.RECLAIMS,
    OutcomeKind.CONSOLIDATES,
    OutcomeKind.PENDING,
)
NUMBERS: Final = "0123456789abcdef"  # names decide between what is of one second


def crowd(seed: int) -> Plan:
    """The same for as long as the model's forecasts stay: each has a kind of outcome that it would rather have."""
    dice = Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    wished = dice.choice(KINDS)
    for plan in (plan for plan in (_plan(dice, seed, family) for _try in range(TRIES)) if plan.waiting):
        if outcome_of(plan, consolidates=True).kind is wished:
            break
    return plan


def _plan(dice: Random, seed: int, family: str) -> Plan:
    """Whoever comes and has to wait is one more that waits; the candidate is who has not, or the last."""
    nodes = {f"n{index}": dice.choice((2, 4, 4, 8)) for index in range(dice.randint(1, 3))}
    queues = queues_of(dice, family)
    work = running_on(dice, family, nodes, queues)
    found = Plan(seed, family, nodes, queues, work, candidate_of(dice, family, queues))
    waiting = list[Work]()
    for _try in range(3 * MOST):
        plan = replace(found, waiting=tuple(waiting), candidate=candidate_of(dice, family, queues))
        if not _others_rest(plan):
            continue
        found = plan
        if len(waiting) == MOST or outcome_of(plan, consolidates=True).kind is not OutcomeKind.PENDING:
            break
        waiting.append(replace(plan.candidate, name=f"w{NUMBERS[len(work) + len(waiting)]}"))
    return found


def _others_rest(plan: Plan) -> bool:
    """In the candidate's cycle nobody starts of those that wait, and nobody goes for them."""
    mine = group_of(plan.candidate, LATER)
    decisions = cycle(before(plan, consolidates=True).with_groups([mine]), flavour="kai")
    starts = [each.group.name for each in decisions if isinstance(each, Start)]
    takers = [each.for_group for each in decisions if isinstance(each, Evict)]
    return {mine.name}.issuperset([*starts, *takers])
