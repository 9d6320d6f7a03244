"""The database refuses to change or delete audit records, whoever asks."""

from typing import Protocol


class Runner(Protocol):
    """Something that runs a statement: a schema editor or a cursor."""

    def execute(self, sql: str, params: None = None) -> object: ...


SQLITE = [
    f"CREATE TRIGGER audit_record_no_{verb.lower()} BEFORE {verb} ON audit_auditrecord "
    "BEGIN SELECT RAISE(ABORT, 'audit records are append-only'); END"
    for verb in ("UPDATE", "DELETE")
]
POSTGRESQL = [
    "CREATE FUNCTION audit_record_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'audit records are append-only'; END $$",
    "CREATE TRIGGER audit_record_no_change BEFORE UPDATE OR DELETE ON audit_auditrecord "
    "FOR EACH ROW EXECUTE FUNCTION audit_record_refuse()",
    "CREATE TRIGGER audit_record_no_truncate BEFORE TRUNCATE ON audit_auditrecord "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_record_refuse()",
]
INSTALL = {"sqlite": SQLITE, "postgresql": POSTGRESQL}
REMOVE = {
    "sqlite": [f"DROP TRIGGER IF EXISTS audit_record_no_{verb}" for verb in ("update", "delete")],
    "postgresql": ["DROP FUNCTION IF EXISTS audit_record_refuse CASCADE"],
}


def install(runner: Runner, vendor: str) -> None:
    """Refuse UPDATE, DELETE and TRUNCATE from now on."""
    for statement in INSTALL[vendor]:
        runner.execute(statement)


def remove(runner: Runner, vendor: str) -> None:
    """Allow them again: for reversing the migration and for test databases that are emptied between tests."""
    for statement in REMOVE[vendor]:
        runner.execute(statement)
