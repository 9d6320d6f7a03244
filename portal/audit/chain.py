"""The hash chains: which chain a record belongs to, what its digest covers. Pure but for the key.

Columns that came later are covered where they are filled: the digest of a record that has none of them is the one it
was written with, and one that is filled, emptied or changed afterwards shows, since the covered text names its columns.
"""

import hmac
import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from django.conf import settings

CHAINS = 64
COVERED = (
    "actor_kind",
    "actor_id",
    "actor_name",
    "channel",
    "source_ip",
    "request_id",
    "action",
    "result",
    "entity_type",
    "entity_id",
    "entity_name",
    "project_id",
    "chain",
    "position",
    "previous",
)
COVERED_WHERE_FILLED = ("http_method", "url")


def chain_for(request_id: str, project_id: str, entity_type: str, entity_id: str) -> int:
    """All records of a request share a chain, so that requests seldom queue and one holds one head only.

    Where no request asks, as in a worker, those of a project do, and others go by entity.
    """
    key = request_id or (f"project {project_id}" if project_id else f"{entity_type} {entity_id}")
    return zlib.crc32(key.encode()) % CHAINS


def digest_of(fields: Mapping[str, Any], at: datetime, detail: Any) -> str:
    """HMAC-SHA256 over every field of a record but its empty later ones, and the digest before it, as hexadecimal."""
    covered = {name: fields[name] for name in COVERED}
    covered |= {name: fields[name] for name in COVERED_WHERE_FILLED if fields[name]}
    covered.update(at=at.astimezone(UTC).isoformat(timespec="microseconds"), detail=plain(detail))
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hmac.new(key(), text.encode(), sha256).hexdigest()


def plain(value: Any) -> Any:
    """JSON as every database gives it back: a whole float and the same integer are one number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value


def key() -> bytes:
    """The audit key: its own setting, or derived from the secret key."""
    secret = settings.RUNG_AUDIT_KEY or settings.SECRET_KEY
    return sha256(f"rung.audit {secret}".encode()).digest()
