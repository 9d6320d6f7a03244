"""`quota`: what a project deserves, uses and could start; requests for more."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from rung_cli import completions
from rung_cli.commands.plan import PATH as PLANS
from rung_cli.commands.plan import naming_plan_option, print_plan
from rung_cli.errors import ApiError, UsageError
from rung_cli.flags import OutputFlag, ProjectFlag, Yes
from rung_cli.http.client import Api, rows
from rung_cli.lookup import project as find_project
from rung_cli.manifests.kinds.org_units import UNITS as MEMORY
from rung_cli.output.formats import Columns, Format, Output, TableColumn
from rung_cli.output.stderr import confirm, note
from rung_cli.output.units import age, amount, gpus, limit
from rung_cli.session import session

UNITS: Final = {"gpu": "GPUs", "cpu": "CPU cores", "memory": "GB of memory"}
DIVISORS: Final = {"gpu": 1.0, "cpu": 1000.0, "memory": 1000.0}
FIXED: Final = "allocatedNonPreemptible"


class Resource(StrEnum):
    """What `--resource` takes."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"


QUOTA: Final[Columns] = (
    TableColumn("PROJECT", lambda row: row["project"]),
    TableColumn("POOL", lambda row: row["pool"]),
    TableColumn("DESERVED", lambda row: amount(row["deserved"]), right=True),
    TableColumn("LIMIT", lambda row: limit(row["limit"]), right=True),
    TableColumn("IN USE", lambda row: amount(row["allocated"]), right=True),
    TableColumn("NON-PREEMPTIBLE", lambda row: amount(row["nonPreemptible"]), right=True, wide=75),
    TableColumn("WAITING", lambda row: amount(row["waiting"]), right=True),
    TableColumn("BORROWED", lambda row: amount(row["borrowed"]) if row["borrowed"] else "", right=True, wide=80,
                style=lambda row: "yellow" if row["borrowed"] else ""),
    TableColumn(
        "CAN START", lambda row: "" if row["canStart"] is None else amount(row["canStart"]), right=True, wide=90
    ),
    TableColumn("WEIGHT", lambda row: amount(row["weight"]), right=True, wide=100),
    TableColumn("RANK", lambda row: row["rank"], wide=100),
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add them."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(quota)
    group.command("request")(request_quota)
    group.command("list")(list_requests)
    group.command("show")(show_request)
    group.command("approve")(approve)
    group.command("decline")(decline)
    group.command("withdraw")(withdraw)
    app.add_typer(group, name="quota")


def quota(
    ctx: typer.Context,
    *,
    project: ProjectFlag = "",
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="All projects you can see.")] = False,
    resource: Annotated[Resource, typer.Option(help="Resource to show.")] = Resource.GPU,
    output: OutputFlag = None,
) -> None:
    """Show deserved, used, requested and borrowed quota of a project, and what can start now, per node pool.

    Subcommands request more quota and decide about requests.

    rung quota -p llm-team --resource memory
    """
    if ctx.invoked_subcommand:
        return
    held = session(ctx)
    out = held.output(output)
    owner = held.project(project)
    if everywhere or not owner:
        query = {"sortBy": "name", "startable": "true"}
        found = rows(held.api, "v1/org-unit/projects", "projects", query=query)
    else:
        found = [find_project(held.api, owner, startable="true")]
    lines = [line for each in found for line in quota_of(each, resource.value)]
    if out.format is Format.TABLE:
        out.line(f"In {UNITS[resource.value]}, from the last observation.", style="dim")
    out.rows(lines, QUOTA, name=lambda row: f"{row['project']}/{row['pool']}", empty="No project has a node pool.")
    if out.format is Format.TABLE and not everywhere:
        for row in lines:
            if row["startable"]:
                out.line(row["startable"] if len(found) == 1 else f"{row['project']}: {row['startable']}")


def quota_of(project: Mapping[str, Any], resource: str) -> list[dict[str, Any]]:
    """One line per node pool: GPUs, CPU cores or gigabytes."""
    used = {each["nodePoolId"]: each for each in project["status"].get("nodePoolQuotaStatuses") or []}
    return [
        _line(project["name"], each, used.get(each["nodePool"]["id"], {}), resource) for each in project["resources"]
    ]


def _line(project: str, entry: Mapping[str, Any], used: Mapping[str, Any], resource: str) -> dict[str, Any]:
    own = entry.get(resource) or {}
    scale = MEMORY.get(str(own.get("units")), MEMORY["MB"]) / MEMORY["MB"] if resource == "memory" else 1.0
    deserved, most = (_scaled(own.get(name), scale / DIVISORS[resource]) for name in ("deserved", "limit"))
    startable = used.get("startable") or {}
    now = {name: (used.get(name) or {}).get(resource, 0) / DIVISORS[resource] for name in _USES}
    return {
        "project": project,
        "pool": entry["nodePool"]["name"],
        "resource": resource,
        "deserved": deserved,
        "limit": most,
        "allocated": now["allocated"],
        "nonPreemptible": now["allocatedNonPreemptible"],
        "waiting": round(max(0.0, now["requested"] - now["allocated"]), 3),
        "borrowed": round(max(0.0, now["allocated"] - deserved), 3) if deserved is not None else 0,
        "canStart": startable.get("gpus") if resource == Resource.GPU else None,
        "canStartNonPreemptible": startable.get("nonPreemptible") if resource == Resource.GPU else None,
        "startable": startable.get("sentence", "") if resource == Resource.GPU else "",
        "weight": own.get("overQuotaWeight"),
        "rank": entry.get("rank") or entry.get("priority"),
    }


_USES: Final[Sequence[str]] = ("allocated", FIXED, "requested")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 3) if value >= 0 else value


def _gpus_granted(row: Mapping[str, Any]) -> float | None:
    return (row["decision"] or {}).get("gpus")


REQUESTS: Final = "v1/quota-requests"
STATES: Final = {"open": "yellow", "approved": "green", "declined": "red"}
REQUEST_COLUMNS: Final[Columns] = (
    TableColumn("ID", lambda row: row["id"]),
    TableColumn("PROJECT", lambda row: row["projectName"]),
    TableColumn("POOL", lambda row: row["nodePoolName"]),
    TableColumn("GPUS", lambda row: amount(row["gpus"]), right=True),
    TableColumn("GRANTED", lambda row: amount(_gpus_granted(row)), right=True),
    TableColumn("UNTIL", lambda row: (row["decision"] if _gpus_granted(row) else row)["until"] or "", wide=90),
    TableColumn("STATE", lambda row: row["state"], style=lambda row: STATES.get(row["state"], "dim")),
    TableColumn("BY", lambda row: row["createdBy"], wide=100),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
    TableColumn("REASON", lambda row: row["reason"], wide=130),
)
RequestId = Annotated[str, typer.Argument(metavar="REQUEST", help="Id of the request.")]
Until = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DAY", help="Last day (UTC); default: as requested.")
]


def request_quota(
    ctx: typer.Context,
    gpu_count: Annotated[float, typer.Argument(metavar="GPUS", help="GPUs on top of the deserved quota.")],
    *,
    project: ProjectFlag = "",
    pool: Annotated[
        str, typer.Option(help="Node pool; default: the project's only one.", autocompletion=completions.pool_names)
    ] = "",
    until: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DAY", help="Last day (UTC); default: no end.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for those who decide.")],
    output: OutputFlag = None,
) -> None:
    """Request more quota for a project and show what it would change.

    rung quota request 4 -p llm-team --pool h100 --until 2026-12-31 --reason "Paper deadline"
    """
    held = session(ctx)
    out = held.output(output)
    owner = find_project(held.api, held.project(project))
    body = {
        "projectId": str(owner["id"]),
        "nodePoolId": _pool_id(owner, pool),
        "gpus": gpu_count,
        "reason": reason,
        **({"until": f"{until:%Y-%m-%d}"} if until else {}),
    }
    _show(out, held.api.post(REQUESTS, body))


def list_requests(
    ctx: typer.Context,
    *,
    to_decide: Annotated[bool, typer.Option("--to-decide", help="Only open requests that you may decide.")] = False,
    output: OutputFlag = None,
) -> None:
    """List the quota requests of your projects, newest first.

    rung quota list --to-decide
    """
    held = session(ctx)
    out = held.output(output)
    found = rows(held.api, REQUESTS, "quotaRequests", query={"toDecide": "true"} if to_decide else {})
    empty = "No requests to decide." if to_decide else "No quota requests. Ask with: rung quota request GPUS"
    out.rows(found, REQUEST_COLUMNS, name=lambda row: row["id"], empty=empty)


def show_request(ctx: typer.Context, request: RequestId, *, output: OutputFlag = None) -> None:
    """Show a quota request with its impact, decision and sync state.

    rung quota show 00000000-0000-4000-8000-000000000001
    """
    held = session(ctx)
    _show(held.output(output), held.api.get(f"{REQUESTS}/{request}"))


def approve(
    ctx: typer.Context,
    request: RequestId,
    *,
    gpu_count: Annotated[float | None, typer.Option("--gpus", help="Grant fewer GPUs; default: as requested.")] = None,
    until: Until = None,
    reason: Annotated[str, typer.Option(help="Comment for the author.")] = "",
    as_plan: Annotated[
        bool, typer.Option("--plan", help="Create the plan of this approval and show it. Nothing is granted yet.")
    ] = False,
    yes: Yes = False,
    output: OutputFlag = None,
) -> None:
    """Grant a quota request, or part of it, on the impact shown. Rejected if quotas change in between.

    Where a second admin has to approve the change, create its plan with --plan.

    rung quota approve 00000000-0000-4000-8000-000000000001 --gpus 2 --until 2026-12-15
    """
    held = session(ctx)
    out = held.output(output)
    path = f"{REQUESTS}/{request}/approve"
    body: dict[str, Any] = {"reason": reason} if reason else {}
    body |= {"gpus": gpu_count} if gpu_count is not None else {}
    body |= {"until": f"{until:%Y-%m-%d}"} if until else {}
    if as_plan:
        change = {"request": request, **body}
        print_plan(out, held.api.post(PLANS, {"kind": "quota_request", "change": change}))
        return
    body["base"] = held.api.get(f"{REQUESTS}/{request}")["base"]
    if not yes:
        shown = _lines(_preview(held.api, path, body))
        confirm(shown, "Approve this request?", hint="Use --yes in scripts.", declined="Nothing was approved.")
    with naming_plan_option():
        answer = held.api.post(path, body)
    _show(out, answer)


def _preview(api: Api, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
    """The request as it would be approved; where quotas have changed since its impact was computed, on those of now."""
    try:
        found: Mapping[str, Any] = api.post(path, body, dry_run=True)
    except ApiError as refusal:
        if refusal.answer.get("details") != "base_moved":
            raise
        note("Quotas have changed since the impact was computed. This is the new one.")
        body["base"] = refusal.answer["base"]
        found = api.post(path, body, dry_run=True)
    return found


def decline(
    ctx: typer.Context,
    request: RequestId,
    *,
    reason: Annotated[str, typer.Option(help="Why not, for the author.")],
    output: OutputFlag = None,
) -> None:
    """Decline a quota request with a reason.

    rung quota decline 00000000-0000-4000-8000-000000000001 --reason "Use the a100 pool"
    """
    held = session(ctx)
    _show(held.output(output), held.api.post(f"{REQUESTS}/{request}/decline", {"reason": reason}))


def withdraw(ctx: typer.Context, request: RequestId, *, output: OutputFlag = None) -> None:
    """Withdraw your open quota request.

    rung quota withdraw 00000000-0000-4000-8000-000000000001
    """
    held = session(ctx)
    _show(held.output(output), held.api.post(f"{REQUESTS}/{request}/withdraw", {}))


def _pool_id(project: Mapping[str, Any], name: str) -> str:
    """The id of the project's node pool of that name, or of its only one."""
    pools = {each["nodePool"]["name"]: str(each["nodePool"]["id"]) for each in project["resources"]}
    if name in pools:
        return pools[name]
    if not name and len(pools) == 1:
        return next(iter(pools.values()))
    known = ", ".join(pools) or "none"
    raise UsageError(f"--pool {name}: unknown." if name else "Choose a node pool.", hint=f"Node pools: {known}.")


def _show(out: Output, request: Mapping[str, Any]) -> None:
    def human() -> None:
        for line in _lines(request):
            out.line(line)

    out.one(request, name=str(request["id"]), human=human)


def _lines(request: Mapping[str, Any]) -> Iterator[str]:
    """The request, its decision and its impact as sentences."""
    until = f" until {request['until']}" if request["until"] else ""
    place = f"{request['projectName']} in {request['nodePoolName']}"
    yield f"{request['id']}: {gpus(request['gpus'])} more for {place}{until}"
    yield f"State: {request['state']}. Requested by {request['createdBy']}: {request['reason']}"
    if decision := request["decision"]:
        granted = "" if decision["gpus"] is None else f" granted {_granted(decision['gpus'], request['gpus'])}"
        ends = f" until {decision['until']}" if decision["until"] else ""
        yield f"Decided by {decision['by']}:{granted}{ends}. {decision['reason']}".rstrip()
    if request["sync"] != "unchanged":
        yield "On the cluster: synced." if request["sync"] == "synced" else "On the cluster: not yet."
    if request["keptBecause"]:
        yield f"Not taken back yet: {request['keptBecause']}"
    yield from _impact_lines(request["impact"])


def _granted(granted: float, wanted: float) -> str:
    """`2 GPUs`; `2 of 4 GPUs` where it is not all that was requested."""
    return gpus(granted) if granted == wanted else f"{amount(granted)} of {gpus(wanted)}"


def _impact_lines(impact: Mapping[str, Any]) -> Iterator[str]:
    unit, pool = impact["department"], impact["pool"]
    yield f"Deserved: {_change(impact['deserved'])} GPUs, limit {_change(impact['limit'])}."
    yield f"Department {unit['name']}: its projects {_change(unit)} of {amount(unit['deserved'])} GPUs."
    physical = "unknown" if pool["gpus"] is None else amount(pool["gpus"])
    yield f"Pool {pool['name']}: all projects {_change(pool)} of {physical} GPUs."
    for each in (*impact["refusals"], *impact["warnings"]):
        yield f"Warning: {each['message']}"
    for each in impact["reclaim"]["changes"]:
        yield f"Can reclaim: {each['taker']} from {each['giver']} {_change(each)} GPUs."
    starts = impact["starts"]
    if not starts["estimated"]:
        yield "No estimate of what could start."
    elif starts["tried"]:
        names = ", ".join(each["name"] for each in starts["workloads"]) or "none"
        yield f"Could start, each by itself, of {starts['tried']} waiting: {names}."


def _change(values: Mapping[str, Any]) -> str:
    return f"{limit(values['before'])} → {limit(values['after'])}"
