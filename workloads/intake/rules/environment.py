"""Environment variables, volumes and security settings: free but for what the node or others own."""

import posixpath
import re
from typing import Any, Final

from portal.kit.security.strict_json import visible
from workloads.intake.rules.scalars import annotations, dns_label, dns_name, labels, memory, quantity
from workloads.intake.rules.values import (
    ABSENT,
    Location,
    Rule,
    boolean,
    both,
    choice,
    forbidden,
    integer,
    listing,
    only,
    table,
    text,
)

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
    {"type": only("RuntimeDefault", "Only the runtime's default profile is allowed.", "profile_not_allowed")},
    required=["type"],
)


def _added(value: Any, place: Location) -> Any:
    if value == []:
        return value
    return place.refuse("capability_added", f"Capabilities cannot be added: {visible(value)}.")


_SHARED: Final = {
    "runAsUser": _identity,
    "runAsGroup": _identity,
    "runAsNonRoot": only(allowed=True, why="Containers must not request to run as root."),
    "seccompProfile": _default_profile,
    "appArmorProfile": _default_profile,
    "seLinuxOptions": forbidden("SELinux options are set by the cluster."),
    "windowsOptions": forbidden("Windows nodes are not supported."),
}
container_security: Rule = table(
    {
        **_SHARED,
        "privileged": only(allowed=False, why="Privileged containers are not allowed."),
        "allowPrivilegeEscalation": only(allowed=False, why="Privilege escalation is not allowed."),
        "readOnlyRootFilesystem": boolean,
        "procMount": only("Default", "An unmasked /proc is not allowed."),
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


CAPABILITIES: Final = frozenset({"compute", "utility", "video", "graphics", "display", "ngx", "compat32"})
HARMLESS: Final = frozenset({"NVIDIA_TF32_OVERRIDE", "NVIDIA_DRIVER_CAPABILITIES"})
_NAME = text(256, r"[-._a-zA-Z][-._a-zA-Z0-9]*", "an environment variable's name", shortest=1, code="bad_name")
_ACTED_UPON = re.compile(r"(LD_|NVIDIA_).*")
CONFIG_KEY: Final = text(253, r"[-._a-zA-Z0-9]+", "a key of a ConfigMap or Secret")


def variable_name(value: Any, place: Location) -> Any:
    """A name the container runtime's hooks do not read."""
    name = _NAME(value, place)
    if name is ABSENT or name in HARMLESS or not _ACTED_UPON.fullmatch(name):
        return name
    message = f"{visible(name)} affects the GPU runtime on the node. Set it in the image or the command."
    return place.refuse("env_not_allowed", message)


def granted(kind: str) -> Rule:
    """The name of a Secret or ConfigMap that an admin granted to the project."""

    def check(value: Any, place: Location) -> Any:
        name = dns_name(value, place)
        names = place.scope.secrets if kind == "Secret" else place.scope.config_maps
        if name is ABSENT or name in names:
            return name
        return place.refuse("not_granted", f"The {kind} {visible(name)} is not available to this project.", names)

    return check


secret: Rule = granted("Secret")
config_map: Rule = granted("ConfigMap")
_FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "status.podIP",
    "status.podIPs",
)
_RESOURCE_FIELDS = tuple(f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "memory"))


def field_path(value: Any, place: Location) -> Any:
    if isinstance(value, str) and re.fullmatch(r"metadata\.(labels|annotations)\['[-._/a-zA-Z0-9]{1,300}'\]", value):
        return value
    return choice(*_FIELD_PATHS)(value, place)


value_from: Rule = table(
    {
        "fieldRef": table(
            {"fieldPath": field_path, "apiVersion": only("v1", "Only v1 is supported.")}, required=["fieldPath"]
        ),
        "resourceFieldRef": table(
            {"resource": choice(*_RESOURCE_FIELDS), "containerName": dns_name, "divisor": quantity(unit=1000)},
            required=["resource"],
        ),
        "secretKeyRef": table({"name": secret, "key": CONFIG_KEY, "optional": boolean}, required=["name", "key"]),
        "configMapKeyRef": table(
            {"name": config_map, "key": CONFIG_KEY, "optional": boolean}, required=["name", "key"]
        ),
    },
    one_of=["fieldRef", "resourceFieldRef", "secretKeyRef", "configMapKeyRef"],
)
_VARIABLE: Rule = table({"name": variable_name, "value": text(32_768), "valueFrom": value_from}, required=["name"])


def variable(value: Any, place: Location) -> Any:
    """One variable; driver capabilities come from a short list unless an admin allows all."""
    rebuilt = _VARIABLE(value, place)
    if rebuilt is ABSENT:
        return rebuilt
    if "value" in rebuilt and "valueFrom" in rebuilt:
        return place.refuse("exactly_one", "Use value or valueFrom, not both.", ("value", "valueFrom"))
    if rebuilt.get("name") == "NVIDIA_DRIVER_CAPABILITIES":
        _check_capabilities(rebuilt.get("value"), place)
    return rebuilt


def _check_capabilities(value: str | None, place: Location) -> None:
    if value == "all" and place.scope.allow_driver_capabilities_all:
        return
    if value is None or not set(value.split(",")) <= CAPABILITIES:
        message = "Driver capabilities must be on the allowed list. An admin can allow others."
        place.at("value").refuse("env_not_allowed", message, sorted(CAPABILITIES))


env: Rule = listing(variable, 500, unique="name")
env_from: Rule = listing(
    table(
        {
            "prefix": variable_name,
            "secretRef": table({"name": secret, "optional": boolean}, required=["name"]),
            "configMapRef": table({"name": config_map, "optional": boolean}, required=["name"]),
        },
        one_of=["secretRef", "configMapRef"],
    ),
    50,
)


NODE_PATHS: Final = ("/proc", "/sys", "/dev", "/run", "/var/run")
# Shared memory of the pod itself (an emptyDir), and the file from which Kubernetes reads why a container ended.
MOUNTABLE: Final = ("/dev/shm", "/dev/termination-log")  # noqa: S108


def safe_path(value: Any, place: Location) -> Any:
    """A relative path that stays where it starts."""
    path = text(1024, shortest=1)(value, place)
    if path is ABSENT:
        return path
    if path.startswith("/") or ".." in path.split("/"):
        return place.refuse("path_escapes", f"{visible(path)!r} must be relative and without '..'.")
    return path


def mount_path(value: Any, place: Location) -> Any:
    """An absolute path outside of what the runtime mounts itself, and not the root."""
    path = text(1024, r"/[^:]*", "an absolute path without ':'")(value, place)
    if path is ABSENT:
        return path
    if ".." in path.split("/"):
        return place.refuse("path_escapes", f"{visible(path)!r} must not contain '..'.")
    clean = posixpath.normpath(f"/{path.lstrip('/')}")  # normpath keeps two leading slashes, the kernel does not
    if clean == "/":
        return place.refuse("path_reserved", "The root of the container cannot be a mount.")
    if clean not in MOUNTABLE and any(clean == each or clean.startswith(f"{each}/") for each in NODE_PATHS):
        return place.refuse("path_reserved", f"{visible(path)} is reserved for the container runtime.")
    return path


mount_rule: Rule = table(
    {
        "name": dns_label,
        "mountPath": mount_path,
        "subPath": safe_path,
        "readOnly": boolean,
        "subPathExpr": forbidden("Sub-paths cannot contain variables."),
        "mountPropagation": only("None", "Mount propagation is not allowed."),
        "recursiveReadOnly": choice("Disabled", "IfPossible", "Enabled"),
    },
    required=["name", "mountPath"],
)
_items = listing(
    table({"key": CONFIG_KEY, "path": safe_path, "mode": integer(0, 0o777)}, required=["key", "path"]), 100
)
_mode = integer(0, 0o777)
_downward = table(
    {
        "items": listing(
            table(
                {"path": safe_path, "fieldRef": table({"fieldPath": field_path}, required=["fieldPath"])},
                required=["path", "fieldRef"],
            )
        ),
        "defaultMode": _mode,
    }
)
CLAIM_SPEC: Final = {
    "accessModes": listing(choice("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"), 4, least=1),
    "resources": table({"requests": table({"storage": memory}, required=["storage"])}, required=["requests"]),
    "storageClassName": dns_name,
    "volumeMode": only("Filesystem", "Block devices are not supported."),
}
claim_spec: Rule = table(CLAIM_SPEC, required=["accessModes", "resources"])
claim_template: Rule = table(
    {
        "apiVersion": only("v1", "Claims must be v1."),
        "kind": only("PersistentVolumeClaim", "Only claims are allowed here."),
        "metadata": table({"name": dns_label, "labels": labels, "annotations": annotations({})}, required=["name"]),
        "spec": claim_spec,
    },
    required=["metadata", "spec"],
)
OWN_CLAIM: Final = table({"claimName": dns_name, "readOnly": boolean}, required=["claimName"])
EMPTY_DIR: Final = table({"medium": choice("", "Memory"), "sizeLimit": memory})
SOURCES: Final = {
    "emptyDir": EMPTY_DIR,
    "persistentVolumeClaim": OWN_CLAIM,
    "ephemeral": table(
        {"volumeClaimTemplate": table({"spec": claim_spec}, required=["spec"])}, required=["volumeClaimTemplate"]
    ),
    "configMap": table(
        {"name": config_map, "items": _items, "defaultMode": _mode, "optional": boolean}, required=["name"]
    ),
    "secret": table(
        {"secretName": secret, "items": _items, "defaultMode": _mode, "optional": boolean}, required=["secretName"]
    ),
    "downwardAPI": _downward,
}
_ALLOWED: Final = tuple(SOURCES)
REFUSED: Final = {
    "hostPath": "Host directories are not allowed.",
    "projected": "Projected service-account tokens are not allowed.",
    "csi": "CSI volumes must use a claim.",
    "nfs": "Network shares must use a claim.",
    "flexVolume": "Node drivers are not allowed.",
    "iscsi": "Block devices must use a claim.",
    "rbd": "Block devices must use a claim.",
    "cephfs": "Network shares must use a claim.",
    "glusterfs": "Network shares must use a claim.",
    "gitRepo": "Git volumes are not allowed.",
    "image": "Image volumes are not supported.",
    "local": "Host directories are not allowed.",
}


def _refusal(why: str) -> Rule:
    def check(_value: Any, place: Location) -> Any:
        return place.refuse("volume_not_allowed", f"{why} Use {', '.join(_ALLOWED)}.", _ALLOWED)

    return check


def _one_source(rebuilt: Any, place: Location) -> Any:
    given = [name for name in SOURCES if name in rebuilt]
    if len(given) > 1:
        place.refuse("exactly_one", f"A volume must have one source, not {' and '.join(given)}.", _ALLOWED)
    return rebuilt


volume: Rule = both(
    table({"name": dns_label, **SOURCES, **{name: _refusal(why) for name, why in REFUSED.items()}}, required=["name"]),
    _one_source,
)
volumes: Rule = listing(volume, 50, unique="name")
