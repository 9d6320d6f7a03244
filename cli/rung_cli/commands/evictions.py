"""`matrix`: who can evict whom. `evictions`: who was evicted by whom. `activity`: evictions and waits of a cluster in
numbers. `borrowing`: who borrows GPUs from whom."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from rung_cli import completions
from rung_cli.errors import UsageError
from rung_cli.flags import ClusterFlag, OutputFlag, ProjectFlag
from rung_cli.http.client import rows
from rung_cli.lookup import NONE_CHOSEN, naming_flags
from rung_cli.lookup import cluster as find_cluster
from rung_cli.lookup import department as find_department
from rung_cli.lookup import project as find_project
from rung_cli.output.formats import Columns, Output, TableColumn
from rung_cli.output.stderr import note
from rung_cli.output.units import age, amount, clock, gpu_time, gpus
from rung_cli.output.units import span as lasting
from rung_cli.session import session

PLACES: Final[Mapping[str, str]] = {
    "own": "in the same project",
    "over": "in another project above its deserved quota",
    "within": "in another project within its deserved quota",
}
RECLAIMS: Final[Columns] = (
    TableColumn("POOL", lambda row: row["nodePool"]),
    TableColumn("CAN TAKE BACK", lambda row: _queue(row["taker"])),
    TableColumn("FROM", lambda row: _queue(row["giver"])),
    TableColumn("UP TO", lambda row: gpus(row["gpus"]) + (" each" if row["count"] > 1 else ""), right=True),
    TableColumn("RULE", lambda row: "fair share" if row.get("rule") == "fairShare" else "deserved quota", wide=100),
)
LOANS: Final[Columns] = (
    TableColumn("POOL", lambda row: row["nodePool"]),
    TableColumn("DIRECTION", lambda row: "borrowed from" if row["direction"] == "borrowed" else "lent to"),
    TableColumn("WITH", lambda row: row["counterparty"]),
    TableColumn("GPUS AT LAST SAMPLE", lambda row: amount(row["gpus"]), right=True),
    TableColumn("SINCE", lambda row: f"{age(row['since'])} ago" if row["since"] else "ended", right=True),
    TableColumn("GPU HOURS", lambda row: amount(row["gpuHours"]), right=True),
)
EVICTIONS: Final[Columns] = (
    TableColumn("WHEN", lambda row: clock(row["at"])),
    TableColumn("WORKLOAD", lambda row: row["workloadName"]),
    TableColumn("PROJECT", lambda row: row["projectName"]),
    TableColumn("EVICTED BY", lambda row: row["preemptorName"] or "unknown or not visible"),
    TableColumn("CAUSE", lambda row: row["cause"]),
    TableColumn("RAN", lambda row: lasting(row["ranSeconds"]), right=True),
    TableColumn("LOST", lambda row: gpu_time(row["lostGpuHours"]), right=True),
    TableColumn("CLUSTER", lambda row: row["clusterName"] + (" (simulated)" if row["simulated"] else ""), wide=120),
    TableColumn("POOL", lambda row: row["nodePool"], wide=130),
    TableColumn("POD", lambda row: row["podName"], wide=180),
)
WAITING: Final[Columns] = (
    TableColumn("REASON TO WAIT", lambda row: row["reason"]),
    TableColumn("WORKLOADS", lambda row: row["workloads"], right=True),
    TableColumn("GPUS", lambda row: amount(row["gpus"]), right=True),
    TableColumn("LONGEST", lambda row: age(row["since"]), right=True),
)
PERIODS: Final[Columns] = (
    TableColumn("EVICTIONS FROM (UTC)", lambda row: row["at"][:16].replace("T", " ")),
    TableColumn("PREEMPT", lambda row: row["causes"]["preempt"], right=True),
    TableColumn("RECLAIM", lambda row: row["causes"]["reclaim"], right=True),
    TableColumn("UNKNOWN", lambda row: row["causes"]["unknown"], right=True),
    TableColumn("LOST", lambda row: gpu_time(row["lostGpuHours"]), right=True),
)
WAITS: Final[Columns] = (
    TableColumn("PRIORITY", lambda row: f"{row['priority']} {row['value']}"),
    TableColumn("STARTED", lambda row: row["workloads"], right=True),
    TableColumn("MEDIAN WAIT", lambda row: lasting(row["medianSeconds"]), right=True),
    TableColumn("P90", lambda row: lasting(row["p90Seconds"]), right=True),
)
FEW: Final = 50
"""Evictions that are listed unless more are asked for."""


class Span(StrEnum):
    """What `--span` takes."""

    DAY = "24h"
    WEEK = "7d"


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(matrix)
    app.command()(evictions)
    app.command()(activity)
    app.command()(borrowing)


def matrix(
    ctx: typer.Context, *, cluster: ClusterFlag = "", project: ProjectFlag = "", output: OutputFlag = None
) -> None:
    """Show who can evict whom: priority by priority with the rule of each cell, and what projects can take back now.

    rung matrix --cluster atlas

    rung matrix -p llm-team -o json
    """
    held = session(ctx)
    out = held.output(output)
    owner = project if cluster else held.project(project)
    if not (cluster or owner):
        raise UsageError("Name a cluster or a project.", hint="rung matrix --cluster NAME")
    query: dict[str, str] = {"clusterId": find_cluster(held.api, cluster)["uuid"]} if cluster else {}
    if owner:
        query["project"] = find_project(held.api, owner)["name"]
    found = held.api.get("v1/eviction-matrix", **query)
    out.one(found, name=found["cluster"], human=lambda: _matrix(out, found))


def _matrix(out: Output, found: Mapping[str, Any]) -> None:
    simulated = " (simulated)" if found["simulated"] else ""
    out.line(f"{found['cluster']}, {found['scheduler']}{simulated}. Rows evict columns.", style="dim")
    for table in found["tables"]:
        out.line()
        out.line(f"Victim {', or '.join(PLACES[each] for each in table['relations'])}:", style="bold")
        if table["uniform"]:
            first = table["cells"][0]
            out.line(f"  {_cell(first)}, whatever the priorities.")
        else:
            out.table(list(_rows(found, table)), _columns(found))
    out.line()
    for rule in found["rules"]:
        out.line(f"[{rule['number']}] {rule['text']}")
    for text in (*found["notes"], found["reclaimRule"]):
        out.line(text)
    if found["reclaims"]:
        out.line()
        out.table(found["reclaims"], RECLAIMS)
    if found["reclaimsLeftOut"]:
        out.line(f"{found['reclaimsLeftOut']} smaller ones are not listed.")


def _rows(found: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per priority: its name, and a cell by the name of each victim's priority."""
    for priority in found["priorities"]:
        cells = (each for each in table["cells"] if each["candidate"] == priority["name"])
        yield {"": f"{priority['name']} {priority['value']}", **{each["victim"]: _cell(each) for each in cells}}


def _columns(found: Mapping[str, Any]) -> Columns:
    def column(name: str) -> TableColumn:
        return TableColumn(name.upper(), lambda row: row[name])

    return (TableColumn("EVICTS", lambda row: row[""]), *(column(each["name"]) for each in found["priorities"]))


def _cell(cell: Mapping[str, Any]) -> str:
    words = {"all": "yes", "preemptible": "preemptible", "none": "no"}[cell["evicts"]]
    return f"{words} [{','.join(map(str, cell['rules']))}]"


def _queue(queue: Mapping[str, Any]) -> str:
    if queue["gpusUsed"] is None:
        return str(queue["name"])
    deserved = "unlimited" if queue["gpusDeserved"] is None else f"{amount(queue['gpusDeserved'])} deserved"
    return f"{queue['name']} ({amount(queue['gpusUsed'])} in use, {deserved})"


def evictions(
    ctx: typer.Context,
    *,
    cluster: ClusterFlag = "",
    project: ProjectFlag = "",
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="All projects you can see.")] = False,
    workload: Annotated[str, typer.Option(help="Only evictions of the workload of this name.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = FEW,
    all_of_them: Annotated[bool, typer.Option("--all", help="All pages.")] = False,
    output: OutputFlag = None,
) -> None:
    """List evicted pods of your projects, newest first: by whom, why, and what was lost.

    rung evictions -p llm-team

    rung evictions -A --cluster atlas --all -o json | jq 'map(.lostGpuHours) | add'
    """
    held = session(ctx)
    out = held.output(output)
    owner = "" if everywhere else held.project(project)
    clauses = [
        f"clusterId=={find_cluster(held.api, cluster)['uuid']}" if cluster else "",
        f"projectName=={owner}" if owner else "",
        f"workloadName=={workload}" if workload else "",
    ]
    query = {"filterBy": ",".join(filter(None, clauses))}
    with naming_flags():
        found = rows(held.api, "v1/evictions", "evictions", query=query, most=None if all_of_them else limit + 1)
    shown = found if all_of_them else found[:limit]
    out.rows(shown, EVICTIONS, name=lambda row: row["workloadName"], empty="No evictions.")
    if len(found) > len(shown):
        note(f"Showing the newest {len(shown)}. Use --all or --limit N for more.")


def activity(
    ctx: typer.Context,
    *,
    cluster: ClusterFlag,
    span: Annotated[Span, typer.Option(help="How far back.")] = Span.DAY,
    output: OutputFlag = None,
) -> None:
    """Show what waits in a cluster and why, evictions over time, and how long workloads waited.

    rung activity --cluster atlas --span 7d
    """
    held = session(ctx)
    out = held.output(output)
    place = find_cluster(held.api, cluster)["uuid"]
    found = held.api.get(f"v1/clusters/{place}/activity", span=span.value)
    out.one(found, name=found["clusterName"], human=lambda: _activity(out, found))


def _activity(out: Output, found: Mapping[str, Any]) -> None:
    simulated = " (simulated)" if found["simulated"] else ""
    out.line(f"{found['clusterName']}{simulated}: counts of all projects.", style="dim")
    evicted = [each for each in found["evictions"] if any(each["causes"].values())]
    for table, columns, empty in (
        (found["waiting"], WAITING, "No workload waits."),
        (evicted, PERIODS, "No evictions."),
        (found["waits"], WAITS, "No workload started."),
    ):
        out.line()
        if table:
            out.table(table, columns)
        else:
            out.line(empty)


def borrowing(
    ctx: typer.Context,
    *,
    project: ProjectFlag = "",
    department: Annotated[
        str, typer.Option(help="Its projects together.", autocompletion=completions.department_names)
    ] = "",
    span: Annotated[Span, typer.Option(help="How far back.")] = Span.DAY,
    output: OutputFlag = None,
) -> None:
    """Show from whom a project or department borrows GPUs, to whom it lends, and what would be reclaimed first.

    rung borrowing -p llm-team --span 7d

    rung borrowing --department research
    """
    held = session(ctx)
    out = held.output(output)
    owner = project if department else held.project(project)
    if project and department:
        raise UsageError("Name a project or a department, not both.")
    if not (owner or department):
        raise UsageError(NONE_CHOSEN)
    unit = find_department(held.api, department) if department else find_project(held.api, owner)
    path = f"v1/org-unit/{'departments' if department else 'projects'}/{unit['id']}/borrowing"
    found = held.api.get(path, span=span.value)
    out.one(found, name=unit["name"], human=lambda: _borrowing(out, found))


def _borrowing(out: Output, found: Mapping[str, Any]) -> None:
    out.line(found["basis"], style="dim")
    empty = "Nothing was borrowed or lent in this period." if found["end"] else "No samples in this period."
    out.rows(found["loans"], LOANS, name=lambda row: row["counterparty"], empty=empty)
    for each in found["reclaimOrder"]:
        out.line(f"Reclaimed first in {each['nodePool']}: {each['workload']} ({amount(each['gpus'])} GPUs)")
    if found["end"]:
        out.line(f"Last sample {age(found['end'])} ago.", style="dim")
