"""Scenarios that `manage.py forecast_report --export` writes: the model decides as the scheduler was seen to decide.

Here recorded decisions of kube-scheduler in that form. `RUNG_SCENARIO=FILE` runs the lines of that file too.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from scheduling.forecast.scenario import Scenario
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import MIN_RUNTIME_CAUSES, Cause, EvictionExemptions
from scheduling.model.snapshot import Snapshot, Taint, Toleration
from tests.builders import gang, node, snapshot
from tests.scheduling.test_real_schedulers import Line, group, lines, nodes

TRIED = Path(os.environ.get("RUNG_SCENARIO", ""))


def exported() -> list[Scenario]:
    """Those of the file that is to be tried."""
    texts = TRIED.read_text(encoding="utf-8").splitlines() if TRIED.is_file() else []
    return [Scenario.from_json(json.loads(text)) for text in texts]


def of_kube(line: Line) -> Scenario:
    groups = tuple(group(pod, pod["ns"], preemptible=True) for pod in line["pods"])
    candidate = group(line["candidate"], line["candidate"]["ns"], preemptible=True)
    outcome = line["outcome"]
    return Scenario(
        "kube", Snapshot(nodes(line), (), groups), (candidate,), outcome["kind"], frozenset(outcome["victims"])
    )


RECORDED = [of_kube(line) for line in lines("kube.jsonl")]


@pytest.mark.parametrize("scenario", [*RECORDED, *exported()])
def test_the_model_agrees_with_what_was_seen(scenario: Scenario) -> None:
    said = scenario.outcome()
    assert scenario.agrees(), f"seen: {scenario.kind} {sorted(scenario.victims)}; the model: {said.kind} {said.victims}"


@pytest.mark.parametrize("scenario", RECORDED)
def test_it_is_the_same_after_a_trip_through_json_and_under_other_names(scenario: Scenario) -> None:
    assert Scenario.from_json(json.loads(json.dumps(scenario.as_json()))) == scenario
    other = scenario.anonymous()
    assert other.agrees()
    assert other.snapshot.nodes[0].name != scenario.snapshot.nodes[0].name
    assert len(other.victims) == len(scenario.victims)


def test_another_outcome_than_the_models_is_noticed() -> None:
    scenario = next(each for each in RECORDED if each.victims)
    for kind, victims in ((OutcomeKind.PENDING, scenario.victims), (OutcomeKind.PLACED, frozenset[str]())):
        wrong = Scenario(scenario.flavour, scenario.snapshot, scenario.candidates, kind, victims)
        assert not wrong.agrees()


def test_what_a_configuration_never_evicts_comes_back_as_it_was() -> None:
    exempt = EvictionExemptions(frozenset({Cause.RECLAIM}), MIN_RUNTIME_CAUSES, below_minimum=True)
    scenario = Scenario("volcano", replace(snapshot(node("n", 1)), exempt=exempt), (gang("new"),), OutcomeKind.PLACED)
    again = Scenario.from_json(json.loads(json.dumps(scenario.as_json())))
    assert again == scenario
    assert {type(each) for each in (*again.snapshot.exempt.causes, *again.snapshot.exempt.inside_min_runtime)} == {
        Cause
    }


class Text(str):
    """A text of another type, as templates make."""

    __slots__ = ()


def test_labels_and_taints_get_other_names_and_decide_as_before() -> None:
    tainted = replace(node("a", 8, zone="east"), name=Text("a"), taints=(Taint("team", "red", "NoSchedule"),))
    asks = replace(gang("new", gpus=8), node_selector={"zone": "east"}, tolerations=(Toleration("team", value="red"),))
    scenario = Scenario("kube", snapshot(tainted, node("b", 8, order=1)), (asks,), OutcomeKind.PLACED)
    other = scenario.anonymous()
    assert (scenario.outcome().placements, scenario.agrees(), other.agrees()) == ({"new-0": "a"}, True, True)
    (renamed, _) = other.snapshot.nodes
    assert not {"zone", "east", "team", "red"} & {*renamed.labels, *renamed.labels.values(), renamed.taints[0].key}
