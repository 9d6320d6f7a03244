"""`export`, `apply`: the dictionary, the types' defaults and the organisation as files under version control."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from rung_cli.errors import ExitCode, UsageError
from rung_cli.flags import OutputFlag
from rung_cli.manifests import server_state
from rung_cli.manifests.apply import PlannedAction, PlannedChange, apply_plan, name_of, plan
from rung_cli.manifests.documents import read_documents
from rung_cli.manifests.organisation import KINDS, declared_objects
from rung_cli.output.formats import Format, Output, as_yaml
from rung_cli.output.stderr import confirm
from rung_cli.session import session

MARKS: Final = {
    PlannedAction.CREATE: ("+", "green"),
    PlannedAction.UPDATE: ("~", "yellow"),
    PlannedAction.DELETE: ("-", "red"),
}
Files = Annotated[list[str], typer.Option("--file", "-f", metavar="FILE", help="YAML documents; - is stdin.")]
Only = Annotated[list[str] | None, typer.Option("--kind", help=f"Only these kinds: {', '.join(KINDS)}.")]


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(export)
    app.command()(apply)


def export(ctx: typer.Context, *, kind: Only = None, output: OutputFlag = None) -> None:
    """Export priorities, types, departments and projects as documents for `rung apply`, in YAML or JSON.

    rung export > organisation.yaml
    """
    held = session(ctx)
    out = held.output(output)
    known = {each.lower(): each for each in KINDS}
    if strange := [each for each in kind or () if each.lower() not in known]:
        raise UsageError(f"Unknown kind {strange[0]}. Supported: {', '.join(KINDS)}.")
    chosen = {known[each.lower()] for each in kind or KINDS}
    things = [each for each in server_state.read(held.api).things.values() if each.key.kind in chosen]
    match out.format:
        case Format.JSON:
            out.data([each.as_document() for each in things])
        case Format.NAME:
            out.names(name_of(each.key) for each in things)
        case _:
            out.line("---\n" + "\n---\n".join(as_yaml(each.as_document()) for each in things))


def apply(
    ctx: typer.Context,
    *,
    file: Files,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Show the changes without applying them. Exit code 2 if there are changes.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete objects that no document contains, of the kinds in the documents.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: OutputFlag = None,
) -> None:
    """Apply documents to the organisation. Omitted fields do not change. Applying again changes nothing.

    rung apply -f organisation.yaml --plan
    """
    held = session(ctx)
    out = held.output(output)
    things = declared_objects(read_documents(file))
    steps = plan(things, server_state.read(held.api), prune=prune)
    if show_plan or not steps:
        _show(out, steps)
        if steps:
            raise typer.Exit(ExitCode.CHANGES)
        return
    if not yes:
        _confirm(steps)
    apply_plan(held.api, steps)
    _show(out, steps, done=True)


def _confirm(steps: Sequence[PlannedChange]) -> None:
    lines = [f"  {MARKS[step.act][0]} {step.thing.key}{_counted(step)}" for step in steps]
    question = f"Apply {'this change' if len(steps) == 1 else f'these {len(steps)} changes'}?"
    confirm(
        lines, question, hint="Use --plan to preview the changes, or --yes in scripts.", kept="Nothing was changed."
    )


def _counted(step: PlannedChange) -> str:
    fields = len(step.differences)
    return f": {fields} field{'' if fields == 1 else 's'}" if fields else ""


def _show(out: Output, steps: Sequence[PlannedChange], *, done: bool = False) -> None:
    match out.format:
        case Format.TABLE if not steps:
            out.line("No changes.")
        case Format.TABLE:
            for step in steps:
                _show_step(out, step)
            counts = ", ".join(f"{sum(each.act is act for each in steps)} to {act}" for act in PlannedAction)
            out.line("Done." if done else f"{counts}.")
        case Format.NAME:
            out.names(name_of(step.thing.key) for step in steps)
        case _:
            out.data([step.as_json() for step in steps])


def _show_step(out: Output, step: PlannedChange) -> None:
    mark, style = MARKS[step.act]
    out.line(f"{mark} {step.thing.key}", style)
    for each in step.differences:
        said = (
            f"{_said(each.after)}"
            if step.act is PlannedAction.CREATE
            else f"{_said(each.before)} -> {_said(each.after)}"
        )
        out.line(f"    {each.field}: {said}")


def _said(value: object) -> str:
    return "none" if value in (None, "", [], {}) else str(value)
