"""The same key with the same payload is answered once: replayed, never repeated.

Scope: project, subject, key. The key is stored in the transaction of what it made, so it exists exactly when that does;
two at once are told apart by the unique constraint, and the loser replays the winner's answer.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from portal.core.actors import Actor
from portal.core.errors import BadRequest, Refused
from tenants.models import Project
from workloads.models import IdempotencyKey, Workload

LONGEST: Final = 200
KEPT: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A key as it is stored: whose, where, and a fingerprint of what it was sent with."""

    project: Project
    subject: str
    key: str
    fingerprint: str


def ticket_for(key: str, payload: Mapping[str, Any], *, project: Project, actor: Actor) -> Ticket:
    """Check the key. BadRequest when it is empty, longer than 200 characters or not printable ASCII."""
    if not (0 < len(key) <= LONGEST and key.isascii() and key.isprintable()):
        message = f"An idempotency key is 1 to {LONGEST} printable ASCII characters."
        raise BadRequest(message, code="idempotency_key")
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), default=str)
    fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Ticket(project, f"{actor.kind}:{actor.id}", key, fingerprint)


def replay(ticket: Ticket | None) -> Workload | None:
    """The workload this key made before; None when it is new. Refused when it came with another payload."""
    if ticket is None:
        return None
    rows = IdempotencyKey.objects.select_related("workload__type", "workload__priority", "workload__project")
    seen = rows.filter(project=ticket.project, subject=ticket.subject, key=ticket.key).first()
    if seen is None:
        return None
    if seen.fingerprint != ticket.fingerprint:
        message = "This idempotency key was used with another payload."
        raise Refused.at("", "idempotency_mismatch", message, key=ticket.key)
    return seen.workload


def keep(ticket: Ticket | None, workload: Workload) -> None:
    """Store the key beside the workload it made."""
    if ticket is not None:
        IdempotencyKey.objects.create(
            project=ticket.project,
            subject=ticket.subject,
            key=ticket.key,
            fingerprint=ticket.fingerprint,
            workload=workload,
            created_at=workload.created_at,
        )


def forget_old() -> int:
    """Drop keys older than a week; answers how many."""
    return IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEPT).delete()[0]
