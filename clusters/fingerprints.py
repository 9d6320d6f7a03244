"""What an object says, in 32 digits: to notice a change without keeping the object. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

OURS: Final = "rung.dev/"  # foreign annotations, such as kubectl's own, say nothing that Rung wants
NOT_CONTENT: Final = frozenset({"metadata", "status", "apiVersion", "kind"})
FINGERPRINT: Final = "fingerprint"  # in the place of what an object says, where only that much of it is kept
ANSWERED: Final = "answered"  # beside it: its controller has written a status, whatever that says


def fingerprint_of(manifest: Mapping[str, Any]) -> str:
    """Of labels, our annotations and everything outside metadata and status; leaving is a change, too."""
    metadata = manifest.get("metadata") or {}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key.startswith(OURS)}
    says = {key: value for key, value in manifest.items() if key not in NOT_CONTENT}
    whole = [says, metadata.get("labels") or {}, annotations, bool(metadata.get("deletionTimestamp"))]
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
