"""Scenarios put to a real Volcano, many side by side, each on nodes and in queues of its own, and what it did.

Victims take their time to go: what is read is the decision, while nothing of it has come about yet. Scenarios are kept
apart by a resource of their own: where a node selector rules nodes out, Volcano reclaims from the others in a random
order. It goes through nodes nearly in the order in which they came, sixteen at a time: those of one scenario are far
apart. Names of pods end in letters: of numbered ones the last number goes first.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Final, TypeVar

from clusters.flavours.volcano import (
    GROUP,
    MIN_RUNTIME,
    PREEMPTABLE,
    QUEUE,
    SCHEDULER,
    hyper_nodes,
    queue_manifest,
)
from clusters.ports.flavour import PoolSpec, QueueSpec, TopologyDomain
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import NODE, POD, PRIORITY_CLASS, VOLCANO_HYPER_NODE, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from scheduling.model.resources import Limit
from tests.real.scenarios.volcano_plans import PRIORITIES, RACK, Contest, Ruling, Shelf, Team
from tests.support.kube import KubeClient, KubeError

Item = TypeVar("Item")
NAMESPACE: Final = "agree"
MARK: Final = "agree"
LABEL: Final = f"{MARK}=yes"
GPU: Final = "nvidia.com/gpu"
GRACE: Final = 600
THREADS: Final = 8
PATIENCE: Final = 90.0
QUIET: Final = 2.0
"""Seconds without a change after which everything is decided: some cycles of the scheduler."""
POOL: Final = PoolSpec("agree", MARK, "yes")
NEVER: Final = "-never"


class VolcanoStage:
    """One control plane with Volcano."""

    def __init__(self, admin: KubeClient) -> None:
        self._admin = admin

    def rulings(self, plans: Sequence[Contest]) -> dict[int, Ruling]:
        """By seed: nodes and queues, then the teams one after the other, then all candidates at once."""
        self._furnish(plans)
        for wave in zip_longest(*([(plan, team) for team in plan.teams] for plan in plans)):
            self._each([each for each in wave if each is not None], lambda item: self._run(*item))
            self._next_second()
        self._until(self._all_run, "running pods")
        self._each(self._admin.list(POD, namespace=NAMESPACE), self._say_scheduled)
        self._each([(plan, plan.candidate) for plan in plans], lambda item: self._run(*item))
        pods = self._settled({_name(plan, plan.candidate) for plan in plans})
        return {plan.seed: _ruling(plan, pods) for plan in plans}

    def clear(self) -> None:
        """Take every scenario down again."""
        for kind in (POD, VOLCANO_POD_GROUP):
            for each in self._admin.list(kind, namespace=NAMESPACE):
                self._admin.delete(ObjectRef(kind, each["metadata"]["name"], NAMESPACE), grace=0)
        for kind in (VOLCANO_QUEUE, NODE):
            for each in self._admin.list(kind, labels=LABEL):
                self._admin.delete(ObjectRef(kind, each["metadata"]["name"]))
        for each in self._admin.list(VOLCANO_HYPER_NODE):
            self._admin.delete(ObjectRef(VOLCANO_HYPER_NODE, each["metadata"]["name"]))

    def _furnish(self, plans: Sequence[Contest]) -> None:
        self._admin.namespace(NAMESPACE)
        for value in PRIORITIES:
            for never in ("", NEVER):
                with suppress(KubeError):  # another run has left it there
                    self._admin.create(_priority_class(value, never))
        for nodes in zip_longest(*([(plan, *node) for node in plan.nodes] for plan in plans)):
            self._each([each for each in nodes if each is not None], lambda item: self._create_node(*item))
        self._each(hyper_nodes(_pool(plan) for plan in plans), self._admin.create)
        for wave in zip_longest(*([(plan, shelf) for shelf in (*plan.departments, *plan.projects)] for plan in plans)):
            self._each([each for each in wave if each is not None], lambda item: self._admin.create(_queue(*item)))
            self._next_second()
        self._until(self._all_open, "open queues")

    def _create_node(self, plan: Contest, name: str, gpus: int) -> None:
        """New nodes are closed until a slow controller has looked at them: do not wait for it."""
        self._admin.create(_node(plan, name, gpus))
        self._admin.patch(ObjectRef(NODE, _name(plan, name)), {"spec": {"taints": None}})

    def _run(self, plan: Contest, team: Team) -> None:
        self._admin.create(_group(plan, team))
        for index, node in enumerate(team.nodes):
            self._admin.create(_pod(plan, team, index, node))

    def _say_scheduled(self, pod: Manifest) -> None:
        """As a real kubelet does of a pod that was made with its node; the age of its pods counts from then."""
        if MIN_RUNTIME in pod["metadata"]["annotations"]:
            since = pod["metadata"]["creationTimestamp"]
            said = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
            ref = ObjectRef(POD, pod["metadata"]["name"], NAMESPACE)
            self._admin.patch_status(ref, {"conditions": [*pod["status"]["conditions"], said]})

    def _all_open(self) -> bool:
        found = self._admin.list(VOLCANO_QUEUE, labels=LABEL)
        return all(each.get("status", {}).get("state") == "Open" for each in found)

    def _all_run(self) -> bool:
        return all(pod["status"].get("podIP") for pod in self._admin.list(POD, namespace=NAMESPACE))

    def _settled(self, groups: set[str]) -> list[Manifest]:
        """All pods, once these groups are decided and nothing has changed for a while."""
        deadline, before, since = time.monotonic() + PATIENCE, None, 0.0
        while time.monotonic() < deadline:
            pods = self._admin.list(POD, namespace=NAMESPACE)
            now = {pod["metadata"]["name"]: _standing(pod) for pod in pods}
            if now != before:
                before, since = now, time.monotonic()
            undecided = [pod for pod in pods if _group_of(pod) in groups and not _decided(pod)]
            if not undecided and time.monotonic() - since > QUIET:
                return pods
            time.sleep(0.3)
        raise AssertionError(f"Volcano has not decided everything within {PATIENCE} s")

    def _each(self, items: Iterable[Item], action: Callable[[Item], object]) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(action, items))

    def _next_second(self) -> None:
        """Volcano keeps whole seconds: no two of a scenario in the same."""
        time.sleep(1.01 - time.time() % 1)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"no {what} within {PATIENCE} s"
            time.sleep(0.2)


def _ruling(plan: Contest, pods: Sequence[Manifest]) -> Ruling:
    mine = [pod for pod in pods if pod["metadata"]["labels"]["scenario"] == str(plan.seed)]
    plain = {_name(plan, team): team.name for team in (*plan.teams, plan.candidate)}
    gone = [pod for pod in mine if "deletionTimestamp" in pod["metadata"]]
    victims = tuple(sorted((plain[_group_of(pod)], _cause(pod)) for pod in gone))
    causes = {cause for _name, cause in victims}
    if victims:
        return Ruling(f"{causes.pop()}s" if len(causes) == 1 else "preempts+reclaims", victims)
    placed = sum(bool(pod["spec"].get("nodeName")) for pod in mine if plain[_group_of(pod)] == plan.candidate.name)
    return Ruling("placed" if placed >= plan.candidate.least else "pending")


def _cause(pod: Manifest) -> str:
    """What Volcano writes on a pod that it evicts."""
    said = next((each for each in pod["status"]["conditions"] if each.get("reason") == "Evict"), {})
    return next((cause for cause in ("preempt", "reclaim") if cause in said.get("message", "")), "nobody knows")


def _decided(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions") or []
    return bool(pod["spec"].get("nodeName")) or any(each["type"] == "PodScheduled" for each in conditions)


def _standing(pod: Manifest) -> tuple[Any, ...]:
    return pod["spec"].get("nodeName"), pod["metadata"].get("deletionTimestamp"), _decided(pod)


def _group_of(pod: Manifest) -> str:
    return str(pod["metadata"]["annotations"][GROUP])


def _name(plan: Contest, what: Shelf | Team | str) -> str:
    return f"agree-{plan.seed}-{what if isinstance(what, str) else what.name}"


def _own(plan: Contest) -> str:
    return f"{MARK}.rung.dev/s{plan.seed}"


def _priority_class(value: int, never: str) -> Manifest:
    policy = "Never" if never else "PreemptLowerPriority"
    metadata = {"name": f"agree-{value}{never}"}
    fields = {"value": value, "preemptionPolicy": policy}
    return {"apiVersion": PRIORITY_CLASS.api_version, "kind": "PriorityClass", "metadata": metadata, **fields}


def _node(plan: Contest, name: str, gpus: int) -> Manifest:
    full = _name(plan, name)
    size = {"cpu": "192", "memory": "2Ti", "pods": "110", GPU: str(gpus), _own(plan): "1k"}
    labels = {"type": "kwok", "kubernetes.io/hostname": full, MARK: "yes"}
    status = {"capacity": size, "allocatable": size}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": full, "labels": labels}, "status": status}


def _pool(plan: Contest) -> PoolSpec:
    """The racks of a scenario's nodes, as Rung has seen them."""
    nodes = [(_name(plan, name), rack) for (name, _gpus), rack in zip(plan.nodes, plan.racks, strict=False)]
    domains = (
        TopologyDomain((rack,), tuple(name for name, there in nodes if there == rack)) for rack in sorted({*plan.racks})
    )
    return PoolSpec(_name(plan, "racks"), MARK, "yes", topology_levels=(RACK,), domains=tuple(domains))


def _queue(plan: Contest, shelf: Shelf) -> Manifest:
    """As Rung writes it."""
    name = _name(plan, shelf)
    parent = _name(plan, shelf.parent) if shelf.parent else None
    deserved, limit = Limit.of(gpu=shelf.deserved), Limit.of(gpu=shelf.limit)
    manifest = queue_manifest(QueueSpec(name, name, parent, POOL, deserved, limit, 2, shelf.rank, name, 1))
    manifest["metadata"]["labels"][MARK] = "yes"
    return manifest


def _group(plan: Contest, team: Team) -> Manifest:
    spec = {"minMember": team.least, "queue": _name(plan, team.queue), "priorityClassName": _class(team)}
    spec |= {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if team.near else {}
    kind, metadata = VOLCANO_POD_GROUP, {"name": _name(plan, team), "namespace": NAMESPACE}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _class(team: Team) -> str:
    return f"agree-{team.priority}{NEVER if team.never else ''}"


def _pod(plan: Contest, team: Team, index: int, node: str | None) -> Manifest:
    amount = {GPU: str(team.gpus), _own(plan): "1"}
    spec = {
        "schedulerName": SCHEDULER,
        "priorityClassName": _class(team),
        "terminationGracePeriodSeconds": GRACE,
        "containers": [{"name": "main", "image": "none", "resources": {"requests": amount, "limits": amount}}],
    }
    metadata = {
        "name": f"{_name(plan, team)}-{'abcdef'[index]}",
        "namespace": NAMESPACE,
        "labels": {"scenario": str(plan.seed)},
        "annotations": {
            GROUP: _name(plan, team),
            QUEUE: _name(plan, team.queue),
            PREEMPTABLE: str(not team.fixed).lower(),
            **({MIN_RUNTIME: "60m"} if team.young else {}),
        },
    }
    if node:
        spec["nodeName"] = _name(plan, node)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
