"""A checked native spec as the object its kind runs as: the same kinds as those of the form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.rendering import MIN_MEMBER
from workloads.intake.form_fields import FormFields
from workloads.intake.model_servers import PORT, nim
from workloads.intake.native.pods import APP, Manifest, Part, labels_of, template


@dataclass(frozen=True, slots=True)
class Checked:
    """What was asked for, field by field as its rules left it."""

    name: str
    spec: Part
    master: Part | None = None
    master_same: bool = False
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    """An object, and which part of the native body each of its places came from."""

    manifest: Manifest
    origins: Mapping[str, str]


def workspace(asked: Checked) -> Built:
    """A StatefulSet of one pod."""
    described = {"template": template(asked.spec, asked.name, restart="Always"), "serviceName": asked.name}
    return _plain(asked, "apps/v1", "StatefulSet", {"replicas": 1, "selector": _selector(asked), **described})


def training(asked: Checked) -> Built:
    """A Job; six tries unless told otherwise, as with the form."""
    spec = asked.spec
    described = template(spec, asked.name, restart=spec.get("restartPolicy", "Never"))
    limits = {"backoffLimit": spec.get("backoffLimit", 6), **_seconds_kept(spec)}
    counts = {name: spec[name] for name in ("parallelism", "completions") if name in spec}
    return _plain(asked, "batch/v1", "Job", {**counts, **limits, "template": described})


def inference(asked: Checked) -> Built:
    """A Deployment of so many replicas as its bounds say."""
    port = asked.spec.get("servingPort", {}).get("container")
    described = template(asked.spec, asked.name, restart="Always", port=port)
    return _plain(asked, "apps/v1", "Deployment", _served(asked, described))


def nim_service(asked: Checked) -> Built:
    """A Deployment as a NIM wants it."""
    spec = asked.spec
    described = template(spec, asked.name, restart="Always")
    built = _plain(asked, "apps/v1", "Deployment", _served(asked, described))
    own = tuple((each["name"], str(each.get("value", ""))) for each in spec.get("environmentVariables", []))
    fields = FormFields(
        type="NIMInference",
        name=asked.name,
        image=spec.get("image", ""),
        port=spec.get("servingPort", {}).get("port", PORT),
        secret=spec.get("ngcAuthSecret", ""),
        storage=spec.get("modelStore", {}).get("pvc", {}).get("claimName", ""),
        environment=own,
    )
    nim(built.manifest, fields)
    if readiness := spec.get("probes", {}).get("readiness"):
        built.manifest["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = readiness
    return built


def distributed_inference(asked: Checked) -> Built:
    """A LeaderWorkerSet: a leader and its workers, in so many replicas."""
    spec, workers = asked.spec, asked.spec.get("workers", 0)
    leader = spec.get("leader") or spec.get("worker", {})
    worker = spec.get("worker") or leader
    port = spec.get("servingPort", {}).get("port")
    group = {
        "size": workers + 1,
        "leaderTemplate": template(leader, asked.name, restart="Always", port=port),
        "workerTemplate": template(worker, asked.name, restart="Always"),
        "restartPolicy": spec.get("restartPolicy", "RecreateGroupOnPodRestart"),
    }
    body = {
        "replicas": spec.get("replicas", 1),
        "leaderWorkerTemplate": group,
        "startupPolicy": spec.get("startupPolicy", "LeaderCreated"),
    }
    both = {**leader, "labels": [*worker.get("labels", []), *leader.get("labels", [])]}
    both["annotations"] = [*worker.get("annotations", []), *leader.get("annotations", [])]
    manifest = _object(asked, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", body, both)
    places = {"leaderTemplate": "leader" if spec.get("leader") else "worker"}
    places["workerTemplate"] = "worker" if spec.get("worker") else "leader"
    origins = {f"/spec/leaderWorkerTemplate/{role}": f"/spec/{origin}" for role, origin in places.items()}
    return Built(manifest, {**origins, "": "/spec"})


@dataclass(frozen=True, slots=True)
class _Framework:
    """How a training operator calls things."""

    kind: str
    member: str
    container: str
    leading: str = ""
    api_version: str = "kubeflow.org/v1"


_FRAMEWORKS: Final[Mapping[str, _Framework]] = {
    "PyTorch": _Framework("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master"),
    "XGBoost": _Framework("XGBoostJob", "xgbReplicaSpecs", "xgboost", "Master"),
    "TF": _Framework("TFJob", "tfReplicaSpecs", "tensorflow", "Chief"),
    "JAX": _Framework("JAXJob", "jaxReplicaSpecs", "jax"),
    "MPI": _Framework("MPIJob", "mpiReplicaSpecs", "mpi", "Launcher", "kubeflow.org/v2beta1"),
}


FRAMEWORK_OF: Final[Mapping[str, str]] = {each.kind: name for name, each in _FRAMEWORKS.items()}
"""By the kind of its object."""


def distributed(asked: Checked) -> Built:
    """A job of its framework's operator: the leading pod where it has one, and its workers."""
    framework = _FRAMEWORKS[asked.spec["distributedFramework"]]
    workers = _role(asked.spec, asked.name, framework)
    roles = {"Worker": {**workers, "replicas": asked.spec.get("numWorkers", 1)}}
    origins = {"": "/spec"}
    if framework.leading:
        roles[framework.leading] = _leading(asked, framework)
        if asked.master is not None:
            origins[f"/spec/{framework.member}/{framework.leading}"] = "/masterSpec"
    body = {framework.member: roles, **_filled("runPolicy", _run_policy(asked.spec)), **_mpi(asked.spec, framework)}
    manifest = _object(asked, framework.api_version, framework.kind, body, asked.spec)
    if "minReplicas" in asked.spec:
        together = asked.spec["minReplicas"] + (1 if framework.leading else 0)
        manifest["metadata"].setdefault("annotations", {})[MIN_MEMBER] = str(together)
    return Built(manifest, origins)


def has_leader(framework: str) -> bool:
    """False for a framework whose pods are all alike."""
    return bool(_FRAMEWORKS[framework].leading)


def _leading(asked: Checked, framework: _Framework) -> Manifest:
    """Its own spec, or the workers'; the launcher of MPI holds no GPU unless it is told to be like them."""
    part = asked.spec if asked.master is None else asked.master
    idle = framework.leading == "Launcher" and asked.master is None and not asked.master_same
    role = {**_role(part, asked.name, framework, gpus=not idle), "replicas": 1}
    if asked.master is not None and "priorityClass" in asked.master:
        role["template"]["spec"]["priorityClassName"] = asked.master["priorityClass"]
    return role


def _role(part: Part, name: str, framework: _Framework, *, gpus: bool = True) -> Manifest:
    described = template(part, name, container=framework.container, gpus=gpus)
    return {"template": described, **_filled("restartPolicy", part.get("restartPolicy"))}


def _run_policy(spec: Part) -> Manifest:
    return {**{name: spec[name] for name in ("backoffLimit", "cleanPodPolicy") if name in spec}, **_seconds_kept(spec)}


def _seconds_kept(spec: Part) -> Manifest:
    name = "autoDeletionTimeAfterCompletionSeconds"
    return {"ttlSecondsAfterFinished": spec[name]} if name in spec else {}


def _mpi(spec: Part, framework: _Framework) -> Manifest:
    if framework.kind != "MPIJob":
        return {}
    return {name: spec[name] for name in ("slotsPerWorker", "sshAuthMountPath") if name in spec}


def _served(asked: Checked, described: Manifest) -> Manifest:
    replicas = asked.spec.get("autoscaling", asked.spec.get("replicas", 1))
    return {"replicas": replicas, "selector": _selector(asked), "template": described}


def _selector(asked: Checked) -> Manifest:
    return {"matchLabels": {APP: asked.name}}


def _plain(asked: Checked, api_version: str, kind: str, body: Manifest) -> Built:
    return Built(_object(asked, api_version, kind, body, asked.spec), {"": "/spec"})


def _object(asked: Checked, api_version: str, kind: str, body: Manifest, labelled: Part) -> Manifest:
    metadata: Manifest = {"generateName" if asked.prefix else "name": asked.name}
    notes = dict(labelled.get("annotations", []))
    metadata |= {**_filled("labels", labels_of(labelled)), **_filled("annotations", notes)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": body}


def _filled(name: str, value: Any) -> Manifest:
    return {name: value} if value else {}


BUILDERS: Final[Mapping[str, tuple[str, Callable[[Checked], Built]]]] = {
    "workspaces": ("Workspace", workspace),
    "trainings": ("Training", training),
    "distributed": ("Distributed", distributed),
    "inferences": ("Inference", inference),
    "distributed-inferences": ("DistributedInference", distributed_inference),
    "nim-services": ("NIMInference", nim_service),
}
"""By the word in the address: the workload type, and what writes its object."""
TYPES: Final[Mapping[str, str]] = {kind: name for kind, (name, _build) in BUILDERS.items()}
