"""What marks an object as Rung's: label, owner, generation and the hash of what was written. Pure."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from clusters.ports import APPLIED_HASH, GENERATION, MANAGED_BY, MANAGER, OWNER, Manifest

UNHASHED: Final = frozenset({GENERATION, APPLIED_HASH})


def owned(
    name: str,
    *,
    owner: str,
    generation: int,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of an object Rung writes for the row `owner` at its `generation`."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {**(labels or {}), MANAGED_BY: MANAGER, OWNER: owner},
        "annotations": {**(annotations or {}), GENERATION: str(generation)},
    }


def is_managed(manifest: Mapping[str, Any]) -> bool:
    """True when the object carries our managed-by label."""
    return bool(_part(manifest, "labels").get(MANAGED_BY) == MANAGER)


def owner_of(manifest: Mapping[str, Any]) -> str:
    """The owner label, empty when there is none."""
    return str(_part(manifest, "labels").get(OWNER, ""))


def generation_of(manifest: Mapping[str, Any]) -> int:
    """The generation annotation; 0 when it is absent or was mangled by hand."""
    text = str(_part(manifest, "annotations").get(GENERATION, ""))
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def hash_of(manifest: Mapping[str, Any]) -> str:
    """The applied-hash annotation, empty when there is none."""
    return str(_part(manifest, "annotations").get(APPLIED_HASH, ""))


def stamped(manifest: Manifest) -> Manifest:
    """The manifest with its applied-hash, its other parts shared with the one given: change neither in place.

    The hash leaves the generation out: a newer row that wants the same writes nothing.
    """
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    plain = {key: text for key, text in annotations.items() if key not in UNHASHED}
    content = {**manifest, "metadata": {**metadata, "annotations": plain}}
    digest = hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    return {**manifest, "metadata": {**metadata, "annotations": {**annotations, APPLIED_HASH: digest}}}


def _part(manifest: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    metadata = manifest.get("metadata")
    found = metadata.get(part) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
