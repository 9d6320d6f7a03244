"""Plain kube-scheduler: quotas become ResourceQuotas of the project's namespace, priorities PriorityClasses.

Sources: Kubernetes 1.36 documentation of resource quotas and pod priority; messages as its scheduler and quota
admission write them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from clusters.flavours import common, reading
from clusters.flavours.kube_promises import PROMISES, cautions
from clusters.flavours.rendering import render_job
from clusters.kinds_core import LIMIT_RANGE, NAMESPACE, PRIORITY_CLASS, RESOURCE_QUOTA
from clusters.ownership import owned
from clusters.ports import DesiredState, JobSpec, Kind, Manifest, PriorityLevel, ProjectSpec, Promise, Reading, Traits
from scheduling.priority import THRESHOLD
from scheduling.resources import Limit, Resources, decimal_text

LIMIT_QUOTA: Final = "rung-limit"
DESERVED_QUOTA: Final = "rung-deserved"
CAP_QUOTA: Final = "rung-cap-"
DEFAULTS: Final = "rung-defaults"
DEFAULT_CPU, DEFAULT_MEMORY = "100m", "128Mi"  # of a container that states none
GPU: Final = "requests.nvidia.com/gpu"
QUOTA_REASONS: Final = {LIMIT_QUOTA: "OverLimit", DESERVED_QUOTA: "NonPreemptibleOverQuota"}


class Kube:
    """The kube-scheduler's dialect."""

    name: str = "kube"
    title: str = "kube-scheduler"
    preemptibilities: tuple[str, ...] = ("preemptible", "non-preemptible")
    traits: Traits = Traits(simulated=True, placements=common.PLACEMENTS)

    def kinds(self) -> Sequence[Kind]:
        """Kinds that reconcile lists and owns."""
        return (PRIORITY_CLASS, NAMESPACE, LIMIT_RANGE, RESOURCE_QUOTA)

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """PriorityClasses; per project a namespace, default requests, and its quotas over all pools together."""
        yield from common.shared_objects(state)
        for project in state.projects:
            yield _limit_range(project)
            yield from _quotas(project, state.levels)

    def queue_name(self, owner: str, pool: str) -> str:
        """Deterministic name of a queue; kube-scheduler knows none, Rung's own model does."""
        return common.queue_name(owner, pool)

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's object with priority, labels and the pool's node selector at every pod template."""
        return render_job(job, labels={})

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> Reading:
        """Evicted by whom, refused by which quota, or waiting for which nodes. An empty pod: none could be created."""
        if said := list(reading.disruption_texts(pod, events, "Preempted")):
            return _preempted(said)
        for text in reading.messages(events, "FailedCreate"):
            if (match := reading.EXCEEDED.search(text)) and not pod.get("status"):
                return _refused(match.groupdict(), text)
        return reading.waiting(pod)

    def semantics(self) -> Sequence[Promise]:
        """What kube-scheduler keeps of Rung's promises."""
        return PROMISES

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """What this scheduler will not keep for a workload of that priority and preemptibility."""
        return cautions(value=value, preemptibility=preemptibility)


def with_defaults(asked: Resources, *, containers: int) -> Resources:
    """What a pod asks for once the namespace's LimitRange has filled in what none of its containers states."""
    default = Resources.of(cpu=DEFAULT_CPU, memory=DEFAULT_MEMORY) * max(containers, 1)
    return Resources(asked.gpu, asked.cpu or default.cpu, asked.memory or default.memory)


def hard(amounts: Limit) -> dict[str, str]:
    """The `hard` map of a ResourceQuota; what is unlimited has no key."""
    texts = {
        GPU: _milli(amounts.gpu),
        "requests.cpu": _milli(amounts.cpu),
        "requests.memory": None if amounts.memory is None else str(amounts.memory),
    }
    return {key: text for key, text in texts.items() if text is not None}


def total(amounts: Iterable[Limit]) -> Limit:
    """All pools together: a ResourceQuota cannot tell them apart."""
    parts = list(amounts)
    return Limit(
        common.sum_or_unlimited(each.gpu for each in parts),
        common.sum_or_unlimited(each.cpu for each in parts),
        common.sum_or_unlimited(each.memory for each in parts),
    )


def _milli(amount: int | None) -> str | None:
    """As the API server prints it: whole numbers bare, the rest in thousandths."""
    if amount is None:
        return None
    return decimal_text(amount) if amount % 1000 == 0 else f"{amount}m"


def _quotas(project: ProjectSpec, levels: Sequence[PriorityLevel]) -> Iterator[Manifest]:
    known = {level.name for level in levels}
    guarded = sorted(level.name for level in levels if level.value >= THRESHOLD)
    if limit := hard(total(queue.limit for queue in project.queues)):
        yield _quota(project, LIMIT_QUOTA, limit)
    if guarded and (deserved := hard(total(queue.deserved for queue in project.queues))):
        yield _quota(project, DESERVED_QUOTA, deserved, classes=guarded)
    for priority, gpus in sorted(project.priority_caps.items()):
        if priority in known:
            yield _quota(project, CAP_QUOTA + priority, hard(Limit(gpu=gpus)), classes=[priority])


def _quota(project: ProjectSpec, name: str, amounts: dict[str, str], classes: Sequence[str] = ()) -> Manifest:
    spec: dict[str, Any] = {"hard": amounts}
    if classes:
        scope = {"scopeName": "PriorityClass", "operator": "In", "values": list(classes)}
        spec["scopeSelector"] = {"matchExpressions": [scope]}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _metadata(project, name), "spec": spec}


def _limit_range(project: ProjectSpec) -> Manifest:
    """Default requests, since a quota on CPU or memory rejects pods that state none."""
    limits = [{"type": "Container", "defaultRequest": {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}}]
    metadata = _metadata(project, DEFAULTS)
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def _metadata(project: ProjectSpec, name: str) -> dict[str, Any]:
    return owned(name, owner=project.owner, generation=project.generation, namespace=project.namespace)


def _preempted(said: Sequence[str]) -> Reading:
    """The condition is certain but may name nobody; then an event does."""
    for text in said:
        if match := reading.BY_POD.search(text):
            return Reading("Preempted", text, preemptor=f"uid:{match[1]}", cause="preempt")
    return Reading("Preempted", said[0], cause="preempt")


def _refused(match: Mapping[str, str], text: str) -> Reading:
    quota = match["quota"]
    reason = QUOTA_REASONS.get(quota, "OverPriorityCap" if quota.startswith(CAP_QUOTA) else "ExceededQuota")
    numbers = {key: match[key] for key in ("quota", "requested", "used", "limited")}
    return Reading(reason, text, numbers)
