"""How a submission, a dry run of one and an explanation are shown."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rung_cli.output.formats import Columns, Format, Output, TableColumn
from rung_cli.output.stderr import note
from rung_cli.output.units import amount, gpu_time, gpus

COLOURS: Final[Mapping[str, str]] = {
    "starts": "green",
    "evicts": "magenta",
    "reclaims": "magenta",
    "waits": "yellow",
    "refused": "red",
}
BEGINNINGS: Final[Mapping[str, str]] = {"refused": "Never as requested", "unknown": "No forecast"}
PREVIEW: Final = "preview"
"""Key of a forecast that was made before the submission whose answer it is part of."""
ALONE: Final = "Each document is previewed alone, as if the others were not submitted. Together they may not all start."
VICTIMS: Final[Columns] = (
    TableColumn("  EVICTED", lambda row: f"  {row['name']}"),
    TableColumn("PROJECT", lambda row: row["projectName"]),
    TableColumn("PRIORITY", lambda row: f"{row['priority']} {row['priorityValue']}".strip()),
    TableColumn("GPUS", lambda row: amount(row["gpus"]), right=True),
    TableColumn("AT RISK", lambda row: gpu_time(row["gpuHoursAtRisk"]), right=True),
)


def show_submitted(out: Output, answers: Sequence[Mapping[str, Any]], *, project: str, dry_run: bool) -> None:
    """One answer alone is shown alone; several are a list. `project`: where they went."""
    if out.format is Format.NAME:
        out.names(f"{project}/{name_in(each)}" for each in answers)
    elif out.format is not Format.TABLE:
        out.data(answers[0] if len(answers) == 1 else list(answers))
    else:
        for place, each in enumerate(answers):
            if place:
                out.line()
            out.line(f"{'Would submit' if dry_run else 'Submitted'} {project}/{name_in(each)}", style="bold")
            _show_values(out, each)
    _note_alone(out, [each for each in answers if each.get("forecast") or each.get(PREVIEW)])


def _note_alone(out: Output, previews: Sequence[Mapping[str, Any]]) -> None:
    """Once for several forecasts: each is the answer to a request of its own."""
    if len(previews) > 1 and out.format is Format.TABLE:
        out.line()
        out.line(ALONE, style="yellow")
    elif len(previews) > 1 and out.format is not Format.NAME:
        note(ALONE)


def with_preview(answer: Mapping[str, Any], dry_run: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer to a submission with the forecast of the dry run before it, to be shown as such."""
    return {**answer, PREVIEW: dry_run.get("forecast")}


def name_in(answer: Mapping[str, Any]) -> str:
    """Of a submitted manifest or native workload."""
    return str((answer.get("metadata") or answer)["name"])


def _show_values(out: Output, answer: Mapping[str, Any]) -> None:
    known = answer.get("metadata") or {**answer, **answer.get("spec", {})}
    priority = str(known.get("priority") or known.get("priorityClass") or "")
    preemptibility = str(known.get("effectivePreemptibility") or known.get("preemptibility") or "")
    sources = [str(known.get(f"{name}Source") or "") for name in ("priority", "preemptibility")]
    effective(out, (priority, sources[0]), (preemptibility, sources[1]))
    _show_sources(out, known.get("templateSources") or {})
    remarks(out, known.get("discarded") or [], known.get("warnings") or [])
    if preview := answer.get("forecast"):
        if wanted := preview.get("requested"):
            out.line(f"  Requests: {requested(wanted)}")
        forecast(out, preview)
    elif preview := answer.get(PREVIEW):
        _show_preview(out, preview)


def _show_sources(out: Output, sources: Mapping[str, str]) -> None:
    """What each template or asset has filled in."""
    fields = defaultdict[str, list[str]](list)
    for pointer, who in sources.items():
        fields[who].append(pointer.rpartition("/")[2])
    for who, names in fields.items():
        out.line(f"  From {who}: {', '.join(names)}")


def effective(out: Output, priority: tuple[str, str], preemptibility: tuple[str, str]) -> None:
    """Both values, each with where it came from."""
    pairs = {"Priority": priority, "Preemptibility": preemptibility}
    size = max(len(value) for value, _ in pairs.values())
    out.pairs(
        [
            (f"  {name}", f"{value:<{size}}  {f'({SOURCES.get(source, source)})' if source else ''}".rstrip())
            for name, (value, source) in pairs.items()
            if value
        ]
    )


SOURCES: Final[Mapping[str, str]] = {
    "explicit": "chosen",
    "label": "manifest label",
    "pod template": "priorityClassName of the pod template",
    "policy": "policy default",
    "type": "type default",
    "threshold": "by priority: 100 and above is non-preemptible",
}


def remarks(out: Output, discarded: Sequence[Mapping[str, Any]], warnings: Sequence[Mapping[str, Any]]) -> None:
    """What was given and not used, and what a person should know."""
    for each in discarded:
        out.line(f"  Ignored: {each['field']} {each['value']} of {each['source']}: {each['because']}.", style="yellow")
    for each in warnings:
        out.line(f"  Note: {each['message']}", style="yellow")


def forecast(out: Output, found: Mapping[str, Any]) -> None:
    """What would happen now, who pays for it, and what would do better."""
    begin = BEGINNINGS.get(found["verdict"], "If submitted now")
    out.line(f"  {begin}: {found['sentence']}", style=COLOURS.get(found["verdict"], ""))
    if found["victims"]:
        out.table(found["victims"], VICTIMS)
    for each in found["alternatives"]:
        out.line(f"  Alternative: {each['words']}", style="green")
    doubts = found.get("doubts") or []
    uncertain = {each["sentence"] for each in doubts}
    for each in found["cautions"]:
        if each not in uncertain:
            out.line(f"  Warning: {each}", style="yellow")
    for each in doubts:
        out.line(f"  Uncertain: {each['sentence']} Check: {each['check']} ({each['code']})", style="yellow")
    for each in filter(None, (found.get("cheaperVictim"), found.get("evictionOdds"))):
        out.line(f"  {each['sentence']}")
    for each in found["assurances"]:
        out.line(f"  {each}")
    out.line(f"  {_basis(found)}", style="dim")


def _show_preview(out: Output, found: Mapping[str, Any]) -> None:
    """The forecast in short: what was likely to happen, who would be evicted, what is uncertain."""
    out.line(f"  Requests: {requested(found['requested'])}")
    out.line(f"  Preview before the submission: {found['sentence']}", style=COLOURS.get(found["verdict"], ""))
    if found["victims"]:
        out.table(found["victims"], VICTIMS)
    for each in found["alternatives"]:
        out.line(f"  Alternative: {each['words']}", style="green")
    for each in found["cautions"]:
        out.line(f"  Warning: {each}", style="yellow")
    out.line(f"  {_basis(found)}", style="dim")


def _basis(found: Mapping[str, Any]) -> str:
    """An estimate names what it is one of."""
    age = found["snapshotAgeSeconds"]
    seen = "no observed data" if age is None else f"data {age:.0f} s old"
    simulated = " of a simulated cluster" if found["simulated"] else ""
    return f"Estimated with the {found['scheduler']} model from {seen}{simulated}. Nothing is reserved."


def requested(found: Mapping[str, Any]) -> str:
    """`4 pods, 8 GPUs, 16 CPU cores, 64 GiB`."""
    pods = found["pods"]
    parts = [f"{pods} pod{'' if pods == 1 else 's'}", gpus(found["gpus"])]
    if found["cpuCores"]:
        parts.append(f"{found['cpuCores']:g} CPU cores")
    if found["memoryBytes"]:
        parts.append(f"{found['memoryBytes'] / 1024**3:.3g} GiB")
    return ", ".join(parts)


def show_explained(out: Output, found: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """One manifest after the other, each below its place."""
    answers = [answer for _, answer in found]
    if out.format is Format.NAME:
        out.names(_ref(each) for each in answers)
    elif out.format is not Format.TABLE:
        out.data(answers[0] if len(answers) == 1 else answers)
    else:
        for place, (where, each) in enumerate(found):
            if place:
                out.line()
            _show_explanation(out, where, each)
    _note_alone(out, answers)


def _show_explanation(out: Output, where: str, found: Mapping[str, Any]) -> None:
    kind = found["kind"] if found["kind"] == found["type"] else f"{found['kind']}, type {found['type']}"
    out.line(f"{_ref(found)}  ({kind}; {where})", style="bold")
    out.line(f"  Requests: {requested(found['requested'])}")
    priority, preemptibility = found["priority"], found["preemptibility"]
    value = f"{priority['value']} {priority['number']}"
    effective(out, (value, priority["source"]), (preemptibility["value"], preemptibility["source"]))
    remarks(out, found["discarded"], found["warnings"])
    forecast(out, found["forecast"])


def _ref(found: Mapping[str, Any]) -> str:
    return f"{found['projectName']}/{found['name']}"
