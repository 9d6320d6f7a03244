"""`wait`: until something is so, for pipelines."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rung_cli import completions
from rung_cli.errors import ApiError, TimedOut, UsageError
from rung_cli.flags import OutputFlag, ProjectFlag, Workloads
from rung_cli.http.client import Api
from rung_cli.lookup import workload as find_workload
from rung_cli.output.formats import Format
from rung_cli.output.stderr import note
from rung_cli.output.units import PHASE_WORDS, phase_named, phase_word
from rung_cli.session import session
from rung_cli.watch import DELETED, Row, Watch, fetch_workload


@dataclass(frozen=True, slots=True)
class Condition:
    """What is waited for: any of `wanted` fulfils it, any of `never` means that it cannot come any more."""

    name: str
    wanted: frozenset[str]
    never: frozenset[str]


def _condition(name: str, wanted: Iterable[str], never: Iterable[str]) -> Condition:
    return Condition(name, frozenset(wanted), frozenset(never))


CONDITIONS: Final[Mapping[str, Condition]] = {
    each.name: each
    for each in (
        # What has completed was running: a short job may be over between two looks.
        _condition("running", ["Running", "Completed"], ["Failed", DELETED]),
        _condition("completed", ["Completed"], ["Failed", DELETED]),
        _condition("failed", ["Failed"], ["Completed", DELETED]),
        _condition("suspended", ["Stopped"], ["Completed", "Failed", DELETED]),
        _condition("deleted", [DELETED], []),
    )
}


def register(app: typer.Typer) -> None:
    """Add it."""
    app.command()(wait)


def wait(
    ctx: typer.Context,
    names: Workloads,
    *,
    until: Annotated[
        str,
        typer.Option(
            "--for",
            help="running, completed, failed, suspended, deleted, or phase=PHASE.",
            autocompletion=completions.words([*CONDITIONS, *(f"phase={phase}" for phase in PHASE_WORDS)]),
        ),
    ] = "completed",
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Timeout in seconds; 0 checks once; default: none.")
    ] = None,
    project: ProjectFlag = "",
    output: OutputFlag = None,
) -> None:
    """Wait until all workloads meet a condition.

    Exit code 0 when the condition is met, 1 when it can no longer be met, 5 on timeout.
    Completed workloads count as having been running. Changes are streamed; if streaming is
    not available, the portal is polled every few seconds.

    rung wait train --for completed --timeout 3600 && rung logs train
    """
    held = session(ctx)
    out, condition = held.output(output), condition_of(until)
    watched = _found(held.api, names, held.project(project), condition)
    found = _until(held.api, watched, condition, timeout)
    if out.format is not Format.TABLE:
        # The stream may not have reported everything about it.
        out.rows([fetch_workload(held.api, each) for each in found], (), name=_ref, empty="")


def condition_of(text: str) -> Condition:
    """By its name, or `phase=`."""
    if text in CONDITIONS:
        return CONDITIONS[text]
    name, _, wanted = text.partition("=")
    phase = DELETED if wanted.lower() == DELETED.lower() else phase_named(wanted)
    if name != "phase" or phase is None:
        raise UsageError(f"--for must be {', '.join(CONDITIONS)} or phase=PHASE with one of {', '.join(PHASE_WORDS)}.")
    return Condition(text, frozenset({phase}), frozenset({"Completed", "Failed", DELETED}) - {phase})


def _found(api: Api, names: Iterable[str], project: str, condition: Condition) -> list[Row]:
    """Those to watch. What is not there need not be waited for when its end is."""
    watched = list[Row]()
    for name in dict.fromkeys(names):
        try:
            watched.append(find_workload(api, name, project))
        except ApiError as refusal:
            if refusal.status != 404 or DELETED not in condition.wanted:
                raise
            note(f"{name} was not found.")
    return watched


def _until(api: Api, found: Sequence[Row], condition: Condition, timeout: float | None) -> list[Row]:
    """Workloads that reached the condition, in that order; every change is printed."""
    ends = None if timeout is None else time.monotonic() + timeout
    waiting, printed, done = {each["id"]: each for each in found}, dict[str, str](), list[Row]()
    watch = Watch(api, list(waiting.values()))
    while waiting:
        now = watch.next(None if ends is None else ends - time.monotonic())
        if now is None:
            raise TimedOut(
                f"Timeout after {timeout:g} s, not {condition.name}: {', '.join(map(_ref, waiting.values()))}."
            )
        if now["id"] not in waiting:
            continue
        _print_change(now, printed)
        if _is_so(now, condition):
            done.append(now)
            del waiting[now["id"]]
            watch.leave(now["id"])
    return done


def _is_so(now: Mapping[str, Any], condition: Condition) -> bool:
    """ApiError where it can never be."""
    if now["phase"] in condition.never:
        raise ApiError(f"{_ref(now)} is {phase_word(now['phase'])} and cannot become {condition.name}.", status=409)
    return now["phase"] in condition.wanted


def _print_change(now: Mapping[str, Any], printed: dict[str, str]) -> None:
    why = now.get("phaseMessage") or now.get("phaseReason")
    line = f"{_ref(now)}: {phase_word(now['phase'])}{f' ({why})' if why else ''}"
    if printed.get(now["id"]) != line:
        printed[now["id"]] = line
        note(line)


def _ref(found: Mapping[str, Any]) -> str:
    return f"{found['projectName']}/{found['name']}"
