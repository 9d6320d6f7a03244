"""What marks an object as Rung's: label, owner, generation and the hash of what was written. Pure."""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from clusters.ports import APPLIED_HASH, GENERATION, MANAGED_BY, MANAGER, OWNER, Manifest


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
    """A copy with its applied-hash. The hash leaves generation out: a newer row that wants the same writes nothing."""
    result = copy.deepcopy(manifest)
    annotations = result["metadata"].setdefault("annotations", {})
    generation = annotations.pop(GENERATION, None)
    annotations.pop(APPLIED_HASH, None)
    text = json.dumps(result, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    if generation is not None:
        annotations[GENERATION] = generation
    annotations[APPLIED_HASH] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return result


def _part(manifest: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    metadata = manifest.get("metadata") or {}
    return metadata.get(part) or {}
