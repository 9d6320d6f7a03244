"""Gangs of the plain scheduler on the embedded cluster, and what is predicted: whole starts, whole evictions."""

from typing import Any

import pytest

from clusters.inventory.models import Node
from clusters.ports.gateway import Manifest
from clusters.watch.models import ObservedPod
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tests.factories.workloads import bare_pod, pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.rules.messages import DoubtCode
from workloads.forecast.selectors.preview import forecast
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Lab:
    """Three nodes of 8 GPUs."""
    return Lab("kube-gangs", nodes=3)


def test_a_gang_without_room_for_all_of_it_starts_nothing(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=64)
    first = lab.submit(team, "first", manifest=pytorch_job("first", gpus=8, workers=1))
    lab.settle()
    second = lab.submit(team, "second", manifest=pytorch_job("second", gpus=8, workers=1))
    lab.settle()
    assert (fresh(first).phase, fresh(first).running_pods) == (Phase.RUNNING, 2)
    assert (fresh(second).phase, fresh(second).allocated_gpu_milli) == (Phase.PENDING, 0)


def test_a_stronger_gang_takes_a_weaker_one_whole_as_it_was_predicted(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=64)
    weak = lab.submit(team, "weak", manifest=pytorch_job("weak", gpus=8, workers=1), priority="low")
    lab.settle()
    wanted = pytorch_job("strong", gpus=8, workers=1)
    predicted = forecast(spec=spec_of(wanted, priority="high", namespace=team.namespace), project=team, actor=SYSTEM)
    assert predicted.verdict is Verdict.EVICTS
    assert [(victim.workload, victim.gpu_milli) for victim in predicted.victims] == [(weak, 16_000)]
    assert not any("single pods of a running gang" in caution for caution in predicted.cautions)
    strong = lab.submit(team, "strong", manifest=wanted, priority="high")
    lab.settle(rounds=8, seconds=20)
    assert fresh(strong).phase == Phase.RUNNING
    [preemption] = PreemptionRecord.objects.filter(first=None)
    assert (preemption.victim, preemption.preemptor, preemption.others.count()) == (weak, strong, 1)
    assert fresh(weak).preempted_count == 1
    assert fresh(weak).allocated_gpu_milli == 0


def test_a_single_pod_breaks_a_gang(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=64)
    weak = lab.submit(team, "weak", manifest=pytorch_job("weak", gpus=8, workers=2), priority="low")
    lab.settle()
    wanted = bare_pod("single", gpus=8)
    predicted = forecast(spec=spec_of(wanted, priority="high", namespace=team.namespace), project=team, actor=SYSTEM)
    assert any("single pods of a running gang" in caution for caution in predicted.cautions)
    lab.submit(team, "single", manifest=wanted, priority="high")
    lab.settle()
    assert PreemptionRecord.objects.filter(victim=weak).count() == 1


def racked(name: str, *, workers: int = 1, key: str = "rack") -> Manifest:
    """A gang that wants one rack."""
    manifest = pytorch_job(name, gpus=8, workers=workers)
    manifest["metadata"]["annotations"] = {"rung.dev/topology-key": key}
    return manifest


@pytest.fixture
def racks() -> Lab:
    """Two racks of two nodes."""
    lab = Lab("kube-gangs", nodes=0)
    for number in range(4):
        lab.node(f"node-{number}", rack=f"rack-{number % 2}")
    return lab


def racks_of(workload: Workload) -> set[str]:
    names = ObservedPod.objects.filter(owner_id=str(workload.pk)).exclude(node_name="").values_list("node_name")
    return {node.labels["rack"] for node in Node.objects.filter(name__in=names)}


def test_a_gang_of_one_rack_lands_in_one_and_evicts_nobody_for_it(racks: Lab) -> None:
    team = racks.project("llm-team", deserved=64)
    first = racks.submit(team, "first", manifest=racked("first"), priority="low")
    racks.settle()
    assert len(racks_of(first)) == 1
    racks.submit(team, "single", gpus=8, priority="low")
    racks.settle()
    spec = spec_of(racked("strong"), priority="high", namespace=team.namespace)
    predicted = forecast(spec=spec, project=team, actor=SYSTEM)
    strong = racks.submit(team, "strong", manifest=racked("strong"), priority="high")
    racks.settle()
    assert predicted.verdict is Verdict.WAITS
    assert any("one topology domain" in caution for caution in predicted.cautions)
    assert (fresh(strong).phase, racks_of(strong)) == (Phase.PENDING, set())
    assert not PreemptionRecord.objects.exists()


@pytest.mark.parametrize(
    ("flavour", "requested", "code"),
    [
        pytest.param("kube", {}, "topology_unsupported", id="a scheduler that does not support"),
        pytest.param("kube-gangs", {"workers": 0}, "topology_of_one", id="a workload of one pod"),
        pytest.param("kube-gangs", {"key": "nowhere/rack"}, "topology_unknown", id="a key that no node carries"),
    ],
)
def test_a_topology_that_cannot_be_is_refused(flavour: str, requested: dict[str, Any], code: str) -> None:
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=64)
    lab.settle()
    with pytest.raises(ValidationFailed) as error:
        lab.submit(team, "train", manifest=racked("train", **requested))
    found = {(each.pointer, each.code) for each in error.value.problems}  # beside the gang's size
    assert ("/metadata/annotations/rung.dev~1topology-key", code) in found


def test_a_waiting_gang_that_will_evict_it_next_is_named() -> None:
    """The newcomer takes a GPU that the gang counts on and that is not reserved."""
    lab = Lab("kube-gangs", nodes=2)
    team = lab.project("llm-team", deserved=64)
    for number in range(2):
        lab.submit(team, f"kept-{number}", gpus=4, priority="very-high")
        lab.settle(2)
    lab.submit(team, "low", gpus=2, priority="low")
    lab.settle()
    waiting = lab.submit(team, "gang", manifest=pytorch_job("gang", gpus=4, workers=1), priority="high")
    lab.settle(1)
    spec = spec_of(bare_pod("newcomer", gpus=1), priority="medium", namespace=team.namespace)
    preview = forecast(spec=spec, project=team, actor=SYSTEM)
    assert preview.verdict is Verdict.STARTS
    [doubt] = preview.doubts
    assert doubt.code is DoubtCode.EVICTED_NEXT
    assert doubt.sentence.endswith("They are not reserved for the gang: gang may evict it next.")
    newcomer = lab.submit(team, "newcomer", manifest=bare_pod("newcomer", gpus=1), priority="medium")
    lab.settle(2)
    [preemption] = PreemptionRecord.objects.filter(victim=newcomer)
    assert preemption.preemptor == waiting


def test_no_eviction_is_predicted_where_a_waiting_gang_would_not_fit_anyway(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=64)
    lab.submit(team, "kept", gpus=4, priority="very-high")
    lab.settle(2)
    lab.submit(team, "gang", manifest=pytorch_job("gang", gpus=8, workers=2), priority="high")
    lab.settle(2)
    spec = spec_of(bare_pod("newcomer", gpus=4), priority="medium", namespace=team.namespace)
    preview = forecast(spec=spec, project=team, actor=SYSTEM)
    assert (preview.verdict, preview.doubts) == (Verdict.STARTS, ())


@pytest.mark.parametrize(("weak", "doubts"), [(1, False), (2, True)])
def test_a_gang_may_lose_what_its_victims_free_until_all_have_stopped(weak: int, *, doubts: bool) -> None:
    """One that is evicted may start again on its node before the other one has stopped."""
    lab = Lab("kube-gangs", nodes=2)
    team = lab.project("llm-team", deserved=64)
    for number in range(weak):
        lab.submit(team, f"weak-{number}", gpus=8, priority="low")
    lab.settle()
    wanted = spec_of(pytorch_job("gang", gpus=8, workers=1), priority="high", namespace=team.namespace)
    found = forecast(spec=wanted, project=team, actor=SYSTEM)
    assert found.verdict is Verdict.EVICTS
    assert (DoubtCode.RIVALS_FIRST in {each.code for each in found.doubts}) is doubts
    single = spec_of(bare_pod("single", gpus=8), priority="high", namespace=team.namespace)
    alone = forecast(spec=single, project=team, actor=SYSTEM)
    assert DoubtCode.RIVALS_FIRST not in {each.code for each in alone.doubts}
