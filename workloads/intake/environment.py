"""A container's environment: free, except for the names that the GPU runtime or the loader on the node acts upon."""

import re
from typing import Any, Final

from workloads.intake.names import dns_name
from workloads.intake.problems import visible
from workloads.intake.resources import quantity
from workloads.intake.rules import ABSENT, Place, Rule, boolean, choice, listing, only, table, text

CAPABILITIES: Final = frozenset({"compute", "utility", "video", "graphics", "display", "ngx", "compat32"})
HARMLESS: Final = frozenset({"NVIDIA_TF32_OVERRIDE", "NVIDIA_DRIVER_CAPABILITIES"})
_NAME = text(256, r"[-._a-zA-Z][-._a-zA-Z0-9]*", "an environment variable's name", shortest=1, code="bad_name")
_ACTED_UPON = re.compile(r"(LD_|NVIDIA_).*")
CONFIG_KEY: Final = text(253, r"[-._a-zA-Z0-9]+", "a key of a ConfigMap or Secret")


def variable_name(value: Any, place: Place) -> Any:
    """A name the container runtime's hooks do not read."""
    name = _NAME(value, place)
    if name is ABSENT or name in HARMLESS or not _ACTED_UPON.fullmatch(name):
        return name
    message = f"{visible(name)} reaches the GPU runtime on the node: set it inside the image or the command."
    return place.refuse("env_not_allowed", message)


def granted(kind: str) -> Rule:
    """The name of a Secret or ConfigMap that an admin granted to the project."""

    def check(value: Any, place: Place) -> Any:
        name = dns_name(value, place)
        names = place.scope.secrets if kind == "Secret" else place.scope.config_maps
        if name is ABSENT or name in names:
            return name
        return place.refuse("not_granted", f"The {kind} {visible(name)} is not granted to this project.", names)

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


def field_path(value: Any, place: Place) -> Any:
    if isinstance(value, str) and re.fullmatch(r"metadata\.(labels|annotations)\['[-._/a-zA-Z0-9]{1,300}'\]", value):
        return value
    return choice(*_FIELD_PATHS)(value, place)


value_from: Rule = table(
    {
        "fieldRef": table(
            {"fieldPath": field_path, "apiVersion": only("v1", "Only v1 is read here.")}, required=["fieldPath"]
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


def variable(value: Any, place: Place) -> Any:
    """One variable; driver capabilities come from a short list unless an admin allows all."""
    rebuilt = _VARIABLE(value, place)
    if rebuilt is ABSENT:
        return rebuilt
    if "value" in rebuilt and "valueFrom" in rebuilt:
        return place.refuse("exactly_one", "A variable has a value or a valueFrom, not both.", ("value", "valueFrom"))
    if rebuilt.get("name") == "NVIDIA_DRIVER_CAPABILITIES":
        _refuse_capabilities(rebuilt.get("value"), place)
    return rebuilt


def _refuse_capabilities(value: str | None, place: Place) -> None:
    if value == "all" and place.scope.allow_driver_capabilities_all:
        return
    if value is None or not set(value.split(",")) <= CAPABILITIES:
        message = "Driver capabilities come from the allowed list; all of them need an admin's permission."
        place.at("value").refuse("env_not_allowed", message, sorted(CAPABILITIES))


env: Rule = listing(variable, 500)
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
