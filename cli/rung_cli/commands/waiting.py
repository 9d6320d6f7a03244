"""`wait`: until something is so, for pipelines."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rung_cli.errors import Misused, Refused, TimedOut
from rung_cli.flags import OutputFlag, ProjectFlag, Workloads
from rung_cli.naming import workload as find_workload
from rung_cli.notes import note
from rung_cli.output import Format
from rung_cli.session import session
from rung_cli.signing import Api

PHASES: Final = (
    "Creating", "Initializing", "Resuming", "Pending", "Deleting", "Running", "Updating", "Stopped", "Stopping",
    "Degraded", "Failed", "Completed", "Terminating", "Unknown",
)  # fmt: skip
DELETED: Final = "Deleted"
FIRST: Final = 0.5
LONGEST: Final = 5.0


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
        str, typer.Option("--for", help="running, completed, failed, suspended, deleted, or phase=PHASE.")
    ] = "completed",
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds; 0 looks once. Forever when absent.")] = None,
    project: ProjectFlag = "",
    output: OutputFlag = None,
) -> None:
    """Wait until every workload named is so.

    Ends with 0 when it has come, with 1 as soon as it can no longer come, with 5 when the time is over.
    A workload that has completed counts as having been running.
    """
    held = session(ctx)
    out, condition = held.output(output), condition_of(until)
    watched = _found(held.api, names, held.project(project), condition)
    found = _until(held.api, watched, condition, timeout)
    if out.format is not Format.TABLE:
        out.rows(found, (), name=_ref, empty="")


def condition_of(text: str) -> Condition:
    """By its name, or `phase=`."""
    if text in CONDITIONS:
        return CONDITIONS[text]
    name, _, wanted = text.partition("=")
    known = {phase.lower(): phase for phase in (*PHASES, DELETED)}
    if name != "phase" or wanted.lower() not in known:
        raise Misused(f"--for takes {', '.join(CONDITIONS)} or phase=PHASE, one of {', '.join(PHASES)}.")
    phase = known[wanted.lower()]
    return Condition(text, frozenset({phase}), frozenset({"Completed", "Failed", DELETED}) - {phase})


def _found(api: Api, names: Iterable[str], project: str, condition: Condition) -> list[dict[str, Any]]:
    """Those to watch. What is not there need not be waited for when its end is."""
    watched = list[dict[str, Any]]()
    for name in dict.fromkeys(names):
        try:
            watched.append(find_workload(api, name, project))
        except Refused as refusal:
            if refusal.status != 404 or DELETED not in condition.wanted:
                raise
            note(f"{name} is not there.")
    return watched


def _until(
    api: Api, watched: Sequence[dict[str, Any]], condition: Condition, timeout: float | None
) -> list[dict[str, Any]]:
    """Look again and again, a little less often each time, and tell of every change."""
    ends = None if timeout is None else time.monotonic() + timeout
    waiting, told, done, pause = list(watched), dict[str, str](), list[dict[str, Any]](), FIRST
    while True:
        looks = [_look(api, each) for each in waiting]
        for now in looks:
            _tell(now, told)
        done += [now for now in looks if _is_so(now, condition)]
        waiting = [now for now in looks if now["phase"] not in condition.wanted]
        if not waiting:
            return done
        left = LONGEST if ends is None else ends - time.monotonic()
        if left <= 0:
            raise TimedOut(f"After {timeout:g} s still not {condition.name}: {', '.join(map(_ref, waiting))}.")
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST)


def _is_so(now: Mapping[str, Any], condition: Condition) -> bool:
    """Refused where it can never be."""
    if now["phase"] in condition.never:
        raise Refused(f"{_ref(now)} is {now['phase']}: {condition.name} can no longer come.", status=409)
    return now["phase"] in condition.wanted


def _look(api: Api, known: dict[str, Any]) -> dict[str, Any]:
    """The workload now; deleted is told as a phase of its own."""
    try:
        now: dict[str, Any] = api.get(f"v1/workloads/{known['id']}")
    except Refused as refusal:
        if refusal.status != 404:
            raise
        return {**known, "phase": DELETED}
    return {**now, "phase": DELETED} if now.get("deletedAt") else now


def _tell(now: Mapping[str, Any], told: dict[str, str]) -> None:
    why = f" ({now['phaseMessage']})" if now.get("phaseMessage") else ""
    said = f"{_ref(now)}: {now['phase']}{why}"
    if told.get(now["id"]) != said:
        told[now["id"]] = said
        note(said)


def _ref(found: Mapping[str, Any]) -> str:
    return f"{found['projectName']}/{found['name']}"
