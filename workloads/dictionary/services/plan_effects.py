"""Effects of a dictionary change: objects per cluster, workloads, who may evict whom, warnings."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from django.db.models import Q, QuerySet

from clusters.connection.services.scheduler_config import eviction_assumption, eviction_settings, guarantee_on
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.flavour import DesiredState, PriorityClassSpec, Traits
from clusters.sync.selectors import desired_state
from clusters.watch.models import ObservedPod
from scheduling.forecast.cycle import Flavour
from scheduling.forecast.eviction_matrix import EvictionSettings
from scheduling.model.preemptibility import THRESHOLD, Preemptibility
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.rules.drafts import Draft, DraftEntry
from workloads.dictionary.rules.eviction_matrix import (
    EvictionMatrix,
    changed_pairs,
    changes_elsewhere,
    difference,
    eviction_matrix,
    reach_of,
)
from workloads.dictionary.rules.resolution import Source
from workloads.dictionary.selectors import current_draft, current_priority_classes, priority_classes_of
from workloads.plans.selectors import (
    EXAMPLES,
    Effect,
    blank_effect,
    counted,
    examples_of,
    object_changes,
    objects_sentence,
)
from workloads.state.models import DesiredPhase, Workload
from workloads.state.rules import ENDED, LIVE
from workloads.state.selectors.usage import bounds_of, could_hold
from workloads.state.selectors.workloads import workload_ids

FOREIGN: Final = "Pods not managed by Rung can be evicted there too, by their priority."
BY_VALUE: Final = EvictionSettings(Flavour.KUBE)
"""Evictions by value and policy alone, as PriorityClasses say."""


def victims_of(clusters: Iterable[Cluster], before: Draft, after: Draft) -> dict[str, Any]:
    """Pairs (who, whom) by value and policy alone, and `scopes`: the same for the clusters where evictions are alike.

    No scopes where nothing changes for any of them.
    """
    pairs: list[tuple[EvictionMatrix, EvictionMatrix]] = []
    known: dict[EvictionSettings, int] = {}  # most clusters are configured alike
    alike: defaultdict[tuple[int, str, str], list[Cluster]] = defaultdict(list)
    for cluster in clusters:
        settings = eviction_settings(cluster)
        if settings not in known:
            pair = matrices(before, after, settings)
            pairs += [] if pair in pairs else [pair]
            known[settings] = pairs.index(pair)
        alike[known[settings], _foreign(cluster), eviction_assumption(cluster)].append(cluster)
    scopes = [_scope(rows, *pairs[number], before) for (number, *_notes), rows in alike.items()]
    changes = any(each["new"] or each["lost"] or each["changed"] for each in scopes)
    return {**_changed(*matrices(before, after, BY_VALUE)), "scopes": scopes if changes else []}


def victims_of_switch(cluster: Cluster, target: Cluster) -> dict[str, Any]:
    """The same for a cluster that gets another scheduler. target: its row with that scheduler and its configuration.

    The scope is there also where the same pairs may evict under other rules, such as across projects.
    """
    draft = current_draft()
    old, new = (eviction_matrix(draft, eviction_settings(each)) for each in (cluster, target))
    scope = {**_scope([target], old, new, draft), "elsewhere": list(changes_elsewhere(old, new))}
    return {**_changed(old, new), "scopes": [scope] if old.tables != new.tables else []}


def matrices(before: Draft, after: Draft, settings: EvictionSettings) -> tuple[EvictionMatrix, EvictionMatrix]:
    return eviction_matrix(before, settings), eviction_matrix(after, settings)


def _foreign(cluster: Cluster) -> str:
    return FOREIGN if guarantee_on(cluster, "foreign_pods_stay").enforced == "no" else ""


def _scope(clusters: Sequence[Cluster], old: EvictionMatrix, new: EvictionMatrix, before: Draft) -> dict[str, Any]:
    gone = [each for each in before.offered if each.name not in {priority.name for priority in new.priorities}]
    priorities = sorted([*new.priorities, *gone], key=lambda priority: -priority.value)
    return {
        "clusters": [{"name": each.name, "scheduler": flavour_for(each.flavour).title} for each in clusters],
        "reach_before": reach_of(old),
        "reach": reach_of(new),
        "foreign": _foreign(clusters[0]),
        "assumption": eviction_assumption(clusters[0]),
        "priorities": [{"name": each.name, "value": each.value, "gone": each in gone} for each in priorities],
        "matrix": difference(old.own, new.own, priorities),
        "rules": list(new.rules),
        **_changed(old, new),
    }


def _changed(old: EvictionMatrix, new: EvictionMatrix) -> dict[str, list[list[str]]]:
    pairs = changed_pairs(old.own, new.own)
    return {"new": _listed(pairs.new), "lost": _listed(pairs.lost), "changed": _listed(pairs.other)}


def _listed(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    return sorted(map(list, pairs))


NUMBERS: Final = (
    ("keep_old_value", "running workload", "keep", "the old value"),
    ("wait_with_old_value", "waiting workload", "keep", "the old value until recreated"),
    ("take_new_value", "workload", "take", "the new value immediately"),
    ("keep_preemptibility", "running workload", "keep", "the old preemptibility"),
)


def effect_of(before: Draft, after: Draft) -> Effect:
    """Everything a plan shows."""
    clusters = list(Cluster.objects.prefetch_related("node_pools"))
    objects = list(_objects(clusters, after))
    workloads = _workloads(before, after)
    effect = blank_effect()
    effect["objects"] = [each for each in objects if each["changes"]]
    effect["workloads"] |= workloads
    effect["victims"] = victims_of(clusters, before, after)
    effect["types"] = list(_types(before, after))
    effect["warnings"] = list(_warnings(before, after))
    return {**effect, "sentence": _sentence(effect)}


def _objects(clusters: Sequence[Cluster], after: Draft) -> Iterator[dict[str, Any]]:
    """The flavours' own objects before and after, compared as reconcile compares them.

    Projects are read where a cluster's quotas name PriorityClasses and the change makes them name others.
    """
    now = current_priority_classes()
    then = priority_classes_of(after.entries.values(), now)
    requotas = _classes(now) != _classes(then)
    alike: dict[str, Sequence[Mapping[str, Any]]] = {}  # by flavour: without projects only the priorities count
    for cluster in clusters:
        flavour = flavour_for(cluster.flavour)
        by_project = requotas and flavour.traits.quotas_by_class
        if by_project or flavour.name not in alike:
            projects = desired_state(cluster) if by_project else DesiredState()
            old, new = (flavour.objects_for(replace(projects, priorities=priorities)) for priorities in (now, then))
            alike[flavour.name] = object_changes(cluster, old, new)["changes"]
        yield {"cluster": cluster.name, "simulated": cluster.is_simulated, "changes": alike[flavour.name]}


def _classes(priorities: Iterable[PriorityClassSpec]) -> set[tuple[str, bool]]:
    """What quotas by class depend on."""
    return {(priority.name, priority.value >= THRESHOLD) for priority in priorities}


def _live() -> QuerySet[Workload]:
    rows = Workload.objects.filter(deleted_at__isnull=True, phase__in=LIVE).exclude(desired_phase=DesiredPhase.DELETED)
    return rows.select_related("project__department", "project__cluster", "priority", "type")


def flipping(before: Draft, after: Draft) -> Iterator[tuple[Workload, Preemptibility]]:
    """Waiting workloads whose preemptibility followed the threshold and now falls on its other side."""
    moved = _moved_values(before, after)
    rows = _live().filter(priority__name__in=moved, running_pods=0, preemptibility_source=Source.THRESHOLD)
    for workload in rows.defer("spec", "raw"):
        if (follows := flip_of(workload, before, after)) is not None:
            yield workload, follows


def flip_of(workload: Workload, before: Draft, after: Draft) -> Preemptibility | None:
    """What a waiting workload becomes where its preemptibility follows the threshold; None: it stays as it is."""
    gone = workload.phase in ENDED or workload.desired_phase == DesiredPhase.DELETED
    if gone or workload.running_pods or workload.preemptibility_source != Source.THRESHOLD:
        return None
    name = workload.priority.name
    old, new = before.entries.get(name), after.entries.get(name)
    if old is None or new is None or old.value == new.value:
        return None
    follows = new.priority.by_threshold
    return None if follows == workload.preemptibility else follows


def _unflipped(before: Draft, after: Draft) -> QuerySet[Workload]:
    """Running workloads on which the threshold would decide otherwise now. Their preemptibility stays as submitted."""
    crossed = Q(pk__in=())
    for name in after.entries:
        if _crosses(name, before, after):
            crossed |= Q(priority__name=name) & ~Q(preemptibility=after.entries[name].priority.by_threshold)
    return _live().filter(crossed, running_pods__gt=0, preemptibility_source=Source.THRESHOLD)


def _moved_values(before: Draft, after: Draft) -> list[str]:
    return [
        name
        for name, entry in after.entries.items()
        if name in before.entries and entry.value != before.entries[name].value
    ]


def _workloads(before: Draft, after: Draft) -> dict[str, Any]:
    flips = list(flipping(before, after))
    unfit = list(_unfit(flips))
    return {
        **{name: _group(rows) for name, rows in _by_number(_moved_values(before, after), flips).items()},
        "keep_preemptibility": _group(_unflipped(before, after)),
        "flip": {
            "count": len(flips),
            "to": str(flips[0][1]) if flips else "",
            "examples": examples_of(workload for workload, _follows in flips[:EXAMPLES]),
        },
        "no_longer_fit": {"count": len(unfit), "examples": examples_of(unfit[:EXAMPLES])},
    }


def with_new_value(name: str) -> QuerySet[Workload]:
    """Workloads that count with another value of this priority immediately: their scheduler reads the class, or their
    cluster holds nothing with the old number.
    """
    groups = _by_number([name], [])
    old = (groups["keep_old_value"] | groups["wait_with_old_value"]).values("pk")
    return _live().filter(priority__name=name).exclude(pk__in=old)


def _by_number(moved: Iterable[str], flips: Iterable[tuple[Workload, Preemptibility]]) -> dict[str, QuerySet[Workload]]:
    """Workloads that the cluster holds with the old number: which of them go on with it, and which do not.

    What waits and turns its preemptibility is recreated. A scheduler that queues whole jobs notes the number with each.
    """
    names = list(moved)
    pods = ObservedPod.objects.live().filter(priority_class__in=names).values_list("owner_id", flat=True)
    held = Q(running_pods__gt=0) | Q(pk__in=workload_ids(set(pods)))
    held |= Q(project__cluster__flavour__in=_flavours(lambda traits: traits.queues_jobs), applied_generation__gt=0)
    rows = _live().filter(held, priority__name__in=names).exclude(pk__in=[workload.pk for workload, _to in flips])
    at_once = Q(project__cluster__flavour__in=_flavours(lambda traits: traits.counts_classes))
    return {
        "keep_old_value": rows.exclude(at_once).filter(running_pods__gt=0),
        "wait_with_old_value": rows.exclude(at_once).filter(running_pods=0),
        "take_new_value": rows.filter(at_once),
    }


def _flavours(have: Callable[[Traits], bool]) -> list[str]:
    return [name for name, flavour in FLAVOURS.items() if have(flavour.traits)]


def _group(rows: QuerySet[Workload]) -> dict[str, Any]:
    return {"count": rows.count(), "examples": examples_of(rows[:EXAMPLES])}


def _unfit(flips: Sequence[tuple[Workload, Preemptibility]]) -> Iterator[Workload]:
    """Yield workloads that the quotas of none of their pools could hold with their new preemptibility."""
    if not flips:
        return
    pools = {(pool.cluster_id, pool.name): pool for pool in NodePool.objects.all()}
    bounds = bounds_of([workload.project for workload, _follows in flips])
    for workload, follows in flips:
        own = (pools.get((workload.project.cluster_id, name)) for name in workload.node_pools)
        known = bounds[workload.project_id]
        if not any(could_hold(workload, pool, follows, bounds=known) for pool in own if pool):
            yield workload


def _types(before: Draft, after: Draft) -> Iterator[dict[str, Any]]:
    used = Workload.objects.filter(deleted_at__isnull=True, phase__in=LIVE)  # as the page of types counts them
    for name, new in after.types.items():
        old = before.types[name]
        if new != old:
            yield {
                "name": name,
                "before": {"category": old.category, "priority": old.priority, "preemptibility": old.preemptibility},
                "after": {"category": new.category, "priority": new.priority, "preemptibility": new.preemptibility},
                "used_by": used.filter(type__name=name).count(),
                "running": used.filter(type__name=name, running_pods__gt=0).count(),
                "withdrawn": new.withdrawn,
                "turned": new.withdrawn != old.withdrawn,
            }


def _warnings(before: Draft, after: Draft) -> Iterator[str]:
    for name, entry in after.entries.items():
        old = before.entries.get(name)
        if old != entry:
            yield from _entry_warnings(old, entry)
        if _crosses(name, before, after):
            yield _crossing(entry, after)
    yield from _contrary_types(before, after)


def _contrary_types(before: Draft, after: Draft) -> Iterator[str]:
    """Types whose default preemptibility is not what their priority means once it is named; alike ones together."""
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, new in after.types.items():
        if new.priority and new.preemptibility:
            touched = new != before.types[name] or _crosses(new.priority, before, after)
            if touched and after.entries[new.priority].priority.by_threshold != new.preemptibility:
                alike[new.priority, new.preemptibility].append(name)
    for (priority, preemptibility), names in alike.items():
        follows = after.entries[priority].priority.by_threshold
        are, them = ("is", "it") if len(names) == 1 else ("are", "them")
        yield (
            f"{_titles(names)} {are} {preemptibility} by default, but choosing {priority} explicitly makes {them} "
            f"{follows}: {'at least' if follows == 'non-preemptible' else 'below'} {THRESHOLD}."
        )


def _titles(types: Collection[str]) -> str:
    """Types as pages name them: `JAX training, Job set and Ray job`."""
    rows = dict(WorkloadType.objects.filter(name__in=types).values_list("name", "title"))
    *others, last = sorted(rows.get(name, name) for name in types)
    return f"{', '.join(others)} and {last}" if others else last


def _crosses(name: str, before: Draft, after: Draft) -> bool:
    """Does the value of the entry change sides of the threshold?"""
    old, new = before.entries.get(name), after.entries[name]
    return old is not None and old.priority.by_threshold is not new.priority.by_threshold


def _crossing(entry: DraftEntry, after: Draft) -> str:
    """What naming the entry means from now on, and for which types that need not even name it."""
    follows = entry.priority.by_threshold
    means = (
        "counted against the deserved quota"
        if follows is Preemptibility.NON_PREEMPTIBLE
        else "allowed to go over quota, and may be evicted"
    )
    types = [name for name, each in after.types.items() if each.priority == entry.name and not each.preemptibility]
    by_default = f" The same applies to {_titles(types)} submitted without a priority." if types else ""
    return f"New submissions with {entry.name} and no preemptibility become {follows}: {means}.{by_default}"


def _entry_warnings(old: DraftEntry | None, entry: DraftEntry) -> Iterator[str]:
    if entry.value < 0:
        yield f"{entry.name} is negative: legal, but Run:ai clients expect values of 0 or more."
    if entry.preemption_policy == "Never" and (old is None or old.preemption_policy != "Never"):
        yield (
            f"{entry.name} never evicts others on kube-scheduler. This does not protect its own pods, and "
            "KAI ignores it."
        )
    if old is not None and (old.value, old.preemption_policy) != (entry.value, entry.preemption_policy):
        yield (
            f"The PriorityClass {entry.name} is replaced on every cluster. A pod created during the replacement is "
            "rejected and recreated by its controller."
        )
    if entry.alias_of and (old is None or not old.alias_of):
        yield f"{entry.name} becomes an alias of {entry.alias_of}: accepted and synced, but not offered."


def _sentence(effect: Effect) -> str:
    """ "2 objects replaced on 3 clusters, 41 running workloads keep the old number, …"."""
    head = objects_sentence(effect["objects"])
    return "; ".join([head, *_workload_words(effect["workloads"]), *_type_words(effect["types"])]) + "."


def _workload_words(workloads: Mapping[str, Any]) -> Iterator[str]:
    for group, noun, verb, what in NUMBERS:
        if count := workloads[group]["count"]:
            yield f"{counted(count, noun)} {verb}{'s' if count == 1 else ''} {what}"
    if flips := workloads["flip"]["count"]:
        yield f"{flips} queued {'becomes' if flips == 1 else 'become'} {workloads['flip']['to']}"
    if unfit := workloads["no_longer_fit"]["count"]:
        yield f"{unfit} of them no longer {'fits' if unfit == 1 else 'fit'}"


def _type_words(types: list[dict[str, Any]]) -> Iterator[str]:
    for each in (each for each in types if each["turned"]):
        if each["withdrawn"]:
            yield f"{each['name']} is disabled; {_left(each['used_by'], each['running'])}"
        else:
            yield f"{each['name']} is enabled"
    if changed := [each for each in types if not each["turned"]]:
        verb = "gets" if len(changed) == 1 else "get"
        yield f"{counted(len(changed), 'workload type')} {verb} new defaults for submissions from now on"


def _left(there: int, running: int) -> str:
    if not there:
        return "no workloads use it"
    return f"{counted(there, 'workload')} of it {'goes' if there == 1 else 'go'} on, {running} with running pods"
