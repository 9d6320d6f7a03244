"""Native fields: what they become as a Kubernetes object, and what is refused where it stands. No database."""

from typing import Any

import pytest

from workloads.intake import IntakeRefused, NativeBody, ProjectGrants, WorkloadSpec, read_native
from workloads.intake.rules.native.fields import FIELDS, MASTER

CATEGORIES = ("Build", "Deploy", "Train")
SCOPE = ProjectGrants(
    namespace="runai-llm-team", categories=CATEGORIES, allowed_registries=("docker.io",), secrets=("ngc",)
)
SPEC: dict[str, Any] = {"image": "docker.io/team/train:1", "compute": {"gpuDevicesRequest": 1}}


def read(
    kind: str = "trainings", *, master: dict[str, Any] | None = None, same: bool = False, **spec: Any
) -> WorkloadSpec:
    """What a submission of this kind becomes."""
    native = NativeBody(kind, "train", {**SPEC, **spec}, master=master, master_same=same)
    return read_native(native, scope=SCOPE)


def refused(kind: str = "trainings", *, master: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    """Where it is refused."""
    with pytest.raises(IntakeRefused) as refusal:
        read(kind, master=master, **spec)
    return [each.pointer for each in refusal.value.problems]


def pod_of(spec: WorkloadSpec) -> dict[str, Any]:
    found: dict[str, Any] = spec.manifest["spec"]["template"]["spec"]
    return found


def main_of(spec: WorkloadSpec) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(spec)["containers"][0]
    return found


def test_t34_lines_are_split_as_a_shell_would_and_nothing_of_them_is_evaluated() -> None:
    found = main_of(read(command="bash -c 'echo $HOME; rm -rf {{ x }}'", args='--name "a b"'))
    assert found["command"] == ["bash", "-c", "echo $HOME; rm -rf {{ x }}"]
    assert found["args"] == ["--name", "a b"]


def test_lists_leave_out_what_they_exclude() -> None:
    variables = [{"name": "A", "value": "1", "exclude": False}, {"name": "B", "exclude": True}, None]
    labels = [{"name": "stage", "value": "one", "exclude": None}, {"name": "kai.scheduler/queue", "exclude": True}]
    found = read(environmentVariables=variables, labels=labels)
    assert main_of(found)["env"] == [{"name": "A", "value": "1"}]
    assert found.manifest["metadata"]["labels"] == {"stage": "one"}


def test_values_come_from_granted_secrets_and_from_the_pod_itself() -> None:
    variables = [
        {"name": "KEY", "secret": {"name": "ngc", "key": "k"}},
        {"name": "NAME", "podFieldRef": {"path": "metadata.name"}},
    ]
    sources = [each["valueFrom"] for each in main_of(read(environmentVariables=variables))["env"]]
    assert sources == [
        {"secretKeyRef": {"name": "ngc", "key": "k"}},
        {"fieldRef": {"fieldPath": "metadata.name"}},
    ]


@pytest.mark.parametrize(
    ("compute", "milli"),
    [
        ({"gpuDevicesRequest": 4}, 4000),
        ({"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.25}, 250),
        ({"gpuDevicesRequest": 1, "gpuPortionRequest": 0.5, "gpuPortionLimit": 0.5}, 500),
        ({"gpuDevicesRequest": 2, "gpuRequestType": "portion", "gpuPortionRequest": 1}, 2000),
        ({"gpuPortionRequest": 1}, 1000),
        ({"cpuCoreRequest": 0.5}, 0),
    ],
)
def test_gpus_are_whole_or_a_portion_of_one(compute: dict[str, Any], milli: int) -> None:
    assert read("workspaces", compute=compute, category="train").total.gpu == milli


def test_storage_and_shared_memory_are_mounted() -> None:
    storage = {
        "pvc": [{"path": "/data", "existingPvc": True, "claimName": "data", "dataSharing": False}],
        "emptyDirVolume": [{"path": "/scratch", "sizeLimit": "1Gi"}],
        "secretVolume": [{"secret": "ngc", "mountPath": "/key", "defaultMode": "0400"}],
        "hostPath": [],
        "s3": None,
    }
    found = read(storage=storage, compute={"largeShmRequest": True})
    assert [each["mountPath"] for each in main_of(found)["volumeMounts"]] == ["/data", "/scratch", "/key", "/dev/shm"]
    assert pod_of(found)["volumes"][2]["secret"] == {"secretName": "ngc", "defaultMode": 0o400}


def test_a_claim_that_lives_with_its_pod_is_written_out() -> None:
    info = {"size": "10Gi", "storageClass": "fast", "accessModes": {"readWriteOnce": True, "readWriteMany": False}}
    found = read(storage={"pvc": [{"path": "/data", "existingPvc": False, "ephemeral": True, "claimInfo": info}]})
    spec = pod_of(found)["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert (spec["accessModes"], spec["storageClassName"]) == (["ReadWriteOnce"], "fast")


def test_security_takes_rights_away_only() -> None:
    requested = {"uidGidSource": "custom", "runAsUid": 1000, "runAsGid": 1000, "supplementalGroups": "1, 1000680000"}
    found = read(security={**requested, "readOnlyRootFilesystem": True, "hostIpc": False, "capabilities": []})
    assert pod_of(found)["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "supplementalGroups": [1, 1000680000],
    }
    assert main_of(found)["securityContext"] == {"readOnlyRootFilesystem": True}


def test_a_readiness_probe_and_tolerations_are_their_own() -> None:
    probes = {"readiness": {"periodSeconds": 5, "handler": {"httpGet": {"path": "/ready", "port": 80}}}}
    found = read(
        probes=probes, tolerations=[{"name": "gpu", "key": "nvidia.com/gpu", "operator": "Exists", "effect": "Any"}]
    )
    assert main_of(found)["readinessProbe"] == {"httpGet": {"path": "/ready", "port": 80}, "periodSeconds": 5}
    assert pod_of(found)["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("framework", "gpus", "pods"),
    [("PyTorch", 3, 3), ("XGBoost", 3, 3), ("TF", 3, 3), ("JAX", 2, 2), ("MPI", 2, 3)],
)
def test_workers_stand_beside_the_leading_pod(framework: str, gpus: int, pods: int) -> None:
    always = {"slotsPerWorker": 1, "sshAuthMountPath": "/root/.ssh"}
    found = read("distributed", distributedFramework=framework, numWorkers=2, **always)
    assert (found.total.gpu, found.pods, found.min_member) == (gpus * 1000, pods, pods)


def test_a_launcher_told_to_be_like_its_workers_holds_a_gpu_too() -> None:
    assert read("distributed", same=True, distributedFramework="MPI", numWorkers=2).total.gpu == 3000


def test_a_master_may_be_another_than_its_workers() -> None:
    master = {**SPEC, "compute": {"gpuDevicesRequest": 4}, "preemptibility": "non-preemptible"}
    found = read("distributed", master=master, distributedFramework="PyTorch", numWorkers=2)
    assert found.total.gpu == 6000
    assert any("one preemptibility" in each for each in found.warnings)


def test_so_many_workers_as_are_named_start_together_with_their_master() -> None:
    found = read("distributed", distributedFramework="PyTorch", numWorkers=3, minReplicas=2, maxReplicas=3)
    assert (found.pods, found.min_member) == (4, 3)


def test_a_group_has_a_leader_and_its_workers_in_every_replica() -> None:
    native = NativeBody("distributed-inferences", "group", {"workers": 2, "replicas": 2, "leader": SPEC})
    found = read_native(native, scope=SCOPE)
    assert (found.pods, found.min_member) == (6, 3)


def test_a_nim_is_told_where_its_key_and_its_model_are() -> None:
    store = {"pvc": {"existingPvc": True, "claimName": "models", "readOnly": False}}
    spec = {**SPEC, "replicas": 2, "ngcAuthSecret": "ngc", "modelStore": store}
    found = read_native(NativeBody("nim-services", "nim", spec), scope=SCOPE)
    names = {each["name"] for each in main_of(found)["env"]}
    assert {"NGC_API_KEY", "NIM_CACHE_PATH"} <= names
    assert (found.type_name, found.pods) == ("NIMInference", 2)


FORBIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "t09 managed label": ({"labels": [{"name": "kai.scheduler/queue", "value": "x"}]}, "/spec/labels/0/name"),
    "t09 annotation": ({"annotations": [{"name": "a/b", "value": "x"}]}, "/spec/annotations/0/name"),
    "t10 host path": ({"storage": {"hostPath": [{"path": "/"}]}}, "/spec/storage/hostPath"),
    "t11 escalation": ({"security": {"allowPrivilegeEscalation": True}}, "/spec/security/allowPrivilegeEscalation"),
    "t11 capabilities": ({"security": {"capabilities": ["SYS_ADMIN"]}}, "/spec/security/capabilities"),
    "t12 host network": ({"security": {"hostNetwork": True}}, "/spec/security/hostNetwork"),
    "t12 host ipc": ({"security": {"hostIpc": True}}, "/spec/security/hostIpc"),
    "t14 nfs": ({"storage": {"nfs": [{"path": "/", "server": "x"}]}}, "/spec/storage/nfs"),
    "t14 foreign secret": (
        {"storage": {"secretVolume": [{"secret": "admin", "mountPath": "/s"}]}},
        "/spec/storage/secretVolume/0/secret",
    ),
    "t14 foreign secret in a variable": (
        {"environmentVariables": [{"name": "A", "secret": {"name": "admin", "key": "k"}}]},
        "/spec/environmentVariables/0/secret/name",
    ),
    "t14 foreign secret of a registry": ({"imagePullSecrets": [{"name": "admin"}]}, "/spec/imagePullSecrets/0/name"),
    "t16 root": ({"security": {"runAsUid": 0}}, "/spec/security/runAsUid"),
    "t16 a group no system has": (
        {"security": {"supplementalGroups": "1, 9999999999"}},
        "/spec/security/supplementalGroups",
    ),
    "t16 root by name": ({"security": {"runAsNonRoot": False}}, "/spec/security/runAsNonRoot"),
    "t16 unconfined": ({"security": {"seccompProfileType": "Unconfined"}}, "/spec/security/seccompProfileType"),
    "t17 control plane": ({"tolerations": [{"operator": "Exists"}]}, "/spec/tolerations/0/key"),
    "t17 affinity": ({"nodeAffinityRequired": {"nodeSelectorTerms": [{}]}}, "/spec/nodeAffinityRequired"),
    "t19 a host no engine reads": ({"image": "my_host:5000/a:1"}, "/spec/image"),
    "t19 denied registry": ({"image": "registry.example/a:1"}, "/spec/image"),
    "t19 digest": ({"image": "docker.io/a@sha256:1"}, "/spec/image"),
    "t20 preload": (
        {"environmentVariables": [{"name": "LD_PRELOAD", "value": "x"}]},
        "/spec/environmentVariables/0/name",
    ),
    "t20 all capabilities": (
        {"environmentVariables": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]},
        "/spec/environmentVariables/0/value",
    ),
    "t20 two sources": (
        {"environmentVariables": [{"name": "A", "value": "x", "podFieldRef": {"path": "metadata.name"}}]},
        "/spec/environmentVariables/0",
    ),
    "t21 negative": ({"compute": {"gpuDevicesRequest": -1}}, "/spec/compute/gpuDevicesRequest"),
    "t21 a fraction of devices": ({"compute": {"gpuDevicesRequest": 0.5}}, "/spec/compute/gpuDevicesRequest"),
    "t21 huge": ({"compute": {"gpuDevicesRequest": 1000000000000000000}}, "/spec/compute/gpuDevicesRequest"),
    "t21 text": ({"compute": {"gpuDevicesRequest": "8"}}, "/spec/compute/gpuDevicesRequest"),
    "t21 other vendor": (
        {"compute": {"extendedResources": [{"resource": "amd.com/gpu", "quantity": "1"}]}},
        "/spec/compute/extendedResources/0/resource",
    ),
    "t21 two portions": (
        {"compute": {"gpuDevicesRequest": 2, "gpuPortionRequest": 0.5}},
        "/spec/compute/gpuDevicesRequest",
    ),
    "t21 a portion that grows": (
        {"compute": {"gpuPortionRequest": 0.25, "gpuPortionLimit": 0.5}},
        "/spec/compute/gpuPortionLimit",
    ),
    "t21 a tiny portion": ({"compute": {"gpuPortionRequest": 0.001}}, "/spec/compute/gpuPortionRequest"),
    "t21 gpu memory": ({"compute": {"gpuMemoryRequest": "4Gi"}}, "/spec/compute/gpuMemoryRequest"),
    "t21 memory type": ({"compute": {"gpuRequestType": "memory"}}, "/spec/compute/gpuRequestType"),
    "t22 probe of another host": (
        {"probes": {"readiness": {"handler": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}}},
        "/spec/probes/readiness/handler/httpGet/host",
    ),
    "t23 path of a mount": (
        {"storage": {"emptyDirVolume": [{"path": "/a/../../proc"}]}},
        "/spec/storage/emptyDirVolume/0/path",
    ),
    "t24 unknown field": ({"hostNetwork": True}, "/spec/hostNetwork"),
    "t32 control character": ({"workingDir": "/a\x00"}, "/spec/workingDir"),
    "t35 system class": ({"priorityClass": "system-node-critical"}, "/spec/priorityClass"),
    "t37 preemptibility": ({"preemptibility": "maybe"}, "/spec/preemptibility"),
    "an unknown category": ({"category": "Lunch"}, "/spec/category"),
    "node type": ({"nodeType": "dgx"}, "/spec/nodeType"),
    "pod affinity": ({"podAffinity": {"type": "Required", "key": "rack"}}, "/spec/podAffinity"),
    "eviction that ends it": ({"terminateAfterPreemption": True}, "/spec/terminateAfterPreemption"),
    "no image": ({"image": None}, "/spec/image"),
    "request over limit": ({"compute": {"cpuCoreRequest": 2, "cpuCoreLimit": 1}}, "/spec/compute/cpuCoreRequest"),
    "quote without end": ({"command": "bash -c 'x"}, "/spec/command"),
    "a new lasting claim": (
        {"storage": {"pvc": [{"path": "/d", "existingPvc": False}]}},
        "/spec/storage/pvc/0/existingPvc",
    ),
    "restart of what ends": ({"restartPolicy": "Always"}, "/spec/restartPolicy"),
}


@pytest.mark.parametrize(("spec", "pointer"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_bad_field_is_refused_where_it_stands(spec: dict[str, Any], pointer: str) -> None:
    assert refused(**spec) == [pointer]


@pytest.mark.parametrize("field", ["storage", "security", "environmentVariables", "tolerations"])
def test_t18_the_same_holds_of_a_leading_pod_and_of_a_groups_parts(field: str) -> None:
    bad = {
        "storage": {"hostPath": [{"path": "/"}]},
        "security": {"hostNetwork": True},
        "environmentVariables": [{"name": "LD_PRELOAD"}],
        "tolerations": [{"operator": "Exists"}],
    }[field]
    (leading,) = refused("distributed", distributedFramework="PyTorch", master={**SPEC, field: bad})
    assert leading.startswith(f"/masterSpec/{field}/")
    group = {"leader": SPEC, "worker": {**SPEC, field: bad}, "workers": 1}
    with pytest.raises(IntakeRefused) as refusal:
        read_native(NativeBody("distributed-inferences", "group", group), scope=SCOPE)
    assert [each.pointer.split("/")[1:4] for each in refusal.value.problems] == [["spec", "worker", field]]


@pytest.mark.parametrize(
    ("kind", "spec", "pointer"),
    [
        ("inferences", {"autoscaling": {"minReplicas": 1, "maxReplicas": 3}}, "/spec/autoscaling/maxReplicas"),
        ("inferences", {"autoscaling": {"minReplicas": 0}}, "/spec/autoscaling/minReplicas"),
        ("distributed", {"distributedFramework": "PyTorch", "numWorkers": 2, "maxReplicas": 4}, "/spec/maxReplicas"),
        ("distributed", {"distributedFramework": "PyTorch", "numWorkers": 2, "minReplicas": 3}, "/spec/minReplicas"),
        ("distributed", {}, "/spec/distributedFramework"),
        ("distributed", {"distributedFramework": "Horovod"}, "/spec/distributedFramework"),
        ("workspaces", {"parallelism": 1}, "/spec/parallelism"),
        ("workspaces", {"restartPolicy": "Never"}, "/spec/restartPolicy"),
        ("inferences", {"backoffLimit": 1}, "/spec/backoffLimit"),
    ],
)
def test_a_kind_refuses_what_it_cannot_be(kind: str, spec: dict[str, Any], pointer: str) -> None:
    assert pointer in refused(kind, **spec)


def test_a_master_stands_alone_and_only_where_there_is_one() -> None:
    native = NativeBody(
        "distributed", "gang", {**SPEC, "distributedFramework": "JAX"}, master=dict(SPEC), master_same=True
    )
    with pytest.raises(IntakeRefused) as refusal:
        read_native(native, scope=SCOPE)
    assert {each.code for each in refusal.value.problems} == {"exactly_one", "not_offered"}


def test_every_field_says_what_becomes_of_it() -> None:
    tables = [*FIELDS.values(), MASTER]
    unexplained = {
        name for fields in tables for name, field in fields.items() if field.support != "used" and not field.note
    }
    assert unexplained == set()
