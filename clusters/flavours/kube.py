"""kube-scheduler, plain and with gangs: ResourceQuotas, PriorityClasses, PodGroups, and its guarantees. Pure.

Sources: Kubernetes 1.36, its documentation of default preemption, resource quotas and pod priority, and messages as
its scheduler and quota admission were observed to write them. Gangs are objects of `scheduling.k8s.io/v1alpha2`, an
alpha that a cluster serves only where it was enabled. Specs of both kinds never change: a change deletes and creates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from clusters.flavours import objects as flavours_objects
from clusters.flavours import pod_status
from clusters.flavours.objects import TOPOLOGY_KEY
from clusters.flavours.rendering import render_job
from clusters.ports.flavour import (
    GANG_INCOMPLETE,
    HELD_BY_RUNG,
    DesiredState,
    Guarantee,
    JobSpec,
    PodStatusReason,
    PriorityClassSpec,
    ProjectSpec,
    Traits,
)
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import (
    GANG_POD_GROUP,
    GANG_WORKLOAD,
    LIMIT_RANGE,
    NAMESPACE,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    owned,
)
from clusters.ports.pod_templates import gang_templates
from clusters.ports.workload_kinds import kind_for
from scheduling.model.preemptibility import THRESHOLD, Preemptibility
from scheduling.model.resources import Limit, Resources, decimal_text

EVICTABLE: Final = "kube-scheduler cannot protect it: any pod with a higher priority, in any namespace, may evict it."
COUNTED: Final = (
    "Preemptible with a priority of 100 or higher: the cluster's quota only sees the PriorityClass, so the "
    "workload counts against the deserved quota and may wait for it."
)
UNCOUNTED: Final = (
    "Non-preemptible with a priority below 100: the cluster's quota only sees the PriorityClass and does not "
    "count the workload. Rung defers it while the deserved quota of its pool is in use."
)


def warnings_for(*, value: int, preemptibility: str) -> Sequence[str]:
    """Where the two sides of 100 disagree, and that non-preemptible work may be evicted."""
    if preemptibility == Preemptibility.NON_PREEMPTIBLE:
        return (EVICTABLE,) if value >= THRESHOLD else (EVICTABLE, UNCOUNTED)
    return (COUNTED,) if value >= THRESHOLD else ()


GUARANTEES: Final = (
    Guarantee(
        "priority_inside_project",
        "Priority applies only within the project",
        "no",
        "A higher priority evicts lower ones in the whole cluster, in any namespace. Victims are chosen by "
        "priority and start time only, not by project, quota or GPU hours.",
        "Give priorities that should not evict the preemption policy Never, or use a scheduler with queues.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods not managed by Rung are not evicted",
        "no",
        "Pods without a PriorityClass have priority 0, so even very-low (25) evicts them, in any namespace.",
        "Give those pods a PriorityClass, or give Rung's lowest priorities the policy Never or a negative value.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "Priorities with the policy Never do not evict",
        "yes",
        "The kube-scheduler applies preemptionPolicy: such a pod waits for free resources. It may still be "
        "evicted itself.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible workloads are never evicted",
        "no",
        "The kube-scheduler has no preemptibility: a higher priority may evict any lower one.",
        "Give workloads that must not be evicted the highest priority in use, or use KAI.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible workloads stay within the deserved quota",
        "partly",
        "A ResourceQuota over the classes of 100 and higher counts them for all node pools together. Where it "
        "would allow more than a pool's deserved quota, Rung defers the rest. Workloads created outside Rung are "
        "not checked.",
        "Submit through Rung.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota capacity is lent and reclaimed",
        "no",
        "A ResourceQuota is a hard cap: no borrowing, no reclaim, and lowering it evicts nothing.",
        "Set the limit to the maximum a project may use, or use KAI.",
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "partly",
        "Kubernetes has no departments. Rung checks the sums when quotas are set and workloads are submitted.",
        "Set project limits that add up to the department's.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for surplus capacity",
        "no",
        "The kube-scheduler orders all pods by priority, then age.",
        "Use KAI where rank matters.",
    ),
    Guarantee(
        "gang",
        "Distributed jobs start all pods together",
        "no",
        "Pods are placed one by one: a job may hold GPUs while its other pods wait.",
        "Use KAI for distributed jobs.",
    ),
    Guarantee(
        "topology",
        "A gang stays in one topology domain",
        "no",
        "The kube-scheduler places pods one by one, without domains. Requests for a domain are rejected at submission.",
        "Use KAI, Kueue or kube-scheduler with gangs.",
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas apply per node pool",
        "no",
        "A ResourceQuota counts the whole namespace, so the quotas of all pools are added up.",
        "Use KAI where pools need separate quotas.",
    ),
    Guarantee(
        "min_runtime",
        "Workloads are protected for their minimum runtime",
        "partly",
        f"The kube-scheduler evicts lower priorities regardless of their runtime, {HELD_BY_RUNG}",
        "Give workloads that must not be evicted a higher priority, or use KAI.",
    ),
)


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
    traits: Traits = Traits(
        simulated=True, quotas_by_class=True, placements=flavours_objects.PLACEMENTS, spares_budgets=True
    )

    def kinds(self) -> Sequence[Kind]:
        return (PRIORITY_CLASS, NAMESPACE, LIMIT_RANGE, RESOURCE_QUOTA)

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """PriorityClasses; per project a namespace, default requests, and its quotas over all pools together."""
        yield from flavours_objects.shared_objects(state)
        for project in state.projects:
            yield _limit_range(project)
            yield from _quotas(project, state.priorities)

    def queue_name(self, owner: str, pool: str) -> str:
        """Deterministic name of a queue; kube-scheduler knows none, Rung's own model does."""
        return flavours_objects.queue_name(owner, pool)

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's object with priority, labels and the pool's node selector at every pod template."""
        return render_job(job, labels={})

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """Evicted by which pod, refused by which quota, or waiting for nodes. An empty pod: none could be created."""
        if texts := list(pod_status.disruption_texts(pod, events, "Preempted")):
            return _preempted(texts)
        for text in pod_status.messages(events, "FailedCreate"):
            if (match := pod_status.EXCEEDED.search(text)) and not pod.get("status"):
                return _refused(match.groupdict(), text)
        return pod_status.waiting_reason(pod)

    def guarantees(self) -> Sequence[Guarantee]:
        return GUARANTEES

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """What this scheduler will not keep for a workload of that priority and preemptibility."""
        return warnings_for(value=value, preemptibility=preemptibility)


def with_defaults(requested: Resources, *, containers: int) -> Resources:
    """What a pod asks for once the namespace's LimitRange has filled in what none of its containers states."""
    default = Resources.of(cpu=DEFAULT_CPU, memory=DEFAULT_MEMORY) * max(containers, 1)
    return Resources(requested.gpu, requested.cpu or default.cpu, requested.memory or default.memory)


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
        flavours_objects.sum_or_unlimited(each.gpu for each in parts),
        flavours_objects.sum_or_unlimited(each.cpu for each in parts),
        flavours_objects.sum_or_unlimited(each.memory for each in parts),
    )


def _milli(amount: int | None) -> str | None:
    """As the API server prints it: whole numbers bare, the rest in thousandths."""
    if amount is None:
        return None
    return decimal_text(amount) if amount % 1000 == 0 else f"{amount}m"


def _quotas(project: ProjectSpec, priorities: Sequence[PriorityClassSpec]) -> Iterator[Manifest]:
    known = {priority.name for priority in priorities}
    guarded = sorted(priority.name for priority in priorities if priority.value >= THRESHOLD)
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


def _preempted(texts: Sequence[str]) -> PodStatusReason:
    """The condition is certain but may name no preemptor; then an event does."""
    for text in texts:
        if match := pod_status.BY_POD.search(text):
            return PodStatusReason("Preempted", text, preemptor=f"uid:{match[1]}", cause="preempt")
    return PodStatusReason("Preempted", texts[0], cause="preempt")


def _refused(match: Mapping[str, str], text: str) -> PodStatusReason:
    quota = match["quota"]
    reason = QUOTA_REASONS.get(quota, "OverPriorityCap" if quota.startswith(CAP_QUOTA) else "ExceededQuota")
    numbers = {key: match[key] for key in ("quota", "requested", "used", "limited")}
    return PodStatusReason(reason, text, numbers)


TEMPLATE: Final = "pods"  # name of the one pod group template of a Workload
WAITS_FOR_OTHERS: Final = "waiting for minCount pods from a gang"
TOPOLOGY_DRAWBACK: Final = (
    "It requires one topology domain: this scheduler never evicts for such gangs, regardless of priority."
)
BY_GROUP: Final = "podgroup"  # in the scheduler's words: the preemptor is a gang


class KubeGangs(Kube):
    """The kube-scheduler's dialect, its gangs included."""

    name: str = "kube-gangs"
    title: str = "kube-scheduler with gangs"
    traits: Traits = Traits(
        installed=GANG_WORKLOAD,
        suggested=False,
        simulated=True,
        spares_budgets=True,
        quotas_by_class=True,
        whole_gangs=True,
        minimum="any",
        beside=(GANG_WORKLOAD, GANG_POD_GROUP),
        rigid=TOPOLOGY_DRAWBACK,
    )

    def render(self, job: JobSpec) -> list[Manifest]:
        """As plain kube; for a gang its Workload and its PodGroup first, and the group named at every pod template."""
        manifests = super().render(job)
        if job.min_member > 1 and manifests and _join(manifests[0], job):
            return [_workload(job), _pod_group(job), *manifests]
        return manifests

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """As plain kube; a pod that waits only for the rest of its gang, and whether it was evicted for a gang."""
        found = super().interpret(pod, events)
        if found.cause:
            return replace(found, whole=BY_GROUP in found.message)
        return replace(found, reason=GANG_INCOMPLETE) if WAITS_FOR_OTHERS in found.message else found

    def guarantees(self) -> Sequence[Guarantee]:
        """What kube-scheduler keeps of Rung's guarantees where it knows gangs."""
        return GANG_GUARANTEES


def _join(body: Manifest, job: JobSpec) -> bool:
    """Name the group at every pod template that starts with the gang; False: the object has none to write it in."""
    kind = kind_for(str(body["apiVersion"]), str(body["kind"]))
    parts = gang_templates(body, kind) if kind else []
    for each in parts:
        spec: dict[str, Any] = each.part["spec"]
        spec["schedulingGroup"] = {"podGroupName": job.name}
    return bool(parts)


def _workload(job: JobSpec) -> Manifest:
    return _object(GANG_WORKLOAD, job, {"podGroupTemplates": [{"name": TEMPLATE, **_terms(job)}]})


def _pod_group(job: JobSpec) -> Manifest:
    """The gang itself, on the same terms."""
    origin = {"workload": {"workloadName": job.name, "podGroupTemplateName": TEMPLATE}}
    return _object(GANG_POD_GROUP, job, {"podGroupTemplateRef": origin, **_terms(job)})


def _terms(job: JobSpec) -> dict[str, Any]:
    """How many start together, where, with which priority, and that it is evicted whole or not at all."""
    key = ((job.manifest.get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_KEY)
    return {
        "schedulingPolicy": {"gang": {"minCount": job.min_member}},
        **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
        "priorityClassName": job.priority_class,
        "disruptionMode": "PodGroup",
    }


def _object(kind: Kind, job: JobSpec, spec: Mapping[str, Any]) -> Manifest:
    metadata = owned(job.name, owner=f"workload.{job.id}", generation=job.generation, namespace=job.namespace)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)}


_OWN: Final = {
    guarantee.code: guarantee
    for guarantee in (
        Guarantee(
            "priority_inside_project",
            "Priority applies only within the project",
            "no",
            "A higher priority evicts lower ones in the whole cluster, in any namespace. For a gang, the "
            "scheduler first assumes that all weaker pods and gangs are gone, then puts them back from the "
            "strongest as long as the gang still fits. While the first victims stop, it may decide again and "
            "evict more than needed.",
            "Give priorities that should not evict the preemption policy Never, or use a scheduler with queues.",
        ),
        Guarantee(
            "gang",
            "Distributed jobs start all pods together",
            "yes",
            "The pods share a PodGroup: its minimum starts together or waits, and a stronger gang evicts the "
            "whole gang. Two exceptions: a single pod with a higher priority evicts single pods of a running "
            "gang, and a gang that requires one topology domain never evicts. Operators without support for "
            "schedulingGroup start their pods one by one.",
            "Give single pods lower priorities than the gangs they must not disrupt.",
        ),
        Guarantee(
            "topology",
            "A gang stays in one topology domain",
            "yes",
            "All pods of a PodGroup that requires a node label run on nodes with the same value, or the gang "
            "waits. Such a gang never evicts, regardless of priority. If the pool has topology levels, the label "
            "must be one of them.",
        ),
    )
}
GANG_GUARANTEES: Final = tuple(_OWN.get(guarantee.code, guarantee) for guarantee in GUARANTEES)
