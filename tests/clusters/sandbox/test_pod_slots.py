"""Kinds that describe their pods without a pod template."""

from typing import Any

import pytest

from clusters.ports.gateway import Manifest
from clusters.ports.pods import labels, requests_of
from clusters.ports.workload_kinds import kind_named
from clusters.sandbox.rules import pod_for, slots_of
from scheduling.model.resources import Resources


def pods_of(name: str, spec: dict[str, Any], **marks: str) -> list[Manifest]:
    kind = kind_named(name)
    metadata = {"name": "it", "namespace": "runai-team", "uid": "u", "labels": marks}
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    return [pod_for(slot, owner, slot.key) for slot in slots_of(owner, kind)]


GPUS = {"limits": {"nvidia.com/gpu": "2"}}


@pytest.mark.parametrize(
    ("name", "spec", "wanted"),
    [
        pytest.param("NIMServices", {"replicas": 2, "resources": GPUS}, [2, 2], id="one container"),
        pytest.param(
            "DynamoGraphDeployment", {"services": {"a": {"resources": {"limits": {"gpu": "3"}}}}}, [3], id="gpu"
        ),
        pytest.param("TaskRun", {"taskSpec": {"steps": [{"resources": GPUS}, {"resources": GPUS}]}}, [4], id="steps"),
        pytest.param("Workflow", {"templates": [{"name": "t", "container": {"resources": GPUS}}]}, [2], id="container"),
        pytest.param("Workflow", {"templates": [{"name": "t", "script": {"resources": GPUS}}]}, [2], id="script"),
        pytest.param("InferenceService", {"predictor": {"model": {"resources": GPUS}}}, [2], id="a model server"),
        pytest.param("InferenceService", {"predictor": {"containers": [{"resources": GPUS}]}}, [2], id="containers"),
        pytest.param(
            "VirtualMachineInstance",
            {"domain": {"devices": {"gpus": [{}, {}]}, "resources": {"requests": {"memory": "1Gi"}}}},
            [2],
            id="passed-through devices",
        ),
    ],
)
def test_their_pods_ask_for_what_the_place_says(name: str, spec: dict[str, Any], wanted: list[int]) -> None:
    assert [requests_of(pod).gpu // 1000 for pod in pods_of(name, spec)] == wanted


def test_a_devfile_states_cpu_and_memory_in_its_own_words() -> None:
    container = {"image": "ide", "cpuRequest": "500m", "memoryLimit": "2Gi"}
    components = [{"name": "tools", "container": container}, {"name": "data", "volume": {}}]
    [pod] = pods_of("DevWorkspace", {"template": {"components": components}})
    assert requests_of(pod) == Resources.of(cpu="500m", memory="2Gi")


def test_labels_of_the_place_win_over_its_owners() -> None:
    spec = {"predictor": {"labels": {"team": "inner"}, "containers": [{"name": "main"}]}}
    [pod] = pods_of("InferenceService", spec, team="outer", tier="gold")
    assert (labels(pod)["team"], labels(pod)["tier"]) == ("inner", "gold")
    assert "labels" not in pod["spec"]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("Workflow", {"templates": [{"name": "t", "container": {}}], "nodeSelector": {"pool": "a"}}),
        ("TaskRun", {"taskSpec": {"steps": [{}]}, "podTemplate": {"nodeSelector": {"pool": "a"}}}),
        ("NIMServices", {"nodeSelector": {"pool": "a"}}),
        ("DynamoGraphDeployment", {"services": {"a": {"extraPodSpec": {"nodeSelector": {"pool": "a"}}}}}),
        ("VirtualMachineInstance", {"domain": {}, "nodeSelector": {"pool": "a"}}),
    ],
)
def test_a_node_selector_is_found_where_the_kind_keeps_it(name: str, spec: dict[str, Any]) -> None:
    [pod] = pods_of(name, spec)
    assert pod["spec"]["nodeSelector"] == {"pool": "a"}


def test_the_owners_priority_label_stands_in_where_a_pod_cannot_name_a_class() -> None:
    [pod] = pods_of("SPOTRequest", {}, priorityClassName="medium")
    assert pod["spec"]["priorityClassName"] == "medium"


def test_replicas_of_two_places_with_one_role_are_counted_on() -> None:
    templates = [{"name": "same", "container": {}}, {"name": "same", "script": {}}]
    assert [pod["metadata"]["name"] for pod in pods_of("Workflow", {"templates": templates})] == ["same-0", "same-1"]
