"""`priorities`, `types`, `projects`, `templates`, `policies`: what there is to choose from, and what binds it."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from rung_cli import policies, workload_templates
from rung_cli.flags import OutputFlag, ProjectFlag
from rung_cli.http.client import rows
from rung_cli.lookup import project as find_project
from rung_cli.native_submit import SubmissionKind, kind_of
from rung_cli.output.formats import Columns, TableColumn
from rung_cli.output.units import amount
from rung_cli.session import session

RULES: Final = frozenset({"required", "canEdit", "options"})
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
POLICIES: Final[Columns] = (
    TableColumn("WORKLOAD TYPE", lambda row: row["type"]),
    TableColumn("SCOPE", lambda row: row["scope"]),
    TableColumn("DEFAULTS", lambda row: _defaults(row["policy"].get("defaults") or {})),
    TableColumn("RULES", lambda row: _rules(row["policy"].get("rules") or {})),
    TableColumn("NAME", lambda row: row["meta"]["name"], wide=110),
    TableColumn("BY", lambda row: row["meta"]["updatedBy"], wide=120),
)
Search = Annotated[str, typer.Option(help="Part of a name.")]


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(priorities)
    app.command()(types)
    app.command()(projects)
    app.command("templates")(list_templates)
    app.command("policies")(list_policies)


def priorities(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List the priority dictionary, highest value first.

    rung priorities -o yaml
    """
    held = session(ctx)
    out = held.output(output)
    found = held.api.get("v1/workload-priorities", sortBy="value", sortOrder="desc")["priorities"]
    out.rows(found, PRIORITIES, name=_name, empty="No priorities.")


def types(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List workload types with their default priority and preemptibility.

    rung types -o name
    """
    held = session(ctx)
    out = held.output(output)
    out.rows(held.api.get("v1/workload-types")["types"], TYPES, name=_name, empty="No workload types.")


def projects(ctx: typer.Context, *, search: Search = "", output: OutputFlag = None) -> None:
    """List the projects you can see, with used and deserved GPUs.

    rung projects --search team
    """
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

    rung templates -p llm-team --type training
    """
    held = session(ctx)
    out = held.output(output)
    owner = "" if everywhere else held.project(project)
    found = [each for each in workload_templates.list_of(held.api, search) if kind in {None, kind_of(each)}]
    if owner:
        known = find_project(held.api, owner)
        found = [each for each in found if workload_templates.holds_in(each, known)]
    out.rows(found, TEMPLATES, name=workload_templates.name_of, empty="No templates.")


def list_policies(
    ctx: typer.Context,
    *,
    project: ProjectFlag = "",
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="In all projects.")] = False,
    output: OutputFlag = None,
) -> None:
    """List the policies that apply to the project, or all that you can see: the defaults and rules of each.

    rung policies -p llm-team
    """
    held = session(ctx)
    out = held.output(output)
    owner = "" if everywhere else held.project(project)
    found = policies.list_of(held.api)
    if owner:
        known = find_project(held.api, owner)
        found = [each for each in found if policies.holds_in(each, known)]
    out.rows(found, POLICIES, name=lambda row: f"{row['type']}/{row['scope']}", empty="No policies.")


def _defaults(defaults: Mapping[str, Any], above: str = "") -> str:
    """`priorityClass=low`; of a distributed training by its replicas."""
    parts = [
        _defaults(value, f"{name}.") if isinstance(value, dict) else f"{above}{name}={value}"
        for name, value in defaults.items()
    ]
    return ", ".join(parts)


def _rules(rules: Mapping[str, Any], above: str = "") -> str:
    """`priorityClass: low or medium, required`."""
    return "; ".join(
        f"{above}{name}: {_rule(value)}" if RULES & value.keys() else _rules(value, f"{name}.")
        for name, value in rules.items()
    )


def _rule(rule: Mapping[str, Any]) -> str:
    options = " or ".join(str(each.get("value")) for each in rule.get("options") or ())
    words = [
        options,
        "required" if rule.get("required") else "",
        "" if rule.get("canEdit", True) else "cannot be changed",
    ]
    return ", ".join(filter(None, words))


def _name(row: Any) -> str:
    return str(row["name"])


def _used(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = row["status"].get("quotaStatus", {}).get("allocated", {})
    return found
