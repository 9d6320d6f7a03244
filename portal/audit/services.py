"""Write audit records in the caller's transaction, without secrets; record a refusal after its rollback."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from portal.audit.models import AuditRecord, Result
from portal.kit.db.transactions import in_rollback_scope
from portal.kit.errors import NotFound, RungError
from portal.kit.security.actors import Actor
from portal.kit.security.logging_config import redact


@transaction.atomic(savepoint=False)
def record(
    actor: Actor,
    action: str,
    entity: Model | None,
    *,
    result: str = Result.SUCCEEDED,
    detail: Mapping[str, Any] | None = None,
    project_id: str = "",
    entity_type: str = "",
    entity_name: str = "",
) -> None:
    """Note what was done, in the transaction that did it. A later run of `sealing.seal` links it into the chain."""
    AuditRecord.objects.create(
        **_subject(actor),
        **_object(entity, entity_type, entity_name),
        action=action,
        result=str(result),
        project_id=str(project_id),
        detail=_storable(_with_key(actor, detail or {})),
        at=timezone.now(),
    )


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

    But for an attempt (`portal.kit.db.transactions`): it commits when something is refused.
    """
    error.recorded = True
    problems = [problem.as_json() for problem in error.problems]
    with transaction.atomic(durable=not in_rollback_scope()):
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


def _with_key(actor: Actor, detail: Mapping[str, Any]) -> Mapping[str, Any]:
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


@contextmanager
def audited_transaction(
    *, actor: Actor, action: str, entity_type: str, entity_name: str, project_id: str = ""
) -> Iterator[None]:
    """Run the block in one transaction. A refusal rolls it back and leaves exactly one audit record, `Denied`.

    What the actor may not see is answered without a record: it would name a thing that is not theirs.
    """
    with (
        record_refusals(
            actor=actor, action=action, entity_type=entity_type, entity_name=entity_name, project_id=project_id
        ),
        transaction.atomic(),
    ):
        yield


@contextmanager
def record_refusals(
    *, actor: Actor, action: str, entity_type: str, entity_name: str, project_id: str = ""
) -> Iterator[None]:
    """The same for a block that opens its transactions itself, because it also waits for others."""
    try:
        yield
    except NotFound:
        raise
    except RungError as error:
        record_refusal(actor, action, error, entity_type=entity_type, entity_name=entity_name, project_id=project_id)
        raise
