"""Flags to the body of a native submission, field by field as Run:ai names them."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Self

from rung_cli.errors import ApiError, UsageError
from rung_cli.http.client import Api
from rung_cli.manifests.submission import previewed
from rung_cli.output.formats import Format
from rung_cli.output.stderr import warn

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_SECRET: Final = re.compile(r"secret|token|passw|api_?key|credential", re.IGNORECASE)


class SubmissionKind(StrEnum):
    """What `--type` takes."""

    TRAINING = "training"
    WORKSPACE = "workspace"
    DISTRIBUTED = "distributed"
    INFERENCE = "inference"


class Framework(StrEnum):
    """What `--framework` takes."""

    MPI = "MPI"
    PYTORCH = "PyTorch"
    TF = "TF"
    XGBOOST = "XGBoost"
    JAX = "JAX"


PATHS: Final[Mapping[SubmissionKind, str]] = {
    SubmissionKind.TRAINING: "v1/workloads/trainings",
    SubmissionKind.WORKSPACE: "v1/workloads/workspaces",
    SubmissionKind.DISTRIBUTED: "v1/workloads/distributed",
    SubmissionKind.INFERENCE: "v1/workloads/inferences",
}

FLAGS: Final[Mapping[str, str]] = {
    "/name": "--name",
    "/templateId": "--template",
    "/spec/image": "--image",
    "/spec/priorityClass": "--priority",
    "/spec/preemptibility": "--preemptibility",
    "/spec/nodePools": "--node-pool",
    "/spec/environmentVariables": "--env",
    "/spec/workingDir": "--working-dir",
    "/spec/numWorkers": "--workers",
    "/spec/distributedFramework": "--framework",
    "/spec/servingPort": "--port",
    "/spec/compute/gpuDevicesRequest": "--gpus",
    "/spec/compute/gpuPortionRequest": "--gpu-portion",
    "/spec/compute/gpuMemoryRequest": "--gpu-memory",
    "/spec/compute/cpuCoreRequest": "--cpu",
    "/spec/compute/cpuMemoryRequest": "--memory",
    "/spec/compute/largeShmRequest": "--large-shm",
}
"""Fields of the body by the flag that a person knows."""


def kind_of(template: Mapping[str, Any]) -> SubmissionKind:
    """What it is a submission of."""
    return SubmissionKind(template["meta"]["workloadType"].lower())


@dataclass(frozen=True, slots=True)
class Compute:
    """What each pod asks for."""

    gpus: int | None = None
    gpu_portion: float | None = None
    gpu_memory: str = ""
    cpu: float | None = None
    memory: str = ""
    large_shm: bool = False

    def as_json(self) -> dict[str, Any]:
        """Run:ai's `compute`. UsageError where two ways of asking for GPUs meet."""
        if self.gpu_portion is not None and self.gpu_memory:
            raise UsageError("Use either --gpu-portion or --gpu-memory.")
        shared = {"portion": self.gpu_portion is not None, "memory": bool(self.gpu_memory)}
        return _given(
            gpuDevicesRequest=self.gpus if self.gpus is not None or not any(shared.values()) else 1,
            gpuRequestType=next((name for name, requested in shared.items() if requested), None),
            gpuPortionRequest=self.gpu_portion,
            gpuMemoryRequest=self.gpu_memory,
            cpuCoreRequest=self.cpu,
            cpuMemoryRequest=self.memory,
            largeShmRequest=self.large_shm or None,
        )


@dataclass(frozen=True, slots=True)
class NativeWorkload:
    """A workload as flags describe it."""

    kind: SubmissionKind
    image: str
    compute: Compute
    tail: Sequence[str] = ()
    replaces_entrypoint: bool = False
    environment: Sequence[str] = ()
    node_pools: Sequence[str] = ()
    working_dir: str = ""
    priority: str = ""
    preemptibility: str = ""
    workers: int | None = None
    framework: Framework | None = None
    port: int | None = None
    template_id: str = ""
    """It says what the flags leave out."""

    @classmethod
    def from_flags(cls, given: Mapping[str, Any], tail: Sequence[str]) -> Self:
        """`given`: the flags of `rung submit` by name. `tail`: what stood after `--`."""
        compute = Compute(**{each.name: given[each.name] for each in fields(Compute)})
        same = ("image", "working_dir", "priority", "preemptibility", "workers", "framework", "port")
        return cls(
            kind=given["kind"] or SubmissionKind.TRAINING,
            compute=compute,
            tail=tail,
            replaces_entrypoint=given["command"],
            environment=tuple(given["env"] or ()),
            node_pools=tuple(given["node_pool"] or ()),
            **{name: given[name] for name in same},
        )

    def starting_from(self, template: Mapping[str, Any]) -> Self:
        """The template says what is left out, and what sort of workload it is."""
        return replace(self, kind=kind_of(template), template_id=template["meta"]["id"])

    def refuse_beside_a_manifest(self, template: str) -> None:
        """A manifest says itself what it runs; beside it only its name, priority and preemptibility are chosen."""
        if (
            self._spec(checked=False).keys() - {"priorityClass", "preemptibility", "compute"}
            or self.compute != Compute()
            or template
        ):
            hint = "With -f only --name, --priority, --preemptibility and --project can be used."
            raise UsageError("These flags cannot be combined with a manifest.", hint=hint)

    def refuse_incomplete(self, name: str, template: str) -> None:
        """What every workload from flags needs; the portal reports what a template leaves out."""
        if not self.image and not template:
            raise UsageError("Nothing to run. Use --image, --template, or manifests with -f.")
        if not name:
            raise UsageError("No name. Use rung submit NAME …, or --name-prefix.")
        if not template:
            self._of_kind()

    def body(self, name: str, prefix: str, project: Mapping[str, Any]) -> dict[str, Any]:
        """Of the POST."""
        where = {"projectId": project["id"], "clusterId": project["clusterId"], **_given(templateId=self.template_id)}
        return {"name": name or prefix, "useGivenNameAsPrefix": not name, **where, "spec": self._spec()}

    def _spec(self, *, checked: bool = True) -> dict[str, Any]:
        line = shlex.join(self.tail)
        return _given(
            image=self.image,
            command=line if self.replaces_entrypoint else "",
            args="" if self.replaces_entrypoint else line,
            workingDir=self.working_dir,
            priorityClass=self.priority,
            preemptibility=self.preemptibility,
            nodePools=list(self.node_pools),
            compute=self.compute.as_json(),
            environmentVariables=[variable(each) for each in self.environment] if checked else list(self.environment),
            **(self._of_kind() if checked else _given(workers=self.workers, framework=self.framework, port=self.port)),
        )

    def _of_kind(self) -> dict[str, Any]:
        for flag, value, kind in (
            ("--workers", self.workers, SubmissionKind.DISTRIBUTED),
            ("--framework", self.framework, SubmissionKind.DISTRIBUTED),
            ("--port", self.port, SubmissionKind.INFERENCE),
        ):
            if value is not None and self.kind is not kind:
                raise UsageError(f"{flag} requires --type {kind.value}.")
        if self.kind is SubmissionKind.DISTRIBUTED and self.template_id:
            return _given(numWorkers=self.workers, distributedFramework=self.framework and self.framework.value)
        if self.kind is SubmissionKind.DISTRIBUTED:
            framework = self.framework or Framework.PYTORCH
            return {"numWorkers": self.workers or 1, "distributedFramework": framework.value}
        return {"servingPort": {"container": self.port}} if self.port else {}


def submit_native(
    api: Api,
    wanted: NativeWorkload,
    names: tuple[str, str],
    project: Mapping[str, Any],
    *,
    key: str,
    dry_run: bool,
    form: Format,
) -> Any:
    """The server's answer; `names`: its own or its prefix. What is refused of a field is said of the flag.

    form: as a table, the answer has the forecast of a dry run that comes first.
    """
    path, body = PATHS[wanted.kind], wanted.body(*names, project)
    try:
        if dry_run:
            return api.post(path, body, key=key, dry_run=True)
        return previewed(api, path, body, form, key=key)
    except ApiError as refusal:
        refusal.flags = FLAGS
        raise


def variable(text: str) -> dict[str, str]:
    """`NAME=VALUE`, or `NAME` for the value it has here."""
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise UsageError("-e takes NAME=VALUE, or NAME to copy the variable from the environment.")
    if equals:
        if _SECRET.search(name):
            warn(f"The value of {name} is visible to other users of this machine. Use -e {name} instead.")
        return {"name": name, "value": value}
    if name not in os.environ:
        raise UsageError(f"{name} is not set.", hint=f"-e {name}=VALUE, or export it first.")
    return {"name": name, "value": os.environ[name]}


def _given(**fields: Any) -> dict[str, Any]:
    """Without what was not said."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
