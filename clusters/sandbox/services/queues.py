"""Queues of the simulated scheduler, read back from the objects that its flavour wrote; and which of them a pod names.

Nothing else is known of quotas: what a sync did not bring is not there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours import kueue, volcano
from clusters.flavours.kai import NODE_POOL_LABEL, QUEUE_LABEL
from clusters.flavours.objects import POOL, duration_micros, sum_or_unlimited
from clusters.ports.flavour import Traits
from clusters.ports.gateway import Manifest
from clusters.ports.objects import KAI_QUEUE, KUEUE_COHORT, KUEUE_QUEUE, VOLCANO_QUEUE
from clusters.ports.pods import GPU_RESOURCE, amounts, annotations, labels, moment_of, scaled
from clusters.sandbox.services.store import ObjectStore
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.resources import Limit
from scheduling.model.snapshot import Queue

ANY_POOL: Final = "default"
MEGABYTE: Final = 1_000_000
PARTS: Final = {GPU_RESOURCE: ("gpu", 1000), "cpu": ("cpu", 1000), "memory": ("memory", 1)}
"""Resources by what the model calls them, and how many of its units make one."""


@dataclass(frozen=True, slots=True)
class QueueDialect:
    """How a scheduler's queues are read, and the queue that a pod names."""

    queues: Callable[[ObjectStore], Iterable[Queue]]
    named: Callable[[Manifest], str]


def dialect_of(traits: Traits) -> QueueDialect | None:
    """None: the scheduler has no queues."""
    return DIALECTS.get(traits.installed.key) if traits.installed and traits.queues_by_pool else None


def pool_of(manifest: Manifest) -> str:
    """The node pool that a label of the object names."""
    found = labels(manifest)
    return found.get(POOL) or found.get(NODE_POOL_LABEL) or ANY_POOL


def micros(text: object) -> int:
    """A time stamp of a manifest in the model's unit; 0 where there is none."""
    moment = moment_of(text)
    return 0 if moment is None else int(moment.timestamp() * 1_000_000)


def _kai(store: ObjectStore) -> Iterator[Queue]:
    for queue in store.of(KAI_QUEUE.key):
        spec = queue["spec"]
        resources: Mapping[str, Mapping[str, Any]] = spec.get("resources") or {}
        yield Queue(
            name=queue["metadata"]["name"],
            parent=spec.get("parentQueue") or None,
            pool=pool_of(queue),
            deserved=_bound(resources, "quota"),
            limit=_bound(resources, "limit"),
            weight=_weight(resources, "gpu"),
            cpu_weight=_weight(resources, "cpu"),
            memory_weight=_weight(resources, "memory"),
            rank=int(spec.get("priority", 100)),
            preempt_min_runtime=duration_micros(spec.get("preemptMinRuntime")),
            reclaim_min_runtime=duration_micros(spec.get("reclaimMinRuntime")),
            created=micros(queue["metadata"].get("creationTimestamp")),
        )


def _weight(resources: Mapping[str, Mapping[str, Any]], name: str) -> int:
    """In thousandths; absent is nothing, as KAI reads it."""
    return round(float(resources.get(name, {}).get("overQuotaWeight", 0)) * 1000)


def _bound(resources: Mapping[str, Mapping[str, Any]], what: str) -> Limit:
    """GPU units, millicores and megabytes; -1 is unlimited, absent is nothing, as KAI reads it."""
    units = {"gpu": 1000, "cpu": 1, "memory": MEGABYTE}
    numbers = {name: float(resources.get(name, {}).get(what, 0)) for name in units}
    return Limit(**{name: None if number < 0 else round(number * units[name]) for name, number in numbers.items()})


def _volcano(store: ObjectStore) -> Iterator[Queue]:
    for queue in store.of(VOLCANO_QUEUE.key):
        spec = queue.get("spec") or {}
        yield Queue(
            name=queue["metadata"]["name"],
            parent=spec.get("parent") or None,
            pool=pool_of(queue),
            deserved=_listed(spec.get("deserved") or {}),
            limit=_listed(spec.get("capability") or {}),
            weight=int(spec.get("weight", 1)),
            rank=int(spec.get("priority", 0)),
            created=micros(queue["metadata"].get("creationTimestamp")),
            reclaimable=spec.get("reclaimable") is not False,
        )


def _listed(resources: Mapping[str, Any]) -> Limit:
    """A resource list. What it leaves out, and what it writes for "unlimited", is no bound."""
    most, found = amounts(volcano.UNLIMITED), amounts(resources)
    listed = {part: getattr(found, part) for name, (part, _unit) in PARTS.items() if name in resources}
    return Limit(**{part: None if amount >= getattr(most, part) else amount for part, amount in listed.items()})


def _kueue(store: ObjectStore) -> Iterator[Queue]:
    """One per flavor of every Cohort and ClusterQueue; a cohort's with all that those in it deserve."""
    leaves = [leaf for queue in store.of(KUEUE_QUEUE.key) for leaf in _leaves(queue)]
    for cohort in store.of(KUEUE_COHORT.key):
        for flavor, nominal, borrowing in _flavors(cohort["spec"]):
            name = f"{cohort['metadata']['name']}/{flavor}"
            whole = _sum([nominal, *(leaf.deserved for leaf in leaves if leaf.parent == name)])
            yield Queue(
                name=name,
                parent=_above(cohort["spec"].get("parentName"), flavor),
                pool=flavor,
                deserved=whole,
                limit=_sum([whole, borrowing]),
                weight=_fair_weight(cohort["spec"]),
                owner=cohort["metadata"]["name"],
            )
    yield from leaves


def _leaves(queue: Manifest) -> Iterator[Queue]:
    spec = queue["spec"]
    preemption: Mapping[str, Any] = spec.get("preemption") or {}
    for flavor, nominal, borrowing in _flavors(spec):
        yield Queue(
            name=f"{queue['metadata']['name']}/{flavor}",
            parent=_above(spec.get("cohortName"), flavor),
            pool=flavor,
            deserved=nominal,
            limit=_sum([nominal, borrowing]),
            weight=_fair_weight(spec),
            owner=queue["metadata"]["name"],
            preempts=QueuePreemptionPolicy(preemption.get("withinClusterQueue", QueuePreemptionPolicy.NEVER)),
            reclaims=QueuePreemptionPolicy(preemption.get("reclaimWithinCohort", QueuePreemptionPolicy.NEVER)),
            reclaims_over_quota=QueuePreemptionPolicy(
                (preemption.get("borrowWithinCohort") or {}).get("policy", QueuePreemptionPolicy.NEVER)
            ),
        )


def _fair_weight(spec: Mapping[str, Any]) -> int:
    """In thousandths."""
    return round(float((spec.get("fairSharing") or {}).get("weight", 1)) * 1000)


def _above(cohort: str | None, flavor: str) -> str | None:
    return f"{cohort}/{flavor}" if cohort else None


def _flavors(spec: Mapping[str, Any]) -> Iterator[tuple[str, Limit, Limit]]:
    """Flavor, nominalQuota, borrowingLimit."""
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            amounts = {str(each["name"]): each for each in flavor.get("resources") or ()}
            yield (
                str(flavor["name"]),
                _quota(amounts, "nominalQuota", least=0),
                _quota(amounts, "borrowingLimit", least=None),
            )


def _quota(amounts: Mapping[str, Mapping[str, Any]], field: str, *, least: int | None) -> Limit:
    """`least`: what a resource means that says nothing."""
    found: dict[str, int | None] = {}
    for name, (part, unit) in PARTS.items():
        text = amounts.get(name, {}).get(field)
        amount = least if text is None else scaled(str(text), unit)
        found[part] = None if amount is None or amount >= getattr(kueue.MOST, part) else amount
    return Limit(**found)


def _sum(limits: Iterable[Limit]) -> Limit:
    """Unlimited as soon as one of them is."""
    parts = list(limits)
    return Limit(
        sum_or_unlimited(each.gpu for each in parts),
        sum_or_unlimited(each.cpu for each in parts),
        sum_or_unlimited(each.memory for each in parts),
    )


DIALECTS: Final[Mapping[str, QueueDialect]] = {
    KAI_QUEUE.key: QueueDialect(_kai, lambda pod: labels(pod).get(QUEUE_LABEL, "default-queue")),
    VOLCANO_QUEUE.key: QueueDialect(_volcano, lambda pod: annotations(pod).get(volcano.QUEUE, "default")),
    KUEUE_QUEUE.key: QueueDialect(_kueue, lambda manifest: labels(manifest).get(kueue.QUEUE_LABEL, "")),
}
