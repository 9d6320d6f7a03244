"""The form: a few fields become the object their type runs as, and go through the same door as a manifest.

A native type keeps its own name and category whatever kind it is rendered as. Problems come back at the form's fields.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from clusters.flavours.common import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from workloads.intake.form_fields import FormFields
from workloads.intake.model_servers import hugging_face, nim
from workloads.intake.problems import IntakeRefused, Problem
from workloads.intake.read import read_object
from workloads.intake.resources import FRACTION, GPU
from workloads.intake.scope import Explicit, Scope
from workloads.intake.spec import WorkloadSpec

Manifest = dict[str, Any]
FRAMEWORKS: Final = ("PyTorch", "MPI", "TF", "XGBoost", "JAX")
APP: Final = "app"


def read_form(fields: FormFields, *, scope: Scope) -> WorkloadSpec:
    """The workload of a form. IntakeRefused with pointers to the form's fields, such as `/gpus`."""
    _refuse_unknown(fields)
    explicit = Explicit(priority=fields.priority or None, preemptibility=fields.preemptibility or None)
    try:
        obj = BUILDERS[fields.type](fields)
        spec = read_object(obj, scope=scope, explicit=explicit, source="form", type_name=fields.type)
    except IntakeRefused as refusal:
        raise IntakeRefused(refusal.status, [_at_field(each) for each in refusal.problems]) from None
    return replace(spec, node_pools=fields.node_pools)


def _refuse_unknown(fields: FormFields) -> None:
    problems = []
    if fields.type not in BUILDERS:
        problems.append(Problem("/type", "type_unknown", "There is no such form.", allowed=tuple(BUILDERS)))
    if fields.framework not in FRAMEWORKS:
        problems.append(Problem("/framework", "framework_unknown", "There is no such framework.", allowed=FRAMEWORKS))
    problems += [
        Problem(f"/{name}", "not_positive", "At least 1 is needed.")
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
    asked = {name: text.strip() for name, text in (("cpu", fields.cpu), ("memory", fields.memory)) if text.strip()}
    resources: Manifest = {"requests": asked} if asked else {}
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
        raise IntakeRefused(422, [Problem(f"/{key}", "bad_command", f"Cannot be split into words: {error}.")]) from None


_FIELDS: Final = (
    (re.compile(r"^/metadata/name$|/(selector|labels)/.*app$|/serviceName$"), "/name"),
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


def _at_field(problem: Problem) -> Problem:
    return replace(problem, pointer=form_pointer(problem.pointer))
