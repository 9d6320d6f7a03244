"""What some projects borrow and lend in one node pool, by samples of the quota balances of all projects; trends. Pure.

A quota balance is what a project deserves less what it holds. A project borrows what it holds above its deserved quota.
What others leave unused below theirs is lent in proportion, since no scheduler says which idle GPU went to whom. Where
more is borrowed than lent, the rest is capacity that no project deserves.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from scheduling.model.resources import MILLI

BORROWED: Final = "borrowed"
LENT: Final = "lent"
UNDESERVED: Final = None
"""The lender of capacity that no project deserves."""

Balances = Mapping[str, float]
"""By project key: deserved less held, in GPU thousandths. A project that is missing holds what it deserves."""


class LoanKey(NamedTuple):
    """direction: BORROWED or LENT. counterparty: a party; UNDESERVED is capacity that no project deserves."""

    direction: str
    counterparty: str | None


@dataclass(frozen=True, slots=True)
class Parties:
    """Whose loans these are, and how the other projects are grouped.

    own: keys of projects. names: the party of another project by its key; `others` is that of all the rest.
    """

    own: Collection[str]
    names: Mapping[str, str]
    others: str


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
    """Loans in one node pool, from the first to the last moment that was sampled."""

    start: datetime | None = None
    end: datetime | None = None
    loans: dict[LoanKey, Loan] = field(default_factory=dict)


def loans_at(balances: Balances, parties: Parties) -> dict[LoanKey, float]:
    """What the parties lend each other at one moment, in GPU thousandths. Less than one thousandth is left out.

    Loans between the own projects are left out.
    """
    unused = {key: left for key, left in balances.items() if left > 0}
    over = {key: -each for key, each in balances.items() if each < 0}
    all_unused, own = sum(unused.values()), parties.own
    whole = max(all_unused, sum(over.values()))
    borrowed, lent = (sum(each for key, each in part.items() if key in own) for part in (over, unused))
    found: defaultdict[LoanKey, float] = defaultdict(float)
    for direction, amount, others in ((BORROWED, borrowed, unused), (LENT, lent, over)):
        for key, each in others.items() if amount else ():
            if key not in own:
                found[LoanKey(direction, parties.names.get(key, parties.others))] += amount * each / whole
    if borrowed:
        found[LoanKey(BORROWED, UNDESERVED)] = borrowed * (whole - all_unused) / whole
    return {key: amount for key, amount in found.items() if amount >= 1}


def ledger_of(moments: Sequence[tuple[datetime, Balances]], parties: Parties, *, every: timedelta) -> BorrowLedger:
    """The loans over these moments, oldest first. A moment counts until the next one, at most `every`.

    A loan that is missing at one moment, or unseen for longer than `every`, has ended.
    """
    found = BorrowLedger()
    for at, balances in moments:
        apart = at - found.end if found.end else timedelta()
        hours = min(apart, every) / timedelta(hours=1)
        for loan in found.loans.values():
            loan.milli_hours += loan.gpu * hours
        amounts = loans_at(balances, parties)
        for key, loan in found.loans.items():
            if key not in amounts or apart > every:
                loan.since = None
            loan.gpu = amounts.get(key, 0)
        for key, amount in amounts.items():
            loan = found.loans.setdefault(key, Loan())
            loan.gpu, loan.since = amount, loan.since or at
        found.start, found.end = found.start or at, at
    return found


@dataclass(frozen=True, slots=True)
class LoanRow:
    """A loan of what the ledger is about. direction: borrowed or lent. counterparty: a name that the reader may see.

    gpu: now, in thousandths. since: the first sample of the loan that is there now. gpu_hours: in the whole period.
    """

    pool: str
    direction: str
    counterparty: str
    gpu: float
    since: datetime | None
    gpu_hours: float

    @property
    def gpus_now(self) -> float:
        return self.gpu / MILLI


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One part: GPU thousandths held and on the dashed reference line, and their places in SVG units."""

    at: datetime
    held: int
    reference: int
    x: float
    held_y: float
    reference_y: float


@dataclass(frozen=True, slots=True)
class Trend:
    """Marks in runs without a gap. `top`: the GPU thousandths at the upper edge."""

    runs: tuple[tuple[TrendPoint, ...], ...]
    top: int

    @property
    def marks(self) -> list[TrendPoint]:
        """All of them, oldest first."""
        return [mark for run in self.runs for mark in run]

    @property
    def held_lines(self) -> list[str]:
        """Corners of the line of what was held, a text per run."""
        return [" ".join(f"{mark.x:.1f},{mark.held_y:.1f}" for mark in run) for run in self.runs]

    @property
    def reference_lines(self) -> list[str]:
        """Corners of the reference line."""
        return [" ".join(f"{mark.x:.1f},{mark.reference_y:.1f}" for mark in run) for run in self.runs]

    @property
    def mean(self) -> int:
        """GPU thousandths held on average over the parts with a sample, to a tenth of a GPU."""
        marks = self.marks
        return int(round(sum(mark.held for mark in marks) / len(marks), -2)) if marks else 0

    @property
    def most(self) -> int:
        """The highest average of a part, to a tenth of a GPU: less than the most that was held at one moment."""
        return round(max((mark.held for mark in self.marks), default=0), -2)
