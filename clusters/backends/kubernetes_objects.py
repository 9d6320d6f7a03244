"""Objects as an API server sends them: checked as far as we look into them, without what we never read. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from clusters.errors import ClusterUnreachable
from clusters.ownership import is_managed
from clusters.ports import MANAGER, Kind, Manifest

EDGE: Final = 1000
"""Bytes in which a list's metadata stand."""
_CONTINUE: Final = re.compile(rb'"continue":"([A-Za-z0-9_=-]{1,800})"')


def tidied(found: Any, *, record: bool = False) -> Manifest:
    """The object without the record of who owns which field. ClusterUnreachable: it is none.

    Of what is ours our own entries stay: an update prunes by them. `record`: everybody's do.
    """
    if not isinstance(found, dict) or not isinstance(metadata := found.get("metadata"), dict):
        raise ClusterUnreachable("The answer is no object.")
    if not (_is_map(metadata.get("labels")) and _is_map(metadata.get("annotations"))):
        raise ClusterUnreachable("The answer holds labels that are none.")
    fields = metadata.pop("managedFields", None)
    if isinstance(fields, list) and is_managed(found):
        metadata["managedFields"] = [each for each in fields if isinstance(each, dict) and (record or _is_ours(each))]
    return found


def members(kind: Kind, page: Mapping[str, Any], *, record: bool = False) -> tuple[list[Manifest], str, str]:
    """A page's objects, where the next one begins, and the list's version. Members do not say what they are."""
    items, metadata = page.get("items") or [], page.get("metadata")
    if not isinstance(items, list) or not isinstance(metadata, dict):
        raise ClusterUnreachable("The answer is no list.")
    found = [tidied(item, record=record) for item in items]
    for each in found:
        each["apiVersion"], each["kind"] = kind.api_version, kind.kind
    return found, str(metadata.get("continue") or ""), str(metadata.get("resourceVersion", ""))


def continuation(page: bytes) -> str:
    """The token of the next page as it seems to stand in the list's metadata, before anything is parsed; else empty.

    The metadata of a list are its first words or its last. A look-alike in an object is found out by `members`.
    """
    found = _CONTINUE.search(page[:EDGE]) or _CONTINUE.search(page[-EDGE:])
    return found[1].decode("ascii") if found else ""


def _is_map(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is_ours(entry: dict[str, Any]) -> bool:
    return bool(entry.get("manager") == MANAGER)
