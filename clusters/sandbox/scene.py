"""What the simulated scheduler sees: a `scheduling.Snapshot` made only from objects that are in the sandbox.

KAI: Queues, and a pod group per gang. kube-scheduler: no queues (ResourceQuotas already spoke when the pods were
created) and every pod for itself, or with the other pods of the group it names. Pods are named by their uid in the
snapshot.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.durations import micros_of
from clusters.flavours.common import POOL, TOPOLOGY_KEY
from clusters.flavours.kai import NODE_POOL_LABEL, QUEUE_LABEL
from clusters.flavours.rendering import MIN_MEMBER
from clusters.kinds import kind_for
from clusters.kinds_core import KAI_QUEUE, NODE, POD
from clusters.pods import (
    amounts,
    annotations,
    condition,
    controller_of,
    is_leaving,
    is_terminal,
    labels,
    max_pods,
    moment_of,
    preemptibility_of,
    requests_of,
    taints_of,
    tolerations_of,
)
from clusters.ports import OWNER, Manifest, Traits
from clusters.sandbox.store import Store
from scheduling.model import Node, Pod, PodGroup, Queue, Snapshot, Strategy
from scheduling.priority import Preemptibility
from scheduling.resources import Limit

ANY_POOL: Final = "default"
DEFAULT_QUEUE: Final = "default-queue"
MEGABYTE: Final = 1_000_000


@dataclass(slots=True)
class Scene:
    """The snapshot, and the way back from its names to the objects."""

    snapshot: Snapshot
    pods: Mapping[str, Manifest]
    titles: Mapping[str, str] = field(default_factory=dict)  # pod group name to "<namespace>/<name>"


@dataclass(slots=True)
class _Draft:
    """Pods that will be one pod group."""

    name: str
    title: str
    pods: list[Manifest] = field(default_factory=list)
    gang: bool = False


def scene_of(store: Store, *, traits: Traits, strategies: Mapping[str, Strategy]) -> Scene:
    """Read the whole cluster."""
    shards, whole = traits.queues_by_pool, traits.whole_gangs
    alive = [pod for pod in store.of(POD.key) if not is_terminal(pod) and not pod["spec"].get("schedulingGates")]
    queues = tuple(_queues(store)) if shards else ()
    pools = {queue.name: queue.pool for queue in queues}
    drafted = _drafts_of_groups(alive) if whole else _drafts(alive, gangs=shards)
    drafts = [part for draft in drafted for part in _split(draft)]
    snapshot = Snapshot(
        nodes=tuple(_nodes(store, shards=shards)),
        queues=queues,
        groups=tuple(_group(draft, pools if shards else None, whole=whole) for draft in drafts),
        now=int(store.now.timestamp() * 1_000_000),
        strategies=strategies,
    )
    by_uid = {pod["metadata"]["uid"]: pod for pod in alive}
    return Scene(snapshot, by_uid, {draft.name: draft.title for draft in drafts})


def _pool_of(manifest: Manifest) -> str:
    found = labels(manifest)
    return found.get(POOL) or found.get(NODE_POOL_LABEL) or ANY_POOL


def _nodes(store: Store, *, shards: bool) -> Iterator[Node]:
    ordered = sorted(store.of(NODE.key), key=lambda node: str(node["metadata"]["name"]))
    for order, node in enumerate(ordered):
        ready = condition(node, "Ready")
        usable = (ready is None or ready.get("status") == "True") and not node.get("spec", {}).get("unschedulable")
        yield Node(
            name=node["metadata"]["name"],
            pool=_pool_of(node) if shards else ANY_POOL,
            capacity=amounts((node.get("status") or {}).get("allocatable") or {}),
            labels=labels(node),
            ready=usable,
            order=order,
            max_pods=max_pods(node),
            taints=taints_of(node),
        )


def _queues(store: Store) -> Iterator[Queue]:
    for queue in store.of(KAI_QUEUE.key):
        spec = queue["spec"]
        resources: Mapping[str, Mapping[str, Any]] = spec.get("resources") or {}
        yield Queue(
            name=queue["metadata"]["name"],
            parent=spec.get("parentQueue") or None,
            pool=_pool_of(queue),
            deserved=_bound(resources, "quota"),
            limit=_bound(resources, "limit"),
            weight=int(resources.get("gpu", {}).get("overQuotaWeight", 0)),
            rank=int(spec.get("priority", 100)),
            preempt_min_runtime=micros_of(spec.get("preemptMinRuntime")),
            reclaim_min_runtime=micros_of(spec.get("reclaimMinRuntime")),
            created=_micros(queue["metadata"].get("creationTimestamp")),
        )


def _bound(resources: Mapping[str, Mapping[str, Any]], what: str) -> Limit:
    """GPU units, millicores and megabytes; -1 is unlimited, absent is nothing, as KAI reads it."""
    units = {"gpu": 1000, "cpu": 1, "memory": MEGABYTE}
    numbers = {name: float(resources.get(name, {}).get(what, 0)) for name in units}
    return Limit(**{name: None if number < 0 else round(number * units[name]) for name, number in numbers.items()})


def _drafts(pods: Iterable[Manifest], *, gangs: bool) -> Iterable[_Draft]:
    drafts: dict[str, _Draft] = {}
    for pod in pods:
        meta, owner = pod["metadata"], controller_of(pod)
        kind = kind_for(owner["apiVersion"], owner["kind"]) if owner and gangs else None
        whole = kind is not None and kind.gang
        name = owner["uid"] if owner and whole else meta["uid"]
        title = owner["name"] if owner and gangs else meta["name"]
        draft = drafts.setdefault(name, _Draft(name, f"{meta.get('namespace', '')}/{title}", gang=whole))
        draft.pods.append(pod)
    return drafts.values()


def _drafts_of_groups(pods: Iterable[Manifest]) -> Iterable[_Draft]:
    drafts: dict[str, _Draft] = {}
    for pod in pods:
        meta = pod["metadata"]
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        title = f"{meta.get('namespace', '')}/{group or meta['name']}"
        name = title if group else meta["uid"]
        drafts.setdefault(name, _Draft(name, title, gang=bool(group))).pods.append(pod)
    return drafts.values()


def _split(draft: _Draft) -> Iterator[_Draft]:
    """Semi-preemptible: the guaranteed core is one group, each further pod its own, offered once the core has nodes."""
    if preemptibility_of(draft.pods[0]) is not Preemptibility.SEMI_PREEMPTIBLE:
        yield draft
        return
    core = _min_member(draft)
    ordered = sorted(
        draft.pods, key=lambda pod: (not pod["spec"].get("nodeName"), pod["metadata"]["creationTimestamp"])
    )
    yield _Draft(draft.name, draft.title, ordered[:core], gang=True)
    if all(pod["spec"].get("nodeName") for pod in ordered[:core]):
        for pod in ordered[core:]:
            yield _Draft(pod["metadata"]["uid"], draft.title, [pod])


def _min_member(draft: _Draft) -> int:
    text = annotations(draft.pods[0]).get(MIN_MEMBER, "")
    stated = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0
    return min(stated or len(draft.pods), len(draft.pods)) if draft.gang else 1


def _group(draft: _Draft, pools: Mapping[str, str] | None, *, whole: bool) -> PodGroup:
    first = draft.pods[0]
    spec, meta = first["spec"], first["metadata"]
    queue = labels(first).get(QUEUE_LABEL, DEFAULT_QUEUE) if pools is not None else ""
    core = draft.gang and preemptibility_of(first) is Preemptibility.SEMI_PREEMPTIBLE
    starts = [start for pod in draft.pods if (start := _started(pod)) is not None]
    return PodGroup(
        name=draft.name,
        queue=queue,
        namespace=meta.get("namespace", ""),
        priority=int(spec.get("priority", 0)),
        preemptible=not core and preemptibility_of(first) is not Preemptibility.NON_PREEMPTIBLE,
        pods=tuple(_pod(pod) for pod in draft.pods),
        min_member=_min_member(draft),
        started=min(starts, default=None),
        created=min(_micros(pod["metadata"].get("creationTimestamp")) for pod in draft.pods),
        pool=ANY_POOL if pools is None else pools.get(queue, _pool_of(first)),
        never_preempts=spec.get("preemptionPolicy") == "Never",
        node_selector=spec.get("nodeSelector") or {},
        tolerations=tolerations_of(spec),
        gang=whole and draft.gang,
        whole=whole and draft.gang,
        placement=_placement(spec),
        kin=labels(first).get(OWNER, ""),
        topology=(annotations(first).get(TOPOLOGY_KEY) or None) if whole and draft.gang else None,
    )


def _placement(spec: Mapping[str, Any]) -> Strategy | None:
    """What pods of one workload wish of each other: the one affinity that Rung writes."""
    wishes = {"podAffinity": Strategy.BINPACK, "podAntiAffinity": Strategy.SPREAD}
    return next((wishes[name] for name in spec.get("affinity") or {} if name in wishes), None)


def _pod(pod: Manifest) -> Pod:
    nominated = (pod.get("status") or {}).get("nominatedNodeName") or None
    node = pod["spec"].get("nodeName")
    return Pod(pod["metadata"]["uid"], requests_of(pod), node, is_leaving(pod), nominated, _started(pod))


def _started(pod: Manifest) -> int | None:
    found = condition(pod, "PodScheduled")
    bound = found is not None and found["status"] == "True"
    return _micros(found["lastTransitionTime"]) if found and bound else None


def _micros(text: object) -> int:
    moment = moment_of(text)
    return 0 if moment is None else int(moment.timestamp() * 1_000_000)
