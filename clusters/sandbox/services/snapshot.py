"""What the simulated scheduler sees: a `scheduling.Snapshot` made only from objects that are in the sandbox.

KAI: queues, and a pod group per gang. Volcano: queues, and a pod group per object, whole where one names it.
kube-scheduler: no queues (ResourceQuotas already spoke when the pods were created) and every pod for itself, or with
the other pods of the group it names. Pods are named by their uid in the snapshot.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from clusters.flavours.objects import HOSTNAME, TOPOLOGY_KEY, duration_micros
from clusters.flavours.rendering import MIN_MEMBER
from clusters.flavours.volcano import GROUP, MIN_RUNTIME
from clusters.ports.flavour import Traits
from clusters.ports.gateway import Manifest
from clusters.ports.objects import NODE, OWNER, POD, PRIORITY_CLASS, VOLCANO_POD_GROUP, owner_of
from clusters.ports.pods import (
    amounts,
    annotations,
    condition,
    controller_of,
    devices_of_node,
    is_leaving,
    is_terminal,
    labels,
    max_pods,
    more_amounts,
    more_requests,
    needs_of_pods,
    preemptibility_of,
    requests_of,
    taints_of,
    tolerations_of,
)
from clusters.ports.workload_kinds import kind_for
from clusters.sandbox.services.queues import ANY_POOL, dialect_of, micros, pool_of
from clusters.sandbox.services.store import ObjectStore
from scheduling.model.preemptibility import NO_EXEMPTIONS, EvictionExemptions, Preemptibility
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode, Strategy


class SnapshotPool(NamedTuple):
    """A node pool: its name, the label of its nodes, and how they are filled where each has a strategy."""

    name: str
    label_key: str
    label_value: str
    strategy: Strategy


@dataclass(slots=True)
class SandboxSnapshot:
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
    minimum: int | None = None  # so many start together; None: the pods say it themselves


@dataclass(frozen=True, slots=True)
class _Shards:
    """Where queues are by pool: the pool of each, and the one that a pod names."""

    pools: Mapping[str, str]
    named: Callable[[Manifest], str]


def read_snapshot(store: ObjectStore, *, traits: Traits, pools: Sequence[SnapshotPool]) -> SandboxSnapshot:
    """Read the whole cluster, as far as pods are decided about one by one or in groups."""
    dialect, whole = dialect_of(traits), traits.whole_gangs
    alive = [pod for pod in store.of(POD.key) if not is_terminal(pod) and not pod["spec"].get("schedulingGates")]
    queues = tuple(dialect.queues(store)) if dialect else ()
    shards = _Shards({queue.name: queue.pool for queue in queues}, dialect.named) if dialect else None
    drafts = list(_drafted(store, alive, traits))
    groups = [_group(draft, shards, whole=whole) for draft in drafts]
    snapshot = Snapshot(
        nodes=tuple(nodes_of(store, partial(_home, pools) if shards else lambda _node: ANY_POOL)),
        queues=queues,
        groups=tuple(_renumbered(store, drafts, groups) if traits.counts_classes else groups),
        now=int(store.now.timestamp() * 1_000_000),
        strategies={pool.name: pool.strategy for pool in pools} if traits.places_by_pool else {},
        exempt=_exempt(store, traits),
        levels=_levels(store, traits),
    )
    by_uid = {pod["metadata"]["uid"]: pod for pod in alive}
    return SandboxSnapshot(snapshot, by_uid, {draft.name: draft.title for draft in drafts})


def _exempt(store: ObjectStore, traits: Traits) -> EvictionExemptions:
    """As the object says that the scheduler is configured by, where it has one."""
    if traits.configuration is None:
        return NO_EXEMPTIONS
    ref = traits.configuration.ref
    facts = traits.configuration.facts_of(store.find(ref.kind.key, ref.name, ref.namespace))
    return traits.configuration.exemptions(facts)


def _levels(store: ObjectStore, traits: Traits) -> dict[str, tuple[str, ...]]:
    """Of each pool that a topology was made of, where the scheduler itself looks for domains."""
    kind = traits.topologies if traits.goes_by_levels else None
    found = store.of(kind.key) if kind else ()
    return {
        owner_of(each).removeprefix("pool."): tuple(level["nodeLabel"] for level in each["spec"]["levels"])
        for each in found
    }


def _home(pools: Sequence[SnapshotPool], node: Manifest) -> str:
    """A node of none of them is of the pool that its label names."""
    found = labels(node)
    return next((pool.name for pool in pools if found.get(pool.label_key) == pool.label_value), None) or pool_of(node)


def nodes_of(store: ObjectStore, pool: Callable[[Manifest], str]) -> Iterator[SnapshotNode]:
    """Every node, in the pool that is said of it."""
    ordered = sorted(store.of(NODE.key), key=lambda node: str(node["metadata"]["name"]))
    for order, node in enumerate(ordered):
        ready, allocatable = condition(node, "Ready"), (node.get("status") or {}).get("allocatable") or {}
        capacity = amounts(allocatable)
        usable = (ready is None or ready.get("status") == "True") and not node.get("spec", {}).get("unschedulable")
        yield SnapshotNode(
            name=node["metadata"]["name"],
            pool=pool(node),
            capacity=capacity,
            labels={HOSTNAME: str(node["metadata"]["name"]), **labels(node)},
            ready=usable,
            order=order,
            max_pods=max_pods(node),
            taints=taints_of(node),
            more=devices_of_node(capacity.gpu, more_amounts(allocatable)),
        )


def _drafted(store: ObjectStore, pods: Iterable[Manifest], traits: Traits) -> Iterable[_Draft]:
    if traits.whole_gangs:
        return _drafts_of_groups(pods)
    if VOLCANO_POD_GROUP in traits.beside:
        return _drafts_beside(store, pods)
    return _drafts(pods, gangs=traits.queues_by_pool)


def _drafts_beside(store: ObjectStore, pods: Iterable[Manifest]) -> Iterable[_Draft]:
    """By the PodGroup beside the object that they name; else those of one controller, any of which may start."""
    drafts: dict[str, _Draft] = {}
    for pod in pods:
        meta, owner = pod["metadata"], controller_of(pod) or pod["metadata"]
        space, named = meta.get("namespace", ""), annotations(pod).get(GROUP, "")
        group = store.find(VOLCANO_POD_GROUP.key, named, space) if named else None
        name, minimum = (group["metadata"]["uid"], int(group["spec"]["minMember"])) if group else (owner["uid"], 1)
        draft = _Draft(name, f"{space}/{owner['name']}", gang=group is not None, minimum=minimum)
        drafts.setdefault(name, draft).pods.append(pod)
    return drafts.values()


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


def _min_member(draft: _Draft) -> int:
    if draft.minimum is not None:
        return min(draft.minimum, len(draft.pods))
    text = annotations(draft.pods[0]).get(MIN_MEMBER, "")
    stated = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0
    return min(stated or len(draft.pods), len(draft.pods)) if draft.gang else 1


def _group(draft: _Draft, shards: _Shards | None, *, whole: bool) -> PodGroup:
    first = draft.pods[0]
    spec, meta = first["spec"], first["metadata"]
    queue = shards.named(first) if shards else ""
    starts = [start for pod in draft.pods if (start := _started(pod)) is not None]
    return PodGroup(
        name=draft.name,
        queue=queue,
        namespace=meta.get("namespace", ""),
        priority=int(spec.get("priority", 0)),
        preemptible=preemptibility_of(first) is not Preemptibility.NON_PREEMPTIBLE,
        pods=tuple(_pod(pod) for pod in draft.pods),
        min_member=_min_member(draft),
        started=min(starts, default=None),
        created=min(micros(pod["metadata"].get("creationTimestamp")) for pod in draft.pods),
        pool=shards.pools.get(queue, pool_of(first)) if shards else ANY_POOL,
        never_preempts=spec.get("preemptionPolicy") == "Never",
        node_selector=spec.get("nodeSelector") or {},
        tolerations=tolerations_of(spec),
        gang=whole and draft.gang,
        whole=whole and draft.gang,
        placement=_placement(spec),
        kin=labels(first).get(OWNER, ""),
        topology=(annotations(first).get(TOPOLOGY_KEY) or None) if draft.gang else None,
        min_runtime=duration_micros(annotations(first).get(MIN_RUNTIME)) or 0,
        more=needs_of_pods((requests_of(pod).gpu, more_requests(pod)) for pod in draft.pods),
        sort_name=f"{min(map(namespaced_name, draft.pods))} {draft.name}",
    )


def _renumbered(store: ObjectStore, drafts: Iterable[_Draft], groups: Iterable[PodGroup]) -> Iterator[PodGroup]:
    """With the numbers that their classes have now."""
    numbers = {each["metadata"]["name"]: int(each["value"]) for each in store.of(PRIORITY_CLASS.key)}
    for draft, group in zip(drafts, groups, strict=True):
        named = draft.pods[0]["spec"].get("priorityClassName", "")
        yield replace(group, priority=numbers.get(named, group.priority))


def _placement(spec: Mapping[str, Any]) -> Strategy | None:
    """What pods of one workload wish of each other: the one affinity that Rung writes."""
    wishes = {"podAffinity": Strategy.BINPACK, "podAntiAffinity": Strategy.SPREAD}
    return next((wishes[name] for name in spec.get("affinity") or {} if name in wishes), None)


def _pod(pod: Manifest) -> Pod:
    nominated = (pod.get("status") or {}).get("nominatedNodeName") or None
    node = pod["spec"].get("nodeName")
    return Pod(pod["metadata"]["uid"], requests_of(pod), node, is_leaving(pod), nominated, _started(pod))


def namespaced_name(pod: Manifest) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def _started(pod: Manifest) -> int | None:
    found = condition(pod, "PodScheduled")
    bound = found is not None and found["status"] == "True"
    return micros(found["lastTransitionTime"]) if found and bound else None
