"""`priorities`, `types`, `projects`, `templates`: what there is to choose from."""

from typing import Annotated, Any, Final

import typer

from rung_cli import templates
from rung_cli.flags import OutputFlag, ProjectFlag
from rung_cli.naming import project as find_project
from rung_cli.natively import Kind, kind_of
from rung_cli.output import Column, Columns
from rung_cli.paging import rows
from rung_cli.session import session
from rung_cli.words import amount

PRIORITIES: Final[Columns] = (
    Column("NAME", lambda row: row["name"]),
    Column("VALUE", lambda row: row["value"], right=True),
    Column("ALONE MEANS", lambda row: row.get("preemptibility")),
    Column("SYNCED", lambda row: row["aggregatedPhase"]),
    Column("DESCRIPTION", lambda row: row.get("description"), wide=100),
)
TYPES: Final[Columns] = (
    Column("TYPE", lambda row: row["name"]),
    Column("CATEGORY", lambda row: row.get("categoryName")),
    Column("PRIORITY", lambda row: row.get("priorityName")),
    Column("PREEMPTIBILITY", lambda row: row.get("preemptibility")),
    Column("GROUP", lambda row: row["group"], wide=100),
)
PROJECTS: Final[Columns] = (
    Column("PROJECT", lambda row: row["name"]),
    Column("DEPARTMENT", lambda row: (row.get("parent") or {}).get("name")),
    Column("GPUS", lambda row: amount(_used(row).get("gpu")), right=True),
    Column("DESERVED", lambda row: amount(row["totalResources"]["gpuQuota"]), right=True),
    Column("NAMESPACE", lambda row: row["status"]["namespace"], wide=70),
    Column("ID", lambda row: row["id"], wide=100),
)
TEMPLATES: Final[Columns] = (
    Column("TEMPLATE", templates.name_of),
    Column("TYPE", lambda row: kind_of(row).value),
    Column("SCOPE", lambda row: row["meta"]["scopeType"]),
    Column("IMAGE", lambda row: row["combinedSpec"].get("image"), wide=100),
    Column("LACKS", lambda row: row["runnable"]["issue"], wide=120, style=lambda _row: "yellow"),
    Column("BY", lambda row: row["meta"]["createdBy"], wide=80),
    Column("DESCRIPTION", lambda row: row["meta"]["description"], wide=100),
    Column("ID", lambda row: row["meta"]["id"], wide=160),
)
Search = Annotated[str, typer.Option(help="Part of a name.")]


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(priorities)
    app.command()(types)
    app.command()(projects)
    app.command("templates")(list_templates)


def priorities(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """The priority dictionary, strongest first."""
    held = session(ctx)
    out = held.output(output)
    found = held.api.get("v1/workload-priorities", sortBy="value", sortOrder="desc")["priorities"]
    out.rows(found, PRIORITIES, name=_name, empty="The dictionary is empty.")


def types(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """Workload types with the priority and preemptibility they bring along."""
    held = session(ctx)
    out = held.output(output)
    out.rows(held.api.get("v1/workload-types")["types"], TYPES, name=_name, empty="There are no types.")


def projects(ctx: typer.Context, *, search: Search = "", output: OutputFlag = None) -> None:
    """Projects that you may see, with the GPUs they use and deserve."""
    held = session(ctx)
    out = held.output(output)
    found = rows(held.api, "v1/org-unit/projects", "projects", query={"sortBy": "name", "search": search})
    out.rows(found, PROJECTS, name=_name, empty="You may see no project.")


def list_templates(
    ctx: typer.Context,
    *,
    project: ProjectFlag = "",
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="Wherever they hold.")] = False,
    kind: Annotated[Kind | None, typer.Option("--type", help="Of this type only.")] = None,
    search: Search = "",
    output: OutputFlag = None,
) -> None:
    """Templates that a submission to the project may start from: its own, its department's, its cluster's, everybody's.

    rung submit NAME --template TEMPLATE
    """
    held = session(ctx)
    out = held.output(output)
    owner = "" if everywhere else held.project(project)
    found = [each for each in templates.list_of(held.api, search) if kind in {None, kind_of(each)}]
    if owner:
        known = find_project(held.api, owner)
        found = [each for each in found if templates.holds_in(each, known)]
    out.rows(found, TEMPLATES, name=templates.name_of, empty="There are no templates.")


def _name(row: Any) -> str:
    return str(row["name"])


def _used(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = row["status"].get("quotaStatus", {}).get("allocated", {})
    return found
