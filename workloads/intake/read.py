"""The one door: form, JSON and YAML come in, a WorkloadSpec or IntakeRefused comes out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from clusters.kinds import KINDS, WorkloadKind, kind_for
from portal.core.strict.documents import Document, Limits, measure
from portal.core.strict.json_reader import document_from_json
from portal.core.strict.yaml_reader import documents_from_yaml
from scheduling.resources import LARGEST, ZERO
from workloads.intake.metadata import metadata, pod_object_metadata, preemptibility
from workloads.intake.names import slug
from workloads.intake.placing import node_pools_of, stated_minimum
from workloads.intake.pods import priority_class, share_of_gpu
from workloads.intake.problems import MOST_PROBLEMS, IntakeRefused, Problem, Report, refused, visible
from workloads.intake.roles import min_member, roles_of
from workloads.intake.rules import ABSENT, Place, Rule, choice, forbidden, table, type_name
from workloads.intake.scope import Explicit, Scope
from workloads.intake.spec import PodRole, Source, WorkloadSpec
from workloads.intake.specs import SPECS
from workloads.intake.wishes import take_request

DEFAULT_LIMITS: Final = Limits()
MOST_PODS: Final = 10_000
NOTHING_EXPLICIT: Final = Explicit()


def read_yaml(
    data: bytes, *, scope: Scope, explicit: Explicit = NOTHING_EXPLICIT, limits: Limits = DEFAULT_LIMITS
) -> tuple[WorkloadSpec, ...]:
    """Every workload of a YAML text, all or none."""
    return _read_all(documents_from_yaml(data, limits), scope, explicit, "yaml")


def read_json(
    data: bytes, *, scope: Scope, explicit: Explicit = NOTHING_EXPLICIT, limits: Limits = DEFAULT_LIMITS
) -> tuple[WorkloadSpec, ...]:
    """The workload of a JSON text, as a tuple of one."""
    return _read_all([document_from_json(data, limits)], scope, explicit, "json")


def read_object(
    obj: Mapping[str, Any],
    *,
    scope: Scope,
    explicit: Explicit = NOTHING_EXPLICIT,
    source: Source = "json",
    type_name: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> WorkloadSpec:
    """The workload of an object that was parsed already; `type_name` is Run:ai's where it is not the manifest's own."""
    measure(obj, limits)
    return _read(Document(obj), 0, scope, explicit, source, type_name)


def _read_all(documents: list[Document], scope: Scope, explicit: Explicit, source: Source) -> tuple[WorkloadSpec, ...]:
    if not documents:
        raise refused(422, "empty", "There is no document in the text.")
    if len(documents) > 1:
        explicit = replace(explicit, name=None)
    specs: list[WorkloadSpec] = []
    problems: list[Problem] = []
    for index, document in enumerate(documents):
        try:
            specs.append(_read(document, index, scope, explicit, source))
        except IntakeRefused as refusal:
            problems += refusal.problems
    problems += _repeated(specs)
    if problems:
        raise IntakeRefused(422, problems[:MOST_PROBLEMS])
    return tuple(specs)


def _repeated(specs: list[WorkloadSpec]) -> list[Problem]:
    seen: set[tuple[str, str]] = set()
    problems = []
    for index, spec in enumerate(specs):
        key = (spec.kind, spec.name)
        if key in seen and not spec.generate_name:
            message = f"Another document is a {spec.kind} named {spec.name} too."
            problems.append(Problem("/metadata/name", "repeated", message, document=index))
        seen.add(key)
    return problems


def _read(
    document: Document, index: int, scope: Scope, explicit: Explicit, source: Source, type_name: str = ""
) -> WorkloadSpec:
    report = Report(document.line_of, index)
    place = Place("", report, scope)
    _refuse_explicit(explicit, place)
    kind = _kind_of(document.value, place)
    manifest = ABSENT if kind is None else OBJECTS[kind.name](_named(document.value, explicit), place)
    report.settle()
    assert kind is not None  # noqa: S101  # settled above: no kind is a problem
    return _compose(manifest, kind, explicit, source, type_name or kind.name, report)


def _refuse_explicit(explicit: Explicit, place: Place) -> None:
    if explicit.priority is not None:
        priority_class(explicit.priority, place.at("priority"))
    if explicit.preemptibility is not None:
        preemptibility(explicit.preemptibility, place.at("preemptibility"))


def _named(value: Any, explicit: Explicit) -> Any:
    """The object under the name that was asked for outright. One without metadata is refused as it is."""
    own = value.get("metadata", {}) if explicit.name else None
    if not isinstance(own, Mapping):
        return value
    kept = {name: given for name, given in own.items() if name not in {"name", "generateName"}}
    return {**value, "metadata": {**kept, "generateName" if explicit.prefix else "name": explicit.name}}


def _kind_of(value: Any, place: Place) -> WorkloadKind | None:
    if not isinstance(value, Mapping):
        place.refuse("wrong_type", f"A manifest is an object, not {type_name(value)}.")
        return None
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(kind, str) and kind.endswith("List"):
        place.at("kind").refuse("kind_not_allowed", "A list is not taken: write its items as documents of their own.")
        return None
    found = kind_for(api_version, kind) if isinstance(api_version, str) and isinstance(kind, str) else None
    if found is None:
        _refuse_kind(api_version, kind, place)
    return found


def _refuse_kind(api_version: Any, kind: Any, place: Place) -> None:
    versions = sorted({version for each in KINDS if each.kind == kind for version in each.api_versions})
    if versions:
        message = f"{visible(kind)} is taken as {' or '.join(versions)}, not as {visible(api_version)!r}."
        place.at("apiVersion").refuse("api_version", message, versions)
    else:
        names = sorted({each.kind for each in KINDS})
        place.at("kind").refuse("kind_not_allowed", f"{visible(kind)!r} is not a kind that can be submitted.", names)


def _status(value: Any, place: Place) -> Any:
    return ABSENT if value == {} else forbidden("The API server writes it.", "server_field")(value, place)


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


OBJECTS: Final[Mapping[str, Rule]] = {kind.name: _object(kind) for kind in KINDS if kind.name in SPECS}


def _refuse_too_much(roles: tuple[PodRole, ...], report: Report) -> None:
    """Totals that no cluster holds and no column stores."""
    pods = sum(role.replicas for role in roles)
    if pods > MOST_PODS:
        report.add("/spec", "too_many_pods", f"It becomes {pods} pods; up to {MOST_PODS} are taken.")
    total = sum((role.total for role in roles), ZERO)
    if max(total.gpu, total.cpu, total.memory) > LARGEST:
        report.add("/spec", "too_much", "All pods together ask for more than can be counted.")
    report.settle()


def _compose(
    manifest: dict[str, Any], kind: WorkloadKind, explicit: Explicit, source: Source, type_name: str, report: Report
) -> WorkloadSpec:
    own = manifest["metadata"]
    request = take_request(manifest, kind, explicit)
    prefix = own.pop("generateName", None)
    own["name"] = own.get("name") or slug(prefix)
    roles = roles_of(manifest, kind)
    _refuse_too_much(roles, report)
    stated = stated_minimum(manifest, kind, roles, report)
    report.settle()
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
