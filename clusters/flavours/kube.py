"""kube-scheduler, plain and with gangs: ResourceQuotas, PriorityClasses, PodGroups, and its guarantees. Pure.

Source: kube-scheduler 1.36, its default preemption and the PriorityClass scope of resource quotas.

Sources: Kubernetes 1.36 documentation of resource quotas and pod priority; messages as its scheduler and quota
admission write them.

Sources: Kubernetes 1.36 (`scheduling.k8s.io/v1alpha2`, an alpha that a cluster serves only where it was switched on),
and what its scheduler was seen to write. Specs of both kinds never change: a change is made by deleting and creating.
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
    PriorityLevel,
    ProjectSpec,
    Traits,
)
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.kinds import GANG_POD_GROUP, GANG_WORKLOAD, LIMIT_RANGE, NAMESPACE, PRIORITY_CLASS, RESOURCE_QUOTA
from clusters.ports.ownership import owned
from clusters.ports.pod_templates import gang_templates
from clusters.ports.workload_kinds import kind_for
from scheduling.model.preemptibility import THRESHOLD, Preemptibility
from scheduling.model.resources import Limit, Resources, decimal_text

EVICTABLE: Final = "kube-scheduler cannot protect it: any pod of a higher priority, in any namespace, may evict it."
COUNTED: Final = (
    "Preemptible with a priority of 100 or more: the cluster's deserved quota sees the class only, so this counts as "
    "deserved and may wait for it."
)
UNCOUNTED: Final = (
    "Non-preemptible with a priority below 100: the cluster's deserved quota sees the class only and does not count "
    "this. Rung holds it back while its pool's deserved quota is in use."
)


def warnings_for(*, value: int, preemptibility: str) -> Sequence[str]:
    """Where the two sides of 100 disagree, and that non-preemptible work may be evicted."""
    if preemptibility == Preemptibility.NON_PREEMPTIBLE:
        return (EVICTABLE,) if value >= THRESHOLD else (EVICTABLE, UNCOUNTED)
    return (COUNTED,) if value >= THRESHOLD else ()


GUARANTEES: Final = (
    Guarantee(
        "priority_inside_project",
        "Priority acts only inside the project",
        "no",
        "A higher priority evicts lower ones on the whole cluster, in any namespace. Which victims fall is decided by "
        "their numbers and start times alone, never by project, quota or GPU hours.",
        "Give entries that should evict nobody the preemption policy Never, or choose a flavour with queues.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods that are none of Rung's are left alone",
        "no",
        "A pod that names no PriorityClass has priority 0, so even very-low (25) evicts it, in any namespace.",
        "Give those pods a class, give Rung's lowest entries the policy Never, or a negative value.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "An entry with the policy Never evicts nobody",
        "yes",
        "The kube-scheduler keeps preemptionPolicy: such a pod waits for room. It may still be evicted itself, since "
        "the policy says what a class does to others, not what is done to it.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible work is never evicted",
        "no",
        "The kube-scheduler knows no preemptibility: any lower priority may be evicted by a higher one.",
        "Give work that must stay the highest priority in use, or choose KAI.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible work stays inside the deserved quota",
        "partly",
        "In the cluster a quota over the classes of 100 and more counts it, for all node pools together. Where that "
        "would let more start than a pool's deserved quota, or does not count the class, Rung holds the rest back; "
        "what others create there is not checked.",
        "Submit through Rung.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota use is lent out and reclaimed",
        "no",
        "A ResourceQuota is a hard cap: nothing is borrowed, nothing is reclaimed, and a smaller quota evicts nobody.",
        "Set the limit to what a project may use at most, or choose KAI.",
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "partly",
        "Kubernetes has no departments; Rung checks the sums when quotas are set and work is submitted.",
        "Set limits on the projects so that they add up.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for the surplus",
        "no",
        "The kube-scheduler has one order for all pods: priority, then age.",
        "Choose KAI where rank matters.",
    ),
    Guarantee(
        "gang",
        "A distributed job starts whole or not at all",
        "no",
        "Pods are placed one by one: a job may hold GPUs while the rest of it waits.",
        "Choose KAI for distributed jobs.",
    ),
    Guarantee(
        "topology",
        "A gang keeps to one domain of close nodes",
        "no",
        "The kube-scheduler places pods one by one and is told of no domain: asking for one is refused at submission.",
        "Choose KAI, Kueue or kube-scheduler with gangs.",
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas hold per node pool",
        "no",
        "A ResourceQuota counts the namespace as a whole: the quotas of all pools are added up.",
        "Choose KAI where pools have quotas of their own.",
    ),
    Guarantee(
        "min_runtime",
        "Young work is left alone for its min guaranteed runtime",
        "partly",
        f"The kube-scheduler evicts a lower priority however short it has run, {HELD_BY_RUNG}",
        "Give work that must not go at all a higher priority, or choose KAI.",
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
    traits: Traits = Traits(simulated=True, placements=flavours_objects.PLACEMENTS)

    def kinds(self) -> Sequence[Kind]:
        return (PRIORITY_CLASS, NAMESPACE, LIMIT_RANGE, RESOURCE_QUOTA)

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """PriorityClasses; per project a namespace, default requests, and its quotas over all pools together."""
        yield from flavours_objects.shared_objects(state)
        for project in state.projects:
            yield _limit_range(project)
            yield from _quotas(project, state.levels)

    def queue_name(self, owner: str, pool: str) -> str:
        """Deterministic name of a queue; kube-scheduler knows none, Rung's own model does."""
        return flavours_objects.queue_name(owner, pool)

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's object with priority, labels and the pool's node selector at every pod template."""
        return render_job(job, labels={})

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """Evicted by whom, refused by which quota, or waiting for which nodes. An empty pod: none could be created."""
        if said := list(pod_status.disruption_texts(pod, events, "Preempted")):
            return _preempted(said)
        for text in pod_status.messages(events, "FailedCreate"):
            if (match := pod_status.EXCEEDED.search(text)) and not pod.get("status"):
                return _refused(match.groupdict(), text)
        return pod_status.waiting_reason(pod)

    def semantics(self) -> Sequence[Guarantee]:
        return GUARANTEES

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """What this scheduler will not keep for a workload of that priority and preemptibility."""
        return warnings_for(value=value, preemptibility=preemptibility)


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
        flavours_objects.sum_or_unlimited(each.gpu for each in parts),
        flavours_objects.sum_or_unlimited(each.cpu for each in parts),
        flavours_objects.sum_or_unlimited(each.memory for each in parts),
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


def _preempted(said: Sequence[str]) -> PodStatusReason:
    """The condition is certain but may name nobody; then an event does."""
    for text in said:
        if match := pod_status.BY_POD.search(text):
            return PodStatusReason("Preempted", text, preemptor=f"uid:{match[1]}", cause="preempt")
    return PodStatusReason("Preempted", said[0], cause="preempt")


def _refused(match: Mapping[str, str], text: str) -> PodStatusReason:
    quota = match["quota"]
    reason = QUOTA_REASONS.get(quota, "OverPriorityCap" if quota.startswith(CAP_QUOTA) else "ExceededQuota")
    numbers = {key: match[key] for key in ("quota", "requested", "used", "limited")}
    return PodStatusReason(reason, text, numbers)


TEMPLATE: Final = "pods"  # name of the one pod group template of a Workload
WAITS_FOR_OTHERS: Final = "waiting for minCount pods from a gang"
TOPOLOGY_DRAWBACK: Final = (
    "It asks for one topology domain: this scheduler evicts nobody for such a gang, whatever its priority."
)
BY_GROUP: Final = "podgroup"  # in the scheduler's words: whoever gains is a gang


class KubeGangs(Kube):
    """The kube-scheduler's dialect, its gangs included."""

    name: str = "kube-gangs"
    title: str = "kube-scheduler with gangs"
    traits: Traits = Traits(
        installed=GANG_WORKLOAD,
        suggested=False,
        simulated=True,
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

    def semantics(self) -> Sequence[Guarantee]:
        """What kube-scheduler keeps of Rung's promises where it knows gangs."""
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
    promise.code: promise
    for promise in (
        Guarantee(
            "priority_inside_project",
            "Priority acts only inside the project",
            "no",
            "A higher priority evicts lower ones on the whole cluster, in any namespace. A gang looks at all nodes "
            "together: every weaker pod and gang is taken away in thought, then given back from the strongest on as "
            "long as it still fits. While its first victims end it may look again and evict more than it needed.",
            "Give entries that should evict nobody the preemption policy Never, or choose a flavour with queues.",
        ),
        Guarantee(
            "gang",
            "A distributed job starts whole or not at all",
            "yes",
            "Its pods share a PodGroup: its minimum starts at once or waits as a whole, and a stronger gang evicts it "
            "as a whole. Two surprises: a single pod of a higher priority breaks a running gang, since it takes one "
            "pod out of it as the plain kube-scheduler does; and a gang that asks for one topology domain never evicts "
            "anybody. "
            "Operators whose resource definition does not know schedulingGroup drop it: their pods start one by one.",
            "Give single pods lower priorities than the gangs that they must not break.",
        ),
        Guarantee(
            "topology",
            "A gang keeps to one domain of close nodes",
            "yes",
            "All pods of a PodGroup that asks for a node label run on nodes with one value of it, or the gang waits. "
            "Such a gang never evicts anybody, whatever its priority. Where the pool names levels, it has to be one "
            "of them.",
        ),
    )
}
GANG_GUARANTEES: Final = tuple(_OWN.get(promise.code, promise) for promise in GUARANTEES)
