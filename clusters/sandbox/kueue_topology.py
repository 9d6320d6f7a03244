"""Topology-aware scheduling of the sandbox's Kueue: nodes by flavor, and the places on them that a Workload was given.

As the real one it writes the places into the Workload's status, per role, and sends every pod to one of them by a node
selector: where a pod goes is then no choice of kube-scheduler's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from clusters.flavours.kueue import REQUIRED_TOPOLOGY
from clusters.kinds_core import KUEUE_FLAVOR, KUEUE_TOPOLOGY, NODE, POD
from clusters.pods import annotations, controller_of, is_leaving, is_terminal, labels
from clusters.ports import Manifest
from clusters.sandbox.blueprints import SLOT
from clusters.sandbox.store import Store
from clusters.topologies import HOSTNAME


def levels_of(store: Store, flavors: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The node labels of the topology of each of these flavors that has one."""
    named = {flavor: topology_of(store, flavor) for flavor in flavors}
    found = {flavor: store.find(KUEUE_TOPOLOGY.key, name) for flavor, name in named.items() if name}
    return {
        flavor: tuple(str(level["nodeLabel"]) for level in topology["spec"]["levels"])
        for flavor, topology in found.items()
        if topology
    }


def topology_of(store: Store, flavor: str) -> str:
    """Name of its topology; empty: it has none."""
    return str(_spec_of(store, flavor).get("topologyName") or "")


def flavor_of(store: Store, flavors: Iterable[str]) -> Callable[[Manifest], str]:
    """The one of these flavors that a node is of; empty: of none."""
    marks = {flavor: (_spec_of(store, flavor).get("nodeLabels") or {}).items() for flavor in flavors}
    return lambda node: next((flavor for flavor, its in marks.items() if its <= labels(node).items()), "")


def _spec_of(store: Store, flavor: str) -> Mapping[str, Any]:
    return (store.find(KUEUE_FLAVOR.key, flavor) or {}).get("spec") or {}


def asked_level(template: Manifest) -> str | None:
    """The level of which its pods have to share a domain."""
    return annotations(template).get(REQUIRED_TOPOLOGY) or None


def role_of(slot: str) -> str:
    """Of a replica's key."""
    return slot.rpartition("-")[0].lower() or "main"


def give_places(workload: Manifest, queue: str, places: Mapping[str, str]) -> None:
    """It is admitted to these nodes. `places`: replica's key to node; none: wherever its pods find room."""
    by_role: dict[str, Counter[str]] = {}
    for slot, node in places.items():
        by_role.setdefault(role_of(slot), Counter())[node] += 1
    sets = [
        {"name": role, "count": nodes.total(), "topologyAssignment": _assignment(nodes)}
        for role, nodes in by_role.items()
    ]
    workload["status"]["admission"] = {"clusterQueue": queue, "podSetAssignments": sets}


def take_places(workload: Manifest) -> None:
    """It is not admitted any more."""
    workload["status"].pop("admission", None)


def _assignment(nodes: Mapping[str, int]) -> dict[str, Any]:
    """As `kueue.x-k8s.io/v1beta2` writes it: the values of the level, and how many pods go to each."""
    values, counts = {"individual": {"roots": list(nodes)}}, {"individual": list(nodes.values())}
    told = {"domainCount": len(nodes), "valuesPerLevel": [values], "podCounts": counts}
    return {"levels": [HOSTNAME], "slices": [told]}


def places_of(workload: Manifest) -> dict[str, Counter[str]]:
    """How many pods of each role go to each node; nothing where it is not admitted, or to no places."""
    given = workload["status"].get("admission") or {}
    return {each["name"]: _counted(each["topologyAssignment"]) for each in given.get("podSetAssignments") or ()}


def _counted(assignment: Mapping[str, Any]) -> Counter[str]:
    [told] = assignment["slices"]
    [values] = told["valuesPerLevel"]
    return Counter(dict(zip(values["individual"]["roots"], told["podCounts"]["individual"], strict=True)))


def seats(workload: Manifest, slots: Iterable[str]) -> Iterator[str | None]:
    """The node of each of these replicas; None: it has no place."""
    left = {role: nodes.elements() for role, nodes in places_of(workload).items()}
    return (next(left.get(role_of(slot), iter(())), None) for slot in slots)


def has_lost_one(store: Store, workload: Manifest) -> bool:
    """Is one of its nodes not there any more?"""
    return any(store.find(NODE.key, node) is None for nodes in places_of(workload).values() for node in nodes)


def send(store: Store, pod: Manifest, workload: Manifest) -> None:
    """Tie a pod to one of the places that none of its siblings has."""
    given, role = places_of(workload), _role_in(pod)
    if (nodes := given.get(role)) is None:
        return
    left = nodes - Counter(map(_tied_to, _siblings(store, pod, role)))
    name = next(iter(left or nodes))
    found = store.find(NODE.key, name)
    host = labels(found).get(HOSTNAME, name) if found else name
    pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), HOSTNAME: host}


def _role_in(pod: Manifest) -> str:
    """A pod that nobody made from a template is the only one of its own."""
    return role_of(annotations(pod).get(SLOT, "pod-0"))


def _siblings(store: Store, pod: Manifest, role: str) -> Iterator[Manifest]:
    owner = controller_of(pod)
    for each in store.of(POD.key) if owner else ():
        other = controller_of(each)
        mine = other and owner and other["uid"] == owner["uid"] and _role_in(each) == role
        if mine and each is not pod and not (is_leaving(each) or is_terminal(each)):
            yield each


def _tied_to(pod: Manifest) -> str:
    return str((pod["spec"].get("nodeSelector") or {}).get(HOSTNAME, ""))
