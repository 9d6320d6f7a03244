"""Read a native body, or what a template or an asset stores of one.

A field that is there is checked as it would be in a submission; what is missing may still come with one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from portal.kit.security.logging_config import SECRET_TEXT
from portal.kit.security.strict_json import DocumentInvalid as IntakeRefused
from portal.kit.security.strict_json import ParseLimits, measure
from workloads.intake.rules.manifests import read_object
from workloads.intake.rules.native.fields import FIELDS, MASTER, Fields, object_rule
from workloads.intake.rules.native.objects import BUILDERS, Built, Checked, has_leader
from workloads.intake.rules.native.parts import PORT, WORD, items
from workloads.intake.rules.refused import Problems, ReadSpec, SpecRefused, native_counts_known, rest_of_native
from workloads.intake.rules.spec import WorkloadSpec
from workloads.intake.rules.values import (
    ABSENT,
    Explicit,
    Location,
    ProblemReport,
    ProjectGrants,
    Rule,
    boolean,
    table,
    text,
)

NO_ADDRESS: Final = "External addresses are not supported: these settings are stored without effect."
LIMITS: Final = ParseLimits()
COUNTS: Final = frozenset({"replicas", "autoscaling"})
"""Fields that say how many replicas there are."""


@dataclass(frozen=True, slots=True)
class NativeBody:
    """A native submission as it was sent. `kind` is the word in the address."""

    kind: str
    name: str
    spec: Mapping[str, Any]
    prefix: bool = False
    master: Mapping[str, Any] | None = None
    master_same: bool | None = None


def read_native(native: NativeBody, *, scope: ProjectGrants) -> WorkloadSpec:
    """The workload it asks for. IntakeRefused with pointers into the native body, such as `/spec/compute`."""
    report = ProblemReport()
    requested = _check(native, Location("", report, scope))
    refused = report.problems
    if refused and native.kind == "distributed" and "distributedFramework" not in requested.spec:
        raise IntakeRefused(422, refused)
    type_name, build = BUILDERS[native.kind]
    built = build(requested)
    chosen = requested.spec
    explicit = Explicit(chosen.get("priorityClass"), chosen.get("preemptibility"), chosen.get("category"))
    try:
        spec = read_object(built.manifest, scope=scope, explicit=explicit, source="json", type_name=type_name)
    except IntakeRefused as refusal:
        raise _at_fields(refusal, built, refused, requested) from None
    if refused:
        raise rest_of_native(refused, ReadSpec(_pooled(spec, requested)))
    return replace(_pooled(spec, requested), warnings=(*spec.warnings, *_warnings(requested)))


def _pooled(spec: WorkloadSpec, requested: Checked) -> WorkloadSpec:
    pools = tuple(dict.fromkeys(requested.spec.get("nodePools", ())))
    return replace(spec, node_pools=pools or spec.node_pools)


def _at_fields(refusal: IntakeRefused, built: Built, refused: Problems, requested: Checked) -> IntakeRefused:
    """At the native fields, each once: what its rules refused already is absent from the object."""
    found = [replace(each, pointer=native_pointer(each.pointer, built)) for each in refusal.problems]
    if not native_counts_known(refused):
        found = [each for each in found if each.code != "gang_too_large"]
    known = [f"{each.pointer}/" for each in refused]
    new = [each for each in found if not any(other.startswith(f"{each.pointer}/") for other in known)]
    problems = (*refused, *new)
    if not isinstance(refusal, SpecRefused):
        return IntakeRefused(refusal.status, problems)
    return rest_of_native(problems, replace(refusal.read, spec=_pooled(refusal.read.spec, requested)))


def read_count(kind: str, given: Mapping[str, Any]) -> int:
    """How many replicas these fields of a `spec` ask for; IntakeRefused at every field that says anything else."""
    report = ProblemReport()
    place = Location("/spec", report, ProjectGrants(namespace=""))
    for name in given.keys() - COUNTS:
        place.at(name).refuse("not_native", "Submitted in another way: only replicas and priority can change here.")
    found = _part(
        object_rule({name: FIELDS[kind][name] for name in COUNTS & FIELDS[kind].keys()}),
        {name: given[name] for name in given.keys() & COUNTS},
        place,
    )
    report.settle()
    return int(found.get("replicas", found.get("autoscaling", 1)))


def _check(native: NativeBody, place: Location) -> Checked:
    measure({"spec": native.spec, "masterSpec": native.master}, LIMITS)
    spec = _part(object_rule(FIELDS[native.kind]), native.spec, place.at("spec"))
    master = None
    if native.master is not None:
        master = _part(object_rule(MASTER), native.master, place.at("masterSpec"))
    requested = Checked(native.name, spec, master, bool(native.master_same), native.prefix)
    _CHECKS.get(native.kind, _check_image)(requested, native, place)
    return requested


def _part(rule: Rule, given: Mapping[str, Any], place: Location) -> Mapping[str, Any]:
    found: Any = rule(given, place)
    return {} if found is ABSENT else found


def _check_image(requested: Checked, _native: NativeBody, place: Location) -> None:
    _need_image(requested.spec, place.at("spec"))


def _need_image(part: Mapping[str, Any], place: Location) -> None:
    """Said once: a refused image is no missing one."""
    if "image" not in part and not any(each.pointer == f"{place.pointer}/image" for each in place.report.problems):
        place.at("image").refuse("required", "image is required.")


def _check_distributed(requested: Checked, native: NativeBody, place: Location) -> None:
    at_spec = place.at("spec")
    framework, workers = requested.spec.get("distributedFramework"), requested.spec.get("numWorkers", 1)
    if framework is None:
        at_spec.at("distributedFramework").refuse("required", "Choose a framework.")
    _need_image(requested.spec, at_spec)
    if "numWorkers" in requested.spec or native.spec.get("numWorkers") is None:
        _check_bounds(requested.spec, workers, at_spec)
    if requested.master is not None:
        _check_master(requested, native, framework, place.at("masterSpec"))


def _check_bounds(spec: Mapping[str, Any], workers: int, place: Location) -> None:
    if spec.get("maxReplicas", workers) != workers:
        message = f"Autoscaling is not supported. Must be {workers}, as numWorkers."
        place.at("maxReplicas").refuse("out_of_range", message, (str(workers),))
    if spec.get("minReplicas", 1) > workers:
        place.at("minReplicas").refuse("out_of_range", f"Must be {workers}, the number of workers.", (str(workers),))


def _check_master(requested: Checked, native: NativeBody, framework: str | None, place: Location) -> None:
    """One gang, one choice of pools; another leader than its workers only where it was asked for."""
    assert requested.master is not None  # noqa: S101  # the caller looked
    if native.master_same:
        place.refuse("exactly_one", "masterSpecSameAsWorker and masterSpec exclude each other. Remove one.")
    if framework is not None and not has_leader(framework):
        place.refuse("not_offered", f"{framework} has no master pod.")
    _need_image(requested.master, place)
    pools = requested.master.get("nodePools")
    if pools is not None and pools != requested.spec.get("nodePools"):
        place.at("nodePools").refuse("not_offered", "All pods of a gang use one pool. Use the pools of spec.")


def _check_group(requested: Checked, _native: NativeBody, place: Location) -> None:
    """A leader or a worker, each with its image."""
    at_spec = place.at("spec")
    roles = [role for role in ("leader", "worker") if role in requested.spec]
    if not roles and not place.report.problems:
        at_spec.at("leader").refuse("required", "Add the leader.")
    for role in roles:
        _need_image(requested.spec[role], at_spec.at(role))


_CHECKS: Final = {"distributed": _check_distributed, "distributed-inferences": _check_group}


def _warnings(requested: Checked) -> list[str]:
    """What was taken and will not happen, said once each."""
    warnings, spec = [], requested.spec
    serving, ports = spec.get("servingPort", {}), spec.get("ports", [])
    outside = (spec.get("exposedUrls"), serving.get("authorizationType"), serving.get("exposedUrl"))
    if any(outside) or any("external" in each for each in ports):
        warnings.append(NO_ADDRESS)
    for name in ("preemptibility", "category"):
        wished = (requested.master or {}).get(name)
        if wished is not None and wished != spec.get(name):
            warnings.append(f"masterSpec.{name} {wished} is ignored: all pods of a gang share one {name}.")
    return warnings


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
    "/category": "/spec/category",
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


Values = Mapping[str, Any]
LARGEST: Final = 64 * 1024
"""Bytes of JSON: they are read at every submission that names the template."""
SECURITY: Final = (
    "uidGidSource",
    "runAsUid",
    "runAsGid",
    "runAsNonRoot",
    "supplementalGroups",
    "seccompProfileType",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "capabilities",
    "hostIpc",
    "hostNetwork",
)
"""Of an environment these stand beside its other fields; of a submission below `security`."""
_SETTINGS: Final = (
    "image",
    "command",
    "args",
    "workingDir",
    "environmentVariables",
    "imagePullPolicy",
    "probes",
    "createHomeDir",
    "stdin",
    "tty",
    "security",
)
ENVIRONMENT: Final[Fields] = {name: FIELDS["workspaces"][name] for name in _SETTINGS}
COMPUTE: Final[Fields] = {"compute": FIELDS["workspaces"]["compute"]}
_SECRET_NAME: Final = re.compile(r"(^|_)(password|passwd|secret|token|credentials?|(api|access|private)_?key)$", re.I)
_NO_SECRETS: Final = "Everyone in the scope can read this. Use a Secret available to the project."


def _as_it_is(value: Any, _place: Location) -> Any:
    """Rung opens no address to the outside: what was asked for one has no effect."""
    return value


_tool: Rule = table(
    {
        "toolType": WORD,
        "connectionType": WORD,
        "containerPort": PORT,
        "nodePortInfo": _as_it_is,
        "externalUrlInfo": _as_it_is,
        "servingPortInfo": _as_it_is,
    },
    required=["containerPort"],
)
_connections: Rule = items(
    table(
        {
            "name": text(256, shortest=1),
            "isExternal": boolean,
            "internalToolInfo": _tool,
            "externalToolInfo": table({"toolType": WORD, "externalUrl": text(2048, shortest=1)}),
        },
        required=["name"],
    )
)
_OWN: Final[Mapping[str, Rule]] = {"connections": _connections, "overrideUidGidInWorkspace": boolean}
"""Fields of an environment that no submission has."""


def check_template(native: NativeBody, *, scope: ProjectGrants) -> None:
    """IntakeRefused at every field that a submission would be refused for, whatever else it says."""
    parts = {"spec": (native.spec, FIELDS[native.kind]), "masterSpec": (native.master, MASTER)}
    report = _measured({name: values for name, (values, _fields) in parts.items()})
    for name, (values, fields) in parts.items():
        if values is not None:
            place = Location(f"/{name}", report, scope)
            object_rule(fields)(values, place)
            _check_no_secrets(values, place)
    report.settle()


def lacking(native: NativeBody, *, scope: ProjectGrants) -> str:
    """Why a submission of it would be refused as it is: the first reason; empty for none."""
    try:
        read_native(native, scope=scope)
    except IntakeRefused as refusal:
        return refusal.problems[0].message
    return ""


def check_asset(kind: str, spec: Values, *, scope: ProjectGrants) -> None:
    """IntakeRefused at every field, by pointers into the asset's own `/spec`."""
    report = _measured(spec)
    place = Location("/spec", report, scope)
    plain = {name: value for name, value in spec.items() if name not in _OWN} if kind == "environment" else spec
    try:
        table(_OWN)({name: spec[name] for name in _OWN if name in spec and plain is not spec}, place)
        object_rule(ENVIRONMENT if kind == "environment" else COMPUTE)(_below(kind, plain), place)
        _check_no_secrets(plain, place)
        report.settle()
    except IntakeRefused as refusal:
        within = f"/spec/{'security' if kind == 'environment' else 'compute'}"
        problems = [replace(each, pointer=each.pointer.replace(within, "/spec", 1)) for each in refusal.problems]
        raise IntakeRefused(refusal.status, problems) from None


def asset_fields(kind: str, spec: Values) -> dict[str, Any]:
    """A checked asset as the fields of a submission's `spec`."""
    fields = _below(kind, {name: value for name, value in spec.items() if name not in _OWN and value is not None})
    if kind == "environment":
        fields |= {name: found for name, found in _addresses(spec.get("connections") or []) if found}
    return fields


def _below(kind: str, spec: Values) -> dict[str, Any]:
    if kind == "compute":
        return {"compute": dict(spec)} if spec else {}
    security = {name: spec[name] for name in SECURITY if name in spec}
    plain = {name: value for name, value in spec.items() if name not in security}
    return {**plain, **({"security": security} if security else {})}


def _addresses(connections: list[Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Ports of its tools, and addresses of tools elsewhere."""
    inside = [each for each in connections if each and each.get("internalToolInfo")]
    outside = [each for each in connections if each and each.get("externalToolInfo")]
    yield (
        "ports",
        [{"container": each["internalToolInfo"]["containerPort"], "name": each["name"]} for each in inside],
    )
    yield (
        "relatedUrls",
        [{"url": each["externalToolInfo"].get("externalUrl", ""), "name": each["name"]} for each in outside],
    )


def _measured(values: Any) -> ProblemReport:
    """A new report. IntakeRefused for what is too large to keep."""
    measure(values, LIMITS)
    report, size = ProblemReport(), len(json.dumps(values).encode())
    if size > LARGEST:
        Location("/spec", report, ProjectGrants(namespace="")).refuse(
            "too_large", f"{size} bytes; the maximum is {LARGEST}."
        )
        report.settle()
    return report


def _check_no_secrets(values: Values, place: Location) -> None:
    """By the name of a variable, or the look of its value."""
    given = values.get("environmentVariables")
    for index, each in enumerate(given if isinstance(given, list) else ()):
        name, value = (each.get("name"), each.get("value")) if isinstance(each, Mapping) else (None, None)
        named_secret = isinstance(name, str) and _SECRET_NAME.search(name)
        if isinstance(value, str) and value and (named_secret or SECRET_TEXT.search(value)):
            place.at("environmentVariables").at(index).at("value").refuse("secret_value", _NO_SECRETS)
