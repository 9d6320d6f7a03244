"""Scenarios put to a real KAI one after the other, since its shares are the whole cluster's, and what became of them.

Bare pods in pod groups of our own, so that their names and order are ours; running ones are bound past the scheduler.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import KAI_POD_GROUP, KAI_QUEUE, KAI_TOPOLOGY, NODE, POD
from tests.real.scenarios.kai_plans import PRIORITIES, SAID, Answer, Plan, Share, Work, kind_of
from tests.support.kube import KubeClient

SPACE: Final = "agree"
PATIENCE: Final = 60.0
CYCLES: Final = 0.6  # seconds: some of KAI's cycles
QUIET: Final = 0.5  # seconds without a further victim after which the decision is complete
GRACE: Final = 60
SECOND: Final = 1.0  # of two queues of one second that stand alike KAI takes any
CAUSES: Final = {"consolidation": "consolidate"}
ACTION: Final = "evictor-action-type"
BIND_REQUEST: Final = Kind("scheduling.run.ai", "v1alpha2", "BindRequest", "bindrequests")


class KaiStage:
    """One control plane with KAI and nothing else in it."""

    def __init__(self, admin: KubeClient) -> None:
        self._admin = admin
        for node in admin.list(NODE):
            admin.delete(ObjectRef(NODE, node["metadata"]["name"]))
        admin.namespace(SPACE)
        for value in PRIORITIES:
            admin.apply(_class(value))

    def answers(self, plans: Sequence[Plan]) -> Iterator[Answer]:
        """What became of each candidate, in order."""
        for plan in plans:
            with self._furnished(plan):
                turns = _turns(plan, self._pods())
                if all(self._waits(plan, each) for each in plan.waiting):
                    self._submit(plan, plan.candidate)
                    yield replace(self._decision(plan), turns=turns)
                else:
                    yield Answer("somebody does not wait")

    @contextmanager
    def _furnished(self, plan: Plan) -> Iterator[None]:
        try:
            if plan.levels:
                self._admin.create(_topology(plan))
            for name, gpus in plan.nodes.items():
                self._admin.create(_node(plan, name, gpus))
                self._admin.patch(ObjectRef(NODE, _name(plan, name)), {"spec": {"taints": None}})  # a new one is closed
            for share in plan.queues:
                self._admin.create(_queue(plan, share))
                time.sleep(SECOND if plan.waiting and share.parent else 0)
            for work in plan.work:
                self._submit(plan, work)
            _until(lambda: all(pod["status"].get("podIP") for pod in self._pods()), "running pods")
            time.sleep(CYCLES)
            yield
        finally:
            self._clear(plan)

    def _clear(self, plan: Plan) -> None:
        self._admin.call("DELETE", self._admin.path(POD, SPACE), {"gracePeriodSeconds": 0})
        for kind in (KAI_POD_GROUP, BIND_REQUEST):
            self._admin.call("DELETE", self._admin.path(kind, SPACE))
        for share in plan.queues:
            self._admin.delete(ObjectRef(KAI_QUEUE, _name(plan, share.name)))
        for name in plan.nodes:
            self._admin.delete(ObjectRef(NODE, _name(plan, name)))
        if plan.levels:
            self._admin.delete(ObjectRef(KAI_TOPOLOGY, _name(plan, "near")))
        _until(lambda: not self._pods(), "end of all pods")

    def _submit(self, plan: Plan, work: Work) -> None:
        self._admin.create(_group(plan, work))
        for index in range(work.pods):
            self._admin.create(_pod(plan, work, index))

    def _waits(self, plan: Plan, work: Work) -> bool:
        """Whether it has to wait, and nobody goes for it."""
        self._submit(plan, work)

        def decided() -> bool:
            return any(map(_refused, self._of(plan, work))) or self._moves(plan)

        _until(decided, f"decision about {work}")
        return not self._moves(plan)

    def _moves(self, plan: Plan) -> bool:
        """Something goes, or starts that has to wait."""
        pods, waiting = self._pods(), {_name(plan, work.name) for work in plan.waiting}
        return any(
            pod["metadata"].get("deletionTimestamp") or (_work_of(pod) in waiting and pod["spec"].get("nodeName"))
            for pod in pods
        )

    def _of(self, plan: Plan, work: Work) -> list[Manifest]:
        return [pod for pod in self._pods() if _work_of(pod) == _name(plan, work.name)]

    def _pods(self) -> list[Manifest]:
        return self._admin.list(POD, namespace=SPACE)

    def _decision(self, plan: Plan) -> Answer:
        """Placed, refused in so many words, or victims told of that become no more."""
        deadline, before, since = time.monotonic() + PATIENCE, frozenset[tuple[str, int, str]](), 0.0
        while time.monotonic() < deadline:
            pods = self._pods()
            mine = [pod for pod in pods if _work_of(pod) == _name(plan, plan.candidate.name)]
            victims = self._victims(plan, pods)
            if victims != before:
                before, since = victims, time.monotonic()
            if victims and time.monotonic() - since > QUIET:
                return Answer(kind_of(victims), victims)
            if not victims and all(pod["spec"].get("nodeName") for pod in mine):
                return Answer("placed", domain=plan.domain(_node_of(plan, pod) for pod in mine))
            if not victims and any(_refused(pod) for pod in mine) and (said := self._reasons(plan)) is not None:
                return Answer("pending", reason="+".join(sorted(said & SAID)))
            time.sleep(0.1)
        raise AssertionError(f"KAI has not decided about {plan} within {PATIENCE} s")

    def _victims(self, plan: Plan, pods: Sequence[Manifest]) -> frozenset[tuple[str, int, str]]:
        """Pods marked for the candidate by their work; the cause as KAI's events say it. Empty while one is missing."""
        marked = [_work_of(pod) for pod in pods if pod["metadata"].get("deletionTimestamp")]
        causes = self._causes() if marked else {}
        if not causes.keys() >= set(marked):
            return frozenset()
        mine = {name for name in marked if causes[name][0] == _name(plan, plan.candidate.name)}
        return frozenset((name.rpartition("-")[2], marked.count(name), causes[name][1]) for name in mine)

    def _causes(self) -> dict[str, tuple[str, str]]:
        """By the name of who goes: for whom, and the action."""
        events = self._admin.call("GET", f"/api/v1/namespaces/{SPACE}/events?fieldSelector=reason=Evict")["items"]
        said = [(each["involvedObject"]["name"], each["metadata"].get("annotations") or {}) for each in events]
        return {
            name: (notes.get("evictor-pod-group-name", ""), CAUSES.get(action := notes[ACTION].lower(), action))
            for name, notes in said
            if ACTION in notes
        }

    def _reasons(self, plan: Plan) -> set[str] | None:
        """Of the pod group, once KAI has written them."""
        group = self._admin.must(ObjectRef(KAI_POD_GROUP, _name(plan, plan.candidate.name), SPACE))
        found = (group.get("status") or {}).get("schedulingConditions")
        return found and {reason["reason"] for each in found for reason in each.get("reasons") or ()}


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE} s"
        time.sleep(0.1)


def _refused(pod: Manifest) -> bool:
    found = pod["status"].get("conditions") or []
    return any((each["type"], each["status"]) == ("PodScheduled", "False") for each in found)


def _work_of(pod: Manifest) -> str:
    return str(pod["metadata"]["annotations"]["pod-group-name"])


def _name(plan: Plan, name: str) -> str:
    """Names decide between what is of one second: they are in the order of the plan."""
    return f"agree{plan.seed}-{name}"


def _class(value: int) -> Manifest:
    metadata = {"name": f"agree-{value}"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}


def _turns(plan: Plan, pods: Sequence[Manifest]) -> dict[str, tuple[int, ...]]:
    """KAI takes the pods of a group by the second of their creation, then by uid."""
    ordered = sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"]))
    return {
        work.name: tuple(_number(pod) for pod in ordered if _work_of(pod) == _name(plan, work.name))
        for work in plan.work
    }


def _number(pod: Manifest) -> int:
    return int(str(pod["metadata"]["name"]).rpartition("-")[2])


def _node_of(plan: Plan, pod: Manifest) -> str:
    return str(pod["spec"]["nodeName"]).removeprefix(_name(plan, ""))


def _topology(plan: Plan) -> Manifest:
    levels = [{"nodeLabel": level} for level in plan.levels]
    kind, metadata = KAI_TOPOLOGY, {"name": _name(plan, "near")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {"levels": levels}}


def _node(plan: Plan, name: str, gpus: int) -> Manifest:
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    labels = {"nvidia.com/gpu.count": str(gpus), **plan.labels(name)}
    annotations = {"kwok.x-k8s.io/node": "fake"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": _name(plan, name), "labels": labels, "annotations": annotations},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _queue(plan: Plan, share: Share) -> Manifest:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    limit = -1 if share.limit is None else share.limit
    gpu = {"quota": share.deserved, "limit": limit, "overQuotaWeight": share.weight}
    spec: dict[str, Any] = {"priority": share.rank, "resources": {"gpu": gpu, "cpu": free, "memory": free}}
    if share.parent:
        spec["parentQueue"] = _name(plan, share.parent)
    metadata = {"name": _name(plan, share.name)}
    return {"apiVersion": KAI_QUEUE.api_version, "kind": "Queue", "metadata": metadata, "spec": spec}


def _group(plan: Plan, work: Work) -> Manifest:
    spec: dict[str, Any] = {
        "minMember": work.minimum,
        "queue": _name(plan, work.queue),
        "priorityClassName": f"agree-{work.priority}",
        "preemptibility": "preemptible" if work.preemptible else "non-preemptible",
    }
    if work.level:
        spec["topologyConstraint"] = {"topology": _name(plan, "near"), "requiredTopologyLevel": work.level}
    metadata = {"name": _name(plan, work.name), "namespace": SPACE}
    return {"apiVersion": KAI_POD_GROUP.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def _pod(plan: Plan, work: Work, index: int) -> Manifest:
    requested = {"nvidia.com/gpu": str(work.gpus)}
    spec: dict[str, Any] = {
        "schedulerName": "kai-scheduler",
        "priorityClassName": f"agree-{work.priority}",
        "terminationGracePeriodSeconds": GRACE,
        "containers": [{"name": "main", "image": "none", "resources": {"requests": requested, "limits": requested}}],
    }
    if work.nodes:
        spec["nodeName"] = _name(plan, work.nodes[index])
    name = _name(plan, work.name)
    metadata = {"name": f"{name}-{index}", "namespace": SPACE, "annotations": {"pod-group-name": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
