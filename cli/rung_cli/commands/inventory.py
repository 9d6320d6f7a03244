"""`clusters`, `pools`, `nodes`, `findings`, `quotas`: what workloads run on, as last observed, and its quotas."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from rung_cli import completions
from rung_cli.flags import ClusterFlag, OutputFlag
from rung_cli.http.client import Api, rows
from rung_cli.lookup import cluster as find_cluster
from rung_cli.lookup import naming_flags
from rung_cli.output.formats import Columns, Format, TableColumn
from rung_cli.output.units import age, amount, gpu_time, limit
from rung_cli.session import session

STATES: Final[Mapping[str, str]] = {"Connected": "green", "WaitingToConnect": "yellow", "Ready": "green"}
"""Colours of clusters, node pools and nodes; what is not here is red."""
Row = dict[str, Any]


def _state_style(name: str) -> Any:
    return lambda row: STATES.get(_of(row, name), "red")


def _of(row: Mapping[str, Any], name: str) -> str:
    return str((row.get("status") or {}).get("state") if name == "state" else row.get(name))


CLUSTERS: Final[Columns] = (
    TableColumn("CLUSTER", lambda row: row["name"]),
    TableColumn("SCHEDULER", lambda row: row["flavour"] + (" (simulated)" if row["simulated"] else "")),
    TableColumn("STATE", lambda row: _of(row, "state"), style=_state_style("state")),
    TableColumn("SYNCED", lambda row: _condition(row, "Synced")),
    TableColumn("VERSION", lambda row: row["status"]["platform"]["kubeVersion"], wide=100),
    TableColumn("OBSERVED", lambda row: age(row.get("lastLiveness")), right=True),
    TableColumn("ID", lambda row: row["uuid"], wide=130),
)
POOLS: Final[Columns] = (
    TableColumn("POOL", lambda row: row["name"]),
    TableColumn("CLUSTER", lambda row: row["clusterName"]),
    TableColumn("PHASE", lambda row: row["phase"], style=_state_style("phase")),
    TableColumn("NODES", lambda row: len(row["status"]["nodes"]), right=True),
    TableColumn("DEFAULT", lambda row: "yes" if row["isDefault"] else "", wide=75),
    TableColumn("PLACEMENT", lambda row: row["schedulingConfiguration"]["placementStrategy"]["gpu"], wide=85),
    TableColumn("NODE LABEL", lambda row: f"{row['labelKey']}={row['labelValue']}", wide=100),
)
NODES: Final[Columns] = (
    TableColumn("NODE", lambda row: row["name"]),
    TableColumn("CLUSTER", lambda row: row["clusterName"], wide=90),
    TableColumn("POOL", lambda row: row["nodePool"]),
    TableColumn("STATUS", lambda row: row["status"], style=_state_style("status")),
    TableColumn("GPUS", lambda row: amount(row.get("gpuInfo", {}).get("gpuCount")), right=True),
    TableColumn("IN USE", lambda row: amount(row["allocatedGpus"]), right=True),
    TableColumn("GPU TYPE", lambda row: row.get("gpuInfo", {}).get("gpuType"), wide=100),
    TableColumn("TAINTS", lambda row: ", ".join(_taint(each) for each in row["taints"]), wide=120),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
)
FINDINGS: Final[Columns] = (
    TableColumn("ID", lambda row: row["id"], right=True),
    TableColumn("FINDING", lambda row: row["title"]),
    TableColumn(
        "STATUS",
        lambda row: "ended" if row["endedAt"] else "open",
        style=lambda row: "" if row["endedAt"] else "yellow",
    ),
    TableColumn("CLUSTER", lambda row: row["clusterName"], wide=130),
    TableColumn("PROJECT", lambda row: row["projectName"] or "-"),
    TableColumn("WORKLOAD", lambda row: row["workloadName"] or "-"),
    TableColumn("COST", lambda row: gpu_time(row["gpuHours"]), right=True),
    TableColumn("SINCE", lambda row: age(row["firstSeen"]), right=True),
    TableColumn("EVIDENCE", lambda row: " ".join(row["evidence"]), wide=220),
    TableColumn("ADVICE", lambda row: row["advice"], wide=320),
)
PoolFlag = Annotated[str, typer.Option("--pool", help="Only this node pool.", autocompletion=completions.pool_names)]
Search = Annotated[str, typer.Option(help="Part of a name.")]


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
    TableColumn(
        "NON-PREEMPTIBLE", lambda row: amount(row["use"]["allocatedNonPreemptible"]["gpu"]), right=True, wide=85
    ),
    TableColumn("SHARE", lambda row: amount(row["share"]), right=True, wide=95),
    TableColumn("WEIGHT", lambda row: amount(row["gpu"]["overQuotaWeight"]), right=True, wide=105),
    TableColumn("RANK", lambda row: row["rank"], wide=105),
    TableColumn("CLUSTER", lambda row: row["cluster"], wide=120),
)


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(clusters)
    app.command()(pools)
    app.command()(nodes)
    app.command()(findings)
    app.command()(quotas)


def clusters(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List clusters with their scheduler, and whether they hold what Rung wants.

    rung clusters -o json | jq '.[].status.conditions'
    """
    held = session(ctx)
    out = held.output(output)
    out.rows(held.api.get("v1/clusters"), CLUSTERS, name=_name, empty="No clusters.")


def pools(ctx: typer.Context, *, cluster: ClusterFlag = "", output: OutputFlag = None) -> None:
    """List node pools with their nodes.

    rung pools --cluster atlas
    """
    held = session(ctx)
    out = held.output(output)
    query = {"filterBy": _in_cluster("clusterId", held.api, cluster)}
    out.rows(rows(held.api, "v1/node-pools", "nodepools", query=query), POOLS, name=_name, empty="No node pools.")


def nodes(
    ctx: typer.Context,
    *,
    cluster: ClusterFlag = "",
    pool: PoolFlag = "",
    search: Search = "",
    output: OutputFlag = None,
) -> None:
    """List nodes with their GPUs, and how many of them are in use.

    rung nodes --cluster atlas --pool h100
    """
    held = session(ctx)
    out = held.output(output)
    clauses = [_in_cluster("clusterUuid", held.api, cluster), f"nodePool=={pool}" if pool else ""]
    query = {"filterBy": ",".join(filter(None, clauses)), "search": search}
    with naming_flags():
        found = rows(held.api, "v1/nodes", "nodes", query=query)
    out.rows(_with_use(held.api, found), NODES, name=_name, empty="No nodes.")


class FindingState(StrEnum):
    """What `--status` takes."""

    OPEN = "open"
    ENDED = "ended"
    ALL = "all"


def findings(
    ctx: typer.Context,
    *,
    cluster: ClusterFlag = "",
    kind: Annotated[str, typer.Option(help="Only this kind: fragmentation, idle-gpus, thrashing ….")] = "",
    status: Annotated[FindingState, typer.Option(help="Open ones, ended ones, or all.")] = FindingState.OPEN,
    output: OutputFlag = None,
) -> None:
    """List what the detectors found: evidence, cost in GPU-hours and advice.

    rung findings --kind fragmentation -o json | jq -r '.[].advice'
    """
    held = session(ctx)
    out = held.output(output)
    clauses = [_in_cluster("clusterId", held.api, cluster), f"kind=={kind}" if kind else ""]
    query = {"filterBy": ",".join(filter(None, clauses)), "status": "" if status is FindingState.ALL else status.value}
    found = rows(held.api, "v1/findings", "findings", query=query)
    out.rows(found, FINDINGS, name=lambda row: str(row["id"]), empty="No findings.")


def _in_cluster(column: str, api: Api, cluster: str) -> str:
    return f"{column}=={find_cluster(api, cluster)['uuid']}" if cluster else ""


def _with_use(api: Api, found: list[Row]) -> list[Row]:
    """Each node with the name of its cluster and the GPUs that are allocated on it: null where it is unknown."""
    if not found:
        return found
    readings = api.get("v1/nodes/telemetry", telemetryType="ALLOCATED_GPUS", groupBy="ClusterId,Node")["values"]
    groups = [({each["key"]: each["value"] for each in row["groups"]}, row["value"]) for row in readings]
    used = {(where["ClusterId"], where["Node"]): float(value) for where, value in groups}
    names = {each["uuid"]: each["name"] for each in api.get("v1/clusters", verbosity="metadata")}
    return [
        {
            **node,
            "clusterName": names.get(node["clusterUuid"], ""),
            "allocatedGpus": used.get((node["clusterUuid"], node["name"])),
        }
        for node in found
    ]


def _condition(row: Mapping[str, Any], name: str) -> str:
    """`yes`, `no`, or empty where it is unknown."""
    words = {"True": "yes", "False": "no"}
    return next((words.get(each["status"], "") for each in row["status"]["conditions"] if each["type"] == name), "")


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint["value"] else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _name(row: Mapping[str, Any]) -> str:
    return str(row["name"])


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
