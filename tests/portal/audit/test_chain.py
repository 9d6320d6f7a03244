"""The audit trail: written with the change, sealed into one chain, free of secrets, and every later edit shows."""

import json
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from portal.audit import chain
from portal.audit.chain import Break, Checkpoint, read_checkpoints, seal, verify
from portal.audit.models import AuditChain, AuditRecord, Result
from portal.audit.services import record, record_refusal
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor, ActorKind, Channel

ALICE = Actor(ActorKind.USER, "7", "alice", Channel.UI, "192.0.2.7", "request-1")
ASKED = replace(ALICE, http_method="POST", url="/api/v1/workloads")


@pytest.fixture(autouse=True)
def checkpoint_file(tmp_path: Path, settings: Any) -> Path:
    """Where this test's checkpoints are written."""
    settings.RUNG_AUDIT_CHECKPOINTS = str(tmp_path / "checkpoints.jsonl")
    return tmp_path / "checkpoints.jsonl"


def note(project: str = "3", **detail: object) -> AuditRecord:
    return noted(ALICE, "workload.submit", project_id=project, entity_type="workload", detail=detail)


def noted(actor: Actor, action: str, **said: Any) -> AuditRecord:
    """Write a record and read it back."""
    record(actor, action, None, **said)
    return AuditRecord.objects.latest("pk")


def sealed(count: int) -> list[AuditRecord]:
    """That many new records, sealed."""
    rows = [note(number=number) for number in range(count)]
    assert seal() == count
    return [AuditRecord.objects.get(pk=row.pk) for row in rows]


def verify_with(file: Path) -> list[Break]:
    return verify(read_checkpoints(file))


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


@pytest.mark.django_db
def test_a_refusal_keeps_its_code_and_problems() -> None:
    record_refusal(
        ALICE, "workload.submit", ValidationFailed.at("/spec/priority", "unknown", "No such.", allowed=["low"])
    )
    row = AuditRecord.objects.latest("pk")
    assert row.result == Result.DENIED
    assert row.detail["code"] == "unknown"
    assert row.detail["problems"][0]["pointer"] == "/spec/priority"


@pytest.mark.django_db(transaction=True)
def test_a_refusal_cannot_be_written_into_a_transaction_that_is_rolled_back() -> None:
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        record_refusal(ALICE, "workload.submit", ValidationFailed("No."))


@pytest.mark.django_db
def test_secrets_stay_out_of_details() -> None:
    row = note(client_secret="hunter2-canary", header="Bearer canary-0123456789", nested={"password": "canary"})
    assert "canary" not in json.dumps(row.detail)


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["nul\x00byte", "lone \ud800 surrogate", "x" * 5000])
def test_text_of_attackers_is_stored_and_still_verifies(text: str) -> None:
    record(ALICE, "workload.submit", None, entity_type="workload", entity_name=text, detail={"text": text, text: 1})
    assert seal() == 1
    assert verify() == []


@pytest.mark.django_db
def test_records_are_sealed_in_the_order_of_their_ids_into_one_chain() -> None:
    rows = [*sealed(2), *sealed(1)]
    assert [row.sealed_seq for row in rows] == [1, 2, 3]
    assert AuditChain.objects.get() == AuditChain.objects.get(length=3, head=rows[-1].digest)
    assert verify() == []


@pytest.mark.django_db
def test_more_records_than_a_batch_are_sealed_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "BATCH", 2)
    sealed(5)
    assert verify() == []


@pytest.mark.django_db
def test_a_late_record_with_a_lower_id_is_sealed_by_the_next_run() -> None:
    late, early = note(), note()
    AuditRecord.objects.filter(pk=late.pk).delete()
    assert seal() == 1
    late.save(force_insert=True)
    assert seal() == 1
    assert list(AuditRecord.objects.order_by("sealed_seq").values_list("pk", flat=True)) == [early.pk, late.pk]
    assert verify() == []


@pytest.mark.django_db
def test_numbers_verify_as_the_database_gives_them_back() -> None:
    note(whole=4.0, part=0.1, large=1e22, small=1e-7, big=2**70)
    seal()
    assert verify() == []


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["UPDATE audit_auditrecord SET action = 'x'", "DELETE FROM audit_auditrecord"])
def test_t67_the_database_refuses_to_change_or_delete_a_record(verb: str) -> None:
    note()
    with connection.cursor() as cursor:
        chain.install_triggers(cursor, connection.vendor)
        with pytest.raises(DatabaseError, match="append-only"):
            cursor.execute(verb)


@pytest.mark.django_db
def test_a_record_is_sealed_once() -> None:
    note()
    with connection.cursor() as cursor:
        chain.install_triggers(cursor, connection.vendor)
        seal()
        with pytest.raises(DatabaseError, match="append-only"):
            cursor.execute("UPDATE audit_auditrecord SET digest = 'x'")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO audit_auditrecord SELECT * FROM audit_auditrecord WHERE id = %(first)s",
        "REPLACE INTO audit_auditrecord SELECT * FROM audit_auditrecord WHERE id = %(unsealed)s",
        "UPDATE OR REPLACE audit_auditrecord SET sealed_seq = 1 WHERE id = %(unsealed)s",
        "UPDATE OR REPLACE audit_auditrecord SET rowid = %(first)s WHERE id = %(unsealed)s",
        "UPDATE audit_auditrecord SET _rowid_ = 999 WHERE id = %(first)s",
    ],
)
def test_t67_sqlite_refuses_to_replace_a_record(statement: str) -> None:
    [first] = sealed(1)
    unsealed = note()
    with connection.cursor() as cursor:
        chain.install_triggers(cursor, connection.vendor)
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute(statement % {"first": first.pk, "unsealed": unsealed.pk})
    assert seal() == 1
    assert verify() == []
    assert AuditRecord.objects.count() == 2


@pytest.mark.postgres
@pytest.mark.parametrize(
    "verb",
    [
        "UPDATE audit_auditrecord SET action = 'x'",
        "UPDATE audit_auditrecord SET sealed_seq = 7",
        "DELETE FROM audit_auditrecord",
        "TRUNCATE audit_auditrecord",
    ],
)
def test_t67_a_migrated_postgresql_refuses_too(verb: str) -> None:
    sealed(1)
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"):
        cursor.execute(verb)


def test_the_triggers_and_the_digest_cover_every_column() -> None:
    columns = {field.column for field in AuditRecord._meta.concrete_fields}
    assert columns - {"sealed_seq", "digest"} == set(chain.CONTENT)


@pytest.mark.django_db
def test_a_record_names_the_request_and_none_in_a_worker() -> None:
    requested, worker = noted(ASKED, "workload.stop"), noted(SYSTEM, "workload.stop")
    assert (requested.http_method, requested.url) == ("POST", "/api/v1/workloads")
    assert (worker.http_method, worker.url) == ("", "")


def other_value(value: Any) -> Any:
    return {"gpu": 8} if isinstance(value, dict) else "x"


@pytest.mark.django_db
@pytest.mark.parametrize("column", sorted({*chain.CONTENT, "digest"} - {"id", "at"}))
def test_an_edited_record_is_found(column: str) -> None:
    row = sealed(3)[1]
    AuditRecord.objects.filter(pk=row.pk).update(**{column: other_value(getattr(row, column))})
    assert Break(2, "was changed") in verify()


@pytest.mark.django_db
def test_an_edited_record_with_a_digest_of_its_own_is_found_by_its_successor() -> None:
    first, second, _third = sealed(3)
    AuditRecord.objects.filter(pk=second.pk).update(entity_name="x")
    second.refresh_from_db()
    AuditRecord.objects.filter(pk=second.pk).update(digest=chain.digest_of(second, first.digest))
    assert verify() == [Break(3, "was changed")]


@pytest.mark.django_db
def test_another_time_is_found() -> None:
    row = sealed(3)[1]
    AuditRecord.objects.filter(pk=row.pk).update(at=row.at.replace(year=2020))
    assert verify() == [Break(2, "was changed")]


@pytest.mark.django_db
def test_a_deleted_record_is_found() -> None:
    sealed(3)[1].delete()
    assert verify() == [Break(2, "is missing, the next is 3")]


@pytest.mark.django_db
def test_a_deleted_record_whose_successors_moved_up_is_found() -> None:
    rows = sealed(3)
    rows[1].delete()
    AuditRecord.objects.filter(pk=rows[2].pk).update(sealed_seq=2)
    AuditChain.objects.update(length=2)
    assert verify() == [Break(2, "was changed")]


@pytest.mark.django_db
def test_reordered_records_are_found() -> None:
    rows = sealed(3)
    for row, place in ((rows[0], 99), (rows[1], 1), (rows[0], 2)):
        AuditRecord.objects.filter(pk=row.pk).update(sealed_seq=place)
    assert Break(1, "was changed") in verify()


@pytest.mark.django_db
def test_a_record_beyond_the_head_is_found() -> None:
    sealed(1)
    AuditRecord.objects.filter(pk=note().pk).update(sealed_seq=2, digest="0" * 64)
    assert verify() == [Break(2, "is the last, but the head names record 1")]


@pytest.mark.django_db
def test_a_deleted_tail_is_found_through_the_head() -> None:
    sealed(2)[1].delete()
    assert verify() == [Break(1, "is the last, but the head names record 2")]


def cut_tail(rows: list[AuditRecord]) -> None:
    """Delete the last record and move the head back, as who knows the tables would."""
    rows[-1].delete()
    AuditChain.objects.update(length=rows[-2].sealed_seq, head=rows[-2].digest)


@pytest.mark.django_db
def test_a_tail_deleted_with_its_head_is_found_through_the_checkpoint(checkpoint_file: Path) -> None:
    cut_tail(sealed(2))
    [checkpoint] = read_checkpoints(checkpoint_file)
    assert verify() == []
    assert verify_with(checkpoint_file) == [
        Break(2, f"is missing, but the checkpoint of {checkpoint.at} names it"),
    ]


@pytest.mark.django_db
def test_a_tail_that_was_replaced_is_found_through_the_checkpoint(checkpoint_file: Path) -> None:
    cut_tail(sealed(2))
    sealed(1)
    first, _ = read_checkpoints(checkpoint_file)
    assert verify() == []
    assert verify_with(checkpoint_file) == [Break(2, f"is not the record of the checkpoint of {first.at}")]


@pytest.mark.django_db
def test_each_run_that_seals_appends_one_checkpoint(checkpoint_file: Path) -> None:
    rows = [*sealed(2), *sealed(1)]
    assert seal() == 0
    first, second = read_checkpoints(checkpoint_file)
    assert (first.sealed, first.digest) == (2, rows[1].digest)
    assert (second.sealed, second.digest) == (3, rows[2].digest)
    assert verify_with(checkpoint_file) == []


@pytest.mark.django_db
def test_a_checkpoint_that_was_not_written_is_written_by_the_next_run(checkpoint_file: Path) -> None:
    sealed(1)
    checkpoint_file.unlink()
    checkpoint_file.mkdir()
    assert seal() == 0
    checkpoint_file.rmdir()
    seal()
    assert verify_with(checkpoint_file) == []
    assert len(list(read_checkpoints(checkpoint_file))) == 1


@pytest.mark.django_db
def test_a_line_that_was_cut_off_is_named_and_spoils_no_later_one(checkpoint_file: Path) -> None:
    checkpoint_file.write_text('{"sealed": 1, "dig')
    sealed(1)
    with pytest.raises(ValueError, match="line 1 is not a checkpoint"):
        list(read_checkpoints(checkpoint_file))
    assert Checkpoint(**json.loads(checkpoint_file.read_text().splitlines()[1])).sealed == 1


@pytest.mark.django_db
def test_the_command_names_what_is_not_sealed_yet(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*sealed(2), note()]
    call_command("verify_audit")
    assert json.loads(capsys.readouterr().out) == {
        "sealed": 2,
        "digest": rows[1].digest,
        "unsealed": 1,
        "unsealed_ids": [rows[2].pk],
    }


@pytest.mark.django_db
def test_the_command_checks_the_configured_checkpoints_and_others(checkpoint_file: Path, tmp_path: Path) -> None:
    rows = sealed(2)
    elsewhere = checkpoint_file.rename(tmp_path / "elsewhere.jsonl")
    cut_tail(rows)
    call_command("verify_audit", "--no-checkpoints")
    with pytest.raises(CommandError, match="broken in 1 place"):
        call_command("verify_audit", "--checkpoints", str(elsewhere))
    elsewhere.rename(checkpoint_file)
    with pytest.raises(CommandError, match="broken in 1 place"):
        call_command("verify_audit")


@pytest.mark.django_db
def test_the_command_fails_when_the_checkpoints_of_sealed_records_are_gone(checkpoint_file: Path) -> None:
    call_command("verify_audit")  # nothing is sealed yet
    rows = sealed(2)
    assert stat.S_IMODE(checkpoint_file.stat().st_mode) == 0o600
    checkpoint_file.unlink()
    cut_tail(rows)
    with pytest.raises(CommandError, match="No checkpoints at"):
        call_command("verify_audit")


def in_threads(work: Callable[[int], object], count: int) -> list[object]:
    def one(number: int) -> object:
        try:
            return work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.postgres
def test_writers_and_sealers_at_once_leave_one_unbroken_chain() -> None:
    counts = in_threads(lambda number: note(number=number) if number % 2 else seal(), 80)
    assert sum(count for count in counts if isinstance(count, int)) + seal() == 40
    assert verify() == []


@pytest.mark.postgres
def test_a_transaction_that_commits_late_delays_no_other_and_is_sealed() -> None:
    written, finish = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with transaction.atomic():
            note(late=True)
            written.set()
            assert finish.wait(10)
        connection.close()

    thread = threading.Thread(target=write_slowly)
    thread.start()
    assert written.wait(10)
    early = note()
    assert seal() == 1
    finish.set()
    thread.join()
    assert seal() == 1
    late = AuditRecord.objects.get(sealed_seq=2)
    assert late.pk < early.pk
    assert verify() == []
