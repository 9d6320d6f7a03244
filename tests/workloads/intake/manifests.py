"""A small valid manifest of every kind, written as its own documentation writes it."""

from collections.abc import Callable
from typing import Any, Final

from workloads.intake import DocumentProblem, Explicit, IntakeRefused, ProjectGrants, WorkloadSpec, read_object

Manifest = dict[str, Any]
IMAGE: Final = "docker.io/library/busybox:1.36"
SCOPE: Final = ProjectGrants(namespace="runai-team", allowed_registries=("docker.io", "nvcr.io"))


def one_gpu() -> Manifest:
    return {"limits": {"nvidia.com/gpu": "1"}}


def container(name: str = "main", **fields: Any) -> Manifest:
    return {"name": name, "image": IMAGE, "resources": one_gpu(), **fields}


def template(name: str = "main", restart: str = "", labels: dict[str, str] | None = None) -> Manifest:
    spec: Manifest = {"containers": [container(name)]}
    if restart:
        spec["restartPolicy"] = restart
    return {"metadata": {"labels": labels}, "spec": spec} if labels else {"spec": spec}


def manifest(api_version: str, kind: str, spec: Manifest, **metadata: Any) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "theirs", **metadata}, "spec": spec}


def _kubeflow(kind: str, member: str, name: str, *roles: str, version: str = "v1") -> Manifest:
    groups = {role: {"replicas": 1, "template": template(name)} for role in roles}
    return manifest(f"kubeflow.org/{version}", kind, {member: groups})


def _served(kind: str, **extra: Any) -> Manifest:
    app = {"app": "theirs"}
    return manifest("apps/v1", kind, {"selector": {"matchLabels": app}, "template": template(labels=app), **extra})


def _ray(version: str = "2.46.0") -> Manifest:
    group = {"groupName": "gpu", "replicas": 1, "template": template()}
    return {"rayVersion": version, "headGroupSpec": {"template": template()}, "workerGroupSpecs": [group]}


def _bounded() -> Manifest:
    """A revision with the upper bound that intake would otherwise write."""
    revision = template()
    revision["metadata"] = {"annotations": {"autoscaling.knative.dev/max-scale": "1"}}
    return revision


def task() -> Manifest:
    return {"steps": [{"name": "run", "image": IMAGE, "resources": one_gpu()}]}


def _argo() -> Manifest:
    return {
        "entrypoint": "main",
        "templates": [{"name": "main", "container": {"image": IMAGE, "resources": one_gpu()}}],
    }


VALID: Final[dict[str, Callable[[], Manifest]]] = {
    "Pod": lambda: manifest("v1", "Pod", template()["spec"]),
    "Job": lambda: manifest("batch/v1", "Job", {"template": template(restart="Never")}),
    "CronJob": lambda: manifest(
        "batch/v1",
        "CronJob",
        {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template(restart="Never")}}},
    ),
    "Deployment": lambda: _served("Deployment", replicas=1),
    "ReplicaSet": lambda: _served("ReplicaSet", replicas=1),
    "StatefulSet": lambda: _served("StatefulSet", replicas=1, serviceName="theirs"),
    "PyTorchJob": lambda: _kubeflow("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master", "Worker"),
    "TFJob": lambda: _kubeflow("TFJob", "tfReplicaSpecs", "tensorflow", "Worker"),
    "MPIJob": lambda: _kubeflow("MPIJob", "mpiReplicaSpecs", "mpi", "Launcher", "Worker", version="v2beta1"),
    "XGBoostJob": lambda: _kubeflow("XGBoostJob", "xgbReplicaSpecs", "xgboost", "Master"),
    "JAXJob": lambda: _kubeflow("JAXJob", "jaxReplicaSpecs", "jax", "Worker"),
    "JobSet": lambda: manifest(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": template(restart="Never")}}}]},
    ),
    "RayCluster": lambda: manifest("ray.io/v1", "RayCluster", _ray()),
    "RayJob": lambda: manifest("ray.io/v1", "RayJob", {"entrypoint": "python x.py", "rayClusterSpec": _ray()}),
    "RayService": lambda: manifest("ray.io/v1", "RayService", {"rayClusterConfig": _ray()}),
    "AMLJob": lambda: manifest(
        "amlarc.azureml.com/v1alpha1", "AmlJob", {"job": {"options": {"image": IMAGE, "resources": one_gpu()}}}
    ),
    "VirtualMachineInstance": lambda: manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        {"domain": {"devices": {"gpus": [{"name": "gpu0", "deviceName": "nvidia.com/gpu"}]}}},
    ),
    "SPOTRequest": lambda: manifest("egx.nvidia.io/v1", "SPOTRequest", {"image": IMAGE, "resources": one_gpu()}),
    "Notebook": lambda: manifest("kubeflow.org/v1", "Notebook", {"template": template()}),
    "DevWorkspace": lambda: manifest(
        "workspace.devfile.io/v1alpha2",
        "DevWorkspace",
        {"started": True, "template": {"components": [{"name": "tools", "container": {"image": IMAGE}}]}},
    ),
    "TaskRun": lambda: manifest("tekton.dev/v1", "TaskRun", {"taskSpec": task()}),
    "PipelineRun": lambda: manifest(
        "tekton.dev/v1", "PipelineRun", {"pipelineSpec": {"tasks": [{"name": "one", "taskSpec": task()}]}}
    ),
    "Workflow": lambda: manifest("argoproj.io/v1alpha1", "Workflow", _argo()),
    "ScheduledWorkflow": lambda: manifest(
        "kubeflow.org/v1beta1",
        "ScheduledWorkflow",
        {"trigger": {"periodicSchedule": {"intervalSecond": 3600}}, "workflow": {"spec": _argo()}},
    ),
    "Service": lambda: manifest("serving.knative.dev/v1", "Service", {"template": _bounded()}),
    "InferenceService": lambda: manifest(
        "serving.kserve.io/v1beta1",
        "InferenceService",
        {"predictor": {"containers": [container()], "maxReplicas": 1}},
    ),
    "LeaderWorkerSet": lambda: manifest(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}},
    ),
    "SeldonDeployment": lambda: manifest(
        "machinelearning.seldon.io/v1",
        "SeldonDeployment",
        {"predictors": [{"name": "p", "graph": {"name": "m"}, "componentSpecs": [template()]}]},
    ),
    "NIMServices": lambda: manifest(
        "apps.nvidia.com/v1alpha1",
        "NIMService",
        {"image": {"repository": "nvcr.io/nim/llama", "tag": "1.0"}, "resources": one_gpu()},
    ),
    "NIMCache": lambda: manifest(
        "apps.nvidia.com/v1alpha1",
        "NIMCache",
        {"source": {"ngc": {"modelPuller": "nvcr.io/nim/llama:1.0"}}, "resources": one_gpu()},
    ),
    "DynamoGraphDeployment": lambda: manifest(
        "nvidia.com/v1alpha1",
        "DynamoGraphDeployment",
        {"services": {"worker": {"extraPodSpec": {"mainContainer": {"image": IMAGE}}, "replicas": 1}}},
    ),
}


def read(body: Manifest, *, scope: ProjectGrants = SCOPE, explicit: Explicit | None = None) -> WorkloadSpec:
    return read_object(body, scope=scope, explicit=explicit or Explicit())


def problems_of(
    body: Manifest, *, scope: ProjectGrants = SCOPE, explicit: Explicit | None = None
) -> dict[str, DocumentProblem]:
    """Problems by pointer; empty when the manifest is taken."""
    try:
        read(body, scope=scope, explicit=explicit)
    except IntakeRefused as refusal:
        return {problem.pointer: problem for problem in refusal.problems if refusal.status == 422}
    return {}


def pod(**spec: Any) -> Manifest:
    """A Pod whose spec is changed by the given fields."""
    body = VALID["Pod"]()
    body["spec"].update(spec)
    return body


def pod_with(**fields: Any) -> Manifest:
    """A Pod whose container is changed by the given fields."""
    return pod(containers=[container(**fields)])


def objects_in(node: Any) -> list[Manifest]:
    """Every object inside a value, itself included."""
    if isinstance(node, dict):
        return [node, *(inner for child in node.values() for inner in objects_in(child))]
    return [inner for child in node for inner in objects_in(child)] if isinstance(node, list) else []
