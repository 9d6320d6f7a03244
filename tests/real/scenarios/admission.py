"""Scenarios of quotas put to a real Kueue, many side by side, and what it did. Bare Workloads: no jobs, no pods."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any, Final, TypeVar

from clusters.ports.gateway import Manifest
from tests.real.scenarios.quotas import Answer, Branch, Job, Leaf, Quotas
from tests.support.kube import KubeClient

Item = TypeVar("Item")
VERSION: Final = "kueue.x-k8s.io/v1beta2"
API: Final = f"/apis/{VERSION}"
GPU: Final = "nvidia.com/gpu"
NAMESPACE: Final = "agree"
CAUSES: Final = {"InClusterQueue": "preempt", "InCohortReclamation": "reclaim", "InCohortFairSharing": "reclaim"}
KINDS: Final = {frozenset({"preempt"}): "preempts", frozenset({"reclaim"}): "reclaims"}
EXPECTED: Final = re.compile(r"Pending the preemption of (\d+) workload")
THREADS: Final = 8
PATIENCE: Final = 60.0


class Admission:
    """One control plane with Kueue."""

    def __init__(self, admin: KubeClient) -> None:
        self._admin = admin

    def answers(self, scenarios: Sequence[Quotas]) -> dict[int, Answer]:
        """By seed: quotas, then the jobs one after the other, then all candidates at once."""
        self._furnish(scenarios)
        for wave in zip_longest(*([(plan, job) for job in plan.jobs] for plan in scenarios)):
            self._each([each for each in wave if each is not None], lambda item: self._submit(*item))
            self._until(self._all_admitted, "admission")
            time.sleep(1.01 - time.time() % 1)  # Kueue keeps whole seconds: no two of a scenario in the same
        self._each([(plan, plan.candidate) for plan in scenarios], lambda item: self._submit(*item))
        self._until(lambda: self._all_decided(scenarios), "decision")
        found = self._workloads()
        return {plan.seed: _answer(plan, found) for plan in scenarios}

    def _furnish(self, scenarios: Sequence[Quotas]) -> None:
        self._admin.namespace(NAMESPACE)
        self._admin.apply(_object("ResourceFlavor", NAMESPACE, {}))
        self._each([_cohort(plan, branch) for plan in scenarios for branch in plan.branches], self._admin.apply)
        self._each([_queue(plan, leaf) for plan in scenarios for leaf in plan.leaves], self._admin.apply)
        self._each([_door(plan, leaf) for plan in scenarios for leaf in plan.leaves], self._admin.apply)
        self._until(self._all_active, "active queues")

    def _all_active(self) -> bool:
        found = self._admin.call("GET", f"{API}/clusterqueues")["items"]
        return all(_condition(each, "Active").get("status") == "True" for each in found)

    def _submit(self, plan: Quotas, job: Job) -> None:
        self._admin.create(_workload(plan, job))

    def _workloads(self) -> dict[str, Manifest]:
        found = self._admin.call("GET", f"{API}/namespaces/{NAMESPACE}/workloads")["items"]
        return {each["metadata"]["name"]: each for each in found}

    def _all_admitted(self) -> bool:
        return all(map(_reserved, self._workloads().values()))

    def _all_decided(self, scenarios: Sequence[Quotas]) -> bool:
        found = self._workloads()
        return all(_decided(plan, found) for plan in scenarios)

    def _each(self, items: Iterable[Item], action: Callable[[Item], object]) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(action, items))

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"no {what} within {PATIENCE} s"
            time.sleep(0.2)


def _decided(plan: Quotas, found: dict[str, Manifest]) -> bool:
    """Admitted, refused, or as many have been evicted for it as it says that it waits for."""
    candidate = found[_name(plan, plan.candidate)]
    said = _condition(candidate, "QuotaReserved")
    waits_for = EXPECTED.search(said.get("message", ""))
    return bool(said) and (waits_for is None or len(_victims(plan, found)) == int(waits_for[1]))


def _answer(plan: Quotas, found: dict[str, Manifest]) -> Answer:
    victims = frozenset(_victims(plan, found))
    if victims:
        return Answer(KINDS.get(frozenset(cause for _name, cause in victims), "preempts+reclaims"), victims)
    return Answer("placed" if _reserved(found[_name(plan, plan.candidate)]) else "pending")


def _victims(plan: Quotas, found: dict[str, Manifest]) -> list[tuple[str, str]]:
    """Who was evicted for the candidate, and for which cause."""
    uid = found[_name(plan, plan.candidate)]["metadata"]["uid"]
    said = [(job.name, _condition(found[_name(plan, job)], "Preempted")) for job in plan.jobs]
    return [(name, CAUSES[each["reason"]]) for name, each in said if f"(UID: {uid}," in each.get("message", "")]


def _reserved(workload: Manifest) -> bool:
    return bool(_condition(workload, "QuotaReserved").get("status") == "True")


def _condition(found: Manifest, kind: str) -> dict[str, Any]:
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def _name(plan: Quotas, what: Job | Leaf | Branch | str) -> str:
    return f"agree-{plan.seed}-{what if isinstance(what, str) else what.name}"


def _object(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> Manifest:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def _groups(nominal: int, borrowing: int | None) -> list[dict[str, Any]]:
    bound = {} if borrowing is None else {"borrowingLimit": str(borrowing)}
    amounts = [{"name": GPU, "nominalQuota": str(nominal), **bound}]
    return [{"coveredResources": [GPU], "flavors": [{"name": NAMESPACE, "resources": amounts}]}]


def _cohort(plan: Quotas, branch: Branch) -> Manifest:
    groups = _groups(branch.own, branch.borrowing)
    weight = {"weight": str(branch.weight)}
    spec = {"parentName": _name(plan, branch.parent), "resourceGroups": groups, "fairSharing": weight}
    return _object("Cohort", _name(plan, branch), spec)


def _queue(plan: Quotas, leaf: Leaf) -> Manifest:
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": _groups(leaf.nominal, leaf.borrowing),
        "fairSharing": {"weight": str(leaf.weight)},
        "preemption": {
            "withinClusterQueue": leaf.preempts.value,
            "reclaimWithinCohort": leaf.reclaims.value,
            "borrowWithinCohort": {"policy": "Never"},
        },
    }
    if leaf.cohort:
        spec["cohortName"] = _name(plan, leaf.cohort)
    return _object("ClusterQueue", _name(plan, leaf), spec)


def _door(plan: Quotas, leaf: Leaf) -> Manifest:
    return _object("LocalQueue", _name(plan, leaf), {"clusterQueue": _name(plan, leaf)}, namespace=NAMESPACE)


def _workload(plan: Quotas, job: Job) -> Manifest:
    amounts = {GPU: str(job.gpus)}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "queueName": _name(plan, job.queue),
        "priority": job.priority,
        "podSets": [{"name": "main", "count": job.pods, "template": template}],
    }
    return _object("Workload", _name(plan, job), spec, namespace=NAMESPACE)
