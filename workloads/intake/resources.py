"""Requests and limits of a container: exact quantities, whole GPUs, and both sides of an extended resource equal."""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from portal.core.strict.documents import Unreadable
from scheduling.resources import LARGEST, Resources, parse_quantity
from workloads.intake.problems import visible
from workloads.intake.rules import ABSENT, Place, Rule, table, wrong_type

GPU: Final = "nvidia.com/gpu"
MIG: Final = re.compile(r"nvidia\.com/(mig-([1-9])g\.[0-9]{1,3}gb(?:\.me)?)")
MOST_GPUS: Final = 64
FRACTION: Final = "gpu-fraction"
_PLAIN: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def quantity(*, unit: int = 1, least: int = 0) -> Rule:
    """A Kubernetes quantity that is exact in 1/`unit`, rebuilt as text."""

    def check(value: Any, place: Place) -> Any:
        if isinstance(value, (bool, Unreadable)) or not isinstance(value, (int, float, str)):
            return wrong_type(value, place, "a quantity such as 500m or 16Gi")
        written = _written(value)
        try:
            amount = parse_quantity(written) * unit
        except ValueError:
            return place.refuse("bad_quantity", f"{visible(written)!r} is not a quantity such as 500m or 16Gi.")
        if amount.denominator != 1 or not least <= amount <= LARGEST or written != written.strip():
            return place.refuse("bad_quantity", f"{visible(written)!r} is negative, too fine or too large.")
        return written

    return check


def _written(value: float | str) -> str:
    return format(Decimal(str(value)), "f") if isinstance(value, float) else visible(value, 60)


def whole(most: int, what: str) -> Rule:
    """A plain count of devices: 8 or "8", nothing else that could be read as a number."""

    def check(value: Any, place: Place) -> Any:
        written = visible(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(written, str):
            return (
                wrong_type(value, place, f"a whole number of {what}")
                if not isinstance(value, float)
                else _no_count(value, place, most, what)
            )
        if not _PLAIN.fullmatch(written) or int(written) > most:
            return _no_count(written, place, most, what)
        return written

    return check


def _no_count(value: Any, place: Place, most: int, what: str) -> Any:
    return place.refuse("bad_gpu_count", f"{visible(value)!r} is not a whole number of {what} from 0 to {most}.")


cpu: Rule = quantity(unit=1000)
memory: Rule = quantity()
gpus: Rule = whole(MOST_GPUS, "GPUs")
_KNOWN: Final[Mapping[str, Rule]] = {"cpu": cpu, "memory": memory, "ephemeral-storage": memory, GPU: gpus}


def rule_for(key: Any, place: Place) -> Rule | None:
    """How an amount of this resource is checked; None where the project may not ask for it, which is noted."""
    if isinstance(key, str) and key in _KNOWN:
        return _KNOWN[key]
    found = MIG.fullmatch(key) if isinstance(key, str) else None
    if found and found[1] in place.scope.mig_profiles:
        return gpus
    granted = tuple(f"nvidia.com/{each}" for each in place.scope.mig_profiles)
    place.refuse(
        "resource_not_allowed", f"The resource {visible(key)} is not granted to this project.", (*_KNOWN, *granted)
    )
    return None


def amounts(value: Any, place: Place) -> Any:
    """One side of a container's resources."""
    if not isinstance(value, Mapping):
        return wrong_type(value, place, "an object")
    rebuilt = {}
    for key, amount in value.items():
        rule = rule_for(key, place.at(key))
        result = ABSENT if rule is None else rule(amount, place.at(key))
        if result is not ABSENT:
            rebuilt[key] = result
    return rebuilt


_sides: Rule = table({"limits": amounts, "requests": amounts})


def resources(value: Any, place: Place) -> Any:
    """`limits` and `requests`; devices stand under limits, and a request equals its limit or stays away."""
    rebuilt = _sides(value, place)
    if rebuilt is ABSENT:
        return ABSENT
    limits, requests = rebuilt.get("limits", {}), rebuilt.get("requests", {})
    for name, asked in requests.items():
        _compare(name, asked, limits.get(name), place.at("requests").at(name))
    return rebuilt


def _compare(name: str, asked: str, limit: str | None, place: Place) -> None:
    if name.startswith("nvidia.com/"):
        if asked != limit:
            place.refuse("gpu_request_differs", f"A GPU request equals its limit: write {name} under limits.")
    elif limit is not None and parse_quantity(asked) > parse_quantity(limit):
        place.refuse("request_over_limit", f"The request {asked} is more than the limit {limit}.")


def requested(rebuilt: Mapping[str, Any]) -> Resources:
    """What one container holds: requests, limits where there is no request; of devices the larger side."""
    limits, requests = rebuilt.get("limits", {}), rebuilt.get("requests", {})
    asked = {**limits, **requests}
    devices = sum(
        max(int(side.get(name, 0)) for side in (limits, requests)) * slices(name) for name in asked if slices(name)
    )
    return Resources.of(gpu=devices, cpu=_exact(asked.get("cpu")), memory=_exact(asked.get("memory")))


def slices(name: str) -> int:
    """How many GPUs one device counts as: KAI counts a MIG device as the number before its g."""
    if name in {GPU, "gpu"}:
        return 1
    found = MIG.fullmatch(name)
    return int(found[2]) if found else 0


def _exact(amount: str | None) -> Fraction:
    return parse_quantity(amount) if amount is not None else Fraction(0)
