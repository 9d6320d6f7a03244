"""`reports`: what was used in a stretch of time, as CSV files that the portal's workers make."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rung_cli import completions
from rung_cli.config.files import write_text
from rung_cli.errors import ApiError, TimedOut, UsageError
from rung_cli.flags import OutputFlag
from rung_cli.http.client import Api, rows
from rung_cli.lookup import is_id, not_found
from rung_cli.lookup import project as find_project
from rung_cli.output.formats import Columns, Format, TableColumn
from rung_cli.output.stderr import confirm, note, progress
from rung_cli.output.units import age, clock, moment
from rung_cli.session import session

PATH: Final = "v1/org-unit/reports"
DAY: Final = timedelta(days=1)
FIRST: Final = 0.5
LONGEST: Final = 5.0
DAYS: Final = ["%Y-%m-%d"]
STYLES: Final = {"Ready": "green", "Failed": "red"}
Report = Mapping[str, Any]


class ReportGrouping(StrEnum):
    """What `--by` takes."""

    PROJECT = "project"
    DEPARTMENT = "department"
    NODE_POOL = "node-pool"
    CLUSTER = "cluster"


GROUPS: Final = {
    ReportGrouping.PROJECT: "Project",
    ReportGrouping.DEPARTMENT: "Department",
    ReportGrouping.NODE_POOL: "Nodepool",
    ReportGrouping.CLUSTER: "Cluster",
}
REPORTS: Final[Columns] = (
    TableColumn("NAME", lambda row: row["name"]),
    TableColumn("FROM", lambda row: _day(row["start"])),
    TableColumn("TO", lambda row: _day(row["end"], last=True)),
    TableColumn("FOR EACH", lambda row: row["groupBy"] or GROUPS[ReportGrouping.CLUSTER]),
    TableColumn("OF", lambda row: ", ".join(row["filterBy"]), wide=90),
    TableColumn("STATUS", lambda row: row["status"], style=lambda row: STYLES.get(row["status"], "yellow")),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
    TableColumn("ID", lambda row: row["id"], wide=130),
)
Named = Annotated[
    str,
    typer.Argument(
        metavar="REPORT",
        help="Name or id; the newest if several have the name.",
        autocompletion=completions.report_names,
    ),
]
OneProject = Annotated[
    str,
    typer.Option("--project", "-p", help="Only this project, by name or id.", autocompletion=completions.project_names),
]
OneDepartment = Annotated[str, typer.Option(help="Only this department.", autocompletion=completions.department_names)]
OneCluster = Annotated[
    str, typer.Option(help="Only this cluster, by name or id.", autocompletion=completions.cluster_names)
]
Timeout = Annotated[float | None, typer.Option(min=0, help="Timeout in seconds; default: none.")]


def register(app: typer.Typer) -> None:
    """Add them."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(reports)
    for each in (make, get, delete):
        group.command()(each)
    app.add_typer(group, name="reports")


def reports(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List your usage reports, newest first. Subcommands create, download and delete them.

    rung reports -o json
    """
    if ctx.invoked_subcommand:
        return
    held = session(ctx)
    out = held.output(output)
    out.rows(_all(held.api), REPORTS, name=_name, empty="No reports. Create one with: rung reports make NAME")


def make(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Report name.")],
    *,
    first: Annotated[
        datetime | None,
        typer.Option("--from", formats=DAYS, metavar="DAY", help="First day (UTC); default: six days before the last."),
    ] = None,
    last: Annotated[
        datetime | None,
        typer.Option("--to", formats=DAYS, metavar="DAY", help="Last day, included; default: today."),
    ] = None,
    by: Annotated[ReportGrouping, typer.Option(help="Grouping of the rows.")] = ReportGrouping.PROJECT,
    project: OneProject = "",
    department: OneDepartment = "",
    cluster: OneCluster = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the report is ready.")] = True,
    timeout: Timeout = None,
    output: OutputFlag = None,
) -> None:
    """Create a usage report and wait until it is ready.

    rung reports make june --from 2026-06-01 --to 2026-06-30 && rung reports get june --file june.csv
    """
    held = session(ctx)
    out = held.output(output)
    requested = {"name": name, **_stretch(first, last), "groupBy": GROUPS[by]}
    made = held.api.post(PATH, {**requested, "filterBy": _places(held.api, project, department, cluster)})
    found = _made(held.api, made, timeout) if wait else made
    out.rows([found], REPORTS, name=_name, empty="")
    _remark(found)


def get(
    ctx: typer.Context,
    name: Named,
    *,
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="Output file; default: stdout.")] = "",
    timeout: Timeout = None,
    output: OutputFlag = None,
) -> None:
    """Download the CSV file of a report when it is ready. With -o, print the report's metadata instead.

    rung reports get june --file june.csv
    """
    held = session(ctx)
    out = held.output(output)
    found = _found(held.api, name)
    if output not in {None, Format.TABLE}:  # a profile's way to show lists is not meant
        out.one(found, name=found["name"], human=lambda: None)
        return
    text = held.api.text(f"{PATH}/{_made(held.api, found, timeout)['id']}/file")
    if file and file != "-":
        write_text(Path(file), text)
        note(f"Wrote {file}.")
    else:
        out.names(text.removesuffix("\r\n").split("\r\n"))
    _remark(found)


def delete(
    ctx: typer.Context,
    name: Named,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: OutputFlag = None,
) -> None:
    """Delete a report and its file. Asks for confirmation on a terminal.

    rung reports delete june --yes
    """
    held = session(ctx)
    out = held.output(output)
    found = _found(held.api, name)
    if not yes:
        lines = [f"  {found['name']}  {_day(found['start'])} to {_day(found['end'], last=True)}  {found['id']}"]
        confirm(lines, "Delete this report?", hint="Use --yes to delete in scripts.", declined="Nothing was deleted.")
    held.api.delete(f"{PATH}/{found['id']}")
    out.one(found, name=found["name"], human=lambda: out.line(f"Deleted {found['name']}."))


def _all(api: Api) -> Sequence[Report]:
    return rows(api, PATH, "reports", query={"sortBy": "createdAt", "sortOrder": "desc"})


def _found(api: Api, name: str) -> Report:
    """By id, or the newest of that name, with a note if there are several."""
    if is_id(name):
        known: Report = api.get(f"{PATH}/{name}")
        return known
    named = [each for each in _all(api) if each["name"] == name]
    if not named:
        raise not_found(f"No report {name}.")
    if len(named) > 1:
        note(f"{len(named)} reports are named {name}. Using the newest, of {clock(named[0]['createdAt'])}.")
    return named[0]


def _made(api: Api, report: Report, timeout: float | None) -> Report:
    """As soon as it is Ready. ApiError where it has failed, TimedOut where it takes longer."""
    ends, pause, now = None if timeout is None else time.monotonic() + timeout, FIRST, report
    while now["status"] not in {"Ready", "Failed"}:
        progress(f"{now['name']}: {now['status']} …")
        left = LONGEST if ends is None else ends - time.monotonic()
        if left <= 0:
            raise TimedOut(f"After {timeout:g} s {now['name']} is still {now['status']}: {now['id']}.")
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST)
        now = api.get(f"{PATH}/{report['id']}")
    progress("")
    if now["status"] == "Failed":
        raise ApiError(f"{now['name']} failed: {now['statusMessage']}", status=409)
    return now


def _stretch(first: datetime | None, last: datetime | None) -> dict[str, str]:
    """Whole days, the last one only as far as it has come."""
    now = datetime.now(UTC)
    end = last.replace(tzinfo=UTC) if last else now.replace(hour=0, minute=0, second=0, microsecond=0)
    start = first.replace(tzinfo=UTC) if first else end - 6 * DAY
    if end < start:
        raise UsageError(f"--to {end:%Y-%m-%d} is before --from {start:%Y-%m-%d}.")
    until = min(end + DAY, now) if start < now else end + DAY
    return {"start": start.isoformat(), "end": until.isoformat()}


def _places(api: Api, project: str, department: str, cluster: str) -> list[str]:
    """The filters of a report."""
    chosen = {"departmentName": department}
    if project:
        chosen["projectName"] = find_project(api, project)["name"]
    if cluster:
        known = {each["name"]: each["uuid"] for each in api.get("v1/clusters")}
        chosen["clusterId"] = known.get(cluster, cluster)
    return [f"{field}=={value}" for field, value in chosen.items() if value]


def _remark(report: Report) -> None:
    """How much of the time was measured."""
    if report["statusMessage"]:
        note(report["statusMessage"])


def _name(row: Report) -> str:
    return str(row["name"])


def _day(text: str, *, last: bool = False) -> str:
    """In UTC; `last`: the one that ends then."""
    found = moment(text)
    return f"{found.astimezone(UTC) - timedelta(microseconds=last):%Y-%m-%d}" if found else ""
