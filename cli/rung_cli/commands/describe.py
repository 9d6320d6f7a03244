"""`list`, `describe`, `events`: what there is, and why it is so."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NoReturn

import typer

from rung_cli import completions
from rung_cli.errors import UsageError
from rung_cli.flags import OutputFlag, ProjectFlag
from rung_cli.flags import Workload as WorkloadName
from rung_cli.http.client import Api, rows
from rung_cli.http.transport import Query
from rung_cli.lookup import naming_flags
from rung_cli.lookup import workload as find_workload
from rung_cli.output.formats import Columns, Format, Output, TableColumn
from rung_cli.output.stderr import note
from rung_cli.output.submission import SOURCES, remarks
from rung_cli.output.units import age, amount, clock, gpu_time, moment, phase_named, phase_style, phase_word, span
from rung_cli.session import session
from rung_cli.watch import ChangeFeed, fetch_workload

Workload = dict[str, Any]


def _at_risk(row: Mapping[str, Any]) -> str:
    """What an eviction now would lose; `~` marks an estimate, for a workload that reports no checkpoint."""
    hours = row.get("gpuHoursAtRisk")
    if hours is None:
        return ""
    return ("~" if row["gpuHoursAtRiskBasis"] == "median" else "") + gpu_time(hours)


def _pod_phase(row: Mapping[str, Any]) -> str:
    """Kubernetes leaves the phase of a terminating pod as it was."""
    until = moment(row.get("terminatingUntil"))
    return f"Terminating (grace period until {until:%H:%M:%S} UTC)" if until else str(row["k8sPhase"])


def _what(row: Mapping[str, Any]) -> str:
    """The reason of an event, or the phase that a workload entered."""
    return phase_word(row["what"]) if row["type"] == "Phase" else str(row["what"])


WORKLOADS: Final[Columns] = (
    TableColumn("NAME", lambda row: row["name"]),
    TableColumn("PROJECT", lambda row: row["projectName"]),
    TableColumn("TYPE", lambda row: row["type"], wide=90),
    TableColumn(
        "PHASE", lambda row: "Deleted" if row.get("deletedAt") else phase_word(row["phase"]), style=phase_style
    ),
    TableColumn("PRIORITY", lambda row: f"{row['priorityClassName']} {row['priority']}"),
    TableColumn("EVICTABLE", lambda row: "yes" if row["preemptible"] else "no", wide=105),
    TableColumn("GPUS", lambda row: amount(row["workloadRequestedResources"]["gpu"]["request"]), right=True),
    TableColumn("AT RISK", _at_risk, right=True, wide=120),
    TableColumn("POOL", lambda row: ", ".join(row["currentNodePools"] or row["requestedNodePools"]), wide=110),
    TableColumn("BY", lambda row: row["submittedBy"], wide=100),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
)
PODS: Final[Columns] = (
    TableColumn("POD", lambda row: row["name"]),
    TableColumn("PHASE", _pod_phase),
    TableColumn("NODE", lambda row: row.get("nodeName")),
    TableColumn("GPUS", lambda row: amount(row["requestedResources"]["gpu"]["request"]), right=True),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
)
HOLDERS: Final[Columns] = (
    TableColumn("GPUS HELD BY", lambda row: row["name"]),
    TableColumn("PROJECT", lambda row: row["projectName"]),
    TableColumn("GPUS", lambda row: amount(row["gpus"]), right=True),
    TableColumn("PRIORITY", lambda row: f"{row['priority']} {row['priorityValue']}" if row["priority"] else ""),
    TableColumn("BY", lambda row: row["owner"], wide=100),
    TableColumn("SINCE", lambda row: clock(row["runningSince"]) if row["runningSince"] else ""),
)
EVENTS: Final[Columns] = (
    TableColumn("WHEN", lambda row: clock(row["at"])),
    TableColumn("WHAT", _what, style=lambda row: "yellow" if row["type"] == "Warning" else ""),
    TableColumn("OF", lambda row: row["of"], wide=100),
    TableColumn("MESSAGE", lambda row: row["message"]),
)
FEW: Final = 50
LATEST: Final = 5
_WAITING: Final = re.compile(r"^(phase[=!]=)Waiting$", re.IGNORECASE)
"""A REST filter with the word of the pages."""


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command("list")(list_workloads)
    app.command()(describe)
    app.command()(events)


def list_workloads(
    ctx: typer.Context,
    *,
    project: ProjectFlag = "",
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="All projects.")] = False,
    phase: Annotated[
        str, typer.Option(help="Such as Running or Waiting.", autocompletion=completions.phase_names)
    ] = "",
    kind: Annotated[str, typer.Option("--type", help="Such as Training.", autocompletion=completions.type_names)] = "",
    priority: Annotated[str, typer.Option(help="Such as high.", autocompletion=completions.priority_names)] = "",
    by: Annotated[str, typer.Option(help="User who submitted it.")] = "",
    search: Annotated[str, typer.Option(help="Part of a name.")] = "",
    where: Annotated[
        list[str] | None, typer.Option("--filter", help="REST filter such as createdAt>=2026-01-01. Can be repeated.")
    ] = None,
    sort: Annotated[str, typer.Option(help="Field to sort by; prefix - for descending.")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Only deleted ones.")] = False,
    failed_to_apply: Annotated[
        bool, typer.Option("--failed-to-apply", help="Only workloads that can be retried.")
    ] = False,
    evicted: Annotated[bool, typer.Option("--evicted", help="Only workloads that were evicted before.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = FEW,
    all_of_them: Annotated[bool, typer.Option("--all", "-a", help="All pages.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then print every change, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.5, help="Seconds between looks without a change feed.")] = 2.0,
    output: OutputFlag = None,
) -> None:
    """List workloads, newest first. AT RISK is what an eviction now would lose, ~ where it is estimated.

    rung list -p llm-team --phase Waiting --sort priority

    rung list -A --watch
    """
    held = session(ctx)
    out = held.output(output)
    phase = phase_named(phase) or phase
    owner = "" if everywhere else held.project(project)
    requested = {"projectName": owner, "phase": phase, "type": kind, "priorityClassName": priority, "submittedBy": by}
    query = _query([f"{name}=={value}" for name, value in requested.items() if value] + (where or []), sort, search)
    flags = {"deleted": deleted, "failedToApply": failed_to_apply, "evicted": evicted}
    most = None if all_of_them else limit
    if watch:
        feed = ChangeFeed(held.api, owner, interval)
        _watch(out, held.api, lambda: _listed(held.api, {**query, **flags}, most), feed)
    # one more than is shown, to know whether there are more
    found = _listed(held.api, {**query, **flags}, None if most is None else most + 1)
    shown = found if most is None else found[:most]
    out.rows(shown, WORKLOADS, name=_name, empty="No workloads.")
    if len(found) > len(shown):
        note(f"Showing {len(shown)} workload{'' if len(shown) == 1 else 's'}. Use --all or --limit N for more.")


def _listed(api: Api, query: Query, most: int | None) -> list[Workload]:
    with naming_flags():
        return rows(api, "v1/workloads", "workloads", most=most, query=query)


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['projectName']}/{row['name']}"


def _watch(out: Output, api: Api, look: Callable[[], list[Workload]], feed: ChangeFeed) -> NoReturn:
    """Print the present state, then a workload again whenever a shown value changes, without end.

    What is no longer on the list is shown once more: it was deleted, or is not what was asked for any more.
    """
    add, known = out.stream(WORKLOADS, name=_name), dict[str, Workload]()
    while True:
        found = {each["id"]: each for each in look()}
        left = [fetch_workload(api, known[key]) for key in known.keys() - found.keys()]
        new = [each for key, each in found.items() if _shown(each) != _shown(known.get(key))]
        if new or left or not known:
            add(left + new)
        known = found
        feed.wait()


def _shown(row: Mapping[str, Any] | None) -> list[object]:
    """Cells that tell of a change: all but the age."""
    return [] if row is None else [column.cell(row) for column in WORKLOADS[:-1]]


def describe(ctx: typer.Context, name: WorkloadName, *, project: ProjectFlag = "", output: OutputFlag = None) -> None:
    """Show a workload: state with reason, alternatives, values with sources, pods and history.

    Of one that waits: its place in the queue, when it will probably start, and who holds the GPUs.

    rung describe train

    rung describe llm-team/train -o json
    """
    held = session(ctx)
    out = held.output(output)
    found = find_workload(held.api, name, held.project(project))
    path = f"v1/workloads/{found['id']}"
    submitted = held.api.get(f"v2/workloads/{found['id']}")
    state = held.api.get(path)
    pending = state["phase"] == "Pending"
    happened = held.api.get(f"{path}/history", limit=FEW)
    whole = {
        **state,
        "submitted": submitted["workload"],
        "syncInfo": submitted["syncInfo"],
        "cautions": submitted["cautions"],
        "pods": held.api.get(f"{path}/pods", limit=50)["pods"],
        "history": happened["records"][:LATEST],
        "historyEntries": f"{len(happened['records'])}{'+' if happened.get('next') else ''}",
        "alternatives": held.api.get(f"{path}/alternatives")["alternatives"] if pending else [],
        "waiting": held.api.get(f"{path}/waiting") if pending else None,
    }
    out.one(whole, name=f"{found['projectName']}/{found['name']}", human=lambda: _describe(out, whole))


def events(
    ctx: typer.Context,
    name: WorkloadName,
    *,
    project: ProjectFlag = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="Number of latest events.")] = FEW,
    output: OutputFlag = None,
) -> None:
    """List the events of a workload in Rung and in its cluster, oldest first.

    rung events train --limit 20
    """
    held = session(ctx)
    out = held.output(output)
    if out.format is Format.NAME:
        raise UsageError("-o name is not supported for events.")
    found = find_workload(held.api, name, held.project(project))
    out.rows(_happenings(held.api, found["id"], limit), EVENTS, name=str, empty="No events yet.")


def _query(conditions: list[str], sort: str, search: str) -> dict[str, str]:
    if any("," in each for each in conditions):
        raise UsageError("A condition cannot contain a comma. Repeat the option instead.")
    named = [_WAITING.sub(r"\1Pending", each) for each in conditions]
    query = {"filterBy": ",".join(named), "search": search}
    if sort:
        query |= {"sortBy": sort.lstrip("-"), "sortOrder": "desc" if sort.startswith("-") else "asc"}
    return {name: value for name, value in query.items() if value}


def _happenings(api: Api, workload_id: str, limit: int) -> list[dict[str, str]]:
    """Rung's history and the cluster's events as one list."""
    path = f"v1/workloads/{workload_id}"
    records = [_record(each) for each in api.get(f"{path}/history", limit=limit)["records"]]
    seen = [_event(each) for each in api.get(f"{path}/events", limit=limit)["events"]]
    return sorted(records + seen, key=lambda each: each["at"])[-limit:]


def _record(record: Mapping[str, Any]) -> dict[str, str]:
    at, spec = record["meta"]["creationTimestamp"], record["spec"]
    if "phaseUpdate" not in spec:
        return {**_event(spec["event"]), "at": at, "of": spec["event"]["source"]}
    change = spec["phaseUpdate"]
    of = change.get("source", "rung")  # an older portal does not say who did it
    return {"at": at, "what": change["phase"], "of": of, "type": "Phase", "message": change["phaseMessage"]}


def _event(event: Mapping[str, Any]) -> dict[str, str]:
    involved = event.get("involvedObject") or {}
    of = f"{involved.get('kind', '')} {involved.get('name', '')}".strip()
    what = event.get("reason") or event["type"]
    return {"at": event["createdAt"], "what": what, "of": of, "type": event["type"], "message": event["message"]}


def _describe(out: Output, found: Mapping[str, Any]) -> None:
    out.line(f"{found['projectName']}/{found['name']}", style="bold")
    out.pairs(_status(found) + _values(found))
    for each in found["alternatives"]:
        out.line(f"  Alternative: {each['words']}", style="green")
    if found["waiting"]:
        _waiting(out, found["waiting"])
    metadata = found["submitted"]["metadata"]
    remarks(out, metadata.get("discarded") or [], metadata.get("warnings") or [])
    for each in found["cautions"]:
        out.line(f"  Warning: {each}", style="yellow")
    if found["pods"]:
        out.line()
        out.table(found["pods"], PODS)
    if found["history"]:
        out.line()
        out.table([_record(each) for each in reversed(found["history"])], EVENTS)
        if found["historyEntries"] != str(len(found["history"])):
            name = f"{found['projectName']}/{found['name']}"
            out.line(f"Latest {LATEST} of {found['historyEntries']} entries. For more, run: rung events {name}")


def _waiting(out: Output, found: Mapping[str, Any]) -> None:
    """Places in queues, the start estimate with its basis, the next node pool, and who holds the GPUs."""
    for where, rank in (("its project's queue", found["projectQueue"]), ("the pool", found["poolQueue"])):
        if rank:
            out.line(f"  Position {rank['position']} of {rank['length']} in {where}, by priority, then by age")
    if estimate := found["startEstimate"]:
        known = f"median {clock(estimate['median'])}, p90 {clock(estimate['p90'])}" if estimate["median"] else ""
        of = f" in {found['nodePool']} alone" if known and found.get("nextPool") else ""
        out.line(
            f"  Start estimate{of}: {known or 'none: ' + estimate['reason']}", style="green" if known else "yellow"
        )
        if estimate["basis"]:
            out.line(f"  Based on: {estimate['basis']}", style="dim")
        if estimate["calibration"]:
            out.line(f"  Earlier estimates: {estimate['calibration']}", style="dim")
    if move := found.get("nextPool"):
        out.line(f"  {move['sentence']}")
    if found["holders"]:
        out.line()
        out.table(found["holders"], HOLDERS)


def _status(found: Mapping[str, Any]) -> list[tuple[str, object]]:
    sync = found["syncInfo"]
    why = [each["userMessage"] for each in found.get("pendingSchedulingMessages") or []]
    return [
        ("Phase", f"{phase_word(found['phase'])} since {clock(found['phaseUpdatedAt'])}"),
        ("Why", _waits_because(found["waiting"] or {}) or "\n".join(why) or found["phaseMessage"]),
        ("Type", f"{found['type']} ({found['category']})" if found["category"] else found["type"]),
        ("Department", found["departmentName"]),
        ("Submitted", f"{clock(found['createdAt'])} by {found['submittedBy']}"),
        ("Ended", clock(found.get("completedAt"))),
        ("Deleted", clock(found.get("deletedAt"))),
        ("Sync", sync["status"] + (f": {sync['message']}" if sync["message"] else "")),
        ("Id", found["id"]),
    ]


def _waits_because(waiting: Mapping[str, Any]) -> str:
    """The sentence of its page; below it what the scheduler reported last, with its age."""
    message, at = waiting.get("schedulerMessage"), moment(waiting.get("schedulerMessageAt"))
    since = f" ({span((datetime.now(UTC) - at).total_seconds())} ago)" if at else ""
    return "\n".join(filter(None, (waiting.get("sentence"), message and f"Scheduler's last message{since}: {message}")))


def _values(found: Mapping[str, Any]) -> list[tuple[str, object]]:
    metadata, requested = found["submitted"]["metadata"], found["workloadRequestedResources"]
    held = amount(found["allocatedResources"]["gpu"])
    pools = ", ".join(found["requestedNodePools"])
    at = ", ".join(found["currentNodePools"])
    return [
        ("Priority", f"{found['priorityClassName']} {found['priority']}{_from(found.get('prioritySource'))}"),
        ("Preemptibility", f"{metadata['effectivePreemptibility']}{_from(found.get('preemptibilitySource'))}"),
        ("GPUs", f"{amount(requested['gpu']['request'])} requested, {held} allocated"),
        ("Node pools", f"{pools} (now {at})" if at and at != pools else pools),
        ("Pods", f"{found['runningPods']} of {found['requestedPods']['number']} running"),
        ("Waited", span(found["totalPendingTimeSeconds"])),
        ("Ran", span(found["totalRunningTimeSeconds"])),
    ]


def _from(source: object) -> str:
    return f" ({SOURCES.get(str(source), source)})" if source else ""
