"""A filled form as the body of a native submission, for whoever wants to send the same by a script. Pure.

Not every form has one: a type without a native kind, or a shape that only a manifest writes. Whether a body means the
same workload is for its reader to say (`says_the_same`); nothing here is trusted to.
"""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any, Final

from clusters.flavours.common import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from workloads.intake import FormFields, IntakeRefused, Native, Scope, WorkloadSpec, read_native

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


def says_the_same(fields: FormFields, spec: Body, wanted: WorkloadSpec, scope: Scope) -> bool:
    """Whether the native reader makes the form's own workload of it."""
    with suppress(IntakeRefused):
        found = read_native(Native(KINDS[fields.type], fields.name, spec), scope=scope)
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
    """Without what was left empty."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def flags_of(fields: FormFields, spec: Body) -> list[str] | None:
    """What `rung submit` takes for the same body; None where it has no flag for a part of it."""
    told = _Flags(dict(spec), dict(spec.get("compute", {})))
    kind = {"Workspace": "workspace", "Training": "training", "Distributed": "distributed", "Inference": "inference"}
    if fields.type not in kind or ("command" in spec and "args" in spec):
        return None
    flags = [fields.name, "--type", kind[fields.type], *told.plain()]
    return None if told.left() else [*flags, *_tail(spec)]


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
        """The flags."""
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
