"""Checking the audit trail: every digest, every link, every head; and against heads that were kept elsewhere."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portal.audit.chain import COVERED, COVERED_WHERE_FILLED, digest_of
from portal.audit.models import AuditChain, AuditRecord

Heads = dict[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Break:
    """Where a chain does not hold, and why."""

    chain: int
    position: int
    why: str

    def __str__(self) -> str:
        return f"chain {self.chain}, record {self.position}: {self.why}"


def heads() -> Heads:
    """(length, digest) of every chain: keep them where the database's owner cannot write."""
    return {str(row.number): (row.length, row.head) for row in AuditChain.objects.order_by("number")}


def verify(expected: Mapping[str, tuple[int, str]] | None = None) -> list[Break]:
    """Every break of every chain. `expected`: heads of an earlier day, which must still be part of the chains."""
    known = AuditRecord.objects.order_by("chain").values_list("chain", flat=True).distinct()
    numbers = {*known, *AuditChain.objects.values_list("number", flat=True), *(int(n) for n in expected or {})}
    return [found for number in sorted(numbers) for found in _verify_chain(number, (expected or {}).get(str(number)))]


def _verify_chain(number: int, expected: tuple[int, str] | None) -> Iterator[Break]:
    position, previous = 0, ""
    for row in AuditRecord.objects.filter(chain=number).order_by("position").iterator(chunk_size=1000):
        position += 1
        if why := _wrong(row, position, previous):
            yield Break(number, position, why)
            return
        if expected and expected[0] == position and expected[1] != row.digest:
            yield Break(number, position, "is another record than the expected head")
        previous = row.digest
    yield from _wrong_end(number, position, previous, expected)


def _wrong(row: AuditRecord, position: int, previous: str) -> str:
    if row.position != position:
        return f"is missing, the next is {row.position}"
    if row.previous != previous:
        return "does not follow the one before"
    fields = {name: getattr(row, name) for name in (*COVERED, *COVERED_WHERE_FILLED)}
    return "" if digest_of(fields, row.at, row.detail) == row.digest else "was changed"


def _wrong_end(number: int, length: int, head: str, expected: tuple[int, str] | None) -> Iterator[Break]:
    row = AuditChain.objects.filter(number=number).first()
    if (row.length, row.head) != (length, head) if row else length:
        yield Break(number, length, "is the last, but the head says otherwise: the tail was cut or added to")
    if expected and expected[0] > length:
        yield Break(number, length, f"is the last, but {expected[0]} records were there")
