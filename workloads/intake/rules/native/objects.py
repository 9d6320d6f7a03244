"""A checked native spec as the object its kind runs as, with its pod templates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.rendering import MIN_MEMBER
from workloads.intake.rules.forms import PORT, FormFields, nim
from workloads.intake.rules.manifests import REQUEST_LABELS
from workloads.intake.rules.scalars import FRACTION

Manifest = dict[str, Any]
Part = Mapping[str, Any]
APP: Final = "app"
SHM: Final = "/dev/shm"  # noqa: S108  # shared memory of the pod itself
_AS_THEY_ARE: Final = {
    "image": "image",
    "command": "command",
    "args": "args",
    "workingDir": "workingDir",
    "environmentVariables": "env",
    "imagePullPolicy": "imagePullPolicy",
    "stdin": "stdin",
    "tty": "tty",
}


def template(
    part: Part, app: str, *, container: str = "main", restart: str = "", port: int | None = None, gpus: bool = True
) -> Manifest:
    """The pods of one role. `port`: what it serves; `gpus=False`: a role that only leads."""
    compute = part.get("compute", {})
    volumes, mounts = _volumes(part, shm=compute.get("shm", False))
    security = part.get("security", {})
    main: Manifest = {
        "name": container,
        **{kept: part[name] for name, kept in _AS_THEY_ARE.items() if name in part},
        "resources": _resources(compute, gpus=gpus),
        **unless_empty("ports", _ports(part, port)),
        **unless_empty("volumeMounts", mounts),
        **unless_empty("securityContext", security.get("container", {})),
        **_probed(part),
    }
    spec: Manifest = {
        "containers": [main],
        **unless_empty("volumes", volumes),
        **unless_empty("securityContext", security.get("pod", {})),
        **{name: part[name] for name in ("tolerations", "imagePullSecrets") if part.get(name)},
        **unless_empty("restartPolicy", restart),
    }
    if "terminationGracePeriodSeconds" in part:
        spec["terminationGracePeriodSeconds"] = part["terminationGracePeriodSeconds"]
    return {"metadata": _metadata(part, app, share=compute.get("share", "") if gpus else ""), "spec": spec}


def labels_of(part: Part) -> dict[str, str]:
    """Every label that was asked for, wishes for priority and preemptibility among them."""
    return dict(part.get("labels", []))


def _metadata(part: Part, app: str, *, share: str) -> Manifest:
    own = {name: value for name, value in labels_of(part).items() if name not in REQUEST_LABELS}
    return {"labels": {**own, APP: app}, **unless_empty("annotations", {FRACTION: share} if share else {})}


def _resources(compute: Part, *, gpus: bool) -> Manifest:
    """Without a GPU, a role keeps its CPU and memory."""
    requested: Mapping[str, Mapping[str, Any]] = compute.get("resources", {})
    if gpus:
        return {side: dict(given) for side, given in requested.items()}
    plain = {
        side: {name: given[name] for name in ("cpu", "memory") if name in given} for side, given in requested.items()
    }
    return {side: given for side, given in plain.items() if given}


def _ports(part: Part, port: int | None) -> list[Manifest]:
    """What it serves first: that is its address."""
    named = [each["container"] for each in part.get("ports", []) if "container" in each]
    return [{"containerPort": number} for number in dict.fromkeys([port, *named]) if number is not None]


def _volumes(part: Part, *, shm: bool) -> tuple[list[Manifest], list[Manifest]]:
    requested = list(part.get("storage", []))
    if shm:
        requested.append(({"emptyDir": {"medium": "Memory"}}, {"mountPath": SHM}))
    named = [(f"volume-{index}", *each) for index, each in enumerate(requested)]
    volumes = [{"name": name, **source} for name, source, _mount in named]
    return volumes, [{"name": name, **mount} for name, _source, mount in named]


def _probed(part: Part) -> Manifest:
    readiness = part.get("probes", {}).get("readiness")
    return {"readinessProbe": readiness} if readiness else {}


def unless_empty(name: str, value: Any) -> Manifest:
    """A member that is left out when it is empty."""
    return {name: value} if value else {}


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


def workspace(requested: Checked) -> Built:
    described = {"template": template(requested.spec, requested.name, restart="Always"), "serviceName": requested.name}
    return _plain(requested, "apps/v1", "StatefulSet", {"replicas": 1, "selector": _selector(requested), **described})


def training(requested: Checked) -> Built:
    """A Job; six tries by default, as with the form."""
    spec = requested.spec
    described = template(spec, requested.name, restart=spec.get("restartPolicy", "Never"))
    limits = {"backoffLimit": spec.get("backoffLimit", 6), **_retention(spec)}
    counts = {name: spec[name] for name in ("parallelism", "completions") if name in spec}
    return _plain(requested, "batch/v1", "Job", {**counts, **limits, "template": described})


def inference(requested: Checked) -> Built:
    """A Deployment of so many replicas as its bounds say."""
    port = requested.spec.get("servingPort", {}).get("container")
    described = template(requested.spec, requested.name, restart="Always", port=port)
    return _plain(requested, "apps/v1", "Deployment", _served(requested, described))


def nim_service(requested: Checked) -> Built:
    """A Deployment as a NIM wants it."""
    spec = requested.spec
    described = template(spec, requested.name, restart="Always")
    built = _plain(requested, "apps/v1", "Deployment", _served(requested, described))
    own = tuple((each["name"], str(each.get("value", ""))) for each in spec.get("environmentVariables", []))
    fields = FormFields(
        type="NIMInference",
        name=requested.name,
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


def distributed_inference(requested: Checked) -> Built:
    """A LeaderWorkerSet: a leader and its workers, in so many replicas."""
    spec, workers = requested.spec, requested.spec.get("workers", 0)
    leader = spec.get("leader") or spec.get("worker", {})
    worker = spec.get("worker") or leader
    port = spec.get("servingPort", {}).get("port")
    group = {
        "size": workers + 1,
        "leaderTemplate": template(leader, requested.name, restart="Always", port=port),
        "workerTemplate": template(worker, requested.name, restart="Always"),
        "restartPolicy": spec.get("restartPolicy", "RecreateGroupOnPodRestart"),
    }
    body = {
        "replicas": spec.get("replicas", 1),
        "leaderWorkerTemplate": group,
        "startupPolicy": spec.get("startupPolicy", "LeaderCreated"),
    }
    both = {**leader, "labels": [*worker.get("labels", []), *leader.get("labels", [])]}
    both["annotations"] = [*worker.get("annotations", []), *leader.get("annotations", [])]
    manifest = _object(requested, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", body, both)
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


def distributed(requested: Checked) -> Built:
    """A job of its framework's operator: the leading pod where it has one, and its workers."""
    framework = _FRAMEWORKS[requested.spec["distributedFramework"]]
    workers = _role(requested.spec, requested.name, framework)
    roles = {"Worker": {**workers, "replicas": requested.spec.get("numWorkers", 1)}}
    origins = {"": "/spec"}
    if framework.leading:
        roles[framework.leading] = _leading(requested, framework)
        if requested.master is not None:
            origins[f"/spec/{framework.member}/{framework.leading}"] = "/masterSpec"
    body = {
        framework.member: roles,
        **unless_empty("runPolicy", _run_policy(requested.spec)),
        **_mpi(requested.spec, framework),
    }
    manifest = _object(requested, framework.api_version, framework.kind, body, requested.spec)
    if "minReplicas" in requested.spec:
        together = requested.spec["minReplicas"] + (1 if framework.leading else 0)
        manifest["metadata"].setdefault("annotations", {})[MIN_MEMBER] = str(together)
    return Built(manifest, origins)


def has_leader(framework: str) -> bool:
    """False for a framework whose pods are all alike."""
    return bool(_FRAMEWORKS[framework].leading)


def _leading(requested: Checked, framework: _Framework) -> Manifest:
    """Its own spec, or the workers'; the launcher of MPI holds no GPU unless it is to be like them."""
    part = requested.spec if requested.master is None else requested.master
    idle = framework.leading == "Launcher" and requested.master is None and not requested.master_same
    role = {**_role(part, requested.name, framework, gpus=not idle), "replicas": 1}
    if requested.master is not None and "priorityClass" in requested.master:
        role["template"]["spec"]["priorityClassName"] = requested.master["priorityClass"]
    return role


def _role(part: Part, name: str, framework: _Framework, *, gpus: bool = True) -> Manifest:
    described = template(part, name, container=framework.container, gpus=gpus)
    return {"template": described, **unless_empty("restartPolicy", part.get("restartPolicy"))}


def _run_policy(spec: Part) -> Manifest:
    return {**{name: spec[name] for name in ("backoffLimit", "cleanPodPolicy") if name in spec}, **_retention(spec)}


def _retention(spec: Part) -> Manifest:
    name = "autoDeletionTimeAfterCompletionSeconds"
    return {"ttlSecondsAfterFinished": spec[name]} if name in spec else {}


def _mpi(spec: Part, framework: _Framework) -> Manifest:
    if framework.kind != "MPIJob":
        return {}
    return {name: spec[name] for name in ("slotsPerWorker", "sshAuthMountPath") if name in spec}


def _served(requested: Checked, described: Manifest) -> Manifest:
    replicas = requested.spec.get("autoscaling", requested.spec.get("replicas", 1))
    return {"replicas": replicas, "selector": _selector(requested), "template": described}


def _selector(requested: Checked) -> Manifest:
    return {"matchLabels": {APP: requested.name}}


def _plain(requested: Checked, api_version: str, kind: str, body: Manifest) -> Built:
    return Built(_object(requested, api_version, kind, body, requested.spec), {"": "/spec"})


def _object(requested: Checked, api_version: str, kind: str, body: Manifest, labelled: Part) -> Manifest:
    metadata: Manifest = {"generateName" if requested.prefix else "name": requested.name}
    notes = dict(labelled.get("annotations", []))
    metadata |= {**unless_empty("labels", labels_of(labelled)), **unless_empty("annotations", notes)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": body}


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
