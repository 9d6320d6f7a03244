"""The form's fields become the object their type runs as, through the same door as a manifest."""

from typing import Any

import pytest

from scheduling.model.resources import Resources
from tests.workloads.intake.manifests import SCOPE
from workloads.intake import FormFields, IntakeRefused, WorkloadSpec, read_form
from workloads.intake.rules.forms import RUNS_AS

IMAGE = "docker.io/a/b:1"


MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def form(kind: str = "Training", **fields: Any) -> WorkloadSpec:
    needed = {"model": MODEL} if kind == "HuggingFaceInference" else {}
    return read_form(FormFields(**{"type": kind, "name": "theirs", "image": IMAGE, **needed, **fields}), scope=SCOPE)


def refused(kind: str = "Training", **fields: Any) -> set[str]:
    with pytest.raises(IntakeRefused) as refusal:
        form(kind, **fields)
    return {problem.pointer for problem in refusal.value.problems}


@pytest.mark.parametrize(
    ("kind", "rendered"),
    [
        ("Workspace", "StatefulSet"),
        ("Training", "Job"),
        ("Distributed", "PyTorchJob"),
        ("Inference", "Deployment"),
        ("NIMInference", "Deployment"),
        ("HuggingFaceInference", "Deployment"),
        ("DistributedInference", "LeaderWorkerSet"),
    ],
)
def test_a_native_type_keeps_its_name_whatever_it_is_rendered_as(kind: str, rendered: str) -> None:
    spec = form(kind, gpus="2", workers=2)
    assert (spec.type_name, spec.kind, spec.source) == (kind, rendered, "form")


@pytest.mark.parametrize("name", ["t" * 80, "Ünï-code", "X_Y"])
@pytest.mark.parametrize("kind", ["Workspace", "Inference"])
def test_a_bad_name_is_refused_once_although_labels_repeat_it(kind: str, name: str) -> None:
    with pytest.raises(IntakeRefused) as refusal:
        form(kind, name=name)
    assert [problem.pointer for problem in refusal.value.problems] == ["/name"]


@pytest.mark.parametrize(
    ("framework", "pods", "gpus"),
    [("PyTorch", 3, 24), ("XGBoost", 3, 24), ("TF", 3, 24), ("JAX", 3, 24), ("MPI", 4, 24)],
)
def test_workers_are_the_pods_that_hold_gpus(framework: str, pods: int, gpus: int) -> None:
    spec = form("Distributed", framework=framework, workers=3, gpus="8")
    assert (spec.pods, spec.total.gpu, spec.min_member) == (pods, gpus * 1000, pods)


def test_a_single_distributed_worker_leads_alone() -> None:
    assert form("Distributed", workers=1, gpus="8").pods == 1


def test_every_field_arrives() -> None:
    spec = form(
        command="python -m train",
        arguments='--name "two words"',
        gpus="1",
        cpu="500m",
        memory="2Gi",
        port=8888,
        environment=(("SEED", "1"),),
        node_pools=("h100", "a100"),
        grace_seconds=120,
        run_seconds=60,
        checkpoint_interval="10m",
        priority="low",
        preemptibility="preemptible",
    )
    (main,) = spec.manifest["spec"]["template"]["spec"]["containers"]
    assert main["command"] == ["python", "-m", "train"]
    assert main["args"] == ["--name", "two words"]
    assert main["env"] == [{"name": "SEED", "value": "1"}]
    assert main["ports"] == [{"containerPort": 8888}]
    assert spec.total == Resources.of(gpu=1, cpu="500m", memory="2Gi")
    assert spec.node_pools == ("h100", "a100")
    assert spec.roles[0].grace_seconds == 120
    assert spec.annotations == {"rung.dev/run-seconds": "60", "rung.dev/checkpoint-interval": "10m"}
    assert (spec.request.explicit_priority, spec.request.explicit_preemptibility) == ("low", "preemptible")


def test_a_share_of_a_gpu_is_counted_exactly() -> None:
    assert form(gpus="0.25").total.gpu == 250


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"type": "Podcast"}, "/type"),
        ({"framework": "Caffe"}, "/framework"),
        ({"name": "Not A Name"}, "/name"),
        ({"image": "evil.example/pytorch:2.1"}, "/image"),
        ({"gpus": "-1"}, "/gpus"),
        ({"gpus": "0.001"}, "/gpus"),
        ({"gpus": "many"}, "/gpus"),
        ({"cpu": "lots"}, "/cpu"),
        ({"memory": "lots"}, "/memory"),
        ({"command": "python 'unclosed"}, "/command"),
        ({"environment": (("LD_PRELOAD", "/x"),)}, "/environment"),
        ({"port": 99_999}, "/port"),
        ({"grace_seconds": 999_999}, "/grace_seconds"),
        ({"checkpoint_interval": "often"}, "/checkpoint_interval"),
        ({"workers": 0}, "/workers"),
        ({"replicas": 0}, "/replicas"),
        ({"priority": "system-node-critical"}, "/priority"),
        ({"preemptibility": "maybe"}, "/preemptibility"),
    ],
)
def test_problems_come_back_at_the_forms_fields(fields: dict[str, Any], pointer: str) -> None:
    assert pointer in refused(**fields)


@pytest.mark.parametrize("gpus", ["2.5", "65", "-1", "many", "0.001", "0.995", "1.0"])
@pytest.mark.parametrize("kind", ["Training", "Distributed"])
def test_a_refused_number_of_gpus_names_whole_numbers_and_fractions_once(kind: str, gpus: str) -> None:
    with pytest.raises(IntakeRefused) as refusal:
        form(kind, gpus=gpus, workers=2)
    (problem,) = refusal.value.problems
    accepted = "a whole number of GPUs from 0 to 64 or a fraction of one GPU from 0.01 to 0.99"
    assert (problem.pointer, problem.code) == ("/gpus", "bad_gpu_count")
    assert problem.message == f"'{gpus}' is not {accepted}."


@pytest.mark.parametrize("kind", RUNS_AS)
def test_the_kinds_that_a_type_needs_are_those_it_is_made_of(kind: str) -> None:
    for framework, needed in RUNS_AS[kind].items():
        spec = form(kind, workers=2, **({"framework": framework} if framework else {}))
        assert f"{spec.api_version} {spec.kind}" == needed
