"""The append-only audit trail: triggers that refuse changes, one hash chain over sealed records, its checkpoints."""

import hmac
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from portal.audit.models import AuditChain, AuditRecord

log = structlog.get_logger(__name__)


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


def install_triggers(runner: StatementRunner, vendor: str) -> None:
    """Refuse from now on. Removes what an earlier version installed."""
    for statement in REMOVE[vendor] + INSTALL[vendor]:
        runner.execute(statement)


def remove_triggers(runner: StatementRunner, vendor: str) -> None:
    """Allow everything again: for reversing the migration and for test databases that are emptied between tests."""
    for statement in REMOVE[vendor]:
        runner.execute(statement)


def digest_of(record: AuditRecord, previous: str) -> str:
    """HMAC-SHA256 over a record as the database holds it, its place in the chain and the digest before it."""
    covered = {name: getattr(record, name) for name in (*CONTENT, "sealed_seq")}
    covered |= {"at": record.at.astimezone(UTC).isoformat(timespec="microseconds"), "previous": previous}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hmac.new(_key(), text.encode(), sha256).hexdigest()


def _key() -> bytes:
    """Derived from `RUNG_AUDIT_KEY`, or from the secret key where that is not set."""
    secret = settings.RUNG_AUDIT_KEY or settings.SECRET_KEY
    return sha256(f"rung.audit {secret}".encode()).digest()


BATCH: Final = 1000
MOST_BATCHES: Final = 20
_SEAL: Final = "UPDATE audit_auditrecord SET sealed_seq = %s, digest = %s WHERE id = %s"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of the chain at one time: number of sealed records, digest of the last, ISO 8601 time."""

    sealed: int
    digest: str
    at: str


def seal() -> int:
    """Seal committed records that are not sealed yet; answer how many. 0 where another process is sealing.

    1. lock the head of the chain and read a batch of unsealed records in the order of their ids
    2. give each the next place and the digest over itself and its predecessor; move the head; commit
    3. after the last batch, note the head outside the database

    A record whose transaction commits late is sealed by a later run, whatever its id.
    """
    AuditChain.objects.get_or_create(pk=1)
    sealed = 0
    for _ in range(MOST_BATCHES):
        count = _seal_batch()
        sealed += count
        if count < BATCH:
            break
    _note_head()
    return sealed


@transaction.atomic(durable=True)
def _seal_batch() -> int:
    chain = AuditChain.objects.select_for_update(skip_locked=True).filter(pk=1).first()
    records = list(AuditRecord.objects.filter(sealed_seq=None).order_by("pk")[:BATCH]) if chain else []
    if chain is None or not records:
        return 0
    for record in records:
        chain.length += 1
        record.sealed_seq = chain.length
        chain.head = record.digest = digest_of(record, chain.head)
    with connection.cursor() as cursor:
        cursor.executemany(_SEAL, [(record.sealed_seq, record.digest, record.pk) for record in records])
    chain.save(update_fields=["length", "head"])
    return len(records)


def _note_head() -> None:
    """Write a checkpoint to the log and the file unless the file ends with this head. The log serves without a file."""
    chain = AuditChain.objects.get(pk=1)
    file = Path(settings.RUNG_AUDIT_CHECKPOINTS)
    try:
        last = _last_line(file)
        if not chain.length or f'"{chain.head}"'.encode() in last:
            return
        checkpoint = asdict(Checkpoint(chain.length, chain.head, timezone.now().isoformat(timespec="seconds")))
        log.info("audit.checkpoint", **checkpoint)
        separator = b"\n" if last and not last.endswith(b"\n") else b""
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as stream:
            stream.write(separator + json.dumps(checkpoint).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        log.exception("audit.checkpoint_not_written", file=str(file))


def _last_line(file: Path) -> bytes:
    if not file.exists():
        return b""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 1000))
        return (stream.read().splitlines(keepends=True) or [b""])[-1]


@dataclass(frozen=True, slots=True)
class Break:
    """Where the chain does not hold, and why."""

    sealed_seq: int
    why: str

    def __str__(self) -> str:
        return f"record {self.sealed_seq}: {self.why}"


def read_checkpoints(file: Path) -> Iterator[Checkpoint]:
    """The checkpoints of a file. ValueError where a line is none."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            yield Checkpoint(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{file}, line {number} is not a checkpoint") from error


def verify(checkpoints: Iterable[Checkpoint] = ()) -> list[Break]:
    """Every break of the chain, and every checkpoint that is not part of it."""
    expected: dict[int, list[Checkpoint]] = defaultdict(list)
    for checkpoint in checkpoints:
        expected[checkpoint.sealed].append(checkpoint)
    return list(_breaks(expected))


def _breaks(expected: dict[int, list[Checkpoint]]) -> Iterator[Break]:
    """Records are sealed meanwhile, so the last one is read before the head, and the head before the others."""
    last = AuditRecord.objects.aggregate(last=Max("sealed_seq"))["last"] or 0
    chain = AuditChain.objects.first() or AuditChain()
    length, head = 0, ""
    sealed = AuditRecord.objects.filter(sealed_seq__lte=chain.length).order_by("sealed_seq")
    for row in sealed.iterator(chunk_size=1000):
        place = row.sealed_seq or 0
        if place != length + 1:
            yield Break(length + 1, f"is missing, the next is {place}")
        elif digest_of(row, head) != row.digest:
            yield Break(place, "was changed")
        for checkpoint in expected.pop(place, []):
            if checkpoint.digest != row.digest:
                yield Break(place, f"is not the record of the checkpoint of {checkpoint.at}")
        length, head = place, row.digest
    if (chain.length, chain.head) != (max(length, last), head):
        yield Break(max(length, last), f"is the last, but the head names record {chain.length}")
    for place, missing in sorted(expected.items()):
        yield Break(place, f"is missing, but the checkpoint of {missing[0].at} names it")
