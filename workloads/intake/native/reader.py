"""Reads a native body: its fields by the table, then the object they mean by everybody's allowlist."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from portal.core.strict.documents import Limits, measure
from workloads.intake.metadata import another_category
from workloads.intake.native.fields import FIELDS, MASTER, object_rule
from workloads.intake.native.objects import BUILDERS, Built, Checked, has_leader
from workloads.intake.problems import IntakeRefused, Report
from workloads.intake.read import read_object
from workloads.intake.rules import ABSENT, Place, Rule
from workloads.intake.scope import Explicit, Scope
from workloads.intake.spec import WorkloadSpec

NO_ADDRESS: Final = "Rung opens no address to the outside: what was asked for it is kept without effect."
LIMITS: Final = Limits()
COUNTS: Final = frozenset({"replicas", "autoscaling"})
"""Fields that say how many replicas there are."""


@dataclass(frozen=True, slots=True)
class Native:
    """A native submission as it was sent. `kind` is the word in the address, `category` that of its type, if known."""

    kind: str
    name: str
    spec: Mapping[str, Any]
    category: str | None = None
    prefix: bool = False
    master: Mapping[str, Any] | None = None
    master_same: bool | None = None


def read_native(native: Native, *, scope: Scope) -> WorkloadSpec:
    """The workload it asks for. IntakeRefused with pointers into the native body, such as `/spec/compute`."""
    report = Report()
    asked = _check(native, Place("", report, scope))
    report.settle()
    type_name, build = BUILDERS[native.kind]
    built = build(asked)
    explicit = Explicit(asked.spec.get("priorityClass"), asked.spec.get("preemptibility"))
    try:
        spec = read_object(built.manifest, scope=scope, explicit=explicit, source="json", type_name=type_name)
    except IntakeRefused as refusal:
        problems = [replace(each, pointer=native_pointer(each.pointer, built)) for each in refusal.problems]
        raise IntakeRefused(refusal.status, problems) from None
    pools = tuple(dict.fromkeys(asked.spec.get("nodePools", ())))
    warnings = (*spec.warnings, *_warnings(asked))
    return replace(spec, node_pools=pools or spec.node_pools, warnings=warnings)


def read_count(kind: str, given: Mapping[str, Any]) -> int:
    """How many replicas these fields of a `spec` ask for; IntakeRefused at every field that says anything else."""
    report = Report()
    place = Place("/spec", report, Scope(namespace=""))
    for name in given.keys() - COUNTS:
        place.at(name).refuse("not_native", "It came by another door: only its replicas and its priority change here.")
    found = _part(
        object_rule({name: FIELDS[kind][name] for name in COUNTS & FIELDS[kind].keys()}),
        {name: given[name] for name in given.keys() & COUNTS},
        place,
    )
    report.settle()
    return int(found.get("replicas", found.get("autoscaling", 1)))


def _check(native: Native, place: Place) -> Checked:
    measure({"spec": native.spec, "masterSpec": native.master}, LIMITS)
    spec = _part(object_rule(FIELDS[native.kind]), native.spec, place.at("spec"))
    master = None
    if native.master is not None:
        master = _part(object_rule(MASTER), native.master, place.at("masterSpec"))
    asked = Checked(native.name, spec, master, bool(native.master_same), native.prefix)
    _refuse_category(spec, native.category, place.at("spec"))
    _CHECKS.get(native.kind, _check_image)(asked, native, place)
    return asked


def _part(rule: Rule, given: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    found: Any = rule(given, place)
    return {} if found is ABSENT else found


def _refuse_category(part: Mapping[str, Any], own: str | None, place: Place) -> None:
    if own is not None and (why := another_category(part.get("category"), own)):
        place.at("category").refuse("category_of_type", why, (own,))


def _check_image(asked: Checked, _native: Native, place: Place) -> None:
    _need_image(asked.spec, place.at("spec"))


def _need_image(part: Mapping[str, Any], place: Place) -> None:
    """Said once: a refused image is no missing one."""
    if "image" not in part and not any(each.pointer == f"{place.pointer}/image" for each in place.report.problems):
        place.at("image").refuse("required", "image is required here.")


def _check_distributed(asked: Checked, native: Native, place: Place) -> None:
    at_spec = place.at("spec")
    framework, workers = asked.spec.get("distributedFramework"), asked.spec.get("numWorkers", 1)
    if framework is None:
        at_spec.at("distributedFramework").refuse("required", "Which framework?")
    _need_image(asked.spec, at_spec)
    if asked.spec.get("maxReplicas", workers) != workers:
        message = f"Rung counts a fixed number of pods: {workers}, as numWorkers."
        at_spec.at("maxReplicas").refuse("out_of_range", message, (str(workers),))
    if asked.spec.get("minReplicas", 1) > workers:
        at_spec.at("minReplicas").refuse("out_of_range", f"There are {workers} workers.", (str(workers),))
    if asked.master is not None:
        _check_master(asked, native, framework, place.at("masterSpec"))


def _check_master(asked: Checked, native: Native, framework: str | None, place: Place) -> None:
    """One gang: one category, one choice of pools; another leader than its workers only where it was asked for."""
    assert asked.master is not None  # noqa: S101  # the caller looked
    if native.master_same:
        place.refuse("exactly_one", "masterSpecSameAsWorker says that there is none: leave one of the two out.")
    if framework is not None and not has_leader(framework):
        place.refuse("not_offered", f"{framework} has no leading pod: its workers are alike.")
    _need_image(asked.master, place)
    _refuse_category(asked.master, native.category, place)
    pools = asked.master.get("nodePools")
    if pools is not None and pools != asked.spec.get("nodePools"):
        place.at("nodePools").refuse("not_offered", "A gang runs in one pool: write the pools of spec, or none.")


def _check_group(asked: Checked, _native: Native, place: Place) -> None:
    """A leader or a worker, each with its image."""
    at_spec = place.at("spec")
    roles = [role for role in ("leader", "worker") if role in asked.spec]
    if not roles and not place.report.problems:
        at_spec.at("leader").refuse("required", "What does the leader run?")
    for role in roles:
        _need_image(asked.spec[role], at_spec.at(role))


_CHECKS: Final = {"distributed": _check_distributed, "distributed-inferences": _check_group}


def _warnings(asked: Checked) -> list[str]:
    """What was taken and will not happen, said once each."""
    said, spec = [], asked.spec
    serving, ports = spec.get("servingPort", {}), spec.get("ports", [])
    outside = (spec.get("exposedUrls"), serving.get("authorizationType"), serving.get("exposedUrl"))
    if any(outside) or any("external" in each for each in ports):
        said.append(NO_ADDRESS)
    wished = (asked.master or {}).get("preemptibility")
    if wished is not None and wished != spec.get("preemptibility"):
        said.append(f"masterSpec.preemptibility {wished} was left out: a gang has one preemptibility.")
    return said


_AT: Final = (
    (re.compile(r"nvidia\.com~1gpu$"), "/compute/gpuDevicesRequest"),
    (re.compile(r"/gpu-fraction$"), "/compute/gpuPortionRequest"),
    (re.compile(r"/resources/limits/cpu$"), "/compute/cpuCoreLimit"),
    (re.compile(r"/resources/requests/cpu$"), "/compute/cpuCoreRequest"),
    (re.compile(r"/resources/limits/memory$"), "/compute/cpuMemoryLimit"),
    (re.compile(r"/resources/requests/memory$"), "/compute/cpuMemoryRequest"),
    (re.compile(r"/resources(/|$)"), "/compute"),
    (re.compile(r"/command(/\d+)?$"), "/command"),
    (re.compile(r"/args(/\d+)?$"), "/args"),
    (re.compile(r"/env(/|$)"), "/environmentVariables"),
    (re.compile(r"/ports(/|$)"), "/ports"),
    (re.compile(r"/(volumes|volumeMounts)(/|$)"), "/storage"),
    (re.compile(r"/securityContext(/|$)"), "/security"),
    (re.compile(r"/readinessProbe(/|$)"), "/probes/readiness"),
    (re.compile(r"/labels(/|$)"), "/labels"),
    (re.compile(r"/annotations/rung\.dev~1min-member$"), "/minReplicas"),
    (re.compile(r"/annotations(/|$)"), "/annotations"),
    (re.compile(r"/priorityClassName$"), "/priorityClass"),
    (re.compile(r"/ttlSecondsAfterFinished$"), "/autoDeletionTimeAfterCompletionSeconds"),
)
_WHOLE: Final = {
    "": "",
    "/metadata/name": "/name",
    "/metadata/generateName": "/name",
    "/priority": "/spec/priorityClass",
    "/preemptibility": "/spec/preemptibility",
}


def native_pointer(pointer: str, built: Built | None = None) -> str:
    """The native field that a place of its object came from; without `built`, of an object of one part."""
    if pointer in _WHOLE:
        return _WHOLE[pointer]
    if pointer.startswith("/nodePools"):
        return f"/spec{pointer}"
    origins = built.origins if built else {"": "/spec"}
    base = next((origins[each] for each in sorted(origins, key=len, reverse=True) if pointer.startswith(each)), "/spec")
    found = next((field for pattern, field in _AT if pattern.search(pointer)), None)
    if found is None:
        last = pointer.rpartition("/")[2]
        found = f"/{last}" if last in MASTER or last in FIELDS["distributed"] else ""
    return base + found
