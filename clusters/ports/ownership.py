"""Labels, annotations and hashes that mark an object as Rung's. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from clusters.ports.gateway import Manifest

OURS: Final = "rung.dev/"  # foreign annotations, such as kubectl's own, say nothing that Rung wants


NOT_CONTENT: Final = frozenset({"metadata", "status", "apiVersion", "kind"})


FINGERPRINT: Final = "fingerprint"  # in the place of what an object says, where only that much of it is kept


SCHEDULING: Final = "scheduling"  # beside it, of a workload's object: its `scheduling_fields`


ANSWERED: Final = "answered"  # beside it: its controller has written a status, whatever that says


def fingerprint_of(manifest: Mapping[str, Any]) -> str:
    """Of labels, our annotations and everything outside metadata and status; leaving is a change, too."""
    metadata = manifest.get("metadata") or {}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key.startswith(OURS)}
    says = {key: value for key, value in manifest.items() if key not in NOT_CONTENT}
    whole = [says, metadata.get("labels") or {}, annotations, bool(metadata.get("deletionTimestamp"))]
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


APPLIED_HASH = "rung.dev/applied-hash"  # annotation: hash of what Rung wrote


GENERATION = "rung.dev/generation"  # annotation: the owning row's generation, the fence against late writers


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


MANAGER = "rung"


MANAGED_BY = "app.kubernetes.io/managed-by"


OWNER = "rung.dev/owner"  # label: "<kind>.<id>" of the owning row, such as workload.4f1c…
