"""What Pod Security demands of a pod, written wherever a tenant left it out. Pure.

Intake refuses what contradicts (a privileged container, an added capability), so filling in is enough. `restricted`
wants runAsNonRoot, a seccomp profile, no privilege escalation and every capability dropped. `baseline` forbids only
what intake refuses already, so that images which start as root run: there only the seccomp profile is written. No pod
gets a token of the cluster either way. Source: Pod Security Standards 1.36.
"""

from collections.abc import Mapping
from typing import Any, Final

BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
LEVELS: Final = (RESTRICTED, BASELINE)
ALL: Final = "ALL"
TOKEN: Final = "automountServiceAccountToken"  # noqa: S105  # the name of a field
# Members of a pod spec that hold containers, or are one: KServe writes its model beside the others.
CONTAINERS: Final = ("containers", "initContainers", "steps")
LONE_CONTAINERS: Final = ("model", "mainContainer", "container", "script")


def harden_pod(spec: dict[str, Any], level: str) -> None:
    """A pod spec and every container in it, in place."""
    harden_context(spec, level)
    spec.setdefault(TOKEN, False)
    harden_containers(spec, level)


def harden_context(owner: dict[str, Any], level: str) -> None:
    """The securityContext of a pod, or of what stands for all pods of an object."""
    context = owner.setdefault("securityContext", {})
    context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    if level == RESTRICTED:
        context.setdefault("runAsNonRoot", True)


def harden_containers(part: dict[str, Any], level: str, *, alone: bool = False) -> None:
    """Every container below; `alone`: no pod's securityContext stands above, so it says everything itself."""
    for member in CONTAINERS:
        for each in part.get(member) or []:
            harden_container(each, level, alone=alone)
    for member in LONE_CONTAINERS:
        if isinstance(part.get(member), Mapping):
            harden_container(part[member], level, alone=alone)


def harden_container(container: dict[str, Any], level: str, *, alone: bool = False) -> None:
    """A container drops every capability and cannot gain rights, where the level wants that."""
    if alone:
        harden_context(container, level)
    if level != RESTRICTED:
        return
    context = container.setdefault("securityContext", {})
    context.setdefault("allowPrivilegeEscalation", False)
    capabilities = context.setdefault("capabilities", {})
    if ALL not in capabilities.get("drop", []):
        capabilities["drop"] = [ALL]
