"""`replay`: recorded submissions or a trace under a proposed dictionary or quota, before and after."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rung_cli import completions
from rung_cli.config.files import write_text
from rung_cli.errors import ApiError, TimedOut, UsageError
from rung_cli.flags import OutputFlag
from rung_cli.http.client import Api, rows
from rung_cli.lookup import is_id, not_found
from rung_cli.output.formats import Columns, TableColumn
from rung_cli.output.stderr import note, progress, warn
from rung_cli.output.units import age
from rung_cli.session import session

PATH: Final = "v1/replays"
DAYS: Final = ["%Y-%m-%d"]
PAUSE: Final = 2.0
ENDED: Final = ("Ready", "Failed", "Cancelled")
STYLES: Final = {"Ready": "green", "Failed": "red"}
LARGEST: Final = 400_000
NAMED: Final = 5
Replay = Mapping[str, Any]
REPLAYS: Final[Columns] = (
    TableColumn("NAME", lambda row: row["name"]),
    TableColumn("STATUS", lambda row: row["status"], style=lambda row: STYLES.get(row["status"], "yellow")),
    TableColumn("DONE", lambda row: f"{row['percent']} %", right=True),
    TableColumn("BY", lambda row: row["createdBy"]),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
    TableColumn("ID", lambda row: row["id"], wide=100),
)
FIGURES: Final[Columns] = (
    TableColumn("SUBMISSIONS OF", lambda row: row["name"]),
    TableColumn("NUMBER", lambda row: row["before"]["submissions"], right=True),
    TableColumn("STARTED", lambda row: _both(row, "started"), right=True),
    TableColumn("MEDIAN WAIT", lambda row: _both(row, "medianWaitSeconds", " s"), right=True),
    TableColumn("P90 WAIT", lambda row: _both(row, "p90WaitSeconds", " s"), right=True),
    TableColumn("EVICTIONS", lambda row: _both(row, "evictions"), right=True),
    TableColumn("LOST GPU-HOURS", lambda row: _both(row, "lostGpuHours"), right=True),
)
Named = Annotated[str, typer.Argument(metavar="REPLAY", help="Name or id; the newest if several have the name.")]


Trace = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE", help="CSV file; default: the cluster's own record.")
]
TraceColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="OURS=THEIRS",
        help="Column of the file that is not named submitted, duration, gpus, workers, owner, priority, preemptible.",
    ),
]
Word = Annotated[
    list[str] | None,
    typer.Option("--map-priority", metavar="WORD=PRIORITY", help="Priority for a word of the file."),
]
FirstDay = Annotated[
    datetime | None, typer.Option("--from", formats=DAYS, metavar="DAY", help="First day of the record (UTC).")
]
LastDay = Annotated[
    datetime | None, typer.Option("--to", formats=DAYS, metavar="DAY", help="Last day, included; default: today.")
]
ProposedValue = Annotated[
    list[str] | None, typer.Option("--priority", metavar="NAME=VALUE", help="Proposed value of a priority.")
]
ProposedQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--quota", metavar="PROJECT/POOL=GPUS[:LIMIT]", help="Proposed deserved quota and limit of a project."
    ),
]
ProposedDepartmentQuota = Annotated[
    list[str] | None,
    typer.Option("--department-quota", metavar="DEPARTMENT/POOL=GPUS[:LIMIT]", help="The same of a department."),
]
ProposedConfiguration = Annotated[
    str,
    typer.Option(
        help="Configuration of the proposed scheduler: recommended (Volcano), classical or fair-sharing (Kueue)."
    ),
]
InCluster = Annotated[str, typer.Option(help="Cluster, by name or id.", autocompletion=completions.cluster_names)]
Timeout = Annotated[float | None, typer.Option(min=0, help="Timeout in seconds; default: none.")]


def register(app: typer.Typer) -> None:
    """Add them."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(replays)
    group.command(name="run")(run)
    group.command(name="list")(list_all)
    group.command()(show)
    group.command()(cancel)
    app.add_typer(group, name="replay")


def replays(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """Replay submissions under a proposal. Platform admins only. Without a subcommand, list the replays.

    rung replay run "high to 130" --cluster lab --from 2026-11-01 --priority high=130
    """
    if not ctx.invoked_subcommand:
        list_all(ctx, output=output)


def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Replay name.")],
    *,
    cluster: InCluster,
    trace: Trace = None,
    column: TraceColumn = None,
    word: Word = None,
    default_priority: Annotated[str, typer.Option(help="Priority of rows that name none.")] = "",
    project: Annotated[str, typer.Option(help="Project of owners that are no project.")] = "",
    first: FirstDay = None,
    last: LastDay = None,
    priority: ProposedValue = None,
    quota: ProposedQuota = None,
    department_quota: ProposedDepartmentQuota = None,
    scheduler: Annotated[str, typer.Option(help="Scheduler today; default: that of the cluster.")] = "",
    proposed_scheduler: Annotated[str, typer.Option(help="Proposed scheduler.")] = "",
    proposed_configuration: ProposedConfiguration = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")] = True,
    timeout: Timeout = None,
    output: OutputFlag = None,
) -> None:
    """Replay submissions with today's settings and with a proposal.

    rung replay run "high to 130" --cluster lab --from 2026-11-01 --priority high=130
    """
    held = session(ctx)
    out = held.output(output)
    known = {each["name"]: each["uuid"] for each in held.api.get("v1/clusters")}
    body: dict[str, Any] = {
        "name": name,
        "clusterId": known.get(cluster, cluster),
        "scheduler": scheduler or None,
        "proposedScheduler": proposed_scheduler or None,
        "proposedConfiguration": proposed_configuration or None,
        "priorities": [{"name": key, "value": _number(value)} for key, value in _pairs(priority)],
        "quotas": [
            *(_quota("project", key, value) for key, value in _pairs(quota)),
            *(_quota("department", key, value) for key, value in _pairs(department_quota)),
        ],
    }
    if trace is not None:
        body["trace"] = {"csv": _text(trace), "columns": dict(_pairs(column)), "priorities": dict(_pairs(word))}
        body["trace"] |= {"priority": default_priority or None, "project": project or None}
    else:
        body |= _period(first, last)
    made = held.api.post(PATH, body)
    found = _ended(held.api, made, timeout) if wait else made
    _print(out, found)


def list_all(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List replays, newest first.

    rung replay list
    """
    held = session(ctx)
    out = held.output(output)
    out.rows(_all(held.api), REPLAYS, name=_name, empty="No replays. Start one with: rung replay run NAME")


def show(
    ctx: typer.Context,
    name: Named,
    *,
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="Write the submissions as CSV.")] = "",
    output: OutputFlag = None,
) -> None:
    """Show the figures of a replay before and after.

    rung replay show "high to 130" --file submissions.csv
    """
    held = session(ctx)
    found = _found(held.api, name)
    if file:
        write_text(Path(file), held.api.text(f"{PATH}/{found['id']}/file"))
        note(f"Wrote {file}.")
    _print(held.output(output), found)


def cancel(ctx: typer.Context, name: Named, *, output: OutputFlag = None) -> None:
    """Cancel a replay that has not ended.

    rung replay cancel "high to 130"
    """
    held = session(ctx)
    out = held.output(output)
    found = held.api.post(f"{PATH}/{_found(held.api, name)['id']}/cancel", None)
    out.one(found, name=found["name"], human=lambda: out.line(f"Cancelled {found['name']}."))


def _print(out: Any, found: Replay) -> None:
    def figures() -> None:
        request = found["request"]
        period = f"recorded from {request['start']} to {request['end']}" if request.get("start") else "of a trace"
        proposal = "; ".join(_proposal(request)) or "no change; both runs have today's settings"
        note(f"Submissions {period}. Proposal: {proposal}.")
        if found["result"] is None:
            out.rows([found], REPLAYS, name=_name, empty="")
            return
        result = found["result"]
        lines = [{"name": "all", **result["all"]}, *result["priorities"], *result["projects"]]
        out.rows(lines, FIGURES, name=_name, empty="")
        configured = f" ({name})" if (name := result.get("proposedConfiguration")) else ""
        note(f"Model: {result['scheduler']} today, {result['proposedScheduler']}{configured} proposed.")
        for text in result.get("assumptions", ()):
            warn(text)
        for side, names in result.get("endless", {}).items():
            if names:
                named = ", ".join(names[:NAMED]) + (" and others" if len(names) > NAMED else "")
                again = f"are evicted again and again, until nothing else finishes: {named}"
                warn(f"{side} the change, submissions {again}. The figures count until then.")

    out.one(found, name=found["name"], human=figures)
    if found["statusMessage"]:
        note(found["statusMessage"])


def _proposal(request: Mapping[str, Any]) -> Iterator[str]:
    """What was proposed, as it was given."""
    if (proposed := request.get("proposedScheduler")) and proposed != request.get("scheduler"):
        yield f"scheduler {proposed}"
    if configuration := request.get("proposedConfiguration"):
        yield f"configuration {configuration}"
    for each in request.get("priorities") or ():
        yield f"priority {each['name']} {each['value']}"
    for each in request.get("quotas") or ():
        owner = f"department {name}" if (name := each.get("department")) else f"project {each['project']}"
        limit = "no limit" if (gpus := each.get("limitGpus")) is None else f"limit {gpus:g}"
        weight = "" if (share := each.get("overQuotaWeight")) is None else f", over-quota weight {share:g}"
        yield f"quota of {owner} in {each['nodePool']}: {each['deservedGpus']:g} GPUs deserved, {limit}{weight}"


def _all(api: Api) -> Sequence[Replay]:
    return rows(api, PATH, "replays", query={"sortBy": "createdAt", "sortOrder": "desc"})


def _found(api: Api, name: str) -> Replay:
    """By its id, or the newest of that name; with its figures."""
    key = name if is_id(name) else next((each["id"] for each in _all(api) if each["name"] == name), "")
    if not key:
        raise not_found(f"No replay {name}.")
    found: Replay = api.get(f"{PATH}/{key}")
    return found


def _ended(api: Api, replay: Replay, timeout: float | None) -> Replay:
    """As soon as it has ended. ApiError where it has failed, TimedOut where it takes longer."""
    ends, now = None if timeout is None else time.monotonic() + timeout, replay
    while now["status"] not in ENDED:
        progress(f"{now['name']}: {now['status']}, {now['percent']} % …")
        left = PAUSE if ends is None else ends - time.monotonic()
        if left <= 0:
            raise TimedOut(f"After {timeout:g} s {now['name']} is still {now['status']}: {now['id']}.")
        time.sleep(min(PAUSE, left))
        now = api.get(f"{PATH}/{replay['id']}")
    progress("")
    if now["status"] == "Failed":
        raise ApiError(f"{now['name']} failed: {now['statusMessage']}", status=409)
    return now


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST:
            raise UsageError(f"{file} has more than {LARGEST} bytes.")
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {file}: {error}") from None


def _pairs(given: Sequence[str] | None) -> list[tuple[str, str]]:
    found = [(key.strip(), value.strip()) for key, _sign, value in (each.partition("=") for each in given or [])]
    if bad := next((each for each, (key, value) in zip(given or [], found, strict=True) if not (key and value)), None):
        raise UsageError(f"{bad!r} is not NAME=VALUE.")
    return found


def _quota(kind: str, place: str, amounts: str) -> dict[str, Any]:
    owner, _slash, pool = place.partition("/")
    deserved, _colon, limit = amounts.partition(":")
    gpus = {"deservedGpus": _number(deserved), "limitGpus": _number(limit) if limit else None}
    return {kind: owner, "nodePool": pool, **gpus}


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number.") from None
    return int(found) if found.is_integer() else found


def _period(first: datetime | None, last: datetime | None) -> dict[str, str]:
    end = (last or datetime.now(UTC)).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=UTC)
    start = first.replace(tzinfo=UTC) if first else end - timedelta(days=6)
    return {"start": start.isoformat(), "end": (end + timedelta(days=1)).isoformat()}


def _both(row: Replay, key: str, unit: str = "") -> str:
    """Before and after; a dash where none has started."""
    sides = (row["before"][key], row["after"][key])
    return " → ".join("–" if value is None else f"{value}{unit}" for value in sides)


def _name(row: Replay) -> str:
    return str(row["name"])
