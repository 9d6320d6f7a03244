"""Read a filled form: its fields become the object that its type runs as, read as a manifest.

Sources: NVIDIA NIM for LLMs (environment variables, `/v1/health/*`, cache below `/opt/nim/.cache`), vLLM's OpenAI-
compatible server and Hugging Face Text Generation Inference (`/health`, `HF_TOKEN`, `HF_HOME`). Tokens are named by
their Secret, never written out; without a claim what is downloaded stays in the pod and goes with it.

A native type keeps its own name and category whatever kind it is rendered as. Problems come back at the form's
fields.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from clusters.flavours.objects import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from portal.kit.security.strict_json import DocumentInvalid as IntakeRefused
from portal.kit.security.strict_json import DocumentProblem, visible
from workloads.intake.rules.manifests import read_object
from workloads.intake.rules.refused import SpecRefused
from workloads.intake.rules.scalars import FRACTION, GPU, MOST_GPUS
from workloads.intake.rules.spec import WorkloadSpec
from workloads.intake.rules.values import Explicit, ProjectGrants

ENGINES: Final = ("vLLM", "TGI")
"""Servers of Hugging Face models whose settings are written: vLLM and Text Generation Inference."""


@dataclass(frozen=True, slots=True)
class FormFields:
    """As text where they typed text. `workers`: pods of a distributed job or of one replica.

    `gpus` counts per pod: `8`, or a share of one such as `0.5`. Empty texts are left to the cluster's defaults.
    `min_member`: how many pods start together, None for all. `secret` and `pull_secret` are names, never contents.
    """

    type: str
    name: str
    image: str
    command: str = ""
    arguments: str = ""
    gpus: str = "0"
    cpu: str = ""
    memory: str = ""
    workers: int = 1
    replicas: int = 1
    port: int | None = None
    framework: str = "PyTorch"
    environment: tuple[tuple[str, str], ...] = ()
    node_pools: tuple[str, ...] = ()
    min_member: int | None = None
    placement: str = ""
    topology_key: str = ""
    model: str = ""
    engine: str = "vLLM"
    secret: str = ""
    pull_secret: str = ""
    storage: str = ""
    grace_seconds: int | None = None
    run_seconds: int | None = None
    checkpoint_interval: str = ""
    priority: str | None = None
    preemptibility: str | None = None


Manifest = dict[str, Any]
PORT: Final = 8000
NIM_CACHE: Final = "/opt/nim/.cache"
HF_CACHE: Final = "/models"
MODEL: Final = re.compile(r"[A-Za-z0-9][-.\w]*(/[A-Za-z0-9][-.\w]*)?", re.ASCII)
LONGEST: Final = 200
LOADS_FOR: Final = {"periodSeconds": 10, "failureThreshold": 180}
"""A model may take half an hour to be downloaded and loaded before its server is taken for dead."""


def nim(served: Manifest, fields: FormFields) -> Manifest:
    """A Deployment as a NIM wants it. `model` is for images that serve any model; others bring theirs."""
    _check(fields, required=False)
    container = _server_container(served)
    settings = {"NIM_CACHE_PATH": NIM_CACHE, "NIM_HTTP_API_PORT": str(_port(fields))}
    if fields.model.strip():
        settings["NIM_MODEL_NAME"] = fields.model.strip()
    _set_environment(container, settings, fields, token="NGC_API_KEY")  # noqa: S106  # the name of a variable
    _probe(container, fields, live="/v1/health/live", ready="/v1/health/ready")
    return _store(served, fields, at=NIM_CACHE)


def hugging_face(served: Manifest, fields: FormFields) -> Manifest:
    """A Deployment as vLLM or Text Generation Inference want it."""
    _check(fields, required=True)
    container, model, port = _server_container(served), fields.model.strip(), str(_port(fields))
    settings = {"HF_HOME": HF_CACHE}
    if fields.engine == "vLLM":
        container["args"] = ["--model", model, "--port", port, *container.get("args", [])]
    else:
        settings |= {"MODEL_ID": model, "PORT": port}
    _set_environment(container, settings, fields, token="HF_TOKEN")  # noqa: S106  # the name of a variable
    _probe(container, fields, live="/health", ready="/health")
    return _store(served, fields, at=HF_CACHE)


def _check(fields: FormFields, *, required: bool) -> None:
    model, problems = fields.model.strip(), []
    if required and not model:
        problems.append(
            DocumentProblem("/model", "required", "Enter a model, such as meta-llama/Llama-3.1-8B-Instruct.")
        )
    elif model and (len(model) > LONGEST or not MODEL.fullmatch(model)):
        problems.append(DocumentProblem("/model", "bad_model", f"{visible(model)!r} is not a model name."))
    if fields.engine not in ENGINES:
        problems.append(DocumentProblem("/engine", "engine_unknown", "Unknown server.", allowed=ENGINES))
    if problems:
        raise IntakeRefused(422, problems)


def _server_container(served: Manifest) -> Manifest:
    container: Manifest = served["spec"]["template"]["spec"]["containers"][0]
    return container


def _port(fields: FormFields) -> int:
    return fields.port or PORT


def _set_environment(container: Manifest, settings: dict[str, str], fields: FormFields, *, token: str) -> None:
    """Settings first, then what was filled in: the later of two variables of one name counts."""
    own = {name for name, _value in fields.environment}
    entries: list[Manifest] = [{"name": name, "value": text} for name, text in settings.items() if name not in own]
    if fields.secret.strip():
        source = {"secretKeyRef": {"name": fields.secret.strip(), "key": token}}
        entries.append({"name": token, "valueFrom": source})
    container["env"] = [*entries, *container.get("env", [])]
    container["ports"] = [{"containerPort": _port(fields), "name": "http"}]


def _probe(container: Manifest, fields: FormFields, *, live: str, ready: str) -> None:
    def requested(path: str, **times: int) -> Manifest:
        return {"httpGet": {"path": path, "port": _port(fields)}, **times}

    container["startupProbe"] = requested(ready, **LOADS_FOR)
    container["readinessProbe"] = requested(ready, periodSeconds=10)
    container["livenessProbe"] = requested(live, periodSeconds=10, failureThreshold=6)


def _store(served: Manifest, fields: FormFields, *, at: str) -> Manifest:
    """Where the model is kept, and shared memory for its processes."""
    claim = fields.storage.strip()
    source = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    spec = served["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "models", **source}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "models", "mountPath": at}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  # the pod's own
    _server_container(served)["volumeMounts"] = mounts
    if fields.pull_secret.strip():
        spec["imagePullSecrets"] = [{"name": fields.pull_secret.strip()}]
    return served


FRAMEWORKS: Final = ("PyTorch", "MPI", "TF", "XGBoost", "JAX")
APP: Final = "app"


def read_form(fields: FormFields, *, scope: ProjectGrants) -> WorkloadSpec:
    """The workload of a form. IntakeRefused with pointers to the form's fields, such as `/gpus`."""
    _check_known_fields(fields)
    explicit = Explicit(priority=fields.priority or None, preemptibility=fields.preemptibility or None)
    try:
        obj = BUILDERS[fields.type](fields)
        spec = read_object(obj, scope=scope, explicit=explicit, source="form", type_name=fields.type)
    except IntakeRefused as refusal:
        problems = _at_fields(refusal.problems, fields)
        if isinstance(refusal, SpecRefused):
            rest = replace(refusal.read.spec, node_pools=fields.node_pools)
            raise SpecRefused(problems, replace(refusal.read, spec=rest)) from None
        raise IntakeRefused(refusal.status, problems) from None
    return replace(spec, node_pools=fields.node_pools)


def _check_known_fields(fields: FormFields) -> None:
    problems = []
    if fields.type not in BUILDERS:
        problems.append(DocumentProblem("/type", "type_unknown", "Unknown type.", allowed=tuple(BUILDERS)))
    if fields.framework not in FRAMEWORKS:
        problems.append(DocumentProblem("/framework", "framework_unknown", "Unknown framework.", allowed=FRAMEWORKS))
    problems += [
        DocumentProblem(f"/{name}", "not_positive", "Must be at least 1.")
        for name in ("workers", "replicas")
        if getattr(fields, name) < 1
    ]
    if problems:
        raise IntakeRefused(422, problems)


def _workspace(fields: FormFields) -> Manifest:
    spec = {"replicas": 1, "serviceName": fields.name, "selector": _selector(fields), "template": _template(fields)}
    return _object("apps/v1", "StatefulSet", fields, spec)


def _training(fields: FormFields) -> Manifest:
    template = _template(fields, restart="Never")
    return _object("batch/v1", "Job", fields, {"backoffLimit": 6, "template": template})


def _inference(fields: FormFields) -> Manifest:
    spec = {"replicas": fields.replicas, "selector": _selector(fields), "template": _template(fields)}
    return _object("apps/v1", "Deployment", fields, spec)


def _nim(fields: FormFields) -> Manifest:
    return nim(_inference(fields), fields)


def _hugging_face(fields: FormFields) -> Manifest:
    return hugging_face(_inference(fields), fields)


def _distributed_inference(fields: FormFields) -> Manifest:
    group = {"size": fields.workers, "workerTemplate": _template(fields)}
    spec = {"replicas": fields.replicas, "leaderWorkerTemplate": group}
    return _object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", fields, spec)


def _distributed(fields: FormFields) -> Manifest:
    return _FRAMEWORK_JOBS[fields.framework](fields)


def _kubeflow(kind: str, member: str, container: str, leader: str) -> Callable[[FormFields], Manifest]:
    """`workers` pods alike; where the framework has a leading role, the first of them takes it."""

    def build(fields: FormFields) -> Manifest:
        template = _template(fields, restart="", container=container)
        followers = fields.workers - 1 if leader else fields.workers
        roles = {leader: {"replicas": 1, "template": template}} if leader else {}
        if followers:
            roles["Worker"] = {"replicas": followers, "template": template}
        return _object("kubeflow.org/v1", kind, fields, {member: roles})

    return build


def _mpi(fields: FormFields) -> Manifest:
    """The launcher holds no GPU; the workers do."""
    launcher = _template(replace(fields, gpus="0"), restart="", container="mpi")
    worker = _template(fields, restart="", container="mpi")
    roles = {
        "Launcher": {"replicas": 1, "template": launcher},
        "Worker": {"replicas": fields.workers, "template": worker},
    }
    return _object("kubeflow.org/v2beta1", "MPIJob", fields, {"mpiReplicaSpecs": roles})


_FRAMEWORK_JOBS: Final[Mapping[str, Callable[[FormFields], Manifest]]] = {
    "PyTorch": _kubeflow("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master"),
    "XGBoost": _kubeflow("XGBoostJob", "xgbReplicaSpecs", "xgboost", "Master"),
    "TF": _kubeflow("TFJob", "tfReplicaSpecs", "tensorflow", ""),
    "JAX": _kubeflow("JAXJob", "jaxReplicaSpecs", "jax", ""),
    "MPI": _mpi,
}
BUILDERS: Final[Mapping[str, Callable[[FormFields], Manifest]]] = {
    "Workspace": _workspace,
    "Training": _training,
    "Distributed": _distributed,
    "Inference": _inference,
    "NIMInference": _nim,
    "HuggingFaceInference": _hugging_face,
    "DistributedInference": _distributed_inference,
}


_KUBEFLOW: Final = {name: f"kubeflow.org/v1 {name}Job" for name in FRAMEWORKS}
RUNS_AS: Final[Mapping[str, Mapping[str, str]]] = {
    "Workspace": {"": "apps/v1 StatefulSet"},
    "Training": {"": "batch/v1 Job"},
    "Distributed": {**_KUBEFLOW, "MPI": "kubeflow.org/v2beta1 MPIJob"},
    **{name: {"": "apps/v1 Deployment"} for name in ("Inference", "NIMInference", "HuggingFaceInference")},
    "DistributedInference": {"": "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet"},
}
"""By type and framework: what a cluster must serve for it."""


def _object(api_version: str, kind: str, fields: FormFields, spec: Manifest) -> Manifest:
    metadata: Manifest = {"name": fields.name}
    if notes := _annotations(fields):
        metadata["annotations"] = notes
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _annotations(fields: FormFields) -> dict[str, str]:
    notes = {}
    if fields.run_seconds is not None:
        notes["rung.dev/run-seconds"] = str(fields.run_seconds)
    if fields.checkpoint_interval:
        notes["rung.dev/checkpoint-interval"] = fields.checkpoint_interval
    if fields.min_member is not None:
        notes[MIN_MEMBER] = str(fields.min_member)
    placing = {PLACEMENT: fields.placement, TOPOLOGY_KEY: fields.topology_key.strip()}
    return {**notes, **{key: text for key, text in placing.items() if text}}


def _selector(fields: FormFields) -> Manifest:
    return {"matchLabels": {APP: fields.name}}


def _template(fields: FormFields, *, restart: str = "Always", container: str = "main") -> Manifest:
    spec: Manifest = {"containers": [_container(fields, container)]}
    if restart:
        spec["restartPolicy"] = restart
    if fields.grace_seconds is not None:
        spec["terminationGracePeriodSeconds"] = fields.grace_seconds
    metadata: Manifest = {"labels": {APP: fields.name}}
    if _is_share(fields.gpus):
        metadata["annotations"] = {FRACTION: fields.gpus.strip()}
    return {"metadata": metadata, "spec": spec}


def _container(fields: FormFields, name: str) -> Manifest:
    container: Manifest = {"name": name, "image": fields.image.strip(), "resources": _resources(fields)}
    for key, line in (("command", fields.command), ("args", fields.arguments)):
        if line.strip():
            container[key] = _words(key, line)
    if fields.environment:
        container["env"] = [{"name": key, "value": value} for key, value in fields.environment]
    if fields.port is not None:
        container["ports"] = [{"containerPort": fields.port}]
    return container


def _resources(fields: FormFields) -> Manifest:
    requested = {name: text.strip() for name, text in (("cpu", fields.cpu), ("memory", fields.memory)) if text.strip()}
    resources: Manifest = {"requests": requested} if requested else {}
    gpus = fields.gpus.strip()
    if gpus not in {"", "0"} and not _is_share(gpus):
        resources["limits"] = {GPU: gpus}
    return resources


def _is_share(gpus: str) -> bool:
    return gpus.strip().startswith("0.")


def _words(key: str, line: str) -> list[str]:
    """A command line as a shell would split it; nothing of it is evaluated."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise IntakeRefused(
            422, [DocumentProblem(f"/{key}", "bad_command", f"Cannot split this into words: {error}.")]
        ) from None


_FIELDS: Final = (
    (re.compile(r"^/metadata/name$|/(selector|labels)/.*app$|/selector/matchLabels$|/serviceName$"), "/name"),
    (re.compile(r"/image$"), "/image"),
    (re.compile(r"nvidia\.com~1gpu$|/gpu-fraction$"), "/gpus"),
    (re.compile(r"/resources/(requests|limits)/cpu$"), "/cpu"),
    (re.compile(r"/resources/(requests|limits)/memory$"), "/memory"),
    (re.compile(r"/command(/\d+)?$"), "/command"),
    (re.compile(r"/args(/\d+)?$"), "/arguments"),
    (re.compile(r"/containerPort$"), "/port"),
    (re.compile(r"/terminationGracePeriodSeconds$"), "/grace_seconds"),
    (re.compile(r"run-seconds$"), "/run_seconds"),
    (re.compile(r"checkpoint-interval$"), "/checkpoint_interval"),
    (re.compile(r"min-member$"), "/min_member"),
    (re.compile(r"rung\.dev~1placement$"), "/placement"),
    (re.compile(r"topology-key$"), "/topology_key"),
    (re.compile(r"/imagePullSecrets/"), "/pull_secret"),
    (re.compile(r"/secretKeyRef/"), "/secret"),
    (re.compile(r"/env(/|$)"), "/environment"),
    (re.compile(r"/claimName$"), "/storage"),
    (re.compile(r"/(size|workerTemplate/replicas|Worker/replicas)$"), "/workers"),
    (re.compile(r"/replicas$"), "/replicas"),
)


def form_pointer(pointer: str) -> str:
    """The form's field that the place of a manifest comes from; what comes from none stays where it is."""
    return next((field for pattern, field in _FIELDS if pattern.search(pointer)), pointer)


def _at_fields(problems: Iterable[DocumentProblem], fields: FormFields) -> list[DocumentProblem]:
    """Each once, at the form's fields. The object repeats the name in labels, which refuse the same."""
    found: dict[object, DocumentProblem] = {}
    for each in (_at_field(problem, fields) for problem in problems):
        found.setdefault("/name" if each.pointer == "/name" else each, each)
    return list(found.values())


def _at_field(problem: DocumentProblem, fields: FormFields) -> DocumentProblem:
    pointer = form_pointer(problem.pointer)
    if pointer != "/gpus":
        return replace(problem, pointer=pointer)
    # A manifest has two places for it, and each knows only what it takes itself.
    accepted = f"a whole number of GPUs from 0 to {MOST_GPUS} or a fraction of one GPU from 0.01 to 0.99"
    return DocumentProblem(pointer, "bad_gpu_count", f"{visible(fields.gpus.strip())!r} is not {accepted}.")
