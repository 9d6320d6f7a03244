"""Read manifests: JSON, YAML or an object in, a WorkloadSpec or IntakeRefused out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.workload_kinds import KINDS, kind_for
from portal.kit.security.strict_json import (
    Document,
    DocumentProblem,
    ParseLimits,
    document_error,
    document_from_json,
    measure,
    visible,
)
from portal.kit.security.strict_json import DocumentInvalid as IntakeRefused
from portal.kit.security.strict_yaml import documents_from_yaml
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import LARGEST, ZERO
from workloads.intake.rules.kinds import build, core, serving, training
from workloads.intake.rules.pods import pod_priority_class, priority_class, share_of_gpu
from workloads.intake.rules.refused import SpecRefused, counts_were_read, rest_of
from workloads.intake.rules.scalars import (
    ANNOTATIONS,
    MANAGER_LABEL,
    PLACING,
    POD_ANNOTATIONS,
    PREEMPTIBILITY_LABEL,
    PRIORITY_LABEL,
    RAY_PRIORITY_LABEL,
    annotations,
    dns_label,
    label_key,
    label_value,
    slug,
)
from workloads.intake.rules.spec import (
    PodRole,
    Source,
    WorkloadSpec,
    min_member,
    node_pools_of,
    roles_of,
    stated_minimum,
    take_request,
)
from workloads.intake.rules.values import (
    ABSENT,
    MOST_PROBLEMS,
    Explicit,
    Location,
    ProblemReport,
    ProjectGrants,
    Rule,
    choice,
    forbidden,
    table,
    text,
    type_name,
    wrong_type,
)

PREEMPTIBILITIES: Final = tuple(str(each) for each in Preemptibility)


_server = forbidden("Set by the API server.", "server_field")


def preemptibility(value: Any, place: Location) -> Any:
    """One of the three words, compared exactly."""
    if isinstance(value, str) and value in PREEMPTIBILITIES:
        return value
    message = f"{visible(value)!r} is not a preemptibility."
    return place.refuse("preemptibility_unknown", message, PREEMPTIBILITIES)


REQUEST_LABELS: Final[Mapping[str, Rule]] = {
    PRIORITY_LABEL: priority_class,
    PREEMPTIBILITY_LABEL: preemptibility,
    RAY_PRIORITY_LABEL: pod_priority_class,
}
"""RayJob and RayCluster read theirs as the priorityClassName of their pods."""


WORD: Final = text(256)


def category(value: Any, place: Location) -> Any:
    """One of the categories, whatever its case, as the installation writes it."""
    word, known = WORD(value, place), place.scope.categories
    if word is ABSENT or known is None:
        return word
    found = next((each for each in known if each.casefold() == word.casefold()), None)
    return found or place.refuse("category_unknown", f"{visible(word)!r} is not a category.", known)


def namespace(value: Any, place: Location) -> Any:
    """The project's own namespace, which is then left out: Rung writes it."""
    if value != place.scope.namespace:
        own = place.scope.namespace
        return place.refuse(
            "foreign_namespace", f"Must be {own}; {visible(value)!r} does not belong to this project.", (own,)
        )
    return ABSENT


def _labels(value: Any, place: Location) -> Any:
    """The tenant's labels and, among them, the wishes for priority and preemptibility."""
    if not isinstance(value, Mapping):
        return wrong_type(value, place, "an object")
    if len(value) > 64:
        return place.refuse("bad_length", f"{len(value)} labels; the maximum is 64.")
    rebuilt = {}
    for key, member in value.items():
        result = _label(key, member, place)
        if result is not ABSENT:
            rebuilt[key] = result
    return rebuilt


def _label(key: Any, value: Any, place: Location) -> Any:
    if key in REQUEST_LABELS:
        return REQUEST_LABELS[key](value, place.at(key))
    if key == MANAGER_LABEL:
        place.report.warn(f"Label {MANAGER_LABEL} was removed: Rung sets it.")
        return ABSENT
    return ABSENT if label_key(key, place.at(key)) is ABSENT else label_value(value, place.at(key))


def _metadata(notes: Mapping[str, Rule]) -> Rule:
    return table(
        {
            "name": dns_label,
            "generateName": text(
                58, r"[a-z0-9][-a-z0-9]*", "a prefix of lower-case letters, digits and '-'", shortest=1, code="bad_name"
            ),
            "namespace": namespace,
            "labels": _labels,
            "annotations": annotations(notes),
            "ownerReferences": forbidden("Rung sets owner references.", "owner_references"),
            "finalizers": forbidden("Finalizers are not allowed.", "finalizers"),
            **dict.fromkeys(
                (
                    "uid",
                    "resourceVersion",
                    "managedFields",
                    "creationTimestamp",
                    "deletionTimestamp",
                    "deletionGracePeriodSeconds",
                    "generation",
                    "selfLink",
                ),
                _server,
            ),
        },
        one_of=["name", "generateName"],
    )


metadata: Rule = _metadata({**ANNOTATIONS, **PLACING})


pod_object_metadata: Rule = _metadata({**POD_ANNOTATIONS, **PLACING})


DEFAULT_LIMITS: Final = ParseLimits()
UNNAMED: Final = "unnamed"
"""In place of a name that is refused already."""


MOST_PODS: Final = 10_000


NOTHING_EXPLICIT: Final = Explicit()


def read_yaml(
    data: bytes, *, scope: ProjectGrants, explicit: Explicit = NOTHING_EXPLICIT, limits: ParseLimits = DEFAULT_LIMITS
) -> tuple[WorkloadSpec, ...]:
    """Every workload of a YAML text, all or none."""
    return _read_all(documents_from_yaml(data, limits), scope, explicit, "yaml")


def read_json(
    data: bytes, *, scope: ProjectGrants, explicit: Explicit = NOTHING_EXPLICIT, limits: ParseLimits = DEFAULT_LIMITS
) -> tuple[WorkloadSpec, ...]:
    """The workload of a JSON text, as a tuple of one."""
    return _read_all([document_from_json(data, limits)], scope, explicit, "json")


def read_object(
    obj: Mapping[str, Any],
    *,
    scope: ProjectGrants,
    explicit: Explicit = NOTHING_EXPLICIT,
    source: Source = "json",
    type_name: str = "",
    limits: ParseLimits = DEFAULT_LIMITS,
) -> WorkloadSpec:
    """The workload of an object that was parsed already; `type_name` is Run:ai's where it is not the manifest's own."""
    measure(obj, limits)
    return _read(Document(obj), 0, scope, explicit, source, type_name)


def _read_all(
    documents: list[Document], scope: ProjectGrants, explicit: Explicit, source: Source
) -> tuple[WorkloadSpec, ...]:
    if not documents:
        raise document_error(422, "empty", "The text contains no document.")
    if len(documents) == 1:
        return (_read(documents[0], 0, scope, explicit, source),)
    explicit = replace(explicit, name=None)
    specs: list[WorkloadSpec] = []
    problems: list[DocumentProblem] = []
    for index, document in enumerate(documents):
        try:
            specs.append(_read(document, index, scope, explicit, source))
        except IntakeRefused as refusal:
            problems += refusal.problems
            if len(problems) >= MOST_PROBLEMS:
                break
    problems += _repeated(specs)
    if problems:
        raise IntakeRefused(422, problems[:MOST_PROBLEMS])
    return tuple(specs)


def _repeated(specs: list[WorkloadSpec]) -> list[DocumentProblem]:
    seen: set[tuple[str, str]] = set()
    problems = []
    for index, spec in enumerate(specs):
        key = (spec.kind, spec.name)
        if key in seen and not spec.generate_name:
            message = f"Duplicate {spec.kind} named {spec.name}."
            problems.append(DocumentProblem("/metadata/name", "repeated", message, document=index))
        seen.add(key)
    return problems


def _read(
    document: Document, index: int, scope: ProjectGrants, explicit: Explicit, source: Source, type_name: str = ""
) -> WorkloadSpec:
    report = ProblemReport(document.line_of, index)
    place = Location("", report, scope)
    classification = _check_explicit(explicit, place)
    kind = _kind_of(document.value, place)
    given = document.value if kind is None else _named(document.value, explicit)
    manifest = ABSENT if kind is None else OBJECTS[kind.name](given, place)
    if kind is None or manifest is ABSENT or not {"metadata", "spec"} <= manifest.keys():
        raise IntakeRefused(422, report.problems)
    counted = counts_were_read(report.problems, given, kind)
    spec = _compose(manifest, kind, explicit, source, type_name or kind.name, report, counted=counted)
    if problems := report.problems:
        raise SpecRefused(problems, rest_of(spec, problems, given, kind, counts=counted))
    return replace(spec, classification=classification)


def _check_explicit(explicit: Explicit, place: Location) -> Any:
    """Answers the category, as it is written."""
    if explicit.priority is not None:
        priority_class(explicit.priority, place.at("priority"))
    if explicit.preemptibility is not None:
        preemptibility(explicit.preemptibility, place.at("preemptibility"))
    return "" if explicit.category is None else category(explicit.category, place.at("category"))


def _named(value: Any, explicit: Explicit) -> Any:
    """The object under the name that was asked for outright. One without metadata is refused as it is."""
    own = value.get("metadata", {}) if explicit.name else None
    if not isinstance(own, Mapping):
        return value
    others = {name: given for name, given in own.items() if name not in {"name", "generateName"}}
    return {**value, "metadata": {**others, "generateName" if explicit.prefix else "name": explicit.name}}


def _kind_of(value: Any, place: Location) -> WorkloadKind | None:
    if not isinstance(value, Mapping):
        place.refuse("wrong_type", f"A manifest must be an object, not {type_name(value)}.")
        return None
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(kind, str) and kind.endswith("List"):
        place.at("kind").refuse("kind_not_allowed", "Lists are not supported. Write the items as separate documents.")
        return None
    found = kind_for(api_version, kind) if isinstance(api_version, str) and isinstance(kind, str) else None
    if found is None:
        _check_kind(api_version, kind, place)
    return found


def _check_kind(api_version: Any, kind: Any, place: Location) -> None:
    versions = sorted({version for each in KINDS if each.kind == kind for version in each.api_versions})
    if versions:
        found = "and none is given" if api_version is None else f"not {visible(api_version)!r}"
        message = f"{visible(kind)} must be {' or '.join(versions)}, {found}."
        place.at("apiVersion").refuse("api_version", message, versions)
    else:
        names = sorted({each.kind for each in KINDS})
        place.at("kind").refuse("kind_not_allowed", f"Kind {visible(kind)!r} is not supported.", names)


def _status(value: Any, place: Location) -> Any:
    return ABSENT if value == {} else forbidden("Set by the API server.", "server_field")(value, place)


def _object(kind: WorkloadKind) -> Rule:
    rule: Rule = table(
        {
            "apiVersion": choice(*kind.api_versions),
            "kind": choice(kind.kind),
            "metadata": pod_object_metadata if kind.name == "Pod" else metadata,
            "spec": SPECS[kind.name],
            "status": _status,
        },
        required=["metadata", "spec"],
    )
    return share_of_gpu(rule) if kind.name == "Pod" else rule


SPECS: Final[Mapping[str, Rule]] = {**core.SPECS, **training.SPECS, **build.SPECS, **serving.SPECS}


OBJECTS: Final[Mapping[str, Rule]] = {kind.name: _object(kind) for kind in KINDS if kind.name in SPECS}


def _check_totals(roles: tuple[PodRole, ...], report: ProblemReport) -> None:
    """Totals that no cluster holds and no column stores. Refused at once: nothing else is said of them."""
    pods = sum(role.replicas for role in roles)
    if pods > MOST_PODS:
        report.add("/spec", "too_many_pods", f"The workload has {pods} pods; the maximum is {MOST_PODS}.")
    total = sum((role.total for role in roles), ZERO)
    if max(total.gpu, total.cpu, total.memory) > LARGEST:
        report.add("/spec", "too_much", "The total request of all pods is too large.")


def _compose(
    manifest: dict[str, Any],
    kind: WorkloadKind,
    explicit: Explicit,
    source: Source,
    type_name: str,
    report: ProblemReport,
    *,
    counted: bool,
) -> WorkloadSpec:
    own = manifest["metadata"]
    request = take_request(manifest, kind, explicit)
    prefix = own.pop("generateName", None)
    own["name"] = own.get("name") or slug(prefix or UNNAMED)
    roles = roles_of(manifest, kind)
    _check_totals(roles, report)
    stated = stated_minimum(manifest, kind, roles, report) if counted else None
    return WorkloadSpec(
        type_name=type_name,
        kind=kind.kind,
        api_version=manifest["apiVersion"],
        name=own["name"],
        generate_name=prefix is not None,
        manifest=manifest,
        roles=roles,
        request=request,
        min_member=stated or min_member(manifest, kind, roles),
        node_pools=node_pools_of(own.get("annotations", {})),
        labels=dict(own.get("labels", {})),
        annotations=dict(own.get("annotations", {})),
        source=source,
        warnings=report.warnings,
    )
