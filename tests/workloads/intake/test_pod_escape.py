"""T10-T24: what would let a pod reach its node, on every kind and at every nested place."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.workloads.intake.manifests import SCOPE, VALID, Manifest, container, pod, pod_with, problems_of, read
from tests.workloads.intake.pod_places import at
from tests.workloads.intake.refusals import REFUSED_CONTAINERS, REFUSED_PODS, Table

POD = "/spec"
MAIN = "/spec/containers/0"


def cases(table: Table) -> Any:
    return pytest.mark.parametrize(("change", "pointer"), [pytest.param(*row, id=name) for name, row in table.items()])


@cases(REFUSED_PODS)
def test_t10_to_t17_and_t24_in_a_pod(change: dict[str, Any], pointer: str) -> None:
    assert POD + pointer in problems_of(pod(**change))


@cases(REFUSED_CONTAINERS)
def test_t11_to_t22_in_a_container(change: dict[str, Any], pointer: str) -> None:
    assert MAIN + pointer in problems_of(pod_with(**change))


@pytest.mark.parametrize("restart", [None, "Always"], ids=["init", "sidecar"])
@cases(REFUSED_CONTAINERS)
def test_t15_init_containers_and_sidecars_are_no_way_round(
    change: dict[str, Any], pointer: str, restart: str | None
) -> None:
    extra = {"restartPolicy": restart} if restart else {}
    body = pod(initContainers=[container("early", **change, **extra)])
    assert f"/spec/initContainers/0{pointer}" in problems_of(body)


def objects(node: Any, pointer: str = "") -> Iterator[tuple[str, Manifest]]:
    """Every object inside a manifest with its pointer; free maps such as labels are left to their own rules."""
    if isinstance(node, dict):
        yield pointer, node
        for key, child in node.items():
            if key not in {"labels", "annotations", "matchLabels", "services"} and not key.endswith("ReplicaSpecs"):
                yield from objects(child, f"{pointer}/{key}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from objects(child, f"{pointer}/{index}")


@pytest.mark.parametrize("kind", sorted(VALID))
def test_t24_an_unknown_field_is_refused_wherever_it_stands(kind: str) -> None:
    for pointer, _ in objects(VALID[kind]()):
        body = VALID[kind]()
        at(body, pointer)["escapeOfTomorrow"] = True
        found = problems_of(body)
        assert any(each.startswith(f"{pointer}/") or each == pointer for each in found), pointer


WAYS_ROUND: dict[str, tuple[str, Callable[[Manifest], Any], str]] = {
    "argo patch": (
        "Workflow",
        lambda spec: spec["templates"][0].update(podSpecPatch="hostNetwork: true"),
        "/spec/templates/0/podSpecPatch",
    ),
    "argo account": ("Workflow", lambda spec: spec.update(serviceAccountName="admin"), "/spec/serviceAccountName"),
    "tekton account": ("TaskRun", lambda spec: spec.update(serviceAccountName="admin"), "/spec/serviceAccountName"),
    "tekton reference": ("TaskRun", lambda spec: spec.update(taskRef={"name": "x"}), "/spec/taskRef"),
    "kserve account": (
        "InferenceService",
        lambda spec: spec["predictor"].update(serviceAccountName="admin"),
        "/spec/predictor/serviceAccountName",
    ),
    "dynamo pod": (
        "DynamoGraphDeployment",
        lambda spec: spec["services"]["worker"]["extraPodSpec"].update(hostNetwork=True),
        "/spec/services/worker/extraPodSpec/hostNetwork",
    ),
    "aml environment": (
        "AMLJob",
        lambda spec: spec["job"]["options"].update(envs={"LD_PRELOAD": "/x.so"}),
        "/spec/job/options/envs/LD_PRELOAD",
    ),
}


@pytest.mark.parametrize(("kind", "change", "pointer"), WAYS_ROUND.values(), ids=WAYS_ROUND)
def test_t18_the_kinds_own_ways_round_are_closed(kind: str, change: Callable[[Manifest], Any], pointer: str) -> None:
    body = VALID[kind]()
    change(body["spec"])
    assert pointer in problems_of(body)


def test_t19_an_image_without_a_registry_is_on_docker_hub_also_for_the_allow_list() -> None:
    image = pod_with(image="pytorch:2.1")
    assert read(image).manifest["spec"]["containers"][0]["image"] == "docker.io/library/pytorch:2.1"
    others = replace(SCOPE, allowed_registries=("nvcr.io",))
    assert problems_of(image, scope=others)[f"{MAIN}/image"].code == "registry_denied"


@pytest.mark.parametrize(
    "image", ["a_b:5000/c", "a.b_c/d", "localhost/", "a..b/c", "https://docker.io/a/b", "a:b:c", "A"]
)
def test_t19_what_no_engine_reads_is_no_image(image: str) -> None:
    assert problems_of(pod_with(image=image))[f"{MAIN}/image"].code == "bad_image"


@pytest.mark.parametrize(
    "amount", ["0.5", 1.5, -1, "1e9", "9999999999999999999", "0x8", "1Gi", "08", " 8", True, 65, [1]]
)
def test_t21_gpus_are_a_plain_whole_number(amount: object) -> None:
    body = pod_with(resources={"limits": {"nvidia.com/gpu": amount}})
    assert f"{MAIN}/resources/limits/nvidia.com~1gpu" in problems_of(body)


def test_t21_a_request_equals_its_limit() -> None:
    body = pod_with(resources={"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}})
    assert f"{MAIN}/resources/requests/nvidia.com~1gpu" in problems_of(body)


@pytest.mark.parametrize("resource", ["amd.com/gpu", "nvidia.com/mig-1g.10gb", "smarter-devices/fuse", "hugepages-2Mi"])
def test_t21_other_devices_are_not_granted(resource: str) -> None:
    assert problems_of(pod_with(resources={"limits": {resource: 1}}))


@pytest.mark.parametrize("path", ["../etc", "a/../../b", "/abs"])
def test_t23_a_sub_path_stays_inside_its_volume(path: str) -> None:
    mount = {"name": "v", "mountPath": "/data", "subPath": path}
    body = pod(volumes=[{"name": "v", "emptyDir": {}}], containers=[container(volumeMounts=[mount])])
    assert f"{MAIN}/volumeMounts/0/subPath" in problems_of(body)


RESERVED_PATHS = [
    "/",
    "//",
    "/.",
    "/proc",
    "/proc/self",
    "//proc",
    "///proc/",
    "/./proc",
    "//./sys/fs/cgroup",
    "/dev",
    "//dev/shm/..",
    "/run",
    "/var/run/secrets/kubernetes.io/serviceaccount",
    "//var/run/secrets/kubernetes.io/serviceaccount",
    "/var//run/secrets",
]


@pytest.mark.parametrize("path", RESERVED_PATHS)
def test_a_mount_never_covers_what_the_runtime_mounts_however_its_path_is_written(path: str) -> None:
    mount = {"name": "v", "mountPath": path}
    body = pod(volumes=[{"name": "v", "emptyDir": {}}], containers=[container(volumeMounts=[mount])])
    assert f"{MAIN}/volumeMounts/0/mountPath" in problems_of(body)


@pytest.mark.parametrize("path", ["//proc/self", "/"])
def test_other_fields_that_become_mounts_are_no_way_round(path: str) -> None:
    assert f"{MAIN}/terminationMessagePath" in problems_of(pod_with(terminationMessagePath=path))
    job = VALID["MPIJob"]()
    job["spec"]["sshAuthMountPath"] = path
    assert "/spec/sshAuthMountPath" in problems_of(job)


@pytest.mark.parametrize("path", ["/data", "//data", "/procedures", "/var/lib", "/dev/shm"])
def test_other_mounts_are_allowed(path: str) -> None:
    mount = {"name": "v", "mountPath": path}
    body = pod(volumes=[{"name": "v", "emptyDir": {}}], containers=[container(volumeMounts=[mount])])
    assert not problems_of(body)
    assert not problems_of(pod_with(terminationMessagePath="/dev/termination-log"))


NOT_OF_KUBERNETES: Table = {
    "a liveness probe of two successes": (
        {"livenessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}},
        "/livenessProbe/successThreshold",
    ),
    "a readiness probe that ends": (
        {"readinessProbe": {"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 3}},
        "/readinessProbe/terminationGracePeriodSeconds",
    ),
    "a hook that oversleeps": (
        {"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}},
        "/lifecycle/preStop/sleep/seconds",
    ),
}


@cases(NOT_OF_KUBERNETES)
def test_what_the_api_server_would_refuse_is_refused_before(change: dict[str, Any], pointer: str) -> None:
    assert MAIN + pointer in problems_of(pod_with(**change))


def test_only_a_sidecar_is_probed_among_init_containers() -> None:
    early = container("early", livenessProbe={"tcpSocket": {"port": 1}})
    assert "/spec/initContainers/0/livenessProbe" in problems_of(pod(initContainers=[early]))
    assert problems_of(pod(initContainers=[{**early, "restartPolicy": "Always"}])) == {}


@pytest.mark.parametrize(
    ("toleration", "field"),
    [({"operator": "Exists", "value": "x"}, "value"), ({"operator": "Exists", "tolerationSeconds": 3}, "effect")],
)
def test_a_toleration_that_means_nothing_is_refused(toleration: dict[str, Any], field: str) -> None:
    body = pod(tolerations=[{"key": "nvidia.com/gpu", **toleration}])
    assert f"/spec/tolerations/0/{field}" in problems_of(body)
