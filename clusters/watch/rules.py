"""Reduce text and numbers that a cluster reported to what can be stored: bounded, printable, without secrets.

Log lines and event messages are a tenant's or an attacker's text. Escaping for HTML is the template's; this takes out
what would act on a terminal or reorder what is read. Sequences are those of ECMA-48, and OSC 8 for hyperlinks.

A cluster may be a stranger's, or broken. So nothing of another shape comes further than here: a field of the wrong
type is absent, a number out of range is the nearest that can be kept, a text is fit to be read, and whatever is long
is cut. An object without a name or a uid that an API server could have given it is none. What is not read, most of
an object, is dropped too; of an object that is compared as a whole its fingerprint stays.

The state of a job object, read from the status that its controller writes. Pure; one table for all kinds.

Sources: status shapes of batch/v1, Kubeflow training, JobSet, Ray, Argo, Tekton and the common conditions. A Job whose
end is decided (SuccessCriteriaMet, FailureTarget) still has pods that are ending: it is over with Complete or Failed.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isnan
from typing import Any, Final, TypeAlias

from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import ANSWERED, EVENT, FINGERPRINT, KAI_POD_GROUP, NODE, POD, SCHEDULING, fingerprint_of
from clusters.ports.pod_templates import scheduling_fields
from clusters.ports.workload_kinds import kind_for

LONGEST_LINE: Final = 4_000
MOST_LINES: Final = 100  # of a message
MOST_CHARACTERS: Final = 400_000
# A string sequence (OSC, DCS, SOS, PM, APC) ends with BEL or ST; one that never ends takes its whole line.
_STRING = r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|\x1b|$)"
_CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
_SHORT = r"\x1b[ -/]*[0-~]?"
_SEQUENCE: Final = re.compile(f"{_STRING}|{_CSI}|{_SHORT}")
_REORDERING: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
_CONTROL: Final = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff{_REORDERING}]")


@dataclass(frozen=True, slots=True)
class LogText:
    """The end of a log: clean lines, whether earlier ones were left out, and why it could not be read."""

    lines: Sequence[str] = ()
    cut: bool = False
    trouble: str = ""

    @property
    def text(self) -> str:
        """The lines as one text, each with its end."""
        return "".join(f"{line}\n" for line in self.lines)


def clean(line: str, *, longest: int = LONGEST_LINE) -> str:
    """One line as a person may read it: what a progress bar wrote last, tabs kept, cut with a remark."""
    start = line[: longest * 4]
    last = _SEQUENCE.sub("", start).rstrip("\r\n").rpartition("\r")[2]
    text = _CONTROL.sub("", last)
    if len(text) <= longest and len(start) == len(line):
        return text
    return f"{text[:longest]} … (truncated)"


def clean_message(text: str) -> str:
    """What a cluster says of an object, line by line; nearly always it is one."""
    return "\n".join(clean(line) for line in text.splitlines()[:MOST_LINES])


def tail(lines: Iterable[str], *, most_lines: int, most_characters: int = MOST_CHARACTERS) -> LogText:
    """The last of them, clean, within both caps."""
    every = list(lines)
    lines_left: list[str] = []
    room = most_characters
    for line in reversed(every[-most_lines:]):
        text = clean(line)
        room -= len(text) + 1
        if room < 0:
            break
        lines_left.append(text)
    return LogText(tuple(reversed(lines_left)), cut=len(lines_left) < len(every))


Reader: TypeAlias = Callable[[Any], Any]
"""What may stand there; None: nothing."""

MANY: Final = 1000
"""Members of a list or a mapping that are looked at; API servers take objects of 1.5 MB, where no more make sense."""
LONGEST_SENTENCE: Final = 8192
LARGEST: Final = 2**31 - 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_VERSION: Final = re.compile(r"[0-9]{1,20}")
"""A resourceVersion is a number of 64 bits, as Kubernetes 1.35 promises."""


def sanitize(kind: Kind, manifest: Any) -> Manifest | None:
    """The object as far as it can be believed; None when it is no object of that kind."""
    if not isinstance(manifest, dict) or (metadata := _METADATA(manifest.get("metadata"))) is None:
        return None
    if "name" not in metadata or "uid" not in metadata:
        return None
    parts = _PARTS.get(kind.key, _ANY)(manifest)
    found: Manifest = {**parts, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    if kind.key not in _PARTS:
        found[FINGERPRINT] = fingerprint_of({**manifest, "metadata": metadata})
        found[ANSWERED] = bool(manifest.get("status"))
        if workload_kind := kind_for(kind.api_version, kind.kind):
            found[SCHEDULING] = scheduling_fields(manifest, workload_kind)
    return found


def sanitize_all(kind: Kind, found: Iterable[Any]) -> list[Manifest]:
    """Those that are objects of that kind, as far as they can be believed."""
    return [each for one in found if (each := sanitize(kind, one)) is not None]


def word(most: int) -> Reader:
    """A text of one line."""

    def read(value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        if len(value) <= most and value.isprintable():
            return value
        return clean_message(value[: most * 4]).replace("\n", " ")[:most]

    return read


def sentence(value: Any) -> str | None:
    """A text of some lines."""
    if not isinstance(value, str):
        return None
    if len(value) <= LONGEST_SENTENCE and value.isprintable():
        return value
    return clean_message(value[:LONGEST_SENTENCE])[:LONGEST_SENTENCE]


def name(most: int) -> Reader:
    """A text that names something: as it is, or it names nothing."""

    def read(value: Any) -> str | None:
        return value if isinstance(value, str) and len(value) <= most and _NAME.fullmatch(value) else None

    return read


def version_of(value: Any) -> str:
    """A resourceVersion, if it is one that can be compared; else empty."""
    return value if isinstance(value, str) and _VERSION.fullmatch(value) else ""


def whole(value: Any) -> int | None:
    """A number of 32 bits with its sign, or the nearest one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and isnan(value):
        return None
    return int(min(max(value, -LARGEST), LARGEST))


def quantity(value: Any) -> str | None:
    """An amount as it is written, before it is read."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
        return str(value)
    return value if isinstance(value, str) and len(value) <= 64 else None


def flag(value: Any) -> bool | None:
    """Yes or no."""
    return value if isinstance(value, bool) else None


def some(value: Any) -> bool:
    return bool(value)


def table(**fields: Reader) -> Reader:
    """An object with these fields, and no others."""

    def read(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        return {key: found for key, each in fields.items() if key in value and (found := each(value[key])) is not None}

    return read


def pairs(key: Reader, text: Reader) -> Reader:
    """A mapping from texts to texts."""

    def read(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        entries = ((key(each), text(content)) for each, content in islice(value.items(), MANY))
        return {each: content for each, content in entries if each and content is not None}

    return read


def several(member: Reader) -> Reader:

    def read(value: Any) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        return [found for each in islice(value, MANY) if (found := member(each)) is not None]

    return read


def _short(value: Any) -> str | None:
    """Whether an annotation is kept. Annotations that hold whole manifests are not."""
    return value if isinstance(value, str) and len(value) <= 256 and value.isprintable() else None


_TIME: Final = word(64)
_LABELS: Final = pairs(word(317), word(63))
_METADATA: Final = table(
    name=name(253),
    namespace=name(63),
    uid=name(64),
    resourceVersion=version_of,
    labels=_LABELS,
    annotations=pairs(word(317), _short),
    creationTimestamp=_TIME,
    deletionTimestamp=_TIME,
    deletionGracePeriodSeconds=whole,
    ownerReferences=several(table(kind=word(63), name=word(253), uid=word(64), controller=flag)),
)
_CONDITIONS: Final = several(
    table(type=word(317), status=word(16), reason=word(128), message=sentence, lastTransitionTime=_TIME)
)
_AMOUNTS: Final = pairs(word(317), quantity)
_RESOURCES: Final = table(limits=_AMOUNTS, requests=_AMOUNTS)
_CONTAINERS: Final = several(table(resources=_RESOURCES, restartPolicy=word(16)))
_CONTAINER_STATES: Final = several(
    table(
        name=name(63),
        state=table(
            waiting=table(reason=word(128), message=sentence),
            terminated=table(reason=word(128), exitCode=whole, finishedAt=_TIME),
        ),
    )
)
_POD: Final = table(
    spec=table(
        nodeName=name(253),
        nodeSelector=_LABELS,
        tolerations=several(table(key=word(317), operator=word(16), value=word(63), effect=word(32))),
        priority=whole,
        priorityClassName=word(253),
        preemptionPolicy=word(32),
        terminationGracePeriodSeconds=whole,
        containers=_CONTAINERS,
        initContainers=_CONTAINERS,
        resources=_RESOURCES,
        overhead=_AMOUNTS,
        resourceClaims=several(table(name=word(63))),
    ),
    status=table(
        phase=word(20),
        reason=word(128),
        message=sentence,
        conditions=_CONDITIONS,
        startTime=_TIME,
        nominatedNodeName=name(253),
        containerStatuses=_CONTAINER_STATES,
        initContainerStatuses=_CONTAINER_STATES,
    ),
)
_NODE: Final = table(
    spec=table(unschedulable=flag, taints=several(table(key=word(317), value=word(63), effect=word(32)))),
    status=table(allocatable=_AMOUNTS, conditions=_CONDITIONS),
)
_EVENT: Final = table(
    involvedObject=table(apiVersion=word(253), kind=word(63), namespace=word(63), name=word(253), uid=word(64)),
    type=word(16),
    reason=word(128),
    message=sentence,
    reportingComponent=word(128),
    source=table(component=word(128)),
    count=whole,
    series=table(count=whole, lastObservedTime=_TIME),
    eventTime=_TIME,
    firstTimestamp=_TIME,
    lastTimestamp=_TIME,
)
_KAI_GROUP: Final = table(  # no fingerprint: what Rung did not write is not compared
    status=table(
        schedulingConditions=several(
            table(
                status=word(16),
                message=sentence,
                reasons=several(table(reason=word(128), message=sentence)),
                lastTransitionTime=_TIME,
            )
        )
    )
)
_ANY: Final = table(
    spec=table(schedule=word(128)),
    status=table(
        conditions=_CONDITIONS,
        jobStatus=word(64),
        jobDeploymentStatus=word(64),
        phase=word(64),
        reason=word(128),
        message=sentence,
        active=some,
    ),
)
_PARTS: Final[Mapping[str, Reader]] = {
    POD.key: _POD,
    NODE.key: _NODE,
    EVENT.key: _EVENT,
    KAI_POD_GROUP.key: _KAI_GROUP,
}


ACTIVE: Final = "active"
BLOCKED: Final = "blocked"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
SUSPENDED: Final = "suspended"
MISSING: Final = "missing"

BY_CONDITION: Final = {
    "Complete": SUCCEEDED,
    "Completed": SUCCEEDED,
    "Succeeded": SUCCEEDED,
    "Failed": FAILED,
    "Suspended": SUSPENDED,
}
BY_WORD: Final = {
    "succeeded": SUCCEEDED,
    "complete": SUCCEEDED,
    "completed": SUCCEEDED,
    "failed": FAILED,
    "error": FAILED,
    "stopped": FAILED,
    "suspended": SUSPENDED,
}
WORDS: Final = ("jobStatus", "jobDeploymentStatus", "phase")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A workload's object: active, blocked (its pods are refused), succeeded, failed, suspended or missing."""

    phase: str
    reason: str = ""
    message: str = ""


def job_status(manifest: Manifest) -> JobStatus:
    """The state of the object; active unless its status says otherwise."""
    status: Mapping[str, Any] = manifest.get("status") or {}
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or []
    held = [each for each in conditions if each.get("status") == "True"]
    for each in held:
        if phase := BY_CONDITION.get(str(each.get("type"))):
            return JobStatus(phase, str(each.get("reason", "")), str(each.get("message", "")))
    for word in WORDS:
        if phase := BY_WORD.get(str(status.get(word, "")).lower()):
            return JobStatus(phase, str(status.get("reason", "")), str(status.get("message", "")))
    return _tekton(conditions) or _refused(held) or _between_runs(manifest, status) or JobStatus(ACTIVE)


def _tekton(conditions: Sequence[Mapping[str, Any]]) -> JobStatus | None:
    """Tekton says a failure as Succeeded=False."""
    for each in conditions:
        if each.get("type") == "Succeeded" and each.get("status") == "False" and each.get("reason"):
            return JobStatus(FAILED, str(each["reason"]), str(each.get("message", "")))
    return None


def _refused(held: Sequence[Mapping[str, Any]]) -> JobStatus | None:
    """Its controller could not create a pod: a quota, an unknown class."""
    for each in held:
        if each.get("reason") == "FailedCreate":
            return JobStatus(BLOCKED, "FailedCreate", str(each.get("message", "")))
    return None


def _between_runs(manifest: Manifest, status: Mapping[str, Any]) -> JobStatus | None:
    """A CronJob has no pods most of the time; its own status is the only explanation."""
    if manifest.get("kind") != "CronJob" or status.get("active"):
        return None
    when = (manifest.get("spec") or {}).get("schedule", "")
    return JobStatus(ACTIVE, "BetweenRuns", f"Waiting for the next run on schedule {when}.")
