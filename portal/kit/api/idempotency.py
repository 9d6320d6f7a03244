"""A POST that is sent again with the same `Idempotency-Key` is answered again, never done again.

The key is claimed, the work done and the answer kept in one transaction: the key exists exactly when its work does.
The unique constraint orders concurrent requests; the second waits for the first and replays its answer. A refusal
frees the key, for the corrected request. Keys belong to the subject: those of other subjects are independent.
"""

import json
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from portal.kit.db.transactions import rollback_scope
from portal.kit.errors import BadRequest, RungError, ValidationFailed
from portal.kit.models import StoredResponse

LONGEST: Final = 200
RETENTION: Final = timedelta(days=7)
StatusAndBody = tuple[int, Any]
"""Status and plain JSON body."""


def validate_key(key: str) -> str:
    """The key itself. BadRequest when it is empty, longer than 200 characters or not printable ASCII."""
    if not (0 < len(key) <= LONGEST and key.isascii() and key.isprintable()):
        text = _("An Idempotency-Key must have 1 to %(most)s printable ASCII characters.") % {"most": LONGEST}
        raise BadRequest(text, code="bad_idempotency_key")
    return key


def fingerprint_of(*parts: Any) -> str:
    """Tells one request from another: method, path and body."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    # A keyed hash, because a body may hold a password: readers of the table must not be able to try guesses.
    return salted_hmac("core.repeats", text.encode("utf-8", "surrogatepass"), algorithm="sha256").hexdigest()


def replay_or_run(
    work: Callable[[], StatusAndBody], *, subject: str, key: str, fingerprint: str, shown_once: Collection[str] = ()
) -> tuple[StatusAndBody, bool]:
    """The answer, and whether it is a replay. Refused (422) when the key came with another request before.

    `shown_once` names keys of the body that are not kept: a replay lacks them.
    """
    try:
        with rollback_scope():
            with transaction.atomic():
                row = StoredResponse.objects.create(subject=subject, key=key, fingerprint=fingerprint)
            try:
                answer = work()
            except RungError:
                row.delete()
                raise
            _store(row, answer, shown_once)
    except IntegrityError:
        if (kept := _replay(subject, key, fingerprint)) is None:
            raise  # the constraint that was hurt is not ours
        return kept, True
    return answer, False


def forget_old() -> int:
    """Drop answers older than a week; answers how many."""
    return StoredResponse.objects.filter(created_at__lt=timezone.now() - RETENTION).delete()[0]


def _store(row: StoredResponse, answer: StatusAndBody, shown_once: Collection[str]) -> None:
    status, body = answer
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in shown_once}
    row.status, row.body = status, body
    row.save(update_fields=["status", "body"])


def _replay(subject: str, key: str, fingerprint: str) -> StatusAndBody | None:
    row = StoredResponse.objects.filter(subject=subject, key=key).first()
    if row is None:
        return None
    if row.fingerprint != fingerprint:
        text = _("This Idempotency-Key was already used with a different request.")
        raise ValidationFailed.at("", "idempotency_mismatch", text, key=key)
    return row.status, row.body
