"""Security contexts: the settings that only ever take rights away."""

from typing import Any, Final

from workloads.intake.problems import visible
from workloads.intake.rules import Place, Rule, boolean, choice, forbidden, integer, listing, only, table, text

SAFE_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
)
_identity = integer(1)
_default_profile = table(
    {"type": only("RuntimeDefault", "Only the runtime's own profile is allowed.", "profile_not_allowed")},
    required=["type"],
)


def _added(value: Any, place: Place) -> Any:
    if value == []:
        return value
    return place.refuse("capability_added", f"Capabilities are only dropped, never added: {visible(value)}.")


_SHARED: Final = {
    "runAsUser": _identity,
    "runAsGroup": _identity,
    "runAsNonRoot": only(allowed=True, why="A container does not ask to run as root."),
    "seccompProfile": _default_profile,
    "appArmorProfile": _default_profile,
    "seLinuxOptions": forbidden("SELinux options are set by the cluster."),
    "windowsOptions": forbidden("Windows nodes are not offered."),
}
container_security: Rule = table(
    {
        **_SHARED,
        "privileged": only(allowed=False, why="Privileged containers reach the node."),
        "allowPrivilegeEscalation": only(allowed=False, why="Privilege escalation is refused."),
        "readOnlyRootFilesystem": boolean,
        "procMount": only("Default", "An unmasked /proc shows the node."),
        "capabilities": table({"drop": listing(text(64, r"[A-Z_]+", "a capability such as ALL")), "add": _added}),
    }
)
pod_security: Rule = table(
    {
        **_SHARED,
        "fsGroup": _identity,
        "fsGroupChangePolicy": choice("OnRootMismatch", "Always"),
        "supplementalGroups": listing(_identity, 32),
        "supplementalGroupsPolicy": choice("Merge", "Strict"),
        "sysctls": listing(table({"name": choice(*SAFE_SYSCTLS), "value": text(256)}, required=["name", "value"]), 16),
    }
)
