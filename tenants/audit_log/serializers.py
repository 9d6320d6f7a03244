"""The audit trail in the shape of Run:ai's audit log: a closed set of actions and results, every text a text.

One table says which of their actions a verb of ours is; whatever it does not name is an update.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.db.models import Case, Q, QuerySet, Value, When
from django.http import HttpResponse

from portal.audit.models import AuditRecord, Result
from portal.kit.api.lists import Column, Columns, as_time
from portal.kit.api.parsers import TENANT_ID, csv_response, csv_text, rfc3339
from portal.kit.security.actors import ActorKind

UPDATE: Final = "update"
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "create": ("create", "submit", "connect", "grant", "create_nodes", "add", "clone", "offer"),
    "delete": ("delete", "forget", "revoke", "lift", "discard", "remove", "disconnect", "withdraw"),
    "sign-in": ("session.start",),
    "sign-out": ("session.end", "user.logout"),
    "reset-password": ("user.password", "user.reset_password"),
}
"""Their action to the last words of our dotted verbs, or to a whole verb. All others, such as stop, are `update`."""
SUBJECTS: Final[Mapping[str, str]] = {str(ActorKind.USER): "User"}
APP: Final = "App"
NOTHING: Final = Value("")
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""Those that their client reads; it would stumble over any other."""


def _verbs(words: tuple[str, ...]) -> Q:
    """Records whose verb is one of the words, or ends in one."""
    whole = Q(action__in=[word for word in words if "." in word])
    for word in words:
        if "." not in word:
            whole |= Q(action__endswith=f".{word}")
    return whole


def with_audit_columns(rows: QuerySet[AuditRecord]) -> QuerySet[AuditRecord]:
    """The records with what Run:ai calls their action, subject type and result."""
    return rows.annotate(
        shown_action=Case(
            *(When(_verbs(words), then=Value(name)) for name, words in ACTIONS.items()), default=Value(UPDATE)
        ),
        shown_subject=Case(
            *(When(actor_kind=kind, then=Value(name)) for kind, name in SUBJECTS.items()), default=Value(APP)
        ),
        shown_result=Case(When(result=Result.SUCCEEDED, then=Value("Succeeded")), default=Value("Failed")),
        not_kept=NOTHING,
    )


FILTERS: Final[Columns] = {
    "timestamp": Column("at", as_time),
    "subject": Column("actor_name"),
    "subject_type": Column("shown_subject"),
    "source_ip": Column("source_ip"),
    "action": Column("shown_action"),
    "result": Column("shown_result"),
    "http_method": Column("http_method"),
    "url": Column("url"),
    "entity_type": Column("entity_type"),
    "entity_name": Column("entity_name"),
    "cluster_name": Column("not_kept"),
}
SORTS: Final[Columns] = {
    **{name: column for name, column in FILTERS.items() if name != "cluster_name"},
    "entity_id": Column("entity_id"),
}
FIELDS: Final = (
    "id",
    "timestamp",
    "tenant_id",
    "subject",
    "subject_type",
    "source_ip",
    "http_method",
    "url",
    "action",
    "result",
    "entity_type",
    "entity_name",
    "entity_id",
    "request_id",
    "metadata",
)


def log_json(row: Any) -> dict[str, Any]:
    """AuditLog, of a row of `with_audit_columns`. Status and cluster are not kept, so they are absent."""
    return {
        "id": str(row.pk),
        "timestamp": rfc3339(row.at),
        "tenant_id": str(TENANT_ID),
        "subject": row.actor_name,
        "subject_type": row.shown_subject,
        "source_ip": row.source_ip or None,
        "http_method": row.http_method if row.http_method in METHODS else None,
        "url": row.url or None,
        "action": row.shown_action,
        "result": row.shown_result,
        "entity_type": row.entity_type,
        "entity_name": row.entity_name,
        "entity_id": row.entity_id or None,
        "request_id": row.request_id or None,
        "metadata": metadata_of(row),
    }


def metadata_of(row: AuditRecord) -> dict[str, str]:
    """Our verb, result and door, and the record's detail: every value is a text."""
    columns = {"verb": row.action, "outcome": row.result, "channel": row.channel}
    detail = row.detail if isinstance(row.detail, dict) else {"detail": row.detail}
    return {**{str(name): _text(value) for name, value in detail.items()}, **columns}


def log_file(rows: Iterable[AuditRecord], kind: str) -> HttpResponse:
    """A file of rows of `with_audit_columns`. kind: CSV or JSON."""
    if kind == "CSV":
        return csv_response(csv_text(FIELDS, map(_csv_row, rows)), name="audit-log")
    headers = {"Content-Disposition": 'attachment; filename="audit-log.json"'}
    text = json.dumps([log_json(row) for row in rows], ensure_ascii=False)
    return HttpResponse(text, content_type="application/json; charset=utf-8", headers=headers)


def _csv_row(row: Any) -> list[str]:
    """The same as cells."""
    shown = log_json(row)
    return [_text(shown[name]) for name in FIELDS]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
