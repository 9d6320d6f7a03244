"""Kueue's webhooks and Workload objects in the sandbox, with the nodes a Workload was assigned.

As the real one it writes the places into the Workload's status, per role, and sends every pod to one of them by a
node selector: where a pod goes is then no choice of kube-scheduler's.

A job waits suspended; pods of a kind that cannot be suspended, and bare pods, wait with a gate. Pods of what was
admitted to places on nodes are sent there.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from clusters.flavours.kueue import PRIORITY_LABEL, QUEUE_LABEL, REQUIRED_TOPOLOGY
from clusters.flavours.objects import HOSTNAME
from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.objects import KUEUE_FLAVOR, KUEUE_PRIORITY, KUEUE_TOPOLOGY, KUEUE_WORKLOAD, NODE, POD
from clusters.ports.pods import annotations, condition_is_true, controller_of, is_leaving, is_terminal, labels
from clusters.ports.workload_kinds import kind_for
from clusters.sandbox.rules import SLOT
from clusters.sandbox.services.store import ObjectStore, set_condition


def levels_of(store: ObjectStore, flavors: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The node labels of the topology of each of these flavors that has one."""
    named = {flavor: topology_of(store, flavor) for flavor in flavors}
    found = {flavor: store.find(KUEUE_TOPOLOGY.key, name) for flavor, name in named.items() if name}
    return {
        flavor: tuple(str(level["nodeLabel"]) for level in topology["spec"]["levels"])
        for flavor, topology in found.items()
        if topology
    }


def topology_of(store: ObjectStore, flavor: str) -> str:
    """Name of its topology; empty: it has none."""
    return str(_spec_of(store, flavor).get("topologyName") or "")


def flavor_of(store: ObjectStore, flavors: Iterable[str]) -> Callable[[Manifest], str]:
    """The one of these flavors that a node is of; empty: of none."""
    marks = {flavor: (_spec_of(store, flavor).get("nodeLabels") or {}).items() for flavor in flavors}
    return lambda node: next((flavor for flavor, its in marks.items() if its <= labels(node).items()), "")


def _spec_of(store: ObjectStore, flavor: str) -> Mapping[str, Any]:
    return (store.find(KUEUE_FLAVOR.key, flavor) or {}).get("spec") or {}


def required_level(template: Manifest) -> str | None:
    """The level of which its pods have to share a domain."""
    return annotations(template).get(REQUIRED_TOPOLOGY) or None


def role_of(slot: str) -> str:
    return slot.rpartition("-")[0].lower() or "main"


def assign_nodes(workload: Manifest, queue: str, places: Mapping[str, str]) -> None:
    """It is admitted to these nodes. `places`: replica's key to node; none: wherever its pods find room."""
    by_role: dict[str, Counter[str]] = {}
    for slot, node in places.items():
        by_role.setdefault(role_of(slot), Counter())[node] += 1
    sets = [
        {"name": role, "count": nodes.total(), "topologyAssignment": _assignment(nodes)}
        for role, nodes in by_role.items()
    ]
    workload["status"]["admission"] = {"clusterQueue": queue, "podSetAssignments": sets}


def clear_assignment(workload: Manifest) -> None:
    """It is not admitted any more."""
    workload["status"].pop("admission", None)


def _assignment(nodes: Mapping[str, int]) -> dict[str, Any]:
    """As `kueue.x-k8s.io/v1beta2` writes it: the values of the level, and how many pods go to each."""
    values, counts = {"individual": {"roots": list(nodes)}}, {"individual": list(nodes.values())}
    domain_slice = {"domainCount": len(nodes), "valuesPerLevel": [values], "podCounts": counts}
    return {"levels": [HOSTNAME], "slices": [domain_slice]}


def pods_by_assigned_node(workload: Manifest) -> dict[str, Counter[str]]:
    """How many pods of each role go to each node; nothing where it is not admitted, or to no places."""
    given = workload["status"].get("admission") or {}
    return {each["name"]: _counted(each["topologyAssignment"]) for each in given.get("podSetAssignments") or ()}


def _counted(assignment: Mapping[str, Any]) -> Counter[str]:
    [domain_slice] = assignment["slices"]
    [values] = domain_slice["valuesPerLevel"]
    return Counter(dict(zip(values["individual"]["roots"], domain_slice["podCounts"]["individual"], strict=True)))


def assigned_nodes(workload: Manifest, slots: Iterable[str]) -> Iterator[str | None]:
    """The node of each of these replicas; None: it has no place."""
    left = {role: nodes.elements() for role, nodes in pods_by_assigned_node(workload).items()}
    return (next(left.get(role_of(slot), iter(())), None) for slot in slots)


def has_lost_node(store: ObjectStore, workload: Manifest) -> bool:
    """Is one of its nodes not there any more?"""
    return any(
        store.find(NODE.key, node) is None for nodes in pods_by_assigned_node(workload).values() for node in nodes
    )


def pin_to_node(store: ObjectStore, pod: Manifest, workload: Manifest) -> None:
    """Tie a pod to one of the places that none of its siblings has."""
    given, role = pods_by_assigned_node(workload), _role_in(pod)
    if (nodes := given.get(role)) is None:
        return
    left = nodes - Counter(map(_tied_to, _siblings(store, pod, role)))
    name = next(iter(left or nodes))
    found = store.find(NODE.key, name)
    host = labels(found).get(HOSTNAME, name) if found else name
    pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), HOSTNAME: host}


def _role_in(pod: Manifest) -> str:
    """A pod that was not created from a template is a pod set of one."""
    return role_of(annotations(pod).get(SLOT, "pod-0"))


def _siblings(store: ObjectStore, pod: Manifest, role: str) -> Iterator[Manifest]:
    owner = controller_of(pod)
    for each in store.of(POD.key) if owner else ():
        other = controller_of(each)
        mine = other and owner and other["uid"] == owner["uid"] and _role_in(each) == role
        if mine and each is not pod and not (is_leaving(each) or is_terminal(each)):
            yield each


def _tied_to(pod: Manifest) -> str:
    return str((pod["spec"].get("nodeSelector") or {}).get(HOSTNAME, ""))


ADMITTED: Final = "Admitted"
RESERVED: Final = "QuotaReserved"
FINISHED: Final = "Finished"
GATE: Final = {"name": "kueue.x-k8s.io/admission"}


def queue_of(manifest: Manifest) -> str:
    """The LocalQueue that the object names; empty for others, and for what a controller made of one that does."""
    return "" if controller_of(manifest) else labels(manifest).get(QUEUE_LABEL, "")


def suspend_of(manifest: Mapping[str, Any]) -> str | None:
    """Pointer to the field that holds an object of its kind back; None: it has none, so its pods are gated."""
    kind = kind_for(str(manifest["apiVersion"]), str(manifest["kind"]))
    return kind.suspend if kind else None


def workload_of(store: ObjectStore, about: Mapping[str, Any], space: str) -> Manifest | None:
    """The Workload of an object, known by kind, name and uid."""
    return store.find(KUEUE_WORKLOAD.key, _name(about), space)


def is_admitted(workload: Manifest | None) -> bool:
    return workload is not None and condition_is_true(workload, ADMITTED)


def add_workload(store: ObjectStore, owner: Manifest, pods: Mapping[str, int]) -> Manifest:
    """Its controller makes it when it sees the object first. `pods`: how many of each role."""
    meta = owner["metadata"]
    about = {"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    reference = {"apiVersion": owner["apiVersion"], **about, "controller": True, "blockOwnerDeletion": True}
    return store.add(
        {
            "apiVersion": KUEUE_WORKLOAD.api_version,
            "kind": KUEUE_WORKLOAD.kind,
            "metadata": {
                "name": _name(about),
                "namespace": meta["namespace"],
                "ownerReferences": [reference],
            },
            "spec": {
                "queueName": queue_of(owner),
                "priority": _priority(store, owner),
                "podSets": [{"name": role, "count": count} for role, count in pods.items()],
            },
            "status": {"conditions": []},
        }
    )


def _name(about: Mapping[str, Any]) -> str:
    return f"{str(about['kind']).lower()}-{about['name'][:190]}-{about['uid'][:5]}"


def _priority(store: ObjectStore, owner: Manifest) -> int:
    found = store.find(KUEUE_PRIORITY.key, labels(owner).get(PRIORITY_LABEL, ""))
    return int(found.get("value", 0)) if found else 0


def pending_in(workloads: Iterable[Manifest], queue: str) -> dict[str, Any]:
    """What the visibility API answers about a LocalQueue: who waits there, next one first."""
    there = [each for each in workloads if each["spec"].get("queueName") == queue and is_waiting(each)]
    there.sort(key=lambda each: (-each["spec"]["priority"], each["metadata"]["creationTimestamp"]))
    return {
        "kind": "PendingWorkloadsSummary",
        "items": [
            {
                "metadata": {key: each["metadata"][key] for key in ("name", "namespace", "ownerReferences")},
                "priority": each["spec"]["priority"],
                "localQueueName": queue,
                "positionInLocalQueue": number,
            }
            for number, each in enumerate(there)
        ],
    }


def is_waiting(workload: Manifest) -> bool:
    """Has it no quota, and still to run?"""
    return not condition_is_true(workload, RESERVED) and not condition_is_true(workload, FINISHED)


GATED = "Scheduling is blocked due to non-empty scheduling gates"


def suspend_or_gate(store: ObjectStore, manifest: Manifest, *, before: Manifest | None = None) -> None:
    """Change a new object in place; `before`: what is there already stays suspended or let go as it is."""
    if not flavour_for(store.cluster.flavour).traits.queues_jobs:
        return
    if manifest["kind"] == "Pod":
        if before is None:
            _receive(store, manifest)
    elif queue_of(manifest) and (pointer := suspend_of(manifest)):
        set_held(manifest, pointer, held=before is None or is_held(before, pointer))


def _receive(store: ObjectStore, pod: Manifest) -> None:
    """A pod of a job that can be suspended exists only once that was let go."""
    if not labels(pod).get(QUEUE_LABEL):
        return
    owner = controller_of(pod)
    workload = workload_of(store, owner, pod["metadata"].get("namespace", "")) if owner else None
    if workload is not None and is_admitted(workload):
        pin_to_node(store, pod, workload)
    elif owner is None or suspend_of(owner) is None:
        _gate(store, pod)


def _gate(store: ObjectStore, pod: Manifest) -> None:
    pod["spec"]["schedulingGates"] = [dict(GATE)]
    set_condition(pod, "PodScheduled", "False", at=store.now, reason="SchedulingGated", message=GATED)


def is_held(manifest: Manifest, pointer: str) -> bool:
    node: Any = manifest
    for step in pointer.split("/")[1:]:
        node = node.get(step) or {}
    return node is True


def set_held(manifest: Manifest, pointer: str, *, held: bool) -> None:
    """Hold it back, or let it go."""
    *above, last = pointer.split("/")[1:]
    node: Any = manifest
    for step in above:
        node = node.setdefault(step, {})
    node[last] = held
