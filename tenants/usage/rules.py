"""Who borrows from whom in one node pool, from samples of what projects deserved and held. Pure.

A project borrows what it holds above its deserved quota. What others leave unused below theirs is lent in proportion,
since no scheduler says which idle GPU went to whom. Where more is borrowed than lent, the rest is capacity that no
project deserves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

UNDESERVED: Final = None
"""The lender of capacity that no project deserves."""


class HeldQuota(NamedTuple):
    """Of one project at one moment, in GPU thousandths."""

    deserved: float
    held: float


class LoanKey(NamedTuple):
    """Projects by key. lender: None is capacity that no project deserves."""

    borrower: int
    lender: int | None


@dataclass(slots=True)
class Loan:
    """since: of the loan that is there at the last moment; None: there is none now. gpu: now, in thousandths.

    milli_hours: GPU thousandths times hours over all moments.
    """

    since: datetime | None = None
    gpu: float = 0
    milli_hours: float = 0


@dataclass(slots=True)
class BorrowLedger:
    """Loans of one node pool, from the first to the last moment that was sampled."""

    start: datetime | None = None
    end: datetime | None = None
    loans: dict[LoanKey, Loan] = field(default_factory=dict)

    def of(self, projects: Iterable[int]) -> dict[LoanKey, Loan]:
        """Those in which one of the projects has a part, the most GPU-hours first."""
        wanted = set(projects)
        found = {key: loan for key, loan in self.loans.items() if wanted & {key.borrower, key.lender}}
        return dict(sorted(found.items(), key=lambda item: -item[1].milli_hours))


def shares_lent(quotas: Mapping[int, HeldQuota]) -> dict[LoanKey, float]:
    """What each lends to each borrower at one moment, in GPU thousandths. Less than one thousandth is left out."""
    borrowed = {key: over for key, each in quotas.items() if (over := each.held - each.deserved) > 0}
    unused = {key: left for key, each in quotas.items() if (left := each.deserved - each.held) > 0}
    whole = max(sum(unused.values()), sum(borrowed.values()))
    rest = whole - sum(unused.values())
    found: dict[LoanKey, float] = {}
    for borrower, over in borrowed.items():
        for lender, left in unused.items():
            found[LoanKey(borrower, lender)] = over * left / whole
        found[LoanKey(borrower, UNDESERVED)] = over * rest / whole
    return {key: amount for key, amount in found.items() if amount >= 1}


def ledger_of(moments: Sequence[tuple[datetime, Mapping[int, HeldQuota]]], *, every: timedelta) -> BorrowLedger:
    """The loans over these moments, oldest first. A moment counts until the next one, at most `every`.

    A loan that is missing at one moment, or unseen for longer than `every`, has ended.
    """
    found = BorrowLedger()
    for at, quotas in moments:
        apart = at - found.end if found.end else timedelta()
        hours = min(apart, every) / timedelta(hours=1)
        for loan in found.loans.values():
            loan.milli_hours += loan.gpu * hours
        lent = shares_lent(quotas)
        for key, loan in found.loans.items():
            if key not in lent or apart > every:
                loan.since = None
            loan.gpu = lent.get(key, 0)
        for key, amount in lent.items():
            loan = found.loans.setdefault(key, Loan())
            loan.gpu, loan.since = amount, loan.since or at
        found.start, found.end = found.start or at, at
    return found
