"""The database refuses to delete audit records, to change their content, and to seal one twice."""

from typing import Final, Protocol


class StatementRunner(Protocol):
    """Something that runs a statement: a schema editor or a cursor."""

    def execute(self, sql: str, params: None = None) -> object: ...


CONTENT: Final = (
    "id",
    "at",
    "actor_kind",
    "actor_id",
    "actor_name",
    "channel",
    "source_ip",
    "request_id",
    "http_method",
    "url",
    "action",
    "result",
    "entity_type",
    "entity_id",
    "entity_name",
    "project_id",
    "detail",
)
"""Every column but `sealed_seq` and `digest`, which are filled once, when the record is sealed."""

_REFUSED = "audit records are append-only"
_ABORT = f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
_CONTENT = f"UPDATE OF {', '.join(CONTENT)}"
_SEALED = "UPDATE OF sealed_seq, digest ON audit_auditrecord FOR EACH ROW WHEN (OLD.sealed_seq IS NOT NULL)"
SQLITE = [
    f"CREATE TRIGGER audit_record_no_update BEFORE {_CONTENT} ON audit_auditrecord {_ABORT}",
    f"CREATE TRIGGER audit_record_no_reseal BEFORE {_SEALED} {_ABORT}",
    f"CREATE TRIGGER audit_record_no_delete BEFORE DELETE ON audit_auditrecord {_ABORT}",
]
POSTGRESQL = [
    "CREATE FUNCTION audit_record_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$",
    f"CREATE TRIGGER audit_record_no_change BEFORE {_CONTENT} OR DELETE ON audit_auditrecord "
    "FOR EACH ROW EXECUTE FUNCTION audit_record_refuse()",
    f"CREATE TRIGGER audit_record_no_reseal BEFORE {_SEALED} EXECUTE FUNCTION audit_record_refuse()",
    "CREATE TRIGGER audit_record_no_truncate BEFORE TRUNCATE ON audit_auditrecord "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_record_refuse()",
]
INSTALL = {"sqlite": SQLITE, "postgresql": POSTGRESQL}
REMOVE = {
    "sqlite": [f"DROP TRIGGER IF EXISTS audit_record_no_{verb}" for verb in ("update", "reseal", "delete")],
    "postgresql": ["DROP FUNCTION IF EXISTS audit_record_refuse CASCADE"],
}


def install(runner: StatementRunner, vendor: str) -> None:
    """Refuse from now on. Removes what an earlier version installed."""
    for statement in REMOVE[vendor] + INSTALL[vendor]:
        runner.execute(statement)


def remove(runner: StatementRunner, vendor: str) -> None:
    """Allow everything again: for reversing the migration and for test databases that are emptied between tests."""
    for statement in REMOVE[vendor]:
        runner.execute(statement)
