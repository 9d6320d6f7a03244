"""What is left of a document with refused fields, so that one answer also names what its project does not allow."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from clusters.ports.pod_templates import TemplateShape, WorkloadKind, parts_in
from portal.kit.security.strict_json import DocumentInvalid, DocumentProblem, token
from workloads.intake.rules.scalars import NODE_POOLS, PREEMPTIBILITY_LABEL, PRIORITY_LABEL
from workloads.intake.rules.spec import MINIMUM_PLACE, NOTES, WorkloadSpec, class_pointers

Problems = tuple[DocumentProblem, ...]


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What was read of a document. Refused fields are absent, so it asks for no more than the document does.

    `pair`: no refused field names a priority or a preemptibility. `pools`: none names node pools. `counts`: none says
    how many pods there are or how many of them start together.
    """

    spec: WorkloadSpec
    pair: bool = True
    pools: bool = True
    counts: bool = True


class SpecRefused(DocumentInvalid):
    """A document with refused fields. `read` is the rest of it, so that the rest is checked in the same answer."""

    def __init__(self, problems: Iterable[DocumentProblem], read: ReadSpec) -> None:
        super().__init__(422, problems)
        self.read = read


_PRIORITY_PLACES: Final = (
    "/priority",
    "/preemptibility",
    f"/metadata/labels/{token(PRIORITY_LABEL)}",
    f"/metadata/labels/{token(PREEMPTIBILITY_LABEL)}",
)
_POOLS_PLACE: Final = f"{NOTES}/{token(NODE_POOLS)}"
_CODES_OF_ABSENCE: Final = frozenset({"required", "exactly_one"})
_MOST_ALTERNATIVES: Final = 3
"""More allowed names than this are all fields of the object, and no guess at a misspelt one."""


def rest_of(
    spec: WorkloadSpec,
    problems: Sequence[DocumentProblem],
    given: Mapping[str, Any],
    kind: WorkloadKind,
    *,
    counts: bool,
) -> ReadSpec:
    """The spec with what its problems leave unknown."""
    places = (*_PRIORITY_PLACES, *class_pointers(given, kind))
    named = {"priorityClassName", "priority", "preemptionPolicy"}
    pair = not any(_last(each.pointer) in named or _holds(each.pointer, places) for each in problems)
    pools = not any(_holds(each.pointer, (_POOLS_PLACE,)) for each in problems)
    return ReadSpec(spec, pair, pools, counts)


def counts_were_read(problems: Sequence[DocumentProblem], given: Mapping[str, Any], kind: WorkloadKind) -> bool:
    """Does no problem concern the number of pods, or of those that start together?"""
    if not problems:
        return True
    parts = parts_in(given, kind)
    templates = [each for each in parts if each.shape is TemplateShape.TEMPLATE]
    places = (MINIMUM_PLACE, kind.minimum, *(each.pointer for each in parts))
    names = {_last(each) for path in kind.paths for each in path.replicas} | {_last(kind.minimum)}
    for each in problems:
        if any(each.pointer.startswith(f"{part.pointer}/") for part in templates):
            continue
        absent = each.code in _CODES_OF_ABSENCE and each.pointer.startswith("/spec")
        if absent or _holds(each.pointer, places) or counts_misnamed(each, names):
            return False
    return True


def counts_misnamed(problem: DocumentProblem, names: Container[str]) -> bool:
    """Is it about one of these counts, or about an unknown name that resembles one?"""
    few = problem.code == "unknown_field" and len(problem.allowed) <= _MOST_ALTERNATIVES
    alternatives = problem.allowed if few else ()
    return _last(problem.pointer) in names or any(each in names for each in alternatives)


def _last(pointer: str) -> str:
    return pointer.rpartition("/")[2]


def _holds(pointer: str, places: Iterable[str]) -> bool:
    """Is one of these places at the pointer or below it?"""
    return any(f"{each}/".startswith(f"{pointer}/") for each in places if each)


def rest_of_native(problems: Problems, read: ReadSpec) -> SpecRefused:
    """The refusal of a native body: its problems at native fields say what else is unknown."""
    fields = _fields_of(problems)
    pair, pools = read.pair and _PAIR.isdisjoint(fields), read.pools and _POOLS.isdisjoint(fields)
    counts = read.counts and native_counts_known(problems)
    return SpecRefused(problems, replace(read, pair=pair, pools=pools, counts=counts))


def _fields_of(problems: Problems) -> set[str]:
    """Names of the fields of `spec` and `masterSpec` that are refused."""
    return {part for each in problems for part in each.pointer.split("/")[2:3]}


def native_counts_known(problems: Problems) -> bool:
    """Is no field refused that says how many pods there are, or how many start together?"""
    return _COUNTS.isdisjoint(_fields_of(problems)) and not any(counts_misnamed(each, _COUNTS) for each in problems)


_PAIR: Final = frozenset({"priorityClass", "preemptibility", "labels"})
_POOLS: Final = frozenset({"nodePools", "annotations"})
_COUNTS: Final = frozenset(
    {"replicas", "autoscaling", "numWorkers", "minReplicas", "maxReplicas", "workers", "parallelism", "annotations"}
)
