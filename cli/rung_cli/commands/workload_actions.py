"""`suspend`, `resume`, `retry`, `delete`, `update`, `clone`: what is done to workloads that exist."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from rung_cli import completions
from rung_cli.errors import ApiError, UsageError
from rung_cli.flags import OutputFlag, ProjectFlag, Workload, Workloads
from rung_cli.lookup import project as find_project
from rung_cli.lookup import workload as find_workload
from rung_cli.manifests.submission import previewed
from rung_cli.output.formats import Columns, Format, Output, TableColumn
from rung_cli.output.stderr import confirm, plain
from rung_cli.output.submission import show_submitted
from rung_cli.output.units import phase_word
from rung_cli.session import Session, session

DONE: Final = {"suspend": "Suspending", "resume": "Resuming", "retry": "Retrying", "delete": "Deleting"}
_ALIVE: Final = frozenset({"Running", "Pending", "Creating", "Initializing", "Resuming", "Degraded", "Updating"})
NOTHING_TO_DO: Final = {
    "suspend": frozenset({"Stopped", "Stopping", "Completed", "Failed"}),
    "resume": _ALIVE,
    "retry": _ALIVE,
    "delete": frozenset({"Deleting"}),
}
"""Phases in which an action has nothing to do, and is accepted."""
MOST: Final = 100
RESULTS: Final[Columns] = (
    TableColumn("WORKLOAD", lambda row: row["workload"]),
    TableColumn("RESULT", lambda row: row["message"], style=lambda row: "" if row["accepted"] else "red"),
)


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(suspend)
    app.command()(resume)
    app.command()(retry)
    app.command()(delete)
    app.command()(update)
    app.command()(clone)


def suspend(ctx: typer.Context, names: Workloads, *, project: ProjectFlag = "", output: OutputFlag = None) -> None:
    """Stop workloads. They keep their history and can be resumed.

    rung suspend train-1 train-2
    """
    _act(session(ctx), "suspend", names, project, output)


def resume(ctx: typer.Context, names: Workloads, *, project: ProjectFlag = "", output: OutputFlag = None) -> None:
    """Resume suspended workloads.

    rung resume train
    """
    _act(session(ctx), "resume", names, project, output)


def retry(ctx: typer.Context, names: Workloads, *, project: ProjectFlag = "", output: OutputFlag = None) -> None:
    """Retry workloads that failed to apply.

    rung list --failed-to-apply -o name | xargs rung retry
    """
    _act(session(ctx), "retry", names, project, output)


def delete(
    ctx: typer.Context,
    names: Workloads,
    *,
    project: ProjectFlag = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: OutputFlag = None,
) -> None:
    """Delete workloads. Asks for confirmation on a terminal.

    rung delete train --yes
    """
    _act(session(ctx), "delete", names, project, output, ask=not yes)


def update(
    ctx: typer.Context,
    names: Workloads,
    *,
    priority: Annotated[
        str, typer.Option(help="Another priority, such as high.", autocompletion=completions.priority_names)
    ],
    project: ProjectFlag = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate and show what it means without doing it.")
    ] = False,
    output: OutputFlag = None,
) -> None:
    """Change the priority of workloads. Preemptibility stays; running pods may keep their value until a restart.

    A waiting workload uses it immediately and may evict others: --dry-run estimates which.

    rung update train --priority high

    rung update train-1 train-2 -p llm-team --priority low --dry-run
    """
    held = session(ctx)
    out = held.output(output)
    found = [find_workload(held.api, name, held.project(project)) for name in dict.fromkeys(names)]
    results = [_updated(held, each, priority, dry_run=dry_run) for each in found]
    _show_results(out, results)


def _updated(held: Session, workload: dict[str, Any], priority: str, *, dry_run: bool) -> dict[str, Any]:
    """What became of one of them; a refusal is a result, too."""
    row = {"workload": f"{workload['projectName']}/{workload['name']}", "id": workload["id"]}
    try:
        body = {"metadata": {"priority": priority}}
        answer = held.api.put(f"v2/workloads/{workload['id']}", body, dry_run=dry_run)
    except ApiError as refusal:
        message = "; ".join(str(each["message"]) for each in refusal.problems) or refusal.message
        return {**row, "accepted": False, "message": message, "code": refusal.status}
    before, after = workload["priorityClassName"], answer["metadata"]["priority"]
    verb = "Would change" if dry_run else "Changed"
    messages = [f"No change: priority is {after}."] if before == after else [f"{verb} from {before} to {after}."]
    messages += [str(each["message"]) for each in answer["metadata"].get("warnings") or () if before != after]
    messages += [str(answer["priorityForecast"]["sentence"])] if "priorityForecast" in answer else []
    return {**row, "accepted": True, "message": " ".join(messages), "priority": after}


def clone(
    ctx: typer.Context,
    name: Workload,
    *,
    project: ProjectFlag = "",
    new_name: Annotated[str, typer.Option("--name", help="Name of the copy; default: a generated name.")] = "",
    to_project: Annotated[
        str,
        typer.Option(
            help="Project of the copy; default: that of the original.", autocompletion=completions.project_names
        ),
    ] = "",
    priority: Annotated[
        str, typer.Option(help="Override that of the original.", autocompletion=completions.priority_names)
    ] = "",
    preemptibility: Annotated[
        str, typer.Option(help="Override that of the original.", autocompletion=completions.preemptibilities)
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate and show the result without creating anything.")
    ] = False,
    output: OutputFlag = None,
) -> None:
    """Submit a copy of a workload.

    rung clone train --name train-2 --priority high
    """
    held = session(ctx)
    out = held.output(output)
    original = find_workload(held.api, name, held.project(project))
    wanted = {"name": new_name, "priority": priority, "preemptibility": preemptibility}
    body = {key: value for key, value in wanted.items() if value}
    if to_project:
        body["projectId"] = find_project(held.api, to_project)["id"]
    path = f"v1/workloads/{original['id']}/clone"
    made = held.api.post(path, body, dry_run=True) if dry_run else previewed(held.api, path, body, out.format)
    show_submitted(out, [made], project=made["metadata"]["projectName"], dry_run=dry_run)


def _act(
    held: Session, action: str, names: Sequence[str], project: str, chosen: Format | None, *, ask: bool = False
) -> None:
    """1. find all, or do nothing  2. ask  3. do it in one request, and say of each what became of it"""
    out = held.output(chosen)
    if len(names) > MOST:
        raise UsageError(f"At most {MOST} workloads at a time, not {len(names)}.")
    found = [find_workload(held.api, name, held.project(project)) for name in dict.fromkeys(names)]
    if ask:
        _confirm(found)
    body = {"ids": [each["id"] for each in found], "action": action}
    answer = held.api.post("v1/workloads/batch", body)
    _show(out, action, found, answer)


def _confirm(found: Sequence[dict[str, Any]]) -> None:
    """On a terminal: what ends, and yes or no. A script says --yes."""
    lines = [f"  {each['projectName']}/{each['name']}  {phase_word(each['phase'])}{_held(each)}" for each in found]
    question = f"Delete {'this workload' if len(found) == 1 else f'these {len(found)} workloads'}?"
    confirm(lines, question, hint="Use --yes to delete in scripts.", declined="Nothing was deleted.")


def _held(workload: dict[str, Any]) -> str:
    used = workload["allocatedResources"]["gpu"]
    return f", on {used:g} GPUs" if used else ""


def _done(action: str, phase: str, form: Format) -> str:
    if phase in NOTHING_TO_DO.get(action, ()):
        return f"No change: it is {phase_word(phase) if form is Format.TABLE else phase}."
    return f"{DONE[action]}."


def _show(out: Output, action: str, found: Sequence[dict[str, Any]], answer: dict[str, Any]) -> None:
    failed = {each["id"]: each for each in answer["failed"]}
    rows = [
        {
            "workload": f"{each['projectName']}/{each['name']}",
            "id": each["id"],
            "accepted": each["id"] not in failed,
            "message": failed.get(each["id"], {}).get("message") or _done(action, each["phase"], out.format),
            **({"code": failed[each["id"]]["code"]} if each["id"] in failed else {}),
        }
        for each in found
    ]
    _show_results(out, rows)


def _show_results(out: Output, rows: Sequence[dict[str, Any]]) -> None:
    """Of each what became of it. ApiError where one was refused."""
    shown = [row for row in rows if row["accepted"]] if out.format is Format.NAME else rows
    out.rows(shown, RESULTS, name=lambda row: str(row["workload"]), empty="Nothing was changed.")
    if refused := [row for row in rows if not row["accepted"]]:
        why = "; ".join(str(row["message"]) for row in refused)
        beside = "." if out.format is Format.TABLE else f": {plain(why)}"  # the table has the reasons
        raise ApiError(f"{len(refused)} of {len(rows)} refused{beside}", status=refused[0]["code"])
