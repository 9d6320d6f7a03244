"""`priorities`, `types`, `projects`, `templates`: what there is to choose from."""

from typing import Annotated, Any, Final

import typer

from rung_cli import workload_templates
from rung_cli.flags import OutputFlag, ProjectFlag
from rung_cli.http.pagination import rows
from rung_cli.lookup import project as find_project
from rung_cli.native_submit import SubmissionKind, kind_of
from rung_cli.output.formats import Columns, TableColumn
from rung_cli.output.units import amount
from rung_cli.session import session

PRIORITIES: Final[Columns] = (
    TableColumn("NAME", lambda row: row["name"]),
    TableColumn("VALUE", lambda row: row["value"], right=True),
    TableColumn("ALONE MEANS", lambda row: row.get("preemptibility")),
    TableColumn("SYNCED", lambda row: row["aggregatedPhase"]),
    TableColumn("DESCRIPTION", lambda row: row.get("description"), wide=100),
)
TYPES: Final[Columns] = (
    TableColumn("TYPE", lambda row: row["name"]),
    TableColumn("CATEGORY", lambda row: row.get("categoryName")),
    TableColumn("PRIORITY", lambda row: row.get("priorityName")),
    TableColumn("PREEMPTIBILITY", lambda row: row.get("preemptibility")),
    TableColumn("GROUP", lambda row: row["group"], wide=100),
)
PROJECTS: Final[Columns] = (
    TableColumn("PROJECT", lambda row: row["name"]),
    TableColumn("DEPARTMENT", lambda row: (row.get("parent") or {}).get("name")),
    TableColumn("GPUS", lambda row: amount(_used(row).get("gpu")), right=True),
    TableColumn("DESERVED", lambda row: amount(row["totalResources"]["gpuQuota"]), right=True),
    TableColumn("NAMESPACE", lambda row: row["status"]["namespace"], wide=70),
    TableColumn("ID", lambda row: row["id"], wide=100),
)
TEMPLATES: Final[Columns] = (
    TableColumn("TEMPLATE", workload_templates.name_of),
    TableColumn("TYPE", lambda row: kind_of(row).value),
    TableColumn("SCOPE", lambda row: row["meta"]["scopeType"]),
    TableColumn("IMAGE", lambda row: row["combinedSpec"].get("image"), wide=100),
    TableColumn("LACKS", lambda row: row["runnable"]["issue"], wide=120, style=lambda _row: "yellow"),
    TableColumn("BY", lambda row: row["meta"]["createdBy"], wide=80),
    TableColumn("DESCRIPTION", lambda row: row["meta"]["description"], wide=100),
    TableColumn("ID", lambda row: row["meta"]["id"], wide=160),
)
Search = Annotated[str, typer.Option(help="Part of a name.")]


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(priorities)
    app.command()(types)
    app.command()(projects)
    app.command("templates")(list_templates)


def priorities(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List the priority dictionary, highest value first."""
    held = session(ctx)
    out = held.output(output)
    found = held.api.get("v1/workload-priorities", sortBy="value", sortOrder="desc")["priorities"]
    out.rows(found, PRIORITIES, name=_name, empty="No priorities.")


def types(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List workload types with their default priority and preemptibility."""
    held = session(ctx)
    out = held.output(output)
    out.rows(held.api.get("v1/workload-types")["types"], TYPES, name=_name, empty="No workload types.")


def projects(ctx: typer.Context, *, search: Search = "", output: OutputFlag = None) -> None:
    """List the projects you can see, with used and deserved GPUs."""
    held = session(ctx)
    out = held.output(output)
    found = rows(held.api, "v1/org-unit/projects", "projects", query={"sortBy": "name", "search": search})
    out.rows(found, PROJECTS, name=_name, empty="No projects.")


def list_templates(
    ctx: typer.Context,
    *,
    project: ProjectFlag = "",
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="In all projects.")] = False,
    kind: Annotated[SubmissionKind | None, typer.Option("--type", help="Only this type.")] = None,
    search: Search = "",
    output: OutputFlag = None,
) -> None:
    """List the templates of the project, its department, its cluster and the whole installation.

    rung submit NAME --template TEMPLATE
    """
    held = session(ctx)
    out = held.output(output)
    owner = "" if everywhere else held.project(project)
    found = [each for each in workload_templates.list_of(held.api, search) if kind in {None, kind_of(each)}]
    if owner:
        known = find_project(held.api, owner)
        found = [each for each in found if workload_templates.holds_in(each, known)]
    out.rows(found, TEMPLATES, name=workload_templates.name_of, empty="No templates.")


def _name(row: Any) -> str:
    return str(row["name"])


def _used(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = row["status"].get("quotaStatus", {}).get("allocated", {})
    return found
