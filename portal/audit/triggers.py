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
_SEQ_TAKEN = "EXISTS (SELECT 1 FROM audit_auditrecord WHERE sealed_seq = NEW.sealed_seq AND id IS NOT NEW.id)"
_ID_TAKEN = "EXISTS (SELECT 1 FROM audit_auditrecord WHERE id = NEW.id)"
_TABLE = "ON audit_auditrecord"
# SQLite's OR REPLACE deletes the row in the way without its trigger, and `rowid` is another name of the id.
SQLITE = [
    f"CREATE TRIGGER audit_record_no_update BEFORE {_CONTENT} {_TABLE} {_ABORT}",
    f"CREATE TRIGGER audit_record_no_reseal BEFORE {_SEALED} {_ABORT}",
    f"CREATE TRIGGER audit_record_no_delete BEFORE DELETE {_TABLE} {_ABORT}",
    f"CREATE TRIGGER audit_record_no_renumber BEFORE UPDATE {_TABLE} WHEN OLD.id IS NOT NEW.id {_ABORT}",
    f"CREATE TRIGGER audit_record_no_displace BEFORE UPDATE OF sealed_seq {_TABLE} WHEN {_SEQ_TAKEN} {_ABORT}",
    f"CREATE TRIGGER audit_record_no_replace BEFORE INSERT {_TABLE} WHEN {_SEQ_TAKEN} OR {_ID_TAKEN} {_ABORT}",
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
_SQLITE_NAMES = ("update", "reseal", "delete", "renumber", "displace", "replace")
INSTALL = {"sqlite": SQLITE, "postgresql": POSTGRESQL}
REMOVE = {
    "sqlite": [f"DROP TRIGGER IF EXISTS audit_record_no_{name}" for name in _SQLITE_NAMES],
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
