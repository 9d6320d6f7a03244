"""Gang minimum, placement and topology: predicted, brought to the pods, or refused with the scheduler's name."""

from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import ObservedPod
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tests.factories.workloads import bare_pod, job, pytorch_job, spec_of
from tests.workloads.intake.manifests import VALID
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.actions import resume, stop
from workloads.state.models import DesiredPhase, Phase, Workload

pytestmark = pytest.mark.django_db
Manifest = dict[str, Any]


def noted(manifest: Manifest, **notes: str) -> Manifest:
    manifest["metadata"]["annotations"] = {f"rung.dev/{name.replace('_', '-')}": text for name, text in notes.items()}
    return manifest


def nodes_of(workload: Workload) -> int:
    """On how many nodes its pods are."""
    rows = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None).exclude(node_name="")
    return rows.values("node_name").distinct().count()


@pytest.mark.parametrize("flavour", ["kube", "kai"])
@pytest.mark.parametrize(("placement", "nodes"), [("binpack", 1), ("spread", 3)])
def test_pods_go_where_the_submission_wants_them_as_predicted(flavour: str, placement: str, nodes: int) -> None:
    lab = Lab(flavour, nodes=3)
    team = lab.project("llm-team", deserved=24)
    lab.settle()
    wanted = noted(pytorch_job("train", gpus=2, workers=2), placement=placement)
    predicted = forecast(spec=spec_of(wanted, namespace=team.namespace), project=team, actor=SYSTEM)
    workload = lab.submit(team, "train", manifest=wanted)
    lab.settle()
    assert fresh(workload).phase == Phase.RUNNING
    assert (nodes_of(workload), len(predicted.nodes)) == (nodes, nodes)


@pytest.mark.parametrize(("placement", "nodes"), [("binpack", 1), ("spread", 3)])
def test_a_pool_is_filled_as_it_says_where_the_scheduler_has_a_strategy_per_pool(placement: str, nodes: int) -> None:
    lab = Lab("kai", nodes=3)
    NodePool.objects.update(gpu_placement=placement)
    team = lab.project("llm-team", deserved=24)
    workloads = [lab.submit(team, f"single-{number}") for number in range(3)]
    lab.settle()
    found = ObservedPod.objects.filter(owner_id__in=[str(each.pk) for each in workloads]).values("node_name").distinct()
    assert found.count() == nodes


@pytest.mark.parametrize(
    ("flavour", "manifest", "note", "words"),
    [
        pytest.param(
            "kube", noted(pytorch_job(workers=3), min_member="2"), "min-member", "one by one", id="no gangs at all"
        ),
        pytest.param(
            "kueue", noted(pytorch_job(workers=3), min_member="2"), "min-member", "all 4 pods", id="whole gangs only"
        ),
        pytest.param(
            "kai",
            noted(VALID["RayCluster"](), min_member="2"),
            "min-member",
            "a RayCluster has none",
            id="by its own field",
        ),
        pytest.param("volcano", noted(job(), placement="spread"), "placement", "does not support", id="no placement"),
        pytest.param(
            "kube", noted(pytorch_job(), topology_key="rack"), "topology-key", "does not support", id="no domain"
        ),
    ],
)
def test_what_a_scheduler_has_nothing_for_is_refused_with_its_name(
    flavour: str, manifest: Manifest, note: str, words: str
) -> None:
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=64)
    with pytest.raises(ValidationFailed) as refusal:
        lab.submit(team, "train", manifest=manifest)
    [problem] = refusal.value.problems
    assert problem.pointer == f"/metadata/annotations/rung.dev~1{note}"
    assert problem.numbers["flavour"] == flavour
    assert words in problem.message
    assert not Workload.objects.exists()


def half(manifest: Manifest) -> Manifest:
    """The same of half a GPU a pod."""
    template = manifest["spec"]["template"]
    template["metadata"] = {"annotations": {"gpu-fraction": "0.5"}}
    template["spec"]["containers"][0]["resources"] = {}
    return manifest


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs", "kueue", "volcano"])
def test_a_share_of_a_gpu_is_refused_where_pods_would_get_none(flavour: str) -> None:
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=64)
    with pytest.raises(ValidationFailed) as refusal:
        lab.submit(team, "train", manifest=half(job("train", gpus=0)))
    with pytest.raises(ValidationFailed, match="supports whole GPUs only"):
        forecast(spec=spec_of(half(job("train", gpus=0)), namespace=team.namespace), project=team, actor=SYSTEM)
    [problem] = refusal.value.problems
    assert (problem.pointer, problem.code) == (
        "/spec/template/metadata/annotations/gpu-fraction",
        "gpu_share_unsupported",
    )
    assert problem.message == (
        f"A pod requests 0.5 of a GPU. {flavour_for(flavour).title} on lab supports whole GPUs only; KAI Scheduler "
        "supports GPU sharing."
    )
    assert not Workload.objects.exists()


def test_a_share_of_a_gpu_is_taken_where_the_scheduler_knows_it() -> None:
    lab = Lab("kai")
    workload = lab.submit(lab.project("llm-team"), "train", manifest=half(job("train", gpus=0)))
    assert workload.gpu_milli == 500


def test_what_stopped_with_a_share_of_a_gpu_is_not_resumed_under_a_scheduler_that_gives_none() -> None:
    lab = Lab("kai")
    workload = lab.submit(lab.project("llm-team"), "train", manifest=half(job("train", gpus=0)))
    lab.settle()
    stop(workload=fresh(workload), actor=SYSTEM)
    Cluster.objects.update(flavour="kube")
    with pytest.raises(ValidationFailed, match="supports whole GPUs only"):
        resume(workload=fresh(workload), actor=SYSTEM)
    assert fresh(workload).desired_phase == DesiredPhase.STOPPED


def test_a_bare_pod_is_refused_at_its_own_annotation() -> None:
    manifest = bare_pod(gpus=0)
    manifest["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    lab = Lab("kube")
    with pytest.raises(ValidationFailed) as refusal:
        lab.submit(lab.project("llm-team"), "pod", manifest=manifest)
    assert refusal.value.problems[0].pointer == "/metadata/annotations/gpu-fraction"


def test_a_kind_that_leaves_its_pods_to_an_operator_takes_no_placement() -> None:
    lab = Lab("kube")
    team = lab.project("llm-team", deserved=64)
    with pytest.raises(ValidationFailed) as refusal:
        lab.submit(team, "served", manifest=noted(VALID["NIMServices"](), placement="spread"))
    assert "The operator of NIMService creates the pods" in refusal.value.problems[0].message


def test_a_gang_starts_with_its_minimum_where_all_of_it_has_no_room() -> None:
    lab = Lab("kai")
    team = lab.project("llm-team", deserved=64)
    whole = lab.submit(team, "whole", manifest=pytorch_job("whole", gpus=4, workers=3))
    lab.settle()
    assert fresh(whole).phase == Phase.PENDING
    part = lab.submit(team, "part", manifest=noted(pytorch_job("part", gpus=4, workers=3), min_member="2"))
    lab.settle(rounds=5)
    assert (fresh(part).running_pods, fresh(part).phase) == (2, Phase.RUNNING)
