"""The dictionary and the types: as values for the resolution, as desired state, as pages show them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _

from clusters.connection.services.scheduler_config import eviction_settings, guarantee_on
from clusters.inventory.models import Cluster, ClusterState
from clusters.ports.flavour import MIN_RUNTIME, DesiredState, PriorityClassSpec
from clusters.sync.models import Drift
from clusters.sync.selectors import ALL_OWNERS, comparison_of
from portal.kit.db.read_cache import cached_read
from portal.kit.errors import ValidationFailed
from portal.kit.pages.api_snippets import ApiRequest
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.organisation.models import Project
from tenants.quotas.selectors.runtime_rules import guarantee_of
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.dictionary.rules.drafts import Draft, DraftEntry, DraftType
from workloads.dictionary.rules.eviction_matrix import EvictionMatrix, eviction_matrix
from workloads.dictionary.rules.resolution import (
    Dictionary,
    Effective,
    PriorityEntry,
    Source,
    TypeDefaults,
)
from workloads.plans.models import Plan
from workloads.state.models import Workload
from workloads.state.rules import LIVE


def entry_of(priority: Priority) -> PriorityEntry:
    alias = priority.alias_of.name if priority.alias_of else None
    return PriorityEntry(priority.name, priority.value, priority.preemption_policy, alias)


@cached_read
def current_rows() -> Mapping[str, Priority]:
    """Every entry that may be named, by name: retired ones may not."""
    rows = {row.pk: row for row in Priority.objects.order_by()}
    for row in rows.values():
        if row.alias_of_id is not None:
            row.alias_of = rows[row.alias_of_id]
    return {row.name: row for row in rows.values() if row.retired_at is None}


@cached_read
def current_dictionary() -> Dictionary:
    """Every entry that may be named, as values."""
    return Dictionary(entry_of(row) for row in current_rows().values())


@cached_read
def category_names() -> tuple[str, ...]:
    """Every category that a workload may be classified as."""
    return tuple(Category.objects.order_by("name").values_list("name", flat=True))


def defaults_of(type_: WorkloadType) -> TypeDefaults:
    """What the type brings along. An empty preemptibility is none."""
    given = Preemptibility(type_.preemptibility) if type_.preemptibility else None
    return TypeDefaults(type_.name, type_.priority.name if type_.priority else None, given, type_.fixed)


def effective_as(workload: Workload, entry: PriorityEntry, preemptibility: Preemptibility) -> Effective:
    """A stored workload's pair as it would be with another priority: for what-ifs."""
    return Effective(entry, Source(workload.priority_source), preemptibility, Source.THRESHOLD)


@dataclass(frozen=True, slots=True)
class SyncDot:
    """The state of one cluster: synced, changing, drifted, paused or unknown; `detail` says what differs, or why."""

    cluster: str
    state: str
    detail: str = ""
    simulated: bool = False
    synced_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DictionaryRow:
    """One entry. `types`: titles of the types it is the default of. `more`: clusters beside those of `dots`."""

    id: str
    name: str
    value: int
    preemption_policy: str
    description: str
    source: str
    alias_of: str
    retired: bool
    types: tuple[str, ...]
    dots: tuple[SyncDot, ...]
    more: int

    @property
    def offered(self) -> bool:
        return not self.alias_of and not self.retired


def dictionary_rows() -> list[DictionaryRow]:
    """Every entry, highest value first, in a constant number of queries."""
    clusters = {cluster: _dot(cluster) for cluster in Cluster.objects.all()}
    drifts = _drifts()
    rows = Priority.objects.select_related("alias_of").prefetch_related("types").order_by("-value", "name")
    return [
        DictionaryRow(
            id=str(row.pk),
            name=row.name,
            value=row.value,
            preemption_policy=row.preemption_policy,
            description=row.description,
            source=row.source,
            alias_of=row.alias_of.name if row.alias_of else "",
            retired=row.retired_at is not None,
            types=tuple(sorted(type_.title for type_ in row.types.all() if type_.withdrawn_at is None)),
            dots=_dots(clusters, drifts, row.name),
            more=max(len(clusters) - DOTS, 0),
        )
        for row in rows
    ]


DOTS: Final = 5
"""Clusters beside an entry."""
_STATES: Final = ("drifted", "paused", "unknown", "changing", "synced")
"""What needs attention first."""


def _dots(
    clusters: Mapping[Cluster, SyncDot], drifts: Mapping[object, Mapping[str, str]], name: str
) -> tuple[SyncDot, ...]:
    """Of the entry of this name. clusters: each with its dot where nothing differs."""
    dots = [
        _dot(cluster, drifts[cluster.pk][name]) if name in drifts.get(cluster.pk, ()) else dot
        for cluster, dot in clusters.items()
    ]
    return tuple(sorted(dots, key=lambda dot: _STATES.index(dot.state))[:DOTS])


def _drifts() -> dict[object, dict[str, str]]:
    """Cluster id to what differs, by the name of the PriorityClass."""
    found: dict[object, dict[str, str]] = defaultdict(dict)
    for drift in Drift.objects.filter(kind__startswith="PriorityClass"):
        found[drift.cluster_id][drift.name] = drift.message or f"{drift.name}: {drift.category}"
    return found


def _dot(cluster: Cluster, drift: str = "") -> SyncDot:
    compared = comparison_of(cluster)
    state: str = compared.state
    detail = compared.why
    if cluster.state == ClusterState.PAUSED:
        state, detail = "paused", cluster.paused_reason
    elif drift:
        state, detail = "drifted", drift
    elif state == "never":
        state = "changing"
    return SyncDot(cluster.name, state, detail, cluster.is_simulated, compared.at)


def workload_types(*, withdrawn: bool = False) -> QuerySet[WorkloadType]:
    """The types that are offered, or those that are withdrawn, with category and priority."""
    return WorkloadType.objects.filter(withdrawn_at__isnull=not withdrawn).select_related("category", "priority")


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A type, how many workloads of it have not ended, and how many of these have running pods."""

    type: WorkloadType
    active: int
    running: int


def type_rows() -> tuple[list[TypeRow], list[TypeRow]]:
    """The types that are offered and those that are withdrawn, with their use.

    Counts the phases that have not ended by name: the index by phase finds them among many more that have.
    """
    active = Workload.objects.filter(deleted_at__isnull=True, phase__in=LIVE).order_by().values_list("type")
    counted = active.annotate(active=Count("pk"), running=Count("pk", filter=Q(running_pods__gt=0)))
    counts = {key: (number, running) for key, number, running in counted}
    types = WorkloadType.objects.select_related("category", "priority").order_by("-native", "category__name", "name")
    rows = [TypeRow(each, *counts.get(each.pk, (0, 0))) for each in types]
    return [row for row in rows if row.type.withdrawn_at is None], [row for row in rows if row.type.withdrawn_at]


PRIORITIES = "/api/v1/workload-priorities"
TYPES = "/api/v1/workload-types"
METHODS = {"type": "update_workload_type", "withdraw": "delete_workload_type", "offer": "create_workload_type"}
KEYS = {"value": "value", "preemption_policy": "preemptionPolicy", "description": "description"}


def plan_requests(plan: Plan) -> list[ApiRequest]:
    """None for a plan of several changes, and for one of something that is no longer there."""
    change = plan.change
    match change["op"]:
        case "add":
            return [ApiRequest("POST", PRIORITIES, {"name": change["name"], **_fields(change)})]
        case "change":
            return _of_priority(change["name"], "PATCH", _fields(change))
        case "rename":
            return _of_priority(change["name"], "PATCH", {"name": change["new_name"]})
        case "retire":
            return _of_priority(change["name"], "DELETE", None)
        case "type" | "withdraw" | "offer":
            return _of_type(change)
        case _:
            return []


def _fields(change: dict[str, Any]) -> dict[str, Any]:
    return {key: change[name] for name, key in KEYS.items() if name in change}


def _of_priority(name: str, verb: str, body: dict[str, Any] | None) -> list[ApiRequest]:
    rows = Priority.objects.filter(name=name, retired_at__isnull=True).values_list("pk", flat=True)
    return [ApiRequest(verb, f"{PRIORITIES}/{key}", body) for key in rows[:1]]


def _of_type(change: dict[str, Any]) -> list[ApiRequest]:
    """By ids, as Run:ai's client sends it."""
    row = WorkloadType.objects.filter(name=change["name"]).select_related("category", "priority").first()
    if row is None:
        return []
    one, method = f"{TYPES}/{row.pk}", f"workloads.workload_properties.{METHODS[change['op']]}"
    if change["op"] == "withdraw":
        return [ApiRequest("DELETE", one, None, method, (str(row.pk),))]
    if change["op"] == "offer":
        body = {"name": row.name, "group": row.group, **_mapping({**_unchanged(row), **change})}
        return [ApiRequest("POST", TYPES, body, method)]
    return [ApiRequest("PUT", one, _mapping(change), method, (str(row.pk),))]


def _unchanged(row: WorkloadType) -> dict[str, str]:
    """What a plan leaves out stays, and the call must say it."""
    return {name: value.name for name, value in (("category", row.category), ("priority", row.priority)) if value}


def _mapping(change: dict[str, Any]) -> dict[str, Any]:
    named = {"categoryId": (Category.objects.all(), "category"), "priorityId": (Priority.objects.all(), "priority")}
    body = {
        field: str(rows.filter(name=change[name]).values_list("pk", flat=True).first())
        for field, (rows, name) in named.items()
        if change.get(name)
    }
    if change.get("preemptibility"):
        body["preemptibility"] = change["preemptibility"]
    return body


def desired_state(_cluster: Cluster, *, owner: str = ALL_OWNERS) -> DesiredState:
    """The same priorities on every cluster, weakest first; all of them for any owner, whose quotas name classes."""
    return DesiredState(priorities=current_priority_classes())


def current_priority_classes() -> tuple[PriorityClassSpec, ...]:
    """Those that clusters hold: retired ones as long as workloads of them are left."""
    live = Workload.objects.filter(deleted_at__isnull=True).values("priority")
    rows = Priority.objects.filter(Q(retired_at__isnull=True) | Q(pk__in=live))
    return tuple(_priority_class(row) for row in rows)


def _priority_class(row: Priority) -> PriorityClassSpec:
    return PriorityClassSpec(
        name=row.name,
        value=row.value,
        preemption_policy=row.preemption_policy,
        description=row.description,
        owner=f"priority.{row.pk}",
        generation=row.generation,
    )


def priority_classes_of(
    entries: Iterable[DraftEntry], known: Iterable[PriorityClassSpec]
) -> tuple[PriorityClassSpec, ...]:
    """A draft's entries as clusters hold them, with owner and generation of existing rows: for what-ifs."""
    rows = {each.name: each for each in known}
    return tuple(
        PriorityClassSpec(
            name=entry.name,
            value=entry.value,
            preemption_policy=entry.preemption_policy,
            description=entry.description,
            owner=rows[entry.name].owner if entry.name in rows else "priority.new",
            generation=rows[entry.name].generation if entry.name in rows else 1,
        )
        for entry in entries
        if not entry.retired or entry.name in rows
    )


def current_draft() -> Draft:
    """All of it now, in three queries."""
    return Draft(
        entries={row.name: _entry(row) for row in Priority.objects.select_related("alias_of")},
        types={row.name: _type_entry(row) for row in WorkloadType.objects.select_related("category", "priority")},
        categories={row.name: row.priority.name for row in Category.objects.select_related("priority")},
    )


def matrix_on(cluster: Cluster) -> EvictionMatrix:
    """Who can evict whom by priority there, by the current dictionary and configuration of its scheduler."""
    return eviction_matrix(current_draft(), eviction_settings(cluster))


def matrix_notes(cluster: Cluster, matrix: EvictionMatrix, project: Project | None) -> list[str]:
    """What the cells do not say: how far the cluster's scheduler goes, foreign pods, the project's minimum runtime."""
    sentences = [guarantee_on(cluster, "priority_inside_project").explanation]
    foreign = guarantee_on(cluster, "foreign_pods_stay")
    if foreign.enforced != "yes":
        sentences.append(foreign.explanation)
    lasts = guarantee_of(project) if project else None
    if project and lasts:
        evictable = _("can be evicted here, too") if matrix.evicts_inside_minimum else _("are not evicted")
        words = _("Minimum runtime of %(project)s: %(lasts)s. Workloads inside it %(evictable)s. %(why)s")
        why = guarantee_on(cluster, MIN_RUNTIME).explanation
        sentences.append(words % {"project": project.name, "lasts": lasts, "evictable": evictable, "why": why})
    return sentences


def _entry(row: Priority) -> DraftEntry:
    return DraftEntry(
        name=row.name,
        value=row.value,
        preemption_policy=row.preemption_policy,
        description=row.description,
        alias_of=row.alias_of.name if row.alias_of else "",
        source=row.source,
        retired=row.retired_at is not None,
    )


def _type_entry(row: WorkloadType) -> DraftType:
    return DraftType(
        name=row.name,
        category=row.category.name if row.category else "",
        priority=row.priority.name if row.priority else "",
        preemptibility=row.preemptibility,
        fixed=row.fixed,
        withdrawn=row.withdrawn_at is not None,
    )


def facts_of(draft: Draft) -> dict[str, str]:
    """One short text per entry and type: what a plan was computed on."""
    entries = {
        f"priority {each.name}": f"{each.value} {each.preemption_policy} alias={each.alias_of} retired={each.retired}"
        for each in draft.entries.values()
    }
    types = {
        f"type {each.name}": f"{each.category} {each.priority} {each.preemptibility}{' withdrawn' * each.withdrawn}"
        for each in draft.types.values()
    }
    return {**entries, **types, **{f"category {name}": held for name, held in draft.categories.items()}}


def type_named(name: str) -> WorkloadType:
    if (found := _type(name)) is None:
        raise ValidationFailed.at("/kind", "type_unknown", f"Unknown workload type {name[:63]!r}.")
    return found


def category_of(type_: WorkloadType) -> str:
    """Build, Train, Deploy or another of the dictionary; empty for a type without one."""
    return type_.category.name if type_.category else ""


@cached_read
def _type(name: str) -> WorkloadType | None:
    return WorkloadType.objects.select_related("category", "priority").filter(name=name).first()


def require_dictionary(actor: Actor) -> None:
    """Dictionary, types and plans belong to the platform admins."""
    require(actor, Permission.MANAGE_DICTIONARY)
