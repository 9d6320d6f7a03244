"""What a manifest becomes is counted in full: nothing grows, hides or overflows past the quota check."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from clusters.ports.objects import POD
from clusters.ports.pods import requests_of
from clusters.watch.rules import sanitize
from tests.workloads.intake.manifests import IMAGE, VALID, Manifest, container, one_gpu, pod, problems_of, read

SHARE = {"annotations": {"gpu-fraction": "0.5"}}


def changed(kind: str, change: Callable[[Manifest], Any]) -> Manifest:
    body = copy.deepcopy(VALID[kind]())
    change(body["spec"])
    return body


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_ray_groups_keep_to_the_count_they_write(kind: str) -> None:
    def cluster(spec: Manifest) -> Manifest:
        found: Manifest = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
        return found

    growing = changed(kind, lambda spec: cluster(spec).update(enableInTreeAutoscaling=True))
    assert any(pointer.endswith("/enableInTreeAutoscaling") for pointer in problems_of(growing))
    for bounds in ({"minReplicas": 7}, {"replicas": 9, "maxReplicas": 3}):
        outside = changed(kind, lambda spec, given=bounds: cluster(spec)["workerGroupSpecs"][0].update(given))
        assert any(pointer.endswith("/workerGroupSpecs/0/replicas") for pointer in problems_of(outside))


def test_a_component_without_an_upper_bound_gets_its_lower_one() -> None:
    spec = read(
        changed("InferenceService", lambda spec: spec.update(predictor={"minReplicas": 5, "containers": [container()]}))
    )
    assert spec.manifest["spec"]["predictor"]["maxReplicas"] == 5
    assert spec.pods == 5
    assert spec.warnings


def test_an_upper_bound_below_the_lower_one_is_refused() -> None:
    body = changed("InferenceService", lambda spec: spec["predictor"].update(minReplicas=5, maxReplicas=2))
    assert "/spec/predictor/maxReplicas" in problems_of(body)


def test_a_revision_without_an_upper_bound_gets_its_lower_one() -> None:
    notes = {"autoscaling.knative.dev/min-scale": "9"}
    spec = read(changed("Service", lambda spec: spec["template"].update(metadata={"annotations": notes})))
    assert spec.manifest["spec"]["template"]["metadata"]["annotations"]["autoscaling.knative.dev/max-scale"] == "9"
    assert spec.pods == 9


def test_a_revision_with_bounds_that_cross_is_refused() -> None:
    notes = {"autoscaling.knative.dev/min-scale": "9", "autoscaling.knative.dev/max-scale": "2"}
    body = changed("Service", lambda spec: spec["template"].update(metadata={"annotations": notes}))
    assert "/spec/template/metadata/annotations/autoscaling.knative.dev~1max-scale" in problems_of(body)


def test_a_share_in_a_workflow_step_is_counted() -> None:
    step = {"name": "main", "metadata": SHARE, "container": {"image": IMAGE}}
    spec = read(changed("Workflow", lambda spec: spec.update(entrypoint="main", templates=[step])))
    assert spec.total.gpu == 500


def test_a_share_and_a_whole_gpu_in_an_init_container_are_refused() -> None:
    body = pod(containers=[{"name": "main", "image": IMAGE}], initContainers=[container("early", resources=one_gpu())])
    body["metadata"].update(SHARE)
    assert "/metadata/annotations/gpu-fraction" in problems_of(body)


def test_the_larger_side_of_a_device_is_counted() -> None:
    sides = {"limits": {"gpu": "8"}, "requests": {"gpu": "1"}}
    spec = read(changed("DynamoGraphDeployment", lambda spec: spec["services"]["worker"].update(resources=sides)))
    assert spec.total.gpu == 8000


def test_more_pods_than_any_cluster_holds_are_refused() -> None:
    body = changed("JobSet", lambda spec: spec["replicatedJobs"][0].update(replicas=10_000))
    body["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 10_000
    assert problems_of(body)["/spec"].code == "too_many_pods"


def test_totals_that_no_column_stores_are_refused() -> None:
    huge = container(resources={"limits": {"memory": "7Ei"}})
    body = changed("Job", lambda spec: spec.update(parallelism=100))
    body["spec"]["template"]["spec"]["containers"] = [huge]
    assert problems_of(body)["/spec"].code == "too_much"


def test_a_submitted_pod_is_counted_as_it_is_once_observed() -> None:
    """A native sidecar, an init container and two containers: intake and observation count by one rule."""
    ask = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}
    sidecar = container("sidecar", resources=ask) | {"restartPolicy": "Always"}
    early = container("early", resources={"limits": {"cpu": "9"}})
    body = pod(containers=[container("main", resources=ask), container("more")], initContainers=[sidecar, early])
    spec = read(body)
    observed = sanitize(POD, {**body, "metadata": {"name": "p", "uid": "u"}})
    assert observed is not None
    assert (spec.total.gpu, spec.total.cpu) == (2000 + read(pod(containers=[container("more")])).total.gpu, 10_000)
    assert requests_of(observed) == spec.total


def test_t9_the_label_of_shared_gpus_is_kais_own() -> None:
    body = pod(containers=[container("main", resources=one_gpu())])
    body["metadata"]["labels"] = {"runai-gpu-group": "mine"}
    assert problems_of(body)["/metadata/labels/runai-gpu-group"].code == "managed_label"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("runai-gpu-group", "The label runai-gpu-group is reserved for KAI Scheduler. Remove it."),
        ("pod-template-hash", "The label pod-template-hash is reserved for the controllers of Kubernetes. Remove it."),
        ("app.kubernetes.io/managed-by", "The label app.kubernetes.io/managed-by is reserved for Rung. Remove it."),
        (
            "kueue.x-k8s.io/queue-name",
            "Labels with the prefix kueue.x-k8s.io/ are reserved for Kueue. "
            "Remove the label kueue.x-k8s.io/queue-name.",
        ),
        (
            "pod-security.kubernetes.io/enforce",
            "Labels with the prefix pod-security.kubernetes.io/ are reserved for Kubernetes. "
            "Remove the label pod-security.kubernetes.io/enforce.",
        ),
        (
            "example.org/team",
            "Labels with the prefix example.org/ are reserved for the controllers of the cluster. "
            "Remove the label example.org/team.",
        ),
        (
            "kai.scheduler/preemptibility",
            "Rung sets the label kai.scheduler/preemptibility of pods. "
            "Remove it, and choose the preemptibility of the workload instead.",
        ),
    ],
)
def test_a_reserved_label_of_a_pod_template_names_who_reserves_it_and_what_to_do(label: str, message: str) -> None:
    body = changed("Job", lambda spec: spec["template"].setdefault("metadata", {}).update(labels={label: "mine"}))
    (found,) = problems_of(body).values()
    assert (found.code, found.message) == ("managed_label", message)


def test_a_launcher_that_waits_for_its_own_gang_is_refused() -> None:
    body = changed("MPIJob", lambda spec: spec.update(launcherCreationPolicy="WaitForWorkersReady"))
    assert "/spec/launcherCreationPolicy" in problems_of(body)


def test_a_step_does_not_hide_the_node_pools_selector() -> None:
    body = changed("Workflow", lambda spec: spec["templates"][0].update(nodeSelector={"kubernetes.io/arch": "amd64"}))
    assert "/spec/templates/0/nodeSelector" in problems_of(body)


@pytest.mark.parametrize(
    ("kind", "pointer"),
    [
        pytest.param("VirtualMachineInstance", "/spec", id="machine"),
        pytest.param("TaskRun", "/spec/podTemplate", id="task"),
        pytest.param("Workflow", "/spec/templates/0", id="workflow"),
        pytest.param("ScheduledWorkflow", "/spec/workflow/spec/templates/0", id="scheduled workflow"),
    ],
)
def test_t38_a_class_beside_the_pod_templates_is_a_wish_too(kind: str, pointer: str) -> None:
    body = VALID[kind]()
    node: Any = body
    for step in pointer.split("/")[1:]:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    node["priorityClassName"] = "very-high"
    spec = read(body)
    assert spec.request.pod_priority_class == ((f"{pointer}/priorityClassName", "very-high"),)
    assert "very-high" not in repr(spec.manifest)
