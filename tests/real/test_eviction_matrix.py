"""Cells of the eviction matrix, and what the real kube-scheduler does with such pods on one full node each."""

from itertools import product

import pytest

from scheduling.forecast.cycle import Flavour
from scheduling.forecast.eviction_matrix import EvictionCase, EvictionSettings, VictimPlace, cause_of_eviction
from scheduling.model.resources import Resources
from tests.real.scenarios.generator import VALUES
from tests.real.scenarios.plain import NAMESPACES, NodePlan, PodPlan, Scenario
from tests.real.scenarios.stage import Stage
from tests.support.lab import LabCluster

PLACES = {NAMESPACES[0]: VictimPlace.OWN, NAMESPACES[1]: VictimPlace.WITHIN}
GPU = Resources.of(gpu=1)


def cell(seed: int, value: int, never: bool, namespace: str, victim: int) -> tuple[EvictionCase, Scenario]:
    """A cell, and the same with real pods: a node with one GPU, which the victim holds."""
    case = EvictionCase(
        EvictionSettings(Flavour.KUBE), PLACES[namespace], (value > victim) - (value < victim), never=never
    )
    node = NodePlan("node", Resources.of(gpu=1, cpu=8, memory="64Gi"))
    held = PodPlan("victim", namespace, GPU, victim, node="node")
    return case, Scenario(seed, "cell", (node,), (held,), PodPlan("candidate", NAMESPACES[0], GPU, value, never=never))


@pytest.mark.timeout(300)
def test_yes_cells_evict_and_no_cells_wait(scheduled_cluster: LabCluster) -> None:
    weak, middle, strong = (sorted(VALUES)[at] for at in (0, len(VALUES) // 2, -1))
    requested = product((weak, middle, strong), (False, True), PLACES, (weak, middle, strong))
    cells = [cell(seed, *each) for seed, each in enumerate(requested)]
    stage = Stage(scheduled_cluster.admin)
    try:
        stage.furnish([scenario for _case, scenario in cells])
        seen = stage.decide([(scenario, scenario.candidate) for _case, scenario in cells])
    finally:
        stage.clear()
    expected = {scenario.seed: {"victim"} if cause_of_eviction(case) else set() for case, scenario in cells}
    assert {seed: set(verdict.victims) for seed, verdict in seen.items()} == expected
    assert {bool(victims) for victims in expected.values()} == {True, False}
