"""What an API server records of who wrote which field (`metadata.managedFields`), and what that vouches for. Pure.

Whoever changes or removes a value takes its field from whoever had it. So an object whose wanted fields are all ours
says what we wrote last, and nobody needs to read it to know that.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from clusters.fingerprints import NOT_CONTENT
from clusters.kinds_core import BY_RECORD, kind_of
from clusters.ports import MANAGER, Manifest

Fields = Mapping[str, Any]
"""FieldsV1: `f:<name>`, `k:<json of an item's keys>` and `v:<json of a value>`; `.` is the thing itself, {} a leaf."""

NOTHING: Final[Fields] = {}
_METADATA: Final = frozenset({"f:metadata"})


def own_fields(observed: Manifest, manager: str = MANAGER) -> Fields:
    """The record of our last writes. Another version of the API may name fields differently: it is left out."""
    return next((fields for ours, fields in _entries(observed, manager) if ours), NOTHING)


def vouched(observed: Manifest, desired: Manifest) -> bool:
    """Everything wanted beside the metadata was written by us last, and nobody else has written anything there.

    False may also mean that it cannot be told without reading the object.
    """
    entries = list(_entries(observed, MANAGER))
    if any(fields.keys() - _METADATA for ours, fields in entries if not ours):
        return False
    mine = next((fields for ours, fields in entries if ours), NOTHING)
    content = {key: value for key, value in desired.items() if key not in NOT_CONTENT}
    return _covers(mine, content, "", BY_RECORD.get(kind_of(desired).key, ()))


def _entries(observed: Manifest, manager: str) -> Iterator[tuple[bool, Fields]]:
    """Everybody's but those of subresources such as the status: whether it is ours, and which fields it names."""
    expected = (manager, "Update", observed["apiVersion"])
    for entry in observed["metadata"].get("managedFields") or ():
        if not entry.get("subresource"):
            fields = entry.get("fieldsV1")
            found = (entry.get("manager"), entry.get("operation"), entry.get("apiVersion"))
            yield found == expected, fields if isinstance(fields, dict) else NOTHING


def _covers(fields: Fields, desired: Mapping[str, Any], path: str, atomic: Container[str]) -> bool:
    """An owned map without owned keys looks like a leaf: only where the kind has one value there is it believed."""
    for key, value in desired.items():
        mine = fields.get("f:" + key)
        if type(mine) is not dict:  # asked twenty times of each of thousands: an ABC would take as long as all the rest
            return False
        if value and (type(value) is dict or type(value) is list):
            below = f"{path}/{key}"
            if below in atomic:
                if mine:
                    return False
            elif not (type(value) is dict and _covers(mine, value, below, atomic)):
                return False
    return True
