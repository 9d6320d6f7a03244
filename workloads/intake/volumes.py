"""Volumes: scratch space, the project's own claims, and what an admin granted. Nothing of the node or of others."""

import posixpath
from typing import Any, Final

from workloads.intake.environment import CONFIG_KEY, config_map, field_path, secret
from workloads.intake.names import annotations, dns_label, dns_name, labels
from workloads.intake.problems import visible
from workloads.intake.resources import memory
from workloads.intake.rules import (
    ABSENT,
    Place,
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

NODE_PATHS: Final = ("/proc", "/sys", "/dev", "/run", "/var/run")
MOUNTABLE: Final = ("/dev/shm",)  # noqa: S108  # shared memory of the pod itself, backed by an emptyDir


def safe_path(value: Any, place: Place) -> Any:
    """A relative path that stays where it starts."""
    path = text(1024, shortest=1)(value, place)
    if path is ABSENT:
        return path
    if path.startswith("/") or ".." in path.split("/"):
        return place.refuse("path_escapes", f"{visible(path)!r} must be relative and without '..'.")
    return path


def mount_path(value: Any, place: Place) -> Any:
    """An absolute path outside of what the runtime mounts itself."""
    path = text(1024, r"/[^:]*", "an absolute path without ':'")(value, place)
    if path is ABSENT:
        return path
    if ".." in path.split("/"):
        return place.refuse("path_escapes", f"{visible(path)!r} must not hold '..'.")
    clean = posixpath.normpath(path)
    if clean not in MOUNTABLE and any(clean == each or clean.startswith(f"{each}/") for each in NODE_PATHS):
        return place.refuse("path_reserved", f"{visible(path)} is mounted by the container runtime.")
    return path


mount: Rule = table(
    {
        "name": dns_label,
        "mountPath": mount_path,
        "subPath": safe_path,
        "readOnly": boolean,
        "subPathExpr": forbidden("A sub-path is written out, without variables."),
        "mountPropagation": only("None", "Mounts do not spread to the node."),
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
    "volumeMode": only("Filesystem", "Block devices are not offered."),
}
claim_spec: Rule = table(CLAIM_SPEC, required=["accessModes", "resources"])
claim_template: Rule = table(
    {
        "apiVersion": only("v1", "A claim is v1."),
        "kind": only("PersistentVolumeClaim", "Only claims stand here."),
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
    "hostPath": "It mounts a directory of the node.",
    "projected": "It can mint service-account tokens.",
    "csi": "A CSI driver is named by a claim, not by a pod.",
    "nfs": "Network shares are reached through a claim.",
    "flexVolume": "It runs a driver on the node.",
    "iscsi": "Block devices are reached through a claim.",
    "rbd": "Block devices are reached through a claim.",
    "cephfs": "Network shares are reached through a claim.",
    "glusterfs": "Network shares are reached through a claim.",
    "gitRepo": "It runs git on the node.",
    "image": "Image volumes are not offered.",
    "local": "It mounts a directory of the node.",
}


def _refusal(why: str) -> Rule:
    def check(_value: Any, place: Place) -> Any:
        return place.refuse("volume_not_allowed", f"{why} Use {', '.join(_ALLOWED)}.", _ALLOWED)

    return check


def _one_source(rebuilt: Any, place: Place) -> Any:
    given = [name for name in SOURCES if name in rebuilt]
    if len(given) > 1:
        place.refuse("exactly_one", f"A volume has one source; found {' and '.join(given)}.", _ALLOWED)
    return rebuilt


volume: Rule = both(
    table({"name": dns_label, **SOURCES, **{name: _refusal(why) for name, why in REFUSED.items()}}, required=["name"]),
    _one_source,
)
volumes: Rule = listing(volume, 50, unique="name")
