"""Read a trace, and compare two replays of it. Pure: times are seconds since its first submission."""

import csv
import io
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final

from portal.kit.errors import Problem, ValidationFailed
from scheduling.forecast.cycle import FLAVOURS
from scheduling.forecast.replay import ONE_BY_ONE, ClusterReplay, ReplayedSubmission
from scheduling.model.preemptibility import THRESHOLD

COLUMNS: Final = ("submitted", "duration", "gpus", "workers", "owner", "priority", "preemptible")
REQUIRED: Final = ("submitted", "duration", "gpus")
MOST_BYTES: Final = 400_000
MOST_ROWS: Final = 20_000
MOST_PROBLEMS: Final = 20
MOST_WORKERS: Final = 1000
MOST_GPUS: Final = 1024
LONGEST: Final = 10 * 365 * 24 * 3600
SECOND: Final = 1_000_000
"""In the unit of snapshots."""
PARTS: Final = 56
YES: Final = {"true", "yes", "1", "preemptible", "spot"}
NO: Final = {"false", "no", "0", "non-preemptible", "guaranteed"}
AT: Final = "/trace/csv"
_DURATION: Final = re.compile(r"(?a)P(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,10})(?:\.\d{1,9})?S)?)?")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One submission. Seconds; GPU thousandths of one worker; preemptible: None is by the priority's value."""

    name: str
    submitted: int
    duration: int
    gpu: int
    workers: int
    project: str
    priority: str
    preemptible: bool | None = None
    pool: str = ""
    cpu: int = 0
    memory: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TraceMapping:
    """columns: ours to those of the file, where the names differ. priorities: words of the file to names of the
    dictionary. project, priority: of rows that name none, or no project. projects, known: those that exist.
    """

    columns: Mapping[str, str]
    priorities: Mapping[str, str]
    project: str
    priority: str
    projects: Collection[str]
    known: Collection[str]


class _Unreadable(ValueError):
    """A cell is not what its column should have."""


def parse_trace(text: str, mapping: TraceMapping) -> list[TraceRow]:
    """The rows in order of submission. Raises ValidationFailed with line, column and the format that is expected."""
    if len(text.encode()) > MOST_BYTES:
        raise ValidationFailed.at(AT, "too_large", f"The trace must be at most {MOST_BYTES} bytes.")
    if text.count("\n") > MOST_ROWS + 1:
        raise ValidationFailed.at(AT, "too_many_rows", f"The trace must have at most {MOST_ROWS} rows.")
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        head = [name.strip() for name in next(reader, [])]
        rows, problems = _rows(reader, head, _places(head, mapping), mapping)
    except csv.Error as error:
        raise ValidationFailed.at(AT, "bad_csv", f"Line {reader.line_num}: not CSV ({error}).") from None
    if problems:
        raise ValidationFailed(problems[0].message, code="invalid", problems=problems)
    if not rows:
        raise ValidationFailed.at(AT, "empty", "The trace has no rows below its header line.")
    first = min(row["submitted"] for row in rows)
    found = [TraceRow(**{**row, "submitted": row["submitted"] - first}) for row in rows]
    return sorted(found, key=lambda row: row.submitted)


def _places(head: Sequence[str], mapping: TraceMapping) -> dict[str, int]:
    """Where each of our columns is in the file: as the mapping names it, else by our own name in any case."""
    named = set(mapping.columns.values())
    own = {name.lower(): name for name in reversed(head) if name not in named}
    columns = {ours: own[ours] for ours in COLUMNS if ours in own} | dict(mapping.columns)
    defaults = {"owner": mapping.project, "priority": mapping.priority}
    needed = dict.fromkeys(REQUIRED, "") | {ours: ", and no default" for ours, value in defaults.items() if not value}
    header = f"The header has: {', '.join(head)[:200] or 'nothing'}."
    problems = list(islice(_repeated(head, named), MOST_PROBLEMS))
    for ours in {**needed, **mapping.columns}:
        if ours not in columns or columns[ours] not in head:
            message = f'Line 1: no column "{columns.get(ours, ours)}"{needed.get(ours, "")}. {header}'
            problems.append(Problem(f"/trace/columns/{ours}", "no_such_column", message))
    if problems:
        raise ValidationFailed(problems[0].message, code="invalid", problems=problems)
    return {ours: head.index(name) for ours, name in columns.items()}


def _repeated(head: Sequence[str], named: Collection[str]) -> Iterator[Problem]:
    """Columns that are there more than once. Our own names are found in any case, so their case makes no other."""
    names = Counter(name.lower() if name.lower() in COLUMNS and name not in named else name for name in head)
    for name in (name for name, count in names.items() if name and count > 1):
        yield Problem(AT, "repeated_column", f'Line 1: the column "{name[:40]}" is there more than once.')


def _rows(
    reader: Any, head: Sequence[str], places: Mapping[str, int], mapping: TraceMapping
) -> tuple[list[dict[str, Any]], list[Problem]]:
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    readers = {**_READ, "submitted": _Times().read}
    for cells in reader:
        if not cells:
            continue
        line = reader.line_num
        if len(cells) != len(head):
            problems.append(Problem(AT, "bad_row", f"Line {line}: {len(cells)} cells, the header has {len(head)}."))
        else:
            row: dict[str, Any] = {"name": f"line-{line}"}
            for ours, read in readers.items():
                text = cells[places[ours]].strip() if ours in places else ""
                try:
                    row.update(read(text, mapping))
                except _Unreadable as error:
                    where = f'Line {line}, column "{head[places[ours]] if ours in places else ours}"'
                    problems.append(Problem(AT, "bad_cell", f"{where}: {text[:40]!r} is not {error}."))
            rows.append(row)
        if len(problems) >= MOST_PROBLEMS:
            break
    return rows, problems[:MOST_PROBLEMS]


def _submitted(text: str, _mapping: TraceMapping) -> dict[str, Any]:
    wanted = "a time: seconds, or ISO 8601 as in 2026-11-24T18:00:00Z"
    if (seconds := _number(text)) is not None:
        if not 0 <= seconds <= 10**11:
            raise _Unreadable(wanted)
        return {"submitted": int(seconds)}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _Unreadable(wanted) from None
    return {"submitted": int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())}


class _Times:
    """Reads times of submission. All are of the kind of the first: mixed, they would lie decades apart."""

    _first = ""

    def read(self, text: str, mapping: TraceMapping) -> dict[str, Any]:
        found, kind = _submitted(text, mapping), "ISO 8601" if _number(text) is None else "seconds"
        self._first = self._first or kind
        if kind != self._first:
            raise _Unreadable(f"a time in {self._first}, as in the first row")
        return found


def _duration(text: str, _mapping: TraceMapping) -> dict[str, Any]:
    seconds = _number(text)
    if seconds is None and (parts := _DURATION.fullmatch(text)) and any(parts.groups()):
        days, hours, minutes, rest = (int(part or 0) for part in parts.groups())
        seconds = Decimal(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    if seconds is None or not 0 <= seconds <= LONGEST:
        raise _Unreadable("a duration of 0 s to 10 years: seconds, or ISO 8601 as in PT1H30M")
    return {"duration": int(seconds)}


def _gpus(text: str, _mapping: TraceMapping) -> dict[str, Any]:
    gpus = _number(text)
    if gpus is None or not 0 <= gpus <= MOST_GPUS or gpus * 1000 % 1:
        raise _Unreadable(f"GPUs of one worker: a number from 0 to {MOST_GPUS} with at most 3 decimals")
    return {"gpu": int(gpus * 1000)}


def _workers(text: str, _mapping: TraceMapping) -> dict[str, Any]:
    workers = _number(text or "1")
    if workers is None or not 1 <= workers <= MOST_WORKERS or workers % 1:
        raise _Unreadable(f"a number of workers: a whole number from 1 to {MOST_WORKERS}")
    return {"workers": int(workers)}


def _owner(text: str, mapping: TraceMapping) -> dict[str, Any]:
    project = text if text in mapping.projects else mapping.project
    if not project:
        raise _Unreadable("a project of this cluster; choose the project of all other owners")
    return {"project": project}


def _priority(text: str, mapping: TraceMapping) -> dict[str, Any]:
    priority = mapping.priorities.get(text, text) or mapping.priority
    if priority not in mapping.known:
        raise _Unreadable(f"a priority; map it to one of {', '.join(sorted(mapping.known))}")
    return {"priority": priority}


def _preemptible(text: str, _mapping: TraceMapping) -> dict[str, Any]:
    if not text:
        return {"preemptible": None}
    if text.lower() not in YES | NO:
        raise _Unreadable("true or false")
    return {"preemptible": text.lower() in YES}


_READ: Final = {
    "submitted": _submitted,
    "duration": _duration,
    "gpus": _gpus,
    "workers": _workers,
    "owner": _owner,
    "priority": _priority,
    "preemptible": _preemptible,
}


def _number(text: str) -> Decimal | None:
    try:
        found = Decimal(text) if len(text) <= 40 else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None


CYCLES: Final = 1000
"""Cycles of a scheduler with queues over the whole trace: between two of them is a thousandth of its time."""
Bounds = tuple[int | None, int | None]
"""Deserved and limit in GPU thousandths; None is unlimited."""


def check_period(body: Mapping[str, Any]) -> None:
    """Raises ValidationFailed unless it has a start before its end."""
    start, end = body.get("start"), body.get("end")
    if not start or not end:
        raise ValidationFailed.at("/start", "required", "Give a period of the record, or upload a trace.")
    if not datetime.fromisoformat(start) < datetime.fromisoformat(end):
        raise ValidationFailed.at("/end", "out_of_range", "The end must be after the start.")


def problems_of_proposal(
    body: Mapping[str, Any], *, known: Collection[str], owners: Mapping[str, Collection[str]], pools: Collection[str]
) -> Iterator[Problem]:
    """What it names that does not exist."""
    for field in ("scheduler", "proposedScheduler"):
        if body.get(field) and body[field] not in FLAVOURS:
            yield Problem(f"/{field}", "unknown", f"Schedulers with a model: {', '.join(FLAVOURS)}.")
    for number, each in enumerate(body.get("priorities") or []):
        if each["name"] not in known:
            yield Problem(f"/priorities/{number}/name", "unknown", "Not a priority of the dictionary.")
    for number, each in enumerate(body.get("quotas") or []):
        yield from _problems_of_quota(each, f"/quotas/{number}", owners, pools)


def _problems_of_quota(
    each: Mapping[str, Any], at: str, owners: Mapping[str, Collection[str]], pools: Collection[str]
) -> Iterator[Problem]:
    named = [kind for kind in owners if each.get(kind)] or ["project"]
    if len(named) > 1:
        yield Problem(f"{at}/department", "one_owner", "Name either a project or a department.")
    for kind in named:
        if each.get(kind) not in owners[kind]:
            yield Problem(f"{at}/{kind}", "unknown", f"Not a {kind} of this cluster.")
    if each["nodePool"] not in pools:
        yield Problem(f"{at}/nodePool", "unknown", "Not a node pool of this cluster.")


def interval_of(rows: Sequence[TraceRow], flavour: str) -> int:
    """Seconds between two cycles of a scheduler with queues; 0: it decides at every event."""
    return 0 if flavour in ONE_BY_ONE else max(row.submitted for row in rows) // CYCLES


def bounds_of(quota: Mapping[str, Any]) -> Bounds:
    """Of a proposed quota."""
    limit = quota.get("limitGpus")
    return round(quota["deservedGpus"] * 1000), None if limit is None else round(limit * 1000)


def sum_of_bounds(by_pool: Mapping[str, Bounds]) -> Bounds:
    """A ResourceQuota counts all node pools together."""
    limits = [limit for _deserved, limit in by_pool.values()]
    known = [limit for limit in limits if limit is not None]
    return sum(deserved or 0 for deserved, _limit in by_pool.values()), sum(known) if known == limits else None


def is_preemptible(row: TraceRow, value: int) -> bool:
    """As the trace says, else by the value of its priority."""
    return value < THRESHOLD if row.preemptible is None else row.preemptible


Runs = Mapping[str, ReplayedSubmission]


def _figures(runs: Iterable[ReplayedSubmission]) -> dict[str, Any]:
    """Of the submissions of one priority or project, or of all. Waits of those that have started."""
    each = list(runs)
    waits = sorted((run.started - run.submission.submitted) // SECOND for run in each if run.started is not None)
    return {
        "submissions": len(each),
        "started": len(waits),
        "medianWaitSeconds": int(statistics.median(waits)) if waits else None,
        "p90WaitSeconds": waits[(len(waits) * 9 - 1) // 10] if waits else None,
        "evictions": sum(run.evictions for run in each),
        "lostGpuHours": round(sum(run.lost for run in each) / SECOND / 3600 / 1000, 2),
    }


def comparison(rows: Sequence[TraceRow], before: ClusterReplay, after: ClusterReplay, capacity: int) -> dict[str, Any]:
    """Figures of all, per priority and per project, GPU use and two plots. capacity: GPU thousandths of the nodes."""
    window = _window(before, after)
    sides = {"before": before, "after": after}
    return {
        "all": {side: _whole(replay, window, capacity) for side, replay in sides.items()},
        "priorities": _grouped(rows, "priority", sides),
        "projects": _grouped(rows, "project", sides),
        "seconds": window,
        "allAtOnce": not any(row.submitted for row in rows),
        "capacityGpus": capacity / 1000,
        "usedGpus": {side: _curve(replay.use, window, 1) for side, replay in sides.items()},
        "waitingGpus": {side: _curve(replay.use, window, 2) for side, replay in sides.items()},
        "endless": {side: [*replay.endless] for side, replay in sides.items()},
    }


def _window(*replays: ClusterReplay) -> int:
    """Seconds from the first to the last submission; where all come at once, until both runs have ended."""
    last = max(run.submission.submitted for run in replays[0].runs.values()) // SECOND
    return last or max(max((step[0] for step in replay.use), default=0) for replay in replays) // SECOND or 1


def _whole(replay: ClusterReplay, window: int, capacity: int) -> dict[str, Any]:
    used = sum(_curve(replay.use, window, 1)) / PARTS * 1000
    share = round(100 * used / capacity, 1) if capacity else None
    return {**_figures(replay.runs.values()), "gpuUsePercent": share}


def _grouped(rows: Sequence[TraceRow], field: str, sides: Mapping[str, ClusterReplay]) -> list[dict[str, Any]]:
    names: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        names[getattr(row, field)].append(row.name)
    return [
        {"name": name, **{side: _figures(replay.runs[each] for each in members) for side, replay in sides.items()}}
        for name, members in sorted(names.items())
    ]


def _curve(use: Sequence[tuple[int, int, int]], window: int, what: int) -> list[float]:
    """GPUs on average in each of equal parts of the window."""
    sums, part = [0.0] * PARTS, window * SECOND / PARTS
    for step, (at, following) in zip(use, _spans(use, window), strict=True):
        for index in range(int(at / part), PARTS):
            lasts = min(following, (index + 1) * part) - max(at, index * part)
            if lasts <= 0:
                break
            sums[index] += step[what] * lasts
    return [round(each / part / 1000, 2) for each in sums]


def _spans(use: Sequence[tuple[int, int, int]], window: int) -> Iterator[tuple[int, int]]:
    for index, step in enumerate(use):
        yield step[0], use[index + 1][0] if index + 1 < len(use) else max(window * SECOND, step[0])


_SIDE: Final = ("WaitSeconds", "FinishedSeconds", "Evictions", "LostGpuHours", "NeverStarts")
HEAD: Final = (
    *("submission", "project", "priority", "gpus", "submittedSeconds", "durationSeconds"),
    *(f"{side}{what}" for side in ("before", "after") for what in _SIDE),
)


def table_of(rows: Sequence[TraceRow], before: Runs, after: Runs) -> Iterator[list[str]]:
    """A line per submission; an empty cell: it did not start, or not end."""
    for row in rows:
        gpus = f"{row.gpu * row.workers / 1000:g}"
        yield [
            row.name, row.project, row.priority, gpus, str(row.submitted), str(row.duration),
            *_cells(before[row.name]), *_cells(after[row.name]),
        ]  # fmt: skip


def _cells(run: ReplayedSubmission) -> list[str]:
    wait = "" if run.started is None else str((run.started - run.submission.submitted) // SECOND)
    finished = "" if run.finished is None else str(run.finished // SECOND)
    lost = f"{run.lost / SECOND / 3600 / 1000:.3f}"
    return [wait, finished, str(run.evictions), lost, str(run.never or "")]
