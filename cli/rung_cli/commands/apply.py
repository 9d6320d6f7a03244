"""`export`, `apply`: everything that is configured as files under version control."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from rung_cli import completions
from rung_cli.commands.plan import plan_lines
from rung_cli.errors import ApiError, CliError, ExitCode, UsageError
from rung_cli.flags import OutputFlag
from rung_cli.lookup import did_you_mean
from rung_cli.manifests.apply import (
    BAD,
    ApplyOutcome,
    PlannedAction,
    PlannedChange,
    apply_plan,
    check_plan,
    name_of,
    plan,
)
from rung_cli.manifests.documents import read_documents
from rung_cli.manifests.kinds import KINDS
from rung_cli.manifests.reading import Body, bodies_of, declared_objects
from rung_cli.manifests.resources import DeclaredObject, ServerState
from rung_cli.manifests.translate import Translation, is_kubernetes, remarks_of
from rung_cli.manifests.translate import translate as translate_objects
from rung_cli.output.errors import print_error
from rung_cli.output.formats import Format, Output, as_yaml
from rung_cli.output.stderr import confirm, note, progress, warn
from rung_cli.session import session

MARKS: Final = {
    PlannedAction.CREATE: ("+", "green"),
    PlannedAction.UPDATE: ("~", "yellow"),
    PlannedAction.DELETE: ("-", "red"),
}
STYLES: Final = {
    ApplyOutcome.CREATED: "green",
    ApplyOutcome.UPDATED: "yellow",
    ApplyOutcome.DELETED: "red",
    ApplyOutcome.FAILED: "bold red",
    ApplyOutcome.SKIPPED: "magenta",
}
COUNTED: Final = (*STYLES, ApplyOutcome.UNCHANGED)
Files = Annotated[list[str], typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON documents; - is stdin.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--kind", help=f"Only these kinds: {', '.join(KINDS)}.", autocompletion=completions.words(list(KINDS))
    ),
]


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(export)
    app.command()(apply)


def export(ctx: typer.Context, *, kind: Only = None, output: OutputFlag = None) -> None:
    """Export everything that `rung apply` takes, as documents in YAML or JSON. Secrets are never in them.

    rung export > rung.yaml

    rung export --kind Project --kind Department
    """
    held = session(ctx)
    out = held.output(output)
    known = {each.lower(): each for each in KINDS}
    if strange := [each for each in kind or () if each.lower() not in known]:
        guess = did_you_mean(strange[0], list(KINDS))
        raise UsageError(f"Unknown kind {strange[0]}.{guess}", hint=f"Kinds: {', '.join(KINDS)}.")
    chosen = {known[each.lower()] for each in kind or ()}
    things = list(_exported(ServerState(held.api, KINDS), chosen))
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
        bool,
        typer.Option(
            "--plan",
            help="Show the changes, and the plan that the portal makes of each, without applying them. Exit code 2 if "
            "there are changes, 1 if one would be refused.",
        ),
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete objects that no document contains, of the kinds in the documents.")
    ] = False,
    translate: Annotated[
        bool,
        typer.Option(
            "--translate", help="Apply what Kubernetes PriorityClasses and ResourceQuotas in the files mean here."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: OutputFlag = None,
) -> None:
    """Apply documents, and report the outcome of each. Omitted fields do not change. Applying again changes nothing.

    If one is refused, the others are applied, but for those that depend on it; the exit code is then 1.

    rung apply -f rung.yaml --plan

    kubectl get priorityclass -o yaml | rung apply -f - --translate --plan
    """
    held = session(ctx)
    out = held.output(output)
    server = ServerState(held.api, KINDS)
    translated = _translated(out, server, bodies_of(read_documents(file)), wanted=translate)
    steps = plan(declared_objects(translated.bodies), server, prune=prune)
    if show_plan:
        _show_plan(out, list(check_plan(server, steps)), left=len(translated.left))
        return
    changes = [step for step in steps if step.changes]
    if changes and not yes:
        _confirm(changes)
    _apply(out, server, steps, left=len(translated.left))


def _exported(server: ServerState, chosen: set[str]) -> Iterator[DeclaredObject]:
    """Every kind, or the chosen ones. A kind that the caller may not read is reported; a chosen one is an error."""
    for name, kind in KINDS.items():
        if chosen and name not in chosen:
            continue
        try:
            found = list(server.things(name).values())
        except ApiError as refusal:
            if chosen or refusal.status != 403:
                raise
            note(f"{name} is left out: {refusal.message}")
            continue
        yield from (kind.complete(server, each) for each in found if kind.is_managed(each))


def _translated(out: Output, server: ServerState, bodies: list[tuple[str, Body]], *, wanted: bool) -> Translation:
    """The documents, those of Kubernetes objects as what they mean. Without leave these are shown, and that is all."""
    if not any(is_kubernetes(body) for _, body in bodies):
        return Translation(bodies)
    translated = translate_objects(bodies, server)
    if not wanted:
        _refuse_kubernetes(out, bodies, translated)
    for remark in remarks_of(translated):
        warn(remark)
    return translated


def _refuse_kubernetes(out: Output, bodies: Sequence[tuple[str, Body]], translated: Translation) -> None:
    """Show what the objects mean, and end."""
    native = [body for _, body in bodies if not is_kubernetes(body)]
    meant = [body for _, body in translated.bodies if body not in native]
    if out.format is Format.JSON:
        out.data(meant)
    elif meant:
        out.line("---\n" + "\n---\n".join(as_yaml(body) for body in meant))
    for remark in remarks_of(translated):
        warn(remark)
    count = len(bodies) - len(native)
    what = "1 Kubernetes object" if count == 1 else f"{count} Kubernetes objects"
    raise UsageError(
        f"The files have {what}; above is what they mean here. Nothing was applied.", hint="Apply it with --translate."
    )


def _apply(out: Output, server: ServerState, steps: Sequence[PlannedChange], *, left: int) -> None:
    results = list[PlannedChange]()
    try:
        for result in apply_plan(server, steps):
            results.append(result)
            if out.format is Format.TABLE:
                _show_result(out, result)
    except CliError:
        progress("")
        _show_rest(out, steps, results)
        raise
    _show_results(out, results)
    if failed := [each for each in results if each.outcome in BAD]:
        raise ApiError(_counts_bad(failed, left), status=_status(failed))
    if left:
        raise ApiError(_counts_bad([], left), status=501)


def _show_result(out: Output, result: PlannedChange) -> None:
    """One line; a refusal in full on stderr."""
    assert result.outcome is not None  # noqa: S101 - it is a result
    why = f", {result.message}" if result.outcome is ApplyOutcome.SKIPPED else ""
    out.line(f"{result.thing.key}: {result.outcome}{why}", STYLES.get(result.outcome, ""))
    if result.refusal:
        print_error(result.refusal, out.format)


def _show_results(out: Output, results: Sequence[PlannedChange]) -> None:
    match out.format:
        case Format.TABLE:
            counts = [(sum(each.outcome is outcome for each in results), outcome) for outcome in COUNTED]
            out.line(", ".join(f"{count} {outcome}" for count, outcome in counts if count) + ".")
        case Format.NAME:
            out.names(name_of(each.thing.key) for each in results if each.changes and each.outcome not in BAD)
        case _:
            out.data([each.as_json() for each in results])


def _show_rest(out: Output, steps: Sequence[PlannedChange], results: Sequence[PlannedChange]) -> None:
    """The connection was lost: what was applied before, and what is unconfirmed."""
    known = {each.thing.key for each in results}
    if out.format not in {Format.TABLE, Format.NAME}:
        out.data([each.as_json() for each in results])
    rest = [str(step.thing.key) for step in steps if step.thing.key not in known]
    note(f"Not confirmed: {', '.join(rest)}. Run the same command again.")


def _counts_bad(bad: Sequence[PlannedChange], left: int) -> str:
    counts = [(sum(each.outcome is outcome for each in bad), outcome) for outcome in BAD]
    parts = [f"{count} {outcome}" for count, outcome in sorted(counts, key=lambda each: each[1]) if count]
    parts += [f"{left} not translated"] if left else []
    return f"{', '.join(parts)}. Everything else was applied."


def _status(bad: Sequence[PlannedChange]) -> int:
    return next((each.refusal.status for each in bad if each.refusal), 409)


def _confirm(steps: Sequence[PlannedChange]) -> None:
    lines = [f"  {MARKS[step.act][0]} {step.thing.key}{_counted(step)}" for step in steps]
    question = f"Apply {'this change' if len(steps) == 1 else f'these {len(steps)} changes'}?"
    confirm(
        lines, question, hint="Use --plan to preview the changes, or --yes in scripts.", declined="Nothing was changed."
    )


def _counted(step: PlannedChange) -> str:
    fields = len(step.differences)
    return f": {fields} field{'' if fields == 1 else 's'}" if fields else ""


def _show_plan(out: Output, checked: Sequence[PlannedChange], *, left: int) -> None:
    """What would change, and what the portal says of it. Ends the command with 2, or with 1 for a refusal."""
    steps = [step for step in checked if step.changes]
    match out.format:
        case Format.TABLE if not steps:
            out.line("No changes.")
        case Format.TABLE:
            for step in steps:
                _show_step(out, step)
            acts = [act for act in PlannedAction if act is not PlannedAction.NONE]
            out.line(", ".join(f"{sum(each.act is act for each in steps)} to {act}" for act in acts) + ".")
        case Format.NAME:
            out.names(name_of(step.thing.key) for step in steps)
        case _:
            out.data([step.as_json() for step in steps])
    refused = [step for step in steps if step.outcome is ApplyOutcome.REFUSED]
    if refused or left:
        parts = [f"{len(refused)} of {len(steps)} changes would be refused"] if refused else []
        parts += [f"{left} not translated"] if left else []
        raise ApiError(", ".join(parts) + ".", status=_status(refused))
    if steps:
        raise typer.Exit(ExitCode.CHANGES)


NEEDS_APPROVAL: Final = (
    "A second admin has to approve it, so rung apply is refused. Open a plan in the portal or with POST /api/v1/plans."
)


def _show_step(out: Output, step: PlannedChange) -> None:
    mark, style = MARKS[step.act]
    out.line(f"{mark} {step.thing.key}", style)
    for each in step.differences:
        text = (
            f"{_said(each.after)}"
            if step.act is PlannedAction.CREATE
            else f"{_said(each.before)} -> {_said(each.after)}"
        )
        out.line(f"    {each.field}: {text}")
    for planned in step.plans:
        out.line(f"    {planned['sentence']}")
        if planned["needsApproval"]:
            out.line(f"    {NEEDS_APPROVAL}", "yellow")
        for line, line_style in plan_lines(planned):
            out.line(f"      {line}", line_style)
    if step.outcome is ApplyOutcome.REFUSED:
        out.line(f"    would be refused: {step.message}", "red")
    elif step.outcome is ApplyOutcome.UNCHECKED:
        out.line(f"    not checked: {step.message}", "yellow")


def _said(value: object) -> str:
    return "none" if value in (None, "", [], {}) else str(value)
