"""What some projects borrow and lend in one node pool, by samples of the quota balances of all projects; trends. Pure.

A quota balance is what a project deserves less what it holds. A project borrows what it holds above its deserved quota,
first from its department: what the other projects there leave unused, and what the department deserves beyond its
projects. Only the excess of a whole department is borrowed from other departments, and only the unused rest of a whole
department is lent to them. A department that deserves less than its projects counts with their sum, as in Kueue.

Each time, what is unused is lent in proportion, since no scheduler says which idle GPU went to whom. Where more is
borrowed than lent, the rest is capacity that nothing deserves.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from scheduling.model.resources import MILLI, Resources

BORROWED: Final = "borrowed"
LENT: Final = "lent"
UNDESERVED: Final = None
"""The lender of capacity that neither a project nor a department deserves."""

Balances = Mapping[str, float]
"""By project key: deserved less held, in GPU thousandths. A project that is missing holds what it deserves.

By `spare_key` of a department: what it deserves beyond its projects. One that is missing deserves as much as they do.
"""
_SPARE: Final = "department-"


def spare_key(department: object) -> str:
    """The key of a department in balances, by its primary key."""
    return f"{_SPARE}{department}"


class LoanKey(NamedTuple):
    """direction: BORROWED or LENT. counterparty: a party; UNDESERVED: nothing deserves it."""

    direction: str
    counterparty: str | None


@dataclass(frozen=True, slots=True)
class FixedClaim:
    """GPU thousandths that non-preemptible workloads ask for: all, and those that were sent to the cluster."""

    all: int = 0
    sent: int = 0


@dataclass(frozen=True, slots=True)
class EvictableWork:
    """A workload that holds something and may be evicted; `label` names it with its project and priority."""

    label: str
    held: Resources
    workload_id: str = ""


@dataclass(frozen=True, slots=True)
class Parties:
    """Whose loans these are, and how the other projects are grouped.

    own: keys of balances. names: the party of another project by its key; `others` is that of all the rest, `spare`
    that of what departments deserve beyond their projects. departments: by project key, the department's `spare_key`;
    a project that is missing is a department of its own.
    """

    own: Collection[str]
    names: Mapping[str, str]
    others: str
    spare: str
    departments: Mapping[str, str]

    def name_of(self, key: str) -> str:
        """The party of a key that is not an own one."""
        return self.spare if key.startswith(_SPARE) else self.names.get(key, self.others)


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
    found: defaultdict[LoanKey, float] = defaultdict(float)
    departments: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for key, balance in balances.items():
        departments[parties.departments.get(key, key)][key] = balance
    rest: dict[str, float] = {}
    for members in departments.values():
        _add_loans(found, members, parties)
        rest |= _rest(members)
    _add_loans(found, rest, parties)
    for key, balance in _rest(rest).items():
        if balance < 0 and key in parties.own:
            found[LoanKey(BORROWED, UNDESERVED)] -= balance
    return {key: amount for key, amount in found.items() if amount >= 1}


def _add_loans(found: defaultdict[LoanKey, float], balances: Balances, parties: Parties) -> None:
    """As much as both sides have: each borrower's part of what each lender leaves unused."""
    unused = {key: left for key, left in balances.items() if left > 0}
    over = {key: -left for key, left in balances.items() if left < 0}
    whole = max(sum(unused.values()), sum(over.values()))
    for direction, mine, others in ((BORROWED, over, unused), (LENT, unused, over)):
        amount = sum(each for key, each in mine.items() if key in parties.own)
        for key, each in others.items() if amount else ():
            if key not in parties.own:
                found[LoanKey(direction, parties.name_of(key))] += amount * each / whole


def _rest(balances: Balances) -> dict[str, float]:
    """The balances after these loans: of the larger side, in proportion."""
    total = sum(balances.values())
    larger = {key: each for key, each in balances.items() if each * total > 0}
    whole = sum(larger.values())
    return {key: each * (total / whole) for key, each in larger.items()}


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

    gpu: at the last sample, in thousandths. since: the first sample of the loan that was there at the last one; None:
    there was none. gpu_hours: in the whole period.
    """

    pool: str
    direction: str
    counterparty: str
    gpu: float
    since: datetime | None
    gpu_hours: float

    @property
    def gpus(self) -> float:
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
