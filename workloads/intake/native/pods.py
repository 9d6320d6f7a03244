"""A checked part of a native spec as a pod template."""

from collections.abc import Mapping
from typing import Any, Final

from workloads.intake.metadata import WISHES
from workloads.intake.resources import FRACTION

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
        **_filled("ports", _ports(part, port)),
        **_filled("volumeMounts", mounts),
        **_filled("securityContext", security.get("container", {})),
        **_probed(part),
    }
    spec: Manifest = {
        "containers": [main],
        **_filled("volumes", volumes),
        **_filled("securityContext", security.get("pod", {})),
        **{name: part[name] for name in ("tolerations", "imagePullSecrets") if part.get(name)},
        **_filled("restartPolicy", restart),
    }
    if "terminationGracePeriodSeconds" in part:
        spec["terminationGracePeriodSeconds"] = part["terminationGracePeriodSeconds"]
    return {"metadata": _metadata(part, app, share=compute.get("share", "") if gpus else ""), "spec": spec}


def labels_of(part: Part) -> dict[str, str]:
    """Every label that was asked for, wishes for priority and preemptibility among them."""
    return dict(part.get("labels", []))


def _metadata(part: Part, app: str, *, share: str) -> Manifest:
    own = {name: value for name, value in labels_of(part).items() if name not in WISHES}
    return {"labels": {**own, APP: app}, **_filled("annotations", {FRACTION: share} if share else {})}


def _resources(compute: Part, *, gpus: bool) -> Manifest:
    """Without a GPU, a role keeps its CPU and memory."""
    asked: Mapping[str, Mapping[str, Any]] = compute.get("resources", {})
    if gpus:
        return {side: dict(given) for side, given in asked.items()}
    plain = {side: {name: given[name] for name in ("cpu", "memory") if name in given} for side, given in asked.items()}
    return {side: given for side, given in plain.items() if given}


def _ports(part: Part, port: int | None) -> list[Manifest]:
    """What it serves first: that is its address."""
    named = [each["container"] for each in part.get("ports", []) if "container" in each]
    return [{"containerPort": number} for number in dict.fromkeys([port, *named]) if number is not None]


def _volumes(part: Part, *, shm: bool) -> tuple[list[Manifest], list[Manifest]]:
    asked = list(part.get("storage", []))
    if shm:
        asked.append(({"emptyDir": {"medium": "Memory"}}, {"mountPath": SHM}))
    named = [(f"volume-{index}", *each) for index, each in enumerate(asked)]
    volumes = [{"name": name, **source} for name, source, _mount in named]
    return volumes, [{"name": name, **mount} for name, _source, mount in named]


def _probed(part: Part) -> Manifest:
    readiness = part.get("probes", {}).get("readiness")
    return {"readinessProbe": readiness} if readiness else {}


def _filled(name: str, value: Any) -> Manifest:
    """A member that is left out when it is empty."""
    return {name: value} if value else {}
