"""The audit trail: written with the change, chained, free of secrets, and every later edit shows."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.utils import ConnectionHandler

from portal.audit import triggers
from portal.audit.models import AuditChain, AuditRecord, Result
from portal.audit.services import record, record_refusal
from portal.audit.verification import Break, heads, verify
from portal.core.actors import SYSTEM, Actor, ActorKind, Channel
from portal.core.errors import Refused

ALICE = Actor(ActorKind.USER, "7", "alice", Channel.UI, "192.0.2.7", "request-1")
ASKED = replace(ALICE, http_method="POST", url="/api/v1/workloads")
OLD = {
    "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "actor_kind": "user",
    "actor_id": "7",
    "actor_name": "alice",
    "channel": "ui",
    "source_ip": "192.0.2.7",
    "request_id": "request-1",
    "action": "workload.stop",
    "result": "Succeeded",
    "entity_type": "workload",
    "entity_id": "",
    "entity_name": "train",
    "project_id": "3",
    "detail": {"gpu": 8},
    "chain": 5,
    "position": 1,
    "previous": "",
}
OLD_DIGEST = "837a9397d38794115e7749b73eb60929b38480911423b0739372855c17fe3579"
"""Written down, under the key `golden`, before records told their request."""


def note(project: str = "3", **detail: object) -> AuditRecord:
    return noted(ALICE, "workload.submit", project_id=project, entity_type="workload", detail=detail)


def noted(actor: Actor, action: str, **said: Any) -> AuditRecord:
    """Write a record and read it back."""
    record(actor, action, None, **said)
    return AuditRecord.objects.latest("pk")


@pytest.mark.django_db
def test_a_record_says_who_did_what_through_which_door() -> None:
    row = noted(ALICE, "workload.stop", project_id="3", entity_type="workload", entity_name="train")
    assert (row.actor_name, row.action, row.channel) == ("alice", "workload.stop", "ui")
    assert (row.entity_name, row.project_id, row.source_ip, row.result) == ("train", "3", "192.0.2.7", "Succeeded")


@pytest.mark.django_db
def test_a_rolled_back_change_leaves_no_record() -> None:
    def change_and_fail() -> None:
        with transaction.atomic():
            note()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_fail()
    assert not AuditRecord.objects.exists()
    assert verify() == []


@pytest.mark.django_db
def test_a_refusal_keeps_its_code_and_problems() -> None:
    record_refusal(ALICE, "workload.submit", Refused.at("/spec/priority", "unknown", "No such.", allowed=["low"]))
    row = AuditRecord.objects.latest("pk")
    assert row.result == Result.DENIED
    assert row.detail["code"] == "unknown"
    assert row.detail["problems"][0]["pointer"] == "/spec/priority"


@pytest.mark.django_db(transaction=True)
def test_a_refusal_cannot_be_written_into_a_transaction_that_is_rolled_back() -> None:
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        record_refusal(ALICE, "workload.submit", Refused("No."))


@pytest.mark.django_db
def test_secrets_stay_out_of_details() -> None:
    row = note(client_secret="hunter2-canary", header="Bearer canary-0123456789", nested={"password": "canary"})
    assert "canary" not in json.dumps(row.detail)


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["nul\x00byte", "lone \ud800 surrogate", "x" * 5000])
def test_text_of_attackers_is_stored_and_still_verifies(text: str) -> None:
    record(ALICE, "workload.submit", None, entity_type="workload", entity_name=text, detail={"text": text, text: 1})
    assert verify() == []


@pytest.mark.django_db
def test_records_of_a_request_follow_each_other_in_one_chain() -> None:
    first, second = note("3"), note("4")
    assert (second.chain, second.position, second.previous) == (first.chain, 2, first.digest)


@pytest.mark.django_db
def test_requests_for_one_project_do_not_queue_in_one_chain() -> None:
    numbers = {noted(replace(ALICE, request_id=f"request-{each}"), "a.b", project_id="3").chain for each in range(20)}
    assert len(numbers) > 10
    assert verify() == []


@pytest.mark.django_db
def test_where_no_request_asks_the_records_of_a_project_follow_each_other() -> None:
    first, second = (noted(SYSTEM, "a.b", project_id="3", entity_name=name) for name in ("one", "two"))
    assert (second.chain, second.previous) == (first.chain, first.digest)


@pytest.mark.django_db
def test_numbers_verify_as_the_database_gives_them_back() -> None:
    note(whole=4.0, part=0.1, large=1e22, small=1e-7, big=2**70)
    assert verify() == []


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["UPDATE audit_auditrecord SET action = 'x'", "DELETE FROM audit_auditrecord"])
def test_t67_the_database_refuses_to_change_or_delete_a_record(verb: str) -> None:
    note()
    with connection.cursor() as cursor:
        triggers.install(cursor, connection.vendor)
        with pytest.raises(DatabaseError, match="append-only"):
            cursor.execute(verb)


@pytest.mark.postgres
@pytest.mark.parametrize("verb", ["UPDATE audit_auditrecord SET action = 'x'", "DELETE FROM audit_auditrecord",
                                  "TRUNCATE audit_auditrecord"])  # fmt: skip
def test_t67_a_migrated_postgresql_refuses_too(verb: str) -> None:
    note()
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"):
        cursor.execute(verb)


@pytest.mark.django_db
def test_an_edited_record_shows() -> None:
    rows = [note(), note(), note()]
    AuditRecord.objects.filter(pk=rows[1].pk).update(actor_name="bob")
    assert verify() == [Break(rows[1].chain, 2, "was changed")]


@pytest.mark.django_db
def test_a_record_tells_the_request_that_asked_and_none_where_none_did() -> None:
    asked, worker = noted(ASKED, "workload.stop"), noted(SYSTEM, "workload.stop")
    assert (asked.http_method, asked.url) == ("POST", "/api/v1/workloads")
    assert (worker.http_method, worker.url) == ("", "")
    assert verify() == []


@pytest.mark.django_db
@pytest.mark.parametrize("change", [{"url": "/x"}, {"http_method": "GET"}, {"url": "", "http_method": ""}, {"url": ""}])
def test_a_changed_request_shows(change: dict[str, str]) -> None:
    row = noted(ASKED, "workload.stop")
    AuditRecord.objects.filter(pk=row.pk).update(**change)
    assert verify() == [Break(row.chain, 1, "was changed")]


@pytest.mark.django_db
def test_a_request_that_is_added_later_shows() -> None:
    row = note()
    AuditRecord.objects.filter(pk=row.pk).update(http_method="POST")
    assert verify() == [Break(row.chain, 1, "was changed")]


@pytest.mark.django_db
def test_a_record_from_before_requests_were_told_verifies_as_it_was_written(settings: Any) -> None:
    settings.RUNG_AUDIT_KEY = "golden"
    AuditRecord.objects.create(**OLD, digest=OLD_DIGEST)
    AuditChain.objects.update_or_create(number=5, defaults={"length": 1, "head": OLD_DIGEST})
    assert verify() == []


@pytest.mark.django_db
def test_the_database_still_refuses_after_columns_were_added(tmp_path: Path) -> None:
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "db.sqlite3"}
    migrating = ConnectionHandler({"default": sqlite})["default"]
    loader, state = MigrationLoader(None), ProjectState()

    def migrate(name: str) -> None:
        with migrating.schema_editor() as editor:
            loader.get_migration("audit", name).apply(state, editor)

    migrate("0001_initial")
    migrate("0002_append_only")
    old = {**OLD, "detail": "{}", "digest": OLD_DIGEST}
    with migrating.cursor() as cursor:
        names, marks = ", ".join(old), ", ".join(["%s"] * len(old))
        cursor.execute(f"INSERT INTO audit_auditrecord ({names}) VALUES ({marks})", list(old.values()))
    migrate("0003_request")
    with migrating.cursor() as cursor:
        cursor.execute("SELECT digest, http_method, url FROM audit_auditrecord")
        assert cursor.fetchall() == [(OLD_DIGEST, "", "")]
        for verb in ("UPDATE audit_auditrecord SET url = 'x'", "DELETE FROM audit_auditrecord"):
            with pytest.raises(DatabaseError, match="append-only"):
                cursor.execute(verb)
    migrating.close()


@pytest.mark.django_db
def test_a_missing_record_shows() -> None:
    rows = [note(), note(), note()]
    rows[1].delete()
    assert verify() == [Break(rows[0].chain, 2, "is missing, the next is 3")]


@pytest.mark.django_db
def test_a_cut_tail_shows_in_the_head() -> None:
    rows = [note(), note()]
    rows[1].delete()
    [found] = verify()
    assert (found.chain, found.position) == (rows[0].chain, 1)


@pytest.mark.django_db
def test_a_tail_cut_together_with_its_head_shows_against_kept_heads(tmp_path: Path) -> None:
    rows = [note(), note()]
    kept = tmp_path / "heads.json"
    kept.write_text(json.dumps(heads()))
    rows[1].delete()
    AuditChain.objects.filter(number=rows[0].chain).update(length=1, head=rows[0].digest)
    call_command("verify_audit")
    with pytest.raises(CommandError, match="broken in 1 place"):
        call_command("verify_audit", "--expect", str(kept))


@pytest.mark.django_db
def test_t67_a_tail_cut_and_written_anew_shows_against_kept_heads() -> None:
    rows = [note(), note()]
    kept = heads()
    rows[1].delete()
    AuditChain.objects.filter(number=rows[0].chain).update(length=1, head=rows[0].digest)
    note(rewritten=True)
    assert verify() == []
    assert verify(kept) == [Break(rows[0].chain, 2, "is another record than the expected head")]


@pytest.mark.django_db
def test_the_command_prints_heads_that_a_later_run_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note()
    call_command("verify_audit")
    kept = tmp_path / "heads.json"
    kept.write_text(capsys.readouterr().out)
    note()
    call_command("verify_audit", "--expect", str(kept))


@pytest.mark.postgres
def test_parallel_writers_of_one_chain_leave_it_unbroken() -> None:
    def write(number: int) -> None:
        try:
            with transaction.atomic():
                note(number=number)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(80)))
    assert AuditRecord.objects.count() == 80
    assert verify() == []
