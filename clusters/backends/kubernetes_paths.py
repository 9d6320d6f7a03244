"""Where things are on an API server. Pure."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from clusters.errors import ClusterRefused, Invalid
from clusters.ports import MANAGED_BY, MANAGER, Kind, ObjectRef

OURS: Final = f"{MANAGED_BY}={MANAGER}"


def collection(kind: Kind, namespace: str = "") -> str:
    """Path of all objects of a kind, in one namespace or everywhere."""
    within = f"/namespaces/{_segment(namespace)}" if kind.namespaced and namespace else ""
    return f"{group(kind)}{within}/{kind.plural}"


def group(kind: Kind) -> str:
    """Path of a group in a version."""
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def place(ref: ObjectRef) -> str:
    """Path of one object."""
    return f"{inside(ref)}/{_segment(ref.name)}"


def inside(ref: ObjectRef) -> str:
    """Path of the collection that an object is in. ClusterRefused: it names no namespace."""
    if ref.kind.namespaced and not ref.namespace:
        raise ClusterRefused(f"{ref.kind.kind} {ref.name} names no namespace.")
    return collection(ref.kind, ref.namespace)


def query(**parameters: str | int) -> str:
    """`?a=1&b=2` of what is not empty."""
    given: Mapping[str, str | int] = {name: value for name, value in parameters.items() if value != ""}
    return f"?{urlencode(given)}" if given else ""


def _segment(name: str) -> str:
    """A name as one segment of a path: never a way out of it."""
    if not name or name in {".", ".."} or "/" in name or "%" in name:
        raise Invalid(f"No object can be named {name[:63]!r}.")
    return quote(name, safe="")
