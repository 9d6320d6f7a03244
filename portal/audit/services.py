"""Writing the audit trail: in the caller's transaction, chained, without secrets."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from portal.audit.chain import chain_for, digest_of
from portal.audit.models import AuditChain, AuditRecord, Result
from portal.core.actors import Actor
from portal.core.attempts import within_attempt
from portal.core.errors import RungError
from portal.core.inserting import Statement, insert, leave
from portal.core.marks import BESIDE, confirm, marks_of_row, read_marks
from portal.core.redaction import redact


@transaction.atomic(savepoint=False)
def record(
    actor: Actor,
    action: str,
    entity: Model | None,
    *unwritten: Model,
    result: str = Result.SUCCEEDED,
    detail: Mapping[str, Any] | None = None,
    project_id: str = "",
    entity_type: str = "",
    entity_name: str = "",
) -> None:
    """Note what was done, in the transaction that did it. Call it last: it locks the head of a chain until the commit.

    1. describe actor and entity, cut to what the columns hold, without secrets
    2. write the new rows that the caller has left to us, and lock the head of the chain
    3. link the record to it and move the head

    Step 2 is one round trip, where the database allows it; step 3 leaves with whatever comes next, mostly the commit.
    """
    fields = {
        **_subject(actor),
        **_object(entity, entity_type, entity_name),
        "action": action,
        "result": str(result),
        "project_id": str(project_id),
    }
    number = chain_for(*(fields[name] for name in ("request_id", "project_id", "entity_type", "entity_id")))
    clean = _storable(_told(actor, detail or {}))
    length, head = _locked(number, unwritten)
    fields |= {"chain": number, "position": length + 1, "previous": head}
    at = timezone.now()
    row = AuditRecord(**fields, at=at, detail=clean, digest=digest_of(fields, at, clean))
    leave(row, Statement(_MOVE, (row.position, row.digest, number)))


def record_refusal(
    actor: Actor,
    action: str,
    error: RungError,
    *,
    entity: Model | None = None,
    detail: Mapping[str, Any] | None = None,
    project_id: str = "",
    entity_type: str = "",
    entity_name: str = "",
) -> None:
    """Note a "no". The refused transaction is rolled back, so this has its own and must be called outside of any.

    But for an attempt (`portal.core.attempts`): it commits when something is refused.
    """
    error.recorded = True
    problems = [problem.as_json() for problem in error.problems]
    with transaction.atomic(durable=not within_attempt()):
        record(
            actor,
            action,
            entity,
            result=Result.DENIED,
            detail={"code": error.code, "message": error.message, "problems": problems, **(detail or {})},
            project_id=project_id,
            entity_type=entity_type,
            entity_name=entity_name,
        )


_TABLE = AuditChain._meta.db_table
# Written out: every change waits for these two, and the ORM takes longer to say them than the database to do them.
_READ = f"SELECT length, head, {BESIDE} FROM {_TABLE} WHERE number = %s"  # noqa: S608  # the table's own name
_MOVE = f"UPDATE {_TABLE} SET length = %s, head = %s WHERE number = %s"  # noqa: S608  # the table's own name


def _locked(number: int, unwritten: Sequence[Model]) -> tuple[int, str]:
    """Length and head of a chain, locked until the commit. Only the very first record of a chain finds no row.

    Moved when what the caller decided by has changed meanwhile.
    """
    locking = " FOR UPDATE" if connection.features.has_select_for_update else ""
    if found := insert(*unwritten, then=[Statement(_READ + locking, (number,))]):
        confirm(marks_of_row(found[2:]))
        return int(found[0]), str(found[1])
    confirm(read_marks())
    head, _ = AuditChain.objects.select_for_update().get_or_create(number=number)
    return head.length, head.head


def _subject(actor: Actor) -> dict[str, Any]:
    return {
        "actor_kind": str(actor.kind),
        "actor_id": _cut(actor.id, 64),
        "actor_name": _cut(actor.name, 254),
        "channel": str(actor.channel),
        "source_ip": _cut(actor.source_ip or "", 45),
        "request_id": _cut(actor.request_id, 64),
        "http_method": _cut(actor.http_method, 10),
        "url": _cut(actor.url, 500),
    }


def _told(actor: Actor, detail: Mapping[str, Any]) -> Mapping[str, Any]:
    """The detail, and by which of their keys a person asked."""
    key = actor.limits.key if actor.limits else ""
    return {**detail, "byAccessKey": key} if key else detail


def _object(entity: Model | None, kind: str, name: str) -> dict[str, Any]:
    label = entity._meta.model_name if entity is not None else ""
    return {
        "entity_type": _cut(kind or label or "portal", 64),
        "entity_id": _cut(str(entity.pk) if entity is not None else "", 64),
        "entity_name": _cut(name or (str(entity) if entity is not None else ""), 254),
    }


def _storable(detail: Mapping[str, Any]) -> Any:
    text = json.dumps(redact(detail), cls=DjangoJSONEncoder, default=str)
    return _clean(json.loads(text))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value, 4000)
    if isinstance(value, dict):
        return {_cut(name, 200): _clean(part) for name, part in value.items()}
    return [_clean(part) for part in value] if isinstance(value, list) else value


def _cut(text: str, length: int) -> str:
    """Text that every database stores: no NUL, no lone surrogates, not too long."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[:length]
