"""Volumes and security of a native spec: claims, scratch space and granted Secrets; rights are only taken away."""

from collections.abc import Mapping
from typing import Any, Final

from workloads.intake.environment import config_map, secret
from workloads.intake.names import dns_name
from workloads.intake.native.parts import WORD, items, nothing, rebuilt
from workloads.intake.problems import visible
from workloads.intake.resources import memory
from workloads.intake.rules import ABSENT, Place, Rule, boolean, choice, integer, only, table, text
from workloads.intake.volumes import REFUSED, mount_path, safe_path

MODES: Final = (
    ("readWriteOnce", "ReadWriteOnce"),
    ("readOnlyMany", "ReadOnlyMany"),
    ("readWriteMany", "ReadWriteMany"),
)
_mode: Rule = text(4, r"0[0-7]{3}", "four octal digits such as 0644")


def _modes(asked: dict[str, Any], _place: Place) -> list[str]:
    return [mode for name, mode in MODES if asked.get(name, name == "readWriteOnce")]


_claim_info: Rule = table(
    {
        "size": memory,
        "storageClass": dns_name,
        "accessModes": rebuilt({name: boolean for name, _kept in MODES}, _modes),
        "volumeMode": only("Filesystem", "Block devices are not offered."),
        "addedAttrValues": nothing("Annotations of a claim are not taken."),
    },
    required=["size"],
)


def _claim(item: dict[str, Any], place: Place) -> Any:
    """An existing claim by name, or one that lives as long as its pod."""
    if item.get("existingPvc"):
        if "claimName" not in item:
            return place.at("claimName").refuse("required", "Which claim?")
        source = {"claimName": item["claimName"], "readOnly": item.get("readOnly", False)}
        return _mounted({"persistentVolumeClaim": source}, item.get("path"))
    if not item.get("ephemeral"):
        message = "Rung makes no claim that outlives its pod: name an existing one, or set ephemeral."
        return place.at("existingPvc").refuse("not_offered", message, ("true",))
    if "claimInfo" not in item:
        return place.at("claimInfo").refuse("required", "How large, and of which storage class?")
    info = item["claimInfo"]
    spec = {
        "accessModes": info.get("accessModes") or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": info.get("size")}},
        **({"storageClassName": info["storageClass"]} if "storageClass" in info else {}),
    }
    return _mounted({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}, item.get("path"))


def _scratch(item: dict[str, Any], _place: Place) -> Any:
    source = {name: item[name] for name in ("medium", "sizeLimit") if name in item}
    return _mounted({"emptyDir": source}, item.get("path"))


def _config(item: dict[str, Any], _place: Place) -> Any:
    source = {"configMap": {"name": item.get("configMap"), **_default_mode(item)}}
    return _mounted(source, item.get("mountPath"), item.get("subPath"))


def _secret(item: dict[str, Any], _place: Place) -> Any:
    source = {"secret": {"secretName": item.get("secret"), **_default_mode(item)}}
    return _mounted(source, item.get("mountPath"))


def _default_mode(item: Mapping[str, Any]) -> dict[str, int]:
    return {"defaultMode": int(item["defaultMode"], 8)} if "defaultMode" in item else {}


def _mounted(source: dict[str, Any], path: str | None, sub_path: str | None = None) -> Any:
    """A volume without its name, and where it is mounted; a refused path was noted by its rule."""
    if path is None:
        return ABSENT
    return source, {"mountPath": path, **({"subPath": sub_path} if sub_path else {})}


def _of_node(name: str) -> Rule:
    return nothing(f"{REFUSED[name]} Use a claim of the project.", "volume_not_allowed")


VOLUMES: Final[Mapping[str, Rule]] = {
    "pvc": items(
        rebuilt(
            {
                "name": WORD,
                "path": mount_path,
                "existingPvc": boolean,
                "claimName": dns_name,
                "readOnly": boolean,
                "ephemeral": boolean,
                "claimInfo": _claim_info,
                "dataSharing": nothing("A claim belongs to its project: it is not shared."),
            },
            _claim,
            required=("path",),
        )
    ),
    "emptyDirVolume": items(
        rebuilt(
            {"name": WORD, "path": mount_path, "medium": choice("", "Memory"), "sizeLimit": memory},
            _scratch,
            required=("path",),
        )
    ),
    "configMapVolume": items(
        rebuilt(
            {
                "name": WORD,
                "configMap": config_map,
                "mountPath": mount_path,
                "subPath": safe_path,
                "defaultMode": _mode,
            },
            _config,
            required=("configMap", "mountPath"),
        )
    ),
    "secretVolume": items(
        rebuilt(
            {"name": WORD, "secret": secret, "mountPath": mount_path, "defaultMode": _mode},
            _secret,
            required=("secret", "mountPath"),
        )
    ),
    "hostPath": _of_node("hostPath"),
    "nfs": _of_node("nfs"),
    "git": nothing("Nothing is cloned beside a workload: bring the code with the image or a claim."),
    "s3": nothing("A bucket is not mounted: the code reads it itself, with a granted Secret."),
    "dataVolume": nothing("There are no data volumes here: use a claim of the project."),
}


def _storage(asked: dict[str, Any], _place: Place) -> list[Any]:
    return [each for name in VOLUMES for each in asked.get(name, [])]


storage: Rule = rebuilt(VOLUMES, _storage)

_identity: Rule = integer(1)
_numbers: Rule = text(400, r" *[1-9][0-9]{0,9}( *, *[1-9][0-9]{0,9})* *", "numbers of groups, parted by commas")


def _groups(value: Any, place: Place) -> Any:
    """`1000,2000` as numbers."""
    written = _numbers(value, place)
    if written is ABSENT:
        return ABSENT
    numbers = [_identity(int(each), place) for each in written.split(",")]
    return [each for each in numbers if each is not ABSENT]


def _security(asked: dict[str, Any], _place: Place) -> dict[str, dict[str, Any]]:
    """What goes to the pod and what to its container."""
    pod = {
        kept: asked[name]
        for name, kept in (
            ("runAsUid", "runAsUser"),
            ("runAsGid", "runAsGroup"),
            ("runAsNonRoot", "runAsNonRoot"),
            ("supplementalGroups", "supplementalGroups"),
        )
        if name in asked
    }
    if "seccompProfileType" in asked:
        pod["seccompProfile"] = {"type": asked["seccompProfileType"]}
    own = ("allowPrivilegeEscalation", "readOnlyRootFilesystem")
    return {"pod": pod, "container": {name: asked[name] for name in own if name in asked}}


def _no_capability(value: Any, place: Place) -> Any:
    if value == []:
        return ABSENT
    return place.refuse("capability_added", f"Capabilities are only dropped, never added: {visible(value)}.")


security: Rule = rebuilt(
    {
        "uidGidSource": choice("fromTheImage", "custom"),
        "runAsUid": _identity,
        "runAsGid": _identity,
        "runAsNonRoot": only(allowed=True, why="A container does not ask to run as root."),
        "supplementalGroups": _groups,
        "seccompProfileType": only(
            "RuntimeDefault", "Only the runtime's own profile is allowed.", "profile_not_allowed"
        ),
        "readOnlyRootFilesystem": boolean,
        "allowPrivilegeEscalation": only(allowed=False, why="Privilege escalation is refused."),
        "capabilities": _no_capability,
        "hostIpc": only(allowed=False, why="The node's memory is not shared."),
        "hostNetwork": only(allowed=False, why="The node's network is not shared."),
    },
    _security,
)
