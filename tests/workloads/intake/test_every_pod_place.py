"""T9-T24, T35-T37 at every pod of every kind: the table of kinds says where, the tables of refusals say what."""

import copy
import json
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest

from clusters.flavours.registry import FLAVOURS
from clusters.flavours.rendering import RESERVED
from clusters.ports.pod_templates import TemplateShape, WorkloadKind
from clusters.ports.workload_kinds import KINDS, kind_named
from tests.clusters.specs import job
from tests.workloads.intake.manifests import Manifest, problems_of, read
from tests.workloads.intake.pod_places import SPOTS, Spot, at, fullest, merge, put
from tests.workloads.intake.refusals import REFUSED_CONTAINERS, REFUSED_PODS
from workloads.dictionary.rules.resolution import (
    Dictionary,
    Effective,
    PriorityEntry,
    Refusal,
    Request,
    Source,
    TypeDefaults,
    resolve,
)
from workloads.intake import Explicit

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
FOREIGN: Final = [f"{each}queue-name" if each.endswith("/") else each for each in RESERVED]
"""Labels and annotations that would speak for another owner, queue, pool or policy."""
DICTIONARY: Final = Dictionary([PriorityEntry("low", 40), PriorityEntry("high", 125), PriorityEntry("very-high", 150)])
UNKNOWN: Final = ("urgent", "High", "PreemptHigherPriority", "high ", "", "system-node-critical", "system-made-up")
LABEL: Final = {"/metadata/labels/priorityClassName": str(Source.LABEL)}


def refused(spot: Spot, place: str, pointer: str, body: Manifest) -> bool:
    """At the very field; a shape that has no such section refuses the section."""
    found = problems_of(body)
    if spot.whole:
        return f"{place}{pointer}" in found
    return any(f"{place}{pointer}/".startswith(f"{each}/") for each in found if len(each) > len(place))


@every_kind
def test_each_way_to_describe_pods_is_tried(kind: WorkloadKind) -> None:
    assert problems_of(fullest(kind)) == {}
    places = [spot.found.pointer.split("/") for spot in SPOTS[kind.name]]
    for path in kind.paths:
        steps = path.path.split("/")
        hits = [place for place in places if len(place) == len(steps) and _fits(place, steps)]
        items = steps.count("*") and any(each.isdecimal() for each in hits[0])
        assert len(hits) >= (2 if items else 1), path.path


def _fits(place: list[str], steps: list[str]) -> bool:
    return all(wanted in {"*", given} for given, wanted in zip(place, steps, strict=True))


@every_kind
def test_t10_to_t18_t24_t35_t36_no_pod_says_any_of_it(kind: WorkloadKind) -> None:
    missed = []
    for spot in SPOTS[kind.name]:
        for name, (change, pointer) in REFUSED_PODS.items():
            body = fullest(kind)
            merge(body, spot.pod, change)
            if not refused(spot, spot.pod, pointer, body):
                missed.append((name, spot.pod))
    assert missed == []


@every_kind
def test_t11_to_t22_no_container_of_it_says_any_of_it(kind: WorkloadKind) -> None:
    missed = []
    for spot in SPOTS[kind.name]:
        for place in spot.containers:
            for name, (change, pointer) in REFUSED_CONTAINERS.items():
                body = fullest(kind)
                merge(body, place, change)
                if not refused(spot, place, pointer, body) and not _early_probe(body, place, pointer):
                    missed.append((name, place))
    assert missed == []


def _early_probe(body: Manifest, place: str, pointer: str) -> bool:
    """An init container that ends has neither probes nor hooks at all: the whole section is refused."""
    return place.endswith("/initContainers/0") and f"{place}/{pointer.split('/')[1]}" in problems_of(body)


def objects(node: Any, pointer: str = "") -> Iterator[str]:
    """Every object inside a manifest."""
    if isinstance(node, dict):
        yield pointer
        for key, child in node.items():
            yield from objects(child, f"{pointer}/{key.replace('/', '~1')}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from objects(child, f"{pointer}/{index}")


def says(node: Any, key: str) -> bool:
    """Any object inside it has the key."""
    if isinstance(node, dict):
        return key in node or any(says(child, key) for child in node.values())
    return isinstance(node, list) and any(says(child, key) for child in node)


@pytest.mark.parametrize("part", ["labels", "annotations"])
@every_kind
def test_t09_nobody_elses_queue_owner_or_policy_is_named_anywhere(kind: WorkloadKind, part: str) -> None:
    taken = []
    for pointer in objects(fullest(kind)):
        if pointer.endswith(("/labels", "/annotations", "/matchLabels", "/metadata")):
            continue
        body = fullest(kind)
        merge(body, f"{pointer}/metadata/{part}", dict.fromkeys(FOREIGN, "project.2.h100"))
        if not any(each.startswith(pointer) for each in problems_of(body)):
            taken += [(pointer, key) for key in FOREIGN if says(read(body).manifest, key)]
    assert taken == []


def class_places(kind: WorkloadKind) -> Iterator[str]:
    """Wherever a manifest of the kind might name a priority class."""
    yield from kind.priority
    yield "/metadata/labels/priorityClassName"
    for spot in SPOTS[kind.name]:
        yield f"{spot.pod}/priorityClassName"


def resolved(kind: WorkloadKind, request: Request) -> Effective | Refusal:
    return resolve(request, defaults=TypeDefaults(kind.name, "low", None), dictionary=DICTIONARY)


@every_kind
def test_t35_t37_an_unknown_priority_is_refused_wherever_it_is_named(kind: WorkloadKind) -> None:
    for pointer, name in product(class_places(kind), UNKNOWN):
        body = fullest(kind)
        put(body, pointer, name)
        if found := problems_of(body):
            assert found.keys() == {pointer}
            continue
        answer = resolved(kind, read(body).request)
        assert isinstance(answer, Refusal), pointer
        assert answer.field in {pointer, "labels.priorityClassName"}
        assert answer.allowed == ("low", "high", "very-high")


@every_kind
def test_t38_the_form_wins_over_every_place_and_each_is_written_again(kind: WorkloadKind) -> None:
    body, wished = fullest(kind), []
    for pointer in class_places(kind):
        before = copy.deepcopy(body)
        put(body, pointer, "very-high")
        if problems_of(body):
            body = before  # this kind has no such field
        else:
            wished.append(pointer)
    spec = read(body, explicit=Explicit(priority="low"))
    answer = resolved(kind, spec.request)
    assert isinstance(answer, Effective)
    assert (answer.priority.name, answer.priority_source) == ("low", Source.EXPLICIT)
    discarded = {each.source for each in answer.discarded}
    assert discarded == {LABEL.get(pointer, pointer) for pointer in wished}
    for flavour in FLAVOURS.values():
        manifest = flavour.render(job(spec.manifest, type_name=kind.name, min_member=spec.min_member))[-1]
        assert "very-high" not in json.dumps(manifest)
        assert manifest["metadata"]["labels"]["priorityClassName"] == "low"
        assert {at(manifest, pointer) for pointer in wished} <= {"low", None}
        assert {at(manifest, f"{spot.pod}/priorityClassName") for spot in SPOTS[kind.name] if spot.whole} <= {"low"}


def values_of(node: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth."""
    if isinstance(node, dict):
        yield from node.items()
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from values_of(child)


@every_kind
def test_t09_t17_each_pod_gets_the_projects_own_queue_and_one_scheduler(kind: WorkloadKind) -> None:
    spec = read(fullest(kind))
    for flavour in FLAVOURS.values():
        manifest = flavour.render(job(spec.manifest, type_name=kind.name, queue="project.7.a100"))[-1]
        named = {key: value for key, value in values_of(manifest) if key.endswith(("/queue", "/queue-name"))}
        assert set(named.values()) <= {"project.7.a100"}, flavour.name
        schedulers = [at(manifest, f"{spot.pod}/schedulerName") for spot in SPOTS[kind.name] if spot.whole]
        assert len(set(schedulers)) <= 1, flavour.name


def test_the_places_are_those_of_the_table() -> None:
    spots = [spot for each in SPOTS.values() for spot in each]
    assert {spot.found.shape for spot in spots} == set(TemplateShape)
    assert at(fullest(kind_named("LeaderWorkerSet")), "/spec/leaderWorkerTemplate/leaderTemplate/spec/initContainers/1")
