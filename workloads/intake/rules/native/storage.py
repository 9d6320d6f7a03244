"""Compute, volumes and security of a native spec."""

from collections.abc import Mapping
from typing import Any, Final

from portal.kit.security.strict_json import visible
from workloads.intake.rules.environment import REFUSED, config_map, mount_path, safe_path, secret
from workloads.intake.rules.native.parts import WORD, items, nothing, number, rebuilt
from workloads.intake.rules.scalars import GPU, MOST_GPUS, cpu, dns_name, memory, rule_for
from workloads.intake.rules.values import ABSENT, Location, Rule, boolean, both, choice, integer, only, table, text

NO_MEMORY: Final = "GPU memory requests are not supported. Request a portion or whole devices."
_SIDES: Final = (
    ("cpuCoreRequest", "requests", "cpu"),
    ("cpuCoreLimit", "limits", "cpu"),
    ("cpuMemoryRequest", "requests", "memory"),
    ("cpuMemoryLimit", "limits", "memory"),
)
_written: Rule = text(60, shortest=1)
_FIELDS: Final[Mapping[str, Rule]] = {
    "gpuDevicesRequest": integer(0, MOST_GPUS),
    "gpuRequestType": choice("portion", "memory"),
    "gpuPortionRequest": number,
    "gpuPortionLimit": number,
    "gpuMemoryRequest": nothing(NO_MEMORY),
    "gpuMemoryLimit": nothing(NO_MEMORY),
    "cpuCoreRequest": both(number, cpu),
    "cpuCoreLimit": both(number, cpu),
    "cpuMemoryRequest": both(_written, memory),
    "cpuMemoryLimit": both(_written, memory),
    "largeShmRequest": boolean,
    "extendedResources": items(table({"resource": text(316, shortest=1), "quantity": _written}, required=["resource"])),
}


def _compute(requested: dict[str, Any], place: Location) -> Any:
    """`resources` of the container, `share` of one GPU as text or empty, `shm`: more shared memory than usual."""
    sides: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for name, side, resource in _SIDES:
        if name in requested:
            sides[side][resource] = requested[name]
    share = _share(requested, place)
    devices = requested.get("gpuDevicesRequest", 1 if requested.get("gpuPortionRequest") == 1 else 0)
    if devices and not share:
        sides["limits"][GPU] = devices
    sides["limits"] |= _extended(requested, place)
    return {
        "resources": {side: given for side, given in sides.items() if given},
        "share": share,
        "shm": requested.get("largeShmRequest", False),
    }


def _share(requested: Mapping[str, Any], place: Location) -> str:
    """The share of one GPU; empty for whole ones."""
    if requested.get("gpuRequestType") == "memory":
        place.at("gpuRequestType").refuse("not_offered", NO_MEMORY, ("portion",))
    portion = requested.get("gpuPortionRequest")
    if portion is None or portion in (0, 1):
        _check_no_growth(requested, portion, place)
        return ""
    if not 0.01 <= portion < 1 or round(portion, 2) != portion:
        message = f"{visible(portion)} must be from 0.01 to 0.99 in steps of 0.01, or 1."
        place.at("gpuPortionRequest").refuse("bad_gpu_count", message)
    if requested.get("gpuDevicesRequest", 1) != 1:
        place.at("gpuDevicesRequest").refuse("gpu_both_ways", "Must be 1 with a portion.", ("1",))
    _check_no_growth(requested, portion, place)
    return format(portion, ".2f").rstrip("0")


def _check_no_growth(requested: Mapping[str, Any], portion: float | None, place: Location) -> None:
    limit = requested.get("gpuPortionLimit")
    if limit is not None and limit != (portion if portion is not None else limit):
        message = "The limit must equal the request, or be absent."
        place.at("gpuPortionLimit").refuse("out_of_range", message, (str(portion),))


def _extended(requested: Mapping[str, Any], place: Location) -> Mapping[str, Any]:
    """Further devices, as far as they are granted to the project."""
    found: dict[str, Any] = {}
    for index, item in enumerate(requested.get("extendedResources", [])):
        each = place.at("extendedResources").at(index)
        name = item.get("resource")
        rule = rule_for(name, each.at("resource")) if name is not None else None
        amount = ABSENT if rule is None else rule(item.get("quantity", "1"), each.at("quantity"))
        if amount is not ABSENT:
            found[name] = amount
    return found


compute: Rule = rebuilt(_FIELDS, _compute)


MODES: Final = (
    ("readWriteOnce", "ReadWriteOnce"),
    ("readOnlyMany", "ReadOnlyMany"),
    ("readWriteMany", "ReadWriteMany"),
)
_mode: Rule = text(4, r"0[0-7]{3}", "four octal digits such as 0644")


def _modes(requested: dict[str, Any], _place: Location) -> list[str]:
    return [mode for name, mode in MODES if requested.get(name, name == "readWriteOnce")]


_claim_info: Rule = table(
    {
        "size": memory,
        "storageClass": dns_name,
        "accessModes": rebuilt({name: boolean for name, _kept in MODES}, _modes),
        "volumeMode": only("Filesystem", "Block devices are not supported."),
        "addedAttrValues": nothing("Annotations of claims are not supported."),
    },
    required=["size"],
)


def _claim(item: dict[str, Any], place: Location) -> Any:
    """An existing claim by name, or one that lives as long as its pod."""
    if item.get("existingPvc"):
        if "claimName" not in item:
            return place.at("claimName").refuse("required", "Enter a claim name.")
        source = {"claimName": item["claimName"], "readOnly": item.get("readOnly", False)}
        return _mounted({"persistentVolumeClaim": source}, item.get("path"))
    if not item.get("ephemeral"):
        message = "Rung does not create persistent claims. Use an existing one, or set ephemeral."
        return place.at("existingPvc").refuse("not_offered", message, ("true",))
    if "claimInfo" not in item:
        return place.at("claimInfo").refuse("required", "Enter size and storage class.")
    info = item["claimInfo"]
    spec = {
        "accessModes": info.get("accessModes") or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": info.get("size")}},
        **({"storageClassName": info["storageClass"]} if "storageClass" in info else {}),
    }
    return _mounted({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}, item.get("path"))


def _scratch(item: dict[str, Any], _place: Location) -> Any:
    source = {name: item[name] for name in ("medium", "sizeLimit") if name in item}
    return _mounted({"emptyDir": source}, item.get("path"))


def _config(item: dict[str, Any], _place: Location) -> Any:
    source = {"configMap": {"name": item.get("configMap"), **_default_mode(item)}}
    return _mounted(source, item.get("mountPath"), item.get("subPath"))


def _secret(item: dict[str, Any], _place: Location) -> Any:
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
                "dataSharing": nothing("Claims cannot be shared between projects."),
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
    "git": nothing("Git volumes are not supported. Put the code in the image or a claim."),
    "s3": nothing("Bucket mounts are not supported. Access the bucket from your code with a Secret."),
    "dataVolume": nothing("Data volumes are not supported. Use a claim of the project."),
}


def _storage(requested: dict[str, Any], _place: Location) -> list[Any]:
    return [each for name in VOLUMES for each in requested.get(name, [])]


storage: Rule = rebuilt(VOLUMES, _storage)

_identity: Rule = integer(1)
_numbers: Rule = text(400, r" *[1-9][0-9]{0,9}( *, *[1-9][0-9]{0,9})* *", "numbers of groups, separated by commas")


def _groups(value: Any, place: Location) -> Any:
    """`1000,2000` as numbers."""
    written = _numbers(value, place)
    if written is ABSENT:
        return ABSENT
    numbers = [_identity(int(each), place) for each in written.split(",")]
    return [each for each in numbers if each is not ABSENT]


def _security(requested: dict[str, Any], _place: Location) -> dict[str, dict[str, Any]]:
    """What goes to the pod and what to its container."""
    pod = {
        kept: requested[name]
        for name, kept in (
            ("runAsUid", "runAsUser"),
            ("runAsGid", "runAsGroup"),
            ("runAsNonRoot", "runAsNonRoot"),
            ("supplementalGroups", "supplementalGroups"),
        )
        if name in requested
    }
    if "seccompProfileType" in requested:
        pod["seccompProfile"] = {"type": requested["seccompProfileType"]}
    own = ("allowPrivilegeEscalation", "readOnlyRootFilesystem")
    return {"pod": pod, "container": {name: requested[name] for name in own if name in requested}}


def _no_capability(value: Any, place: Location) -> Any:
    if value == []:
        return ABSENT
    return place.refuse("capability_added", f"Capabilities cannot be added: {visible(value)}.")


security: Rule = rebuilt(
    {
        "uidGidSource": choice("fromTheImage", "custom"),
        "runAsUid": _identity,
        "runAsGid": _identity,
        "runAsNonRoot": only(allowed=True, why="Containers must not request to run as root."),
        "supplementalGroups": _groups,
        "seccompProfileType": only(
            "RuntimeDefault", "Only the runtime's default profile is allowed.", "profile_not_allowed"
        ),
        "readOnlyRootFilesystem": boolean,
        "allowPrivilegeEscalation": only(allowed=False, why="Privilege escalation is not allowed."),
        "capabilities": _no_capability,
        "hostIpc": only(allowed=False, why="Host IPC is not allowed."),
        "hostNetwork": only(allowed=False, why="The host network is not allowed."),
    },
    _security,
)
