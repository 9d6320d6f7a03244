"""`quota`: what a project deserves, uses, borrows and could start now. `quotas`: all departments and projects."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from rung_cli.commands.inventory import PoolFlag
from rung_cli.flags import ClusterFlag, OutputFlag, ProjectFlag
from rung_cli.http.pagination import rows
from rung_cli.lookup import project as find_project
from rung_cli.manifests.kinds.org_units import UNITS as MEMORY
from rung_cli.output.formats import Columns, Format, TableColumn
from rung_cli.output.units import amount, limit
from rung_cli.session import session

UNITS: Final = {"gpu": "GPUs", "cpu": "CPU cores", "memory": "GB of memory"}
DIVISORS: Final = {"gpu": 1.0, "cpu": 1000.0, "memory": 1000.0}
MEGABYTE: Final = MEMORY["MB"]


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
    TableColumn("NEVER EVICTED", lambda row: amount(row["nonPreemptible"]), right=True, wide=75),
    TableColumn("WAITING", lambda row: amount(row["waiting"]), right=True),
    TableColumn("BORROWED", lambda row: amount(row["borrowed"]) if row["borrowed"] else "", right=True, wide=80,
                style=lambda row: "yellow" if row["borrowed"] else ""),
    TableColumn(
        "CAN START", lambda row: "" if row["canStart"] is None else amount(row["canStart"]), right=True, wide=90
    ),
    TableColumn("WEIGHT", lambda row: amount(row["weight"]), right=True, wide=100),
    TableColumn("RANK", lambda row: row["rank"], wide=100),
)  # fmt: skip


def _sum_text(row: Mapping[str, Any]) -> str:
    """What the projects of a department deserve, and by how much that is too much."""
    if row["projectsDeserve"] is None:
        return ""
    over = f" (over by {amount(row['overCommitted'])})" if row["overCommitted"] else ""
    return f"{amount(row['projectsDeserve'])}{over}"


TREE: Final[Columns] = (
    TableColumn("DEPARTMENT, PROJECT", lambda row: row["name"] if row["kind"] == "department" else f"  {row['name']}"),
    TableColumn("POOL", lambda row: row["nodePool"]["name"]),
    TableColumn("DESERVED", lambda row: amount(row["gpu"]["deserved"]), right=True),
    TableColumn("PROJECTS DESERVE", _sum_text, right=True, style=lambda row: "yellow" if row["overCommitted"] else ""),
    TableColumn("LIMIT", lambda row: limit(row["gpu"]["limit"]), right=True),
    TableColumn("IN USE", lambda row: amount(row["use"]["allocated"]["gpu"]), right=True),
    TableColumn("NEVER EVICTED", lambda row: amount(row["use"]["allocatedNonPreemptible"]["gpu"]), right=True, wide=85),
    TableColumn("SHARE", lambda row: amount(row["share"]), right=True, wide=95),
    TableColumn("WEIGHT", lambda row: amount(row["gpu"]["overQuotaWeight"]), right=True, wide=105),
    TableColumn("RANK", lambda row: row["rank"], wide=105),
    TableColumn("CLUSTER", lambda row: row["cluster"], wide=120),
)


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(quota)
    app.command()(quotas)


def quotas(
    ctx: typer.Context,
    *,
    cluster: ClusterFlag = "",
    pool: PoolFlag = "",
    department: Annotated[str, typer.Option("--department", help="Only this department.")] = "",
    output: OutputFlag = None,
) -> None:
    """Show departments and projects with their GPU quotas, use and shares, and the sums of each node pool.

    rung quotas --pool h100
    """
    held = session(ctx)
    out = held.output(output)
    query = {name: value for name, value in (("cluster", cluster), ("pool", pool), ("department", department)) if value}
    found = rows(held.api, "v1/quotas", "quotas", query=query)
    out.rows(found, TREE, name=lambda row: f"{row['nodePool']['name']}/{row['name']}", empty="No quotas.")
    if out.format is Format.TABLE and found:
        for each in held.api.get("v1/quotas", **query, limit=1)["pools"]:
            out.line(_pool_text(each))


def _pool_text(pool: Mapping[str, Any]) -> str:
    """`lab/h100 has 16 GPUs: departments deserve 18 (over by 2), projects 8. <rule>`."""
    of, physical = f"{pool['cluster']}/{pool['nodePool']['name']}", pool["physicalGpus"]
    head = f"{of}: no node observed yet;" if physical is None else f"{of} has {amount(physical)} GPUs:"
    sums = []
    for name in ("departments", "projects"):
        over = pool[f"{name}OverCommitted"]
        sums.append(f"{name} deserve {amount(pool[f'{name}Deserve'])}" + (f" (over by {amount(over)})" if over else ""))
    return f"{head} {', '.join(sums)}. {pool['rule']['text']}"


def quota(
    ctx: typer.Context,
    *,
    project: ProjectFlag = "",
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="All projects you can see.")] = False,
    resource: Annotated[Resource, typer.Option(help="Resource to show.")] = Resource.GPU,
    output: OutputFlag = None,
) -> None:
    """Show deserved, used, requested and borrowed quota of a project, and what can start now, per node pool.

    rung quota -p llm-team --resource memory
    """
    held = session(ctx)
    out = held.output(output)
    owner = held.project(project)
    if everywhere or not owner:
        found = rows(held.api, "v1/org-unit/projects", "projects", query={"sortBy": "name"})
    else:
        found = [find_project(held.api, owner)]
    lines = [line for each in found for line in quota_of(each, resource.value)]
    if out.format is Format.TABLE:
        out.line(f"In {UNITS[resource.value]}, from the last observation.", style="dim")
    out.rows(lines, QUOTA, name=lambda row: f"{row['project']}/{row['pool']}", empty="No project has a node pool.")
    if out.format is Format.TABLE and not everywhere:
        for sentence in filter(None, (row["startable"] for row in lines)):
            out.line(sentence)


def quota_of(project: Mapping[str, Any], resource: str) -> list[dict[str, Any]]:
    """One line per node pool: GPUs, CPU cores or gigabytes."""
    used = {each["nodePoolId"]: each for each in project["status"].get("nodePoolQuotaStatuses") or []}
    return [
        _line(project["name"], each, used.get(each["nodePool"]["id"], {}), resource) for each in project["resources"]
    ]


def _line(project: str, entry: Mapping[str, Any], used: Mapping[str, Any], resource: str) -> dict[str, Any]:
    own = entry.get(resource) or {}
    scale = MEMORY.get(str(own.get("units")), MEGABYTE) / MEGABYTE if resource == "memory" else 1.0
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
        "startable": startable.get("sentence", "") if resource == Resource.GPU else "",
        "weight": own.get("overQuotaWeight"),
        "rank": entry.get("rank") or entry.get("priority"),
    }


_USES: Final[Sequence[str]] = ("allocated", "allocatedNonPreemptible", "requested")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 3) if value >= 0 else value
