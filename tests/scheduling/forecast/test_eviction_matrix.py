"""Who can evict whom, priority by priority, as the rules of each scheduler decide it."""

import pytest

from scheduling.forecast.cycle import Flavour, preview
from scheduling.forecast.eviction_matrix import (
    Blocker,
    EvictionCase,
    EvictionSettings,
    VictimPlace,
    blockers_of,
    cause_of_eviction,
)
from scheduling.model.preemptibility import MIN_RUNTIME_CAUSES, Cause, EvictionExemptions, FairSharingStrategy
from tests.builders import RUNAI_VALUES, gang, node, queue, running, snapshot

OWN, OVER, WITHIN = VictimPlace.OWN, VictimPlace.OVER, VictimPlace.WITHIN
KUBE, GANGS, KAI, KUEUE, VOLCANO = (EvictionSettings(flavour) for flavour in Flavour)
SHIPPED = EvictionSettings(Flavour.VOLCANO, EvictionExemptions(frozenset({Cause.PREEMPT, Cause.RECLAIM})))


@pytest.mark.parametrize(
    ("settings", "place", "lower", "equal", "fixed"),
    [
        pytest.param(KUBE, OWN, True, False, True, id="kube: lower ones of the own project, non-preemptible or not"),
        pytest.param(KUBE, WITHIN, True, False, True, id="kube: and those of any other project"),
        pytest.param(GANGS, WITHIN, True, False, True, id="kube with gangs: the same"),
        pytest.param(KAI, OWN, True, False, False, id="KAI: lower and preemptible ones of the own queue"),
        pytest.param(KAI, OVER, True, True, False, id="KAI: any preemptible one of a queue over quota"),
        pytest.param(KAI, WITHIN, False, False, False, id="KAI: none of a queue within quota"),
        pytest.param(KUEUE, OWN, True, False, True, id="Kueue: lower ones, non-preemptible or not"),
        pytest.param(KUEUE, OVER, True, True, True, id="Kueue: any borrower"),
        pytest.param(KUEUE, WITHIN, False, False, False, id="Kueue: none within its quota"),
        pytest.param(VOLCANO, OWN, True, False, False, id="Volcano: lower and preemptible ones of the own queue"),
        pytest.param(VOLCANO, OVER, True, True, False, id="Volcano: any preemptible one over quota"),
        pytest.param(SHIPPED, OWN, False, False, False, id="Volcano as shipped: none"),
        pytest.param(SHIPPED, OVER, False, False, False, id="Volcano as shipped: nor of others"),
    ],
)
def test_each_scheduler_evicts_whom_its_rules_name(
    settings: EvictionSettings, place: VictimPlace, lower: bool, equal: bool, fixed: bool
) -> None:
    assert bool(cause_of_eviction(EvictionCase(settings, place, order=1))) is lower
    assert bool(cause_of_eviction(EvictionCase(settings, place, order=0))) is equal
    assert bool(cause_of_eviction(EvictionCase(settings, place, order=1, preemptible=False))) is fixed


@pytest.mark.parametrize(
    ("case", "blockers"),
    [
        pytest.param(EvictionCase(KAI, OWN, 0), {Blocker.ORDER}, id="not lower"),
        pytest.param(
            EvictionCase(KAI, OWN, -1, preemptible=False), {Blocker.ORDER, Blocker.NON_PREEMPTIBLE}, id="two reasons"
        ),
        pytest.param(EvictionCase(KUBE, OWN, 1, never=True), {Blocker.NEVER}, id="Never on kube-scheduler"),
        pytest.param(EvictionCase(KAI, OWN, 1, never=True), set(), id="Never on KAI, which ignores it"),
        pytest.param(EvictionCase(KUEUE, WITHIN, 1), {Blocker.WITHIN_QUOTA}, id="within quota"),
        pytest.param(EvictionCase(SHIPPED, OVER, 1), {Blocker.CONFIGURATION}, id="no such action"),
        pytest.param(
            EvictionCase(EvictionSettings(Flavour.VOLCANO, EvictionExemptions(below_minimum=True)), OWN, 1),
            {Blocker.CONFIGURATION},
            id="the gang plugin protects the minimum",
        ),
    ],
)
def test_what_protects_the_victim_is_named(case: EvictionCase, blockers: set[Blocker]) -> None:
    assert set(blockers_of(case)) == blockers


@pytest.mark.parametrize(
    ("settings", "evicted"),
    [
        pytest.param(KAI, False, id="KAI protects the minimum runtime"),
        pytest.param(KUBE, True, id="kube-scheduler does not know it"),
        pytest.param(VOLCANO, True, id="Volcano without the plugin cdp"),
        pytest.param(
            EvictionSettings(Flavour.VOLCANO, EvictionExemptions(inside_min_runtime=MIN_RUNTIME_CAUSES)),
            False,
            id="Volcano with cdp",
        ),
    ],
)
@pytest.mark.parametrize("place", [OWN, OVER])
def test_the_minimum_runtime_protects_where_the_scheduler_knows_it(
    settings: EvictionSettings, evicted: bool, place: VictimPlace
) -> None:
    assert bool(cause_of_eviction(EvictionCase(settings, place, 1, inside_minimum=True))) is evicted


@pytest.mark.parametrize("strategy", list(FairSharingStrategy))
def test_kueues_fair_sharing_does_not_let_a_project_take_what_another_deserves(strategy: FairSharingStrategy) -> None:
    settings = EvictionSettings(Flavour.KUEUE, fair_sharing=(strategy,))
    assert cause_of_eviction(EvictionCase(settings, OVER, -1)) is Cause.RECLAIM
    assert cause_of_eviction(EvictionCase(settings, WITHIN, 1)) is None


@pytest.mark.parametrize("flavour", list(Flavour))
def test_only_the_order_of_the_values_counts(flavour: Flavour) -> None:
    """The answers for signs are those of the forecast for every pair of Run:ai's priorities."""
    for who, high in RUNAI_VALUES.items():
        for whom, low in RUNAI_VALUES.items():
            victim = running("victim", "a", queue="team", priority=whom)
            there = snapshot(node("a", 1), queue("team", deserved=1), victim)
            outcome = preview(there, gang("new", priority=who, preemptible=True, created=1), flavour=flavour)
            order = (high > low) - (high < low)
            case = EvictionCase(EvictionSettings(flavour), OWN, order, preemptible=victim.preemptible)
            assert bool(outcome.victims) is bool(cause_of_eviction(case)), (who, whom)
