"""Scenarios put on a real control plane, many side by side, and what its scheduler did with them."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from clusters.ports.gateway import Manifest
from tests.real.scenarios import objects
from tests.real.scenarios.plain import NAMESPACES, Kind, PodPlan, Scenario, Verdict
from tests.support.kube import MERGE, KubeClient, KubeError

Item = TypeVar("Item")
THREADS: Final = 8
PATIENCE: Final = 90.0  # seconds for each step of all scenarios together
QUIET: Final = 0.6  # seconds without a change after which everything is decided
NODES, CLASSES, SPACES = "/api/v1/nodes", "/apis/scheduling.k8s.io/v1/priorityclasses", "/api/v1/namespaces"
PODS, EVENTS = "/api/v1/pods", "/api/v1/events"
SELECTOR: Final = f"?labelSelector={objects.MARK}"


class Stage:
    """One control plane. What a scenario needs is there before its candidate comes."""

    quiet = QUIET

    def __init__(self, admin: KubeClient) -> None:
        self._admin = admin

    def furnish(self, scenarios: Sequence[Scenario]) -> None:
        """Put up nodes and running pods, all of them started when they are meant to have."""
        for manifest in objects.shared_objects():
            self._create_shared(manifest)
        self._each(scenarios, self._create_nodes)
        for space in NAMESPACES:
            _until(partial(self._has_account, space), f"account of {space}")
        running = [(scenario, pod) for scenario in scenarios for pod in scenario.pods]
        self._each(running, lambda item: self._create_pod(*item))
        _until(self._pods_run, "running pods")
        self._each(running, lambda item: self._set_start(*item))
        self._each([item for item in running if item[1].ending], lambda item: self._end(*item))

    def clear(self) -> None:
        """Take every scenario down again."""
        for space in NAMESPACES:
            self._admin.call("DELETE", f"{SPACES}/{space}/pods{SELECTOR}", {"gracePeriodSeconds": 0})
        self._admin.call("DELETE", f"{NODES}{SELECTOR}")

    def decide(self, comers: Sequence[tuple[Scenario, PodPlan]]) -> dict[int, Verdict]:
        """Let these pods come, all at once, and answer what became of each, by seed."""
        self._each(comers, lambda item: self._create_pod(*item))
        names = {objects.pod_object(*item)["metadata"]["name"] for item in comers}
        pods = self._settled(names)
        victims = self._victims(pods)
        by_name = {pod["metadata"]["name"]: pod for pod in pods}
        return {
            scenario.seed: _verdict(by_name[f"agree-{scenario.seed}-{plan.name}"], victims) for scenario, plan in comers
        }

    def _each(self, items: Iterable[Item], action: Callable[[Item], object]) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(action, items))

    def _create_shared(self, manifest: Manifest) -> None:
        """Unless another run has left it there."""
        try:
            self._admin.call("POST", SPACES if manifest["kind"] == "Namespace" else CLASSES, manifest)
        except KubeError as error:
            if error.status != 409:
                raise

    def _has_account(self, space: str) -> bool:
        found = self._admin.call("GET", f"{SPACES}/{space}/serviceaccounts")["items"]
        return any(each["metadata"]["name"] == "default" for each in found)

    def _create_nodes(self, scenario: Scenario) -> None:
        """One after the other: the scheduler goes through nodes in the order in which they came."""
        for node in scenario.nodes:
            self._create_node(objects.node_object(scenario, node))

    def _create_node(self, node: Manifest) -> None:
        """New nodes are closed until a slow controller has looked at them: do not wait for it."""
        self._admin.call("POST", NODES, node)
        taints = {"spec": {"taints": node["spec"].get("taints")}}
        self._admin.call("PATCH", f"{NODES}/{node['metadata']['name']}", taints, MERGE)

    def _pods(self) -> list[Manifest]:
        found: list[Manifest] = self._admin.call("GET", f"{PODS}{SELECTOR}")["items"]
        return found

    def _pods_run(self) -> bool:
        return all(pod["status"].get("podIP") for pod in self._pods())

    def _create_pod(self, scenario: Scenario, plan: PodPlan) -> None:
        self._admin.call("POST", f"{SPACES}/{plan.namespace}/pods", objects.pod_object(scenario, plan))

    def _set_start(self, scenario: Scenario, plan: PodPlan) -> None:
        """Once it runs nobody else writes its status."""
        body = {"status": {"startTime": objects.start_time(plan)}}
        path = f"{_path(scenario, plan)}/status"
        self._admin.call("PATCH", path, body, MERGE)

    def _end(self, scenario: Scenario, plan: PodPlan) -> None:
        self._admin.call("DELETE", _path(scenario, plan))

    def _settled(self, names: set[str]) -> list[Manifest]:
        """All pods, once these are decided and nothing has changed for a while: victims stay until their grace ends."""
        deadline, before, since = time.monotonic() + PATIENCE, None, 0.0
        while time.monotonic() < deadline:
            pods = self._pods()
            now = {pod["metadata"]["uid"]: _standing(pod) for pod in pods}
            if now != before:
                before, since = now, time.monotonic()
            undecided = [pod for pod in pods if pod["metadata"]["name"] in names and not _decided(pod)]
            if not undecided and time.monotonic() - since > self.quiet:
                return pods
            time.sleep(0.2)
        raise AssertionError(f"the scheduler has not decided everything within {PATIENCE} s")

    def _victims(self, pods: Sequence[Manifest]) -> dict[str, set[str]]:
        """Names of victims by the uid of who they made room for: every pod so marked has an event that tells."""
        marked = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods if _disrupted(pod)}
        found: dict[str, set[str]] = defaultdict(set)

        def told() -> bool:
            events = self._admin.call("GET", f"{EVENTS}?fieldSelector=reason=Preempted")["items"]
            by_victim = {each["involvedObject"]["uid"]: _preemptor(each["message"]) for each in events}
            for uid, name in marked.items():
                if uid in by_victim:
                    found[by_victim[uid]].add(name)
            return marked.keys() <= by_victim.keys()

        _until(told, "an event for every victim")
        return found


def _path(scenario: Scenario, plan: PodPlan) -> str:
    return f"{SPACES}/{plan.namespace}/pods/agree-{scenario.seed}-{plan.name}"


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE} s"
        time.sleep(0.2)


def _condition(pod: Manifest, kind: str) -> str:
    found = pod["status"].get("conditions") or []
    return next((each["status"] for each in found if each["type"] == kind), "")


def _decided(pod: Manifest) -> bool:
    return bool(pod["spec"].get("nodeName")) or _condition(pod, "PodScheduled") == "False"


def _disrupted(pod: Manifest) -> bool:
    return _condition(pod, "DisruptionTarget") == "True"


def _standing(pod: Manifest) -> tuple[Any, ...]:
    """What the scheduler changes about a pod."""
    status = pod["status"]
    leaving = pod["metadata"].get("deletionTimestamp")
    return pod["spec"].get("nodeName"), status.get("nominatedNodeName"), _disrupted(pod), leaving, _decided(pod)


def _verdict(pod: Manifest, victims: dict[str, set[str]]) -> Verdict:
    mine = frozenset(_plain(name) for name in victims.get(pod["metadata"]["uid"], ()))
    if node := pod["spec"].get("nodeName"):
        return Verdict(Kind.PLACED, mine, _plain(node))
    nominated = _plain(pod["status"].get("nominatedNodeName") or "")
    return Verdict(Kind.PREEMPTS if mine else Kind.WAITS, mine, nominated)


def _preemptor(message: str) -> str:
    """Preempted by pod UID on node NAME."""
    return message.split()[3]


def _plain(name: str) -> str:
    """agree-17-p3 to p3."""
    return name.rpartition("-")[2]
