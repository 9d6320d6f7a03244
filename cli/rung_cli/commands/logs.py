"""`logs`: what a workload says."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rung_cli.errors import ApiError, UsageError
from rung_cli.flags import OutputFlag, ProjectFlag, Workload
from rung_cli.http.client import Api
from rung_cli.lookup import not_found
from rung_cli.lookup import workload as find_workload
from rung_cli.output.formats import Format, Output
from rung_cli.output.stderr import note
from rung_cli.session import session

MOST: Final = 3000
ENDED: Final = frozenset({"Completed", "Failed", "Stopped", "Deleting"})
KNOWN_BY: Final = 20


def register(app: typer.Typer) -> None:
    """Add it."""
    app.command()(logs)


def logs(
    ctx: typer.Context,
    name: Workload,
    *,
    project: ProjectFlag = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the workload ends.")] = False,
    pod: Annotated[str, typer.Option(help="Pod name; default: the newest pod.")] = "",
    container: Annotated[
        str, typer.Option("--container", "-c", help="Container name; default: the first container.")
    ] = "",
    lines: Annotated[int, typer.Option("--tail", "-n", min=1, max=MOST, help="Number of last lines.")] = 200,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between polls of --follow.")] = 2.0,
    output: OutputFlag = None,
) -> None:
    """Print the last log lines of a workload. With -f, follow new lines.

    rung logs train --follow
    """
    held = session(ctx)
    out = held.output(output)
    found = find_workload(held.api, name, held.project(project))
    requested = {key: value for key, value in {"pod": pod, "container": container}.items() if value}
    whole = out.format in {Format.JSON, Format.YAML}
    if whole and follow:
        raise UsageError("-f and -o cannot be combined.")
    if whole:
        out.data(held.api.get(f"v1/workloads/{found['id']}/logs", lines=lines, **requested))
    elif follow:
        _follow(held.api, out, found["id"], requested, lines, interval)
    else:
        _once(out, held.api.get(f"v1/workloads/{found['id']}/logs", lines=lines, **requested))


def _once(out: Output, answer: Mapping[str, Any]) -> None:
    if answer["pod"] is None:
        raise not_found("No pods yet, so there are no logs.")
    if answer["trouble"]:
        raise ApiError(f"{answer['pod']}: {answer['trouble']}", status=409)
    if answer["cut"]:
        note(f"Earlier lines of {answer['pod']} are not shown. Use --tail N, up to {MOST}.")
    out.names(answer["lines"])


def _follow(api: Api, out: Output, workload_id: str, requested: dict[str, str], lines: int, interval: float) -> None:
    """1. look  2. print what is new  3. end with the workload, after one last look"""
    path, seen, pod, printed = f"v1/workloads/{workload_id}", list[str](), "", ""
    while True:
        ended = api.get(path)["phase"] in ENDED
        answer = api.get(f"{path}/logs", lines=lines if not seen else MOST, **requested)
        trouble = answer["trouble"] or ("" if answer["pod"] else "No pods yet.")
        if trouble != printed and trouble:
            note(trouble)
        printed = trouble
        if answer["pod"] and not answer["trouble"]:
            if answer["pod"] != pod:
                pod, seen = answer["pod"], []
                note(f"Following {pod}.")
            out.names(fresh(seen, answer["lines"]))
            seen = list(answer["lines"])
        if ended:
            return
        time.sleep(interval)


def fresh(seen: Sequence[str], now: Sequence[str]) -> Sequence[str]:
    """What `now` has beyond what was seen: the log only grows at its end, and loses lines at its begin.

    The last lines seen are looked for from the end, at its begin also a part of them; where they are gone, all is new.
    """
    mark = list(seen[-KNOWN_BY:])
    for end in range(len(now), 0, -1):
        if mark and list(now[max(0, end - len(mark)) : end]) == mark[-end:]:
            return now[end:]
    return now
