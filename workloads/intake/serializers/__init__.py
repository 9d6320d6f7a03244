"""A form or a WorkloadSpec as the body of a REST submission, a manifest or a `rung` command. Pure.

Not every form has one: a type without a native kind, or a shape that only a manifest writes. Whether a body means the
same workload is for its reader to say (`says_the_same`); nothing here is trusted to.

The form's own types go by their native routes, where a native body means the very same workload; everything else goes
as the manifest that Rung made of it.
"""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any, Final

from clusters.flavours.objects import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from portal.kit.pages.api_snippets import ApiRequest, ApiSnippet, rung_text, snippets_for, yaml_text
from workloads.intake import FormFields, IntakeRefused, NativeBody, ProjectGrants, WorkloadSpec, read_native
from workloads.intake.rules.scalars import NODE_POOLS, PREEMPTIBILITY_LABEL, PRIORITY_LABEL

Body = dict[str, Any]
KINDS: Final[Mapping[str, str]] = {
    "Workspace": "workspaces",
    "Training": "trainings",
    "Distributed": "distributed",
    "Inference": "inferences",
    "NIMInference": "nim-services",
}
"""By workload type: the word in the address."""
LEADING: Final = frozenset({"PyTorch", "XGBoost"})
"""Frameworks whose first pod leads the others: it is no worker."""


def native_spec(fields: FormFields) -> Body | None:
    """The `spec` of the native body; None for a type that has no native kind."""
    if fields.type not in KINDS:
        return None
    return _given(
        image=fields.image.strip(),
        command=fields.command.strip(),
        args=fields.arguments.strip(),
        compute=_compute(fields),
        environmentVariables=[{"name": name, "value": value} for name, value in fields.environment],
        nodePools=list(fields.node_pools),
        priorityClass=fields.priority,
        preemptibility=fields.preemptibility,
        annotations=[{"name": name, "value": value} for name, value in _notes(fields).items() if value],
        **({} if fields.grace_seconds is None else {"terminationGracePeriodSeconds": fields.grace_seconds}),
        **_of_kind(fields),
    )


def says_the_same(fields: FormFields, spec: Body, wanted: WorkloadSpec, scope: ProjectGrants) -> bool:
    """Whether the native reader makes the form's own workload of it."""
    with suppress(IntakeRefused):
        found = read_native(NativeBody(KINDS[fields.type], fields.name, spec), scope=scope)
        return _comparable(found) == _comparable(wanted)
    return False


def _comparable(spec: WorkloadSpec) -> WorkloadSpec:
    """Without what makes no difference: who read it, the order of roles, how a number of cores is written."""
    roles = tuple(sorted(spec.roles, key=attrgetter("name")))
    return replace(spec, source="form", warnings=(), roles=roles, manifest=_plainly(spec.manifest))


def _plainly(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _number(each) if name == "cpu" else _plainly(each) for name, each in value.items()}
    return [_plainly(each) for each in value] if isinstance(value, list) else value


def _compute(fields: FormFields) -> Body:
    gpus, memory = fields.gpus.strip(), fields.memory.strip()
    shared = gpus.startswith("0.")
    return _given(
        gpuDevicesRequest=1 if shared else int(gpus) if gpus.isdecimal() else None,
        gpuRequestType="portion" if shared else None,
        gpuPortionRequest=_number(gpus) if shared else None,
        cpuCoreRequest=_number(fields.cpu.strip()),
        cpuMemoryRequest=memory,
    )


def _number(text: str) -> float | int | None:
    """Cores of a Kubernetes quantity; None for what is no plain one."""
    with suppress(InvalidOperation):
        found = Decimal(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)
        return int(found) if found == found.to_integral_value() else float(found)
    return None


def _notes(fields: FormFields) -> dict[str, str]:
    return {
        "rung.dev/checkpoint-interval": fields.checkpoint_interval,
        MIN_MEMBER: "" if fields.min_member is None else str(fields.min_member),
        PLACEMENT: fields.placement,
        TOPOLOGY_KEY: fields.topology_key.strip(),
    }


def _of_kind(fields: FormFields) -> Body:
    port = fields.port
    replicas = {"minReplicas": fields.replicas, "maxReplicas": fields.replicas}
    match fields.type:
        case "Distributed":
            workers = fields.workers - (fields.framework in LEADING)
            return {"distributedFramework": fields.framework, "numWorkers": workers, **_ports(port)}
        case "Inference":
            return {"autoscaling": replicas, **({"servingPort": {"container": port}} if port else {})}
        case "NIMInference":
            return _given(
                replicas=fields.replicas,
                ngcAuthSecret=fields.secret,
                imagePullSecrets=[{"name": fields.pull_secret}] if fields.pull_secret else [],
                modelStore={"pvc": {"existingPvc": True, "claimName": fields.storage}} if fields.storage else {},
                servingPort={"port": port} if port else {},
            )
        case _:
            return _ports(port)


def _ports(port: int | None) -> Body:
    return {"ports": [{"container": port}]} if port else {}


def _given(**values: Any) -> Body:
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def flags_of(fields: FormFields, spec: Body) -> list[str] | None:
    """What `rung submit` takes for the same body; None where it has no flag for a part of it."""
    given = _Flags(dict(spec), dict(spec.get("compute", {})))
    kind = {"Workspace": "workspace", "Training": "training", "Distributed": "distributed", "Inference": "inference"}
    if fields.type not in kind or ("command" in spec and "args" in spec):
        return None
    flags = [fields.name, "--type", kind[fields.type], *given.plain()]
    return None if given.left() else [*flags, *_tail(spec)]


def _tail(spec: Body) -> list[str]:
    if "command" in spec:
        return ["--command", "--", *shlex.split(spec["command"])]
    return ["--", *shlex.split(spec["args"])] if "args" in spec else []


class _Flags:
    """Takes out of a body what has a flag; what is left has none."""

    NAMED: Final = {
        "image": "--image",
        "priorityClass": "--priority",
        "preemptibility": "--preemptibility",
        "numWorkers": "--workers",
        "distributedFramework": "--framework",
    }
    COMPUTE: Final = {
        "gpuPortionRequest": "--gpu-portion",
        "gpuDevicesRequest": "--gpus",
        "cpuCoreRequest": "--cpu",
        "cpuMemoryRequest": "--memory",
    }

    def __init__(self, spec: Body, compute: Body) -> None:
        self._spec, self._compute = spec, compute

    def plain(self) -> list[str]:
        spec, compute = self._spec, self._compute
        if compute.pop("gpuRequestType", ""):
            compute.pop("gpuDevicesRequest", None)
        else:
            compute.setdefault("gpuDevicesRequest", 0)
        flags = [word for name, flag in self.NAMED.items() if name in spec for word in (flag, str(spec.pop(name)))]
        flags += [
            word for name, flag in self.COMPUTE.items() if name in compute for word in (flag, str(compute.pop(name)))
        ]
        flags += [word for each in spec.pop("environmentVariables", []) for word in ("--env", _assigned(each))]
        flags += [word for pool in spec.pop("nodePools", []) for word in ("--node-pool", pool)]
        if isinstance(serving := spec.get("servingPort"), dict) and set(serving) == {"container"}:
            flags += ["--port", str(spec.pop("servingPort")["container"])]
        if spec.get("autoscaling") == {"minReplicas": 1, "maxReplicas": 1}:
            del spec["autoscaling"]
        return flags

    def left(self) -> Body:
        """What no flag says."""
        return {
            name: self._spec[name] for name in self._spec if name not in {"compute", "command", "args"}
        } | self._compute


def _assigned(variable: Mapping[str, str]) -> str:
    return f"{variable['name']}={variable['value']}"


MOST: Final = 10
METHODS: Final[Mapping[str, str]] = {
    "workspaces": "workloads.workspaces.create_workspace1",
    "trainings": "workloads.trainings.create_training1",
    "distributed": "workloads.distributed.create_distributed",
    "inferences": "workloads.inferences.create_inference1",
    "nim-services": "workloads.nvidia_nim.create_nim_service",
}


@dataclass(frozen=True, slots=True)
class SubmitTarget:
    """Where a workload goes, by the ids that the API asks for."""

    project_id: str
    project: str
    cluster_id: str


def of_manifests(address: str, specs: Sequence[WorkloadSpec], home: SubmitTarget) -> list[ApiSnippet]:
    """A file's workloads, or a form's that only a manifest says."""
    requests = [as_manifest(spec, home) for spec in specs[:MOST]]
    notes = "".join(dict.fromkeys(map(_note, specs)))
    return snippets_for(address, requests, document=document_of(specs), command=_from_document(specs, home), note=notes)


def of_form(
    address: str, fields: FormFields, spec: WorkloadSpec, home: SubmitTarget, scope: ProjectGrants
) -> list[ApiSnippet]:
    native = native_spec(fields)
    if native is None or not says_the_same(fields, native, spec, scope):
        return of_manifests(address, [spec], home)
    kind = KINDS[fields.type]
    body = {"name": fields.name, "projectId": home.project_id, "clusterId": home.cluster_id, "spec": native}
    version = "v2" if kind == "nim-services" else "v1"
    request = ApiRequest("POST", f"/api/{version}/workloads/{kind}", body, METHODS[kind])
    flags = flags_of(fields, native)
    command = rung_text(["submit", "--project", home.project, *flags]) if flags else _from_document([spec], home)
    return snippets_for(address, [request], document=document_of([spec]), command=command)


def _from_document(specs: Sequence[WorkloadSpec], home: SubmitTarget) -> str:
    return rung_text(["submit", "--project", home.project, "-f", "-"], document_of(specs))


def document_of(specs: Sequence[WorkloadSpec]) -> str:
    """As YAML, with a line on what a manifest cannot say."""
    texts = (_note(spec) + yaml_text([manifest_of(spec)]) for spec in specs[:MOST])
    return "---\n".join(texts)


def _note(spec: WorkloadSpec) -> str:
    """What a manifest cannot say: the type of Run:ai's that the form chose."""
    if spec.type_name == spec.kind:
        return ""
    return f"# A manifest runs as type {spec.kind}, not {spec.type_name}: choose its priority where defaults differ.\n"


def manifest_of(spec: WorkloadSpec) -> dict[str, Any]:
    """Its manifest with what was asked of Rung written into it."""
    requested = spec.request
    labels = {
        PRIORITY_LABEL: requested.explicit_priority or requested.label_priority or requested.template_priority,
        PREEMPTIBILITY_LABEL: requested.explicit_preemptibility or requested.label_preemptibility,
    }
    notes = {NODE_POOLS: ",".join(spec.node_pools)}
    metadata = dict(spec.manifest["metadata"])
    if spec.generate_name:
        metadata = {"generateName": metadata.pop("name"), **metadata}
    for name, more in (("labels", labels), ("annotations", notes)):
        if whole := {**metadata.get(name, {}), **{key: text for key, text in more.items() if text}}:
            metadata[name] = whole
    return {**spec.manifest, "metadata": metadata}


def as_manifest(spec: WorkloadSpec, home: SubmitTarget) -> ApiRequest:
    """A submission of the manifest that Rung made of it."""
    metadata = {"projectId": home.project_id, "clusterId": home.cluster_id}
    body = {"metadata": metadata, "manifest": manifest_of(spec)}
    return ApiRequest("POST", "/api/v2/workloads", body, "workloads.workloads_v2.create_workload_v2")
