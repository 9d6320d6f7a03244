"""KAI scheduler: a Queue per department and project in each node pool; preemptibility is a label. Pure.

KAI runs one scheduler for each SchedulingShard. It sees the nodes, queues and pod groups that carry one value of the
label `kai.scheduler/node-pool`, or those without the label, and shares out what it sees as one amount. Source: KAI
0.17, its operator and `conf.SchedulingNodePoolParams`.

Sources: KAI 0.17 (`scheduling.run.ai/v2` Queue) and the messages its scheduler was seen to write.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from clusters.flavours import kai_status
from clusters.flavours import objects as flavours_objects
from clusters.flavours.objects import go_duration, plain_number
from clusters.flavours.rendering import render_job
from clusters.ports.flavour import DesiredState, Guarantee, JobSpec, PodStatusReason, PoolSpec, QueueSpec, Traits
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import KAI_POD_GROUP, KAI_QUEUE, KAI_SHARD, KAI_TOPOLOGY, NAMESPACE, PRIORITY_CLASS, owned
from scheduling.model.preemptibility import Cause, Preemptibility, as_scheduled

NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"


def value_of(shard: Manifest) -> str:
    """The value of the label whose nodes a SchedulingShard takes; empty: those without the label."""
    value = (shard.get("spec") or {}).get("partitionLabelValue")
    return value[:63] if isinstance(value, str) else ""


CAUSES: Final = {"consolidation": Cause.CONSOLIDATE, "reclaim": Cause.RECLAIM, "preempt": Cause.PREEMPT}
"""Actions that a SchedulingShard may disable, and what they would evict."""
NOT_MODELLED: Final = {
    "usageDBConfig": "time-based fair share",
    "minRuntime": "default minimum runtimes",
    "queueDepthPerAction": "a queue depth per action",
    "scenarioSearchBudgets": "budgets for the search of victims",
    "args": "arguments of its own",
}


def shard_settings(shard: Manifest) -> dict[str, list[str]]:
    """What a SchedulingShard changes of the default configuration: `off`, actions by name that are disabled and that
    the model can leave out; `other`, what the model does not have. Empty: nothing. Its text is a stranger's.
    """
    spec = shard.get("spec") or {}
    actions, plugins = (_tables(spec.get(name)) for name in ("actions", "plugins"))
    off = sorted(name for name in CAUSES if actions.get(name, {}).get("enabled") is False)
    other = [words for name, words in NOT_MODELLED.items() if spec.get(name)]
    if any("priority" in each for each in actions.values()) or set(actions) - {*CAUSES, "allocate", STALE_GANGS}:
        other.append("another order of actions")
    if actions.get("allocate", {}).get("enabled") is False:
        other.append("no allocation")
    if changed := sorted(name[:40] for name in plugins if name.isidentifier())[:MOST_PLUGINS]:
        other.append(f"other settings of the plugins {', '.join(changed)}")
    found = {"off": off, "other": other}
    return {name: reason for name, reason in found.items() if reason}


def _tables(value: object) -> dict[str, dict[str, Any]]:
    found = value if isinstance(value, dict) else {}
    return {name: each for name, each in found.items() if isinstance(name, str) and isinstance(each, dict)}


STALE_GANGS: Final = "stalegangeviction"
MOST_PLUGINS: Final = 20
SCHEDULER: Final = "kai-scheduler"
QUEUE_LABEL: Final = "kai.scheduler/queue"
POD_GROUP: Final = "pod-group-name"
JOB_MINIMUM: Final = "kai.scheduler/batch-min-member"
TOPOLOGY: Final = "kai.scheduler/topology"
REQUIRED_LEVEL: Final = "kai.scheduler/topology-required-placement"
UNLIMITED: Final = -1
SINGLY: Final = ("Deployment", "Workflow", "NIMServices", "LeaderWorkerSet")
"""Types of which its pod grouper makes a group per pod (a NIMService's are of a Deployment), or one per replica."""


class Kai:
    """KAI's dialect."""

    name: str = "kai"
    title: str = "KAI Scheduler"
    preemptibilities: tuple[str, ...] = ("preemptible", "semi-preemptible", "non-preemptible")
    traits: Traits = Traits(
        installed=KAI_QUEUE,
        simulated=True,
        queues_by_pool=True,
        weights="resources",
        counts_classes=True,
        shares_gpus=True,
        singly=SINGLY,
        placements=flavours_objects.PLACEMENTS,
        places_by_pool=True,
        minimum="own",
        settable_minimum=("Job",),
        event_sources={KAI_POD_GROUP: kai_status.pod_group_events},
        labelled_events=(KAI_POD_GROUP,),
        redirect_event=kai_status.redirected_event,
        shards=(KAI_SHARD, NODE_POOL_LABEL),
        topologies=KAI_TOPOLOGY,
        protects_minimum_runtime="queues",
    )

    def kinds(self) -> Sequence[Kind]:
        return (PRIORITY_CLASS, NAMESPACE, KAI_TOPOLOGY, KAI_QUEUE)

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """PriorityClasses, namespaces, a Topology per pool with levels, a Queue per department and project in each."""
        yield from flavours_objects.shared_objects(state)
        yield from (
            flavours_objects.topology(KAI_TOPOLOGY, _topology(each), each)
            for each in state.pools
            if each.topology_levels
        )
        yield from map(queue_manifest, state.departments)
        for project in state.projects:
            yield from map(queue_manifest, project.queues)

    def queue_name(self, owner: str, pool: str) -> str:
        """Deterministic name of a Queue, short enough for the label that names it on pods."""
        return flavours_objects.queue_name(owner, pool)

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's object with scheduler, queue, preemptibility and priority at every pod template.

        Of a Job KAI starts any pod it can, unless the minimum of the gang is set.
        """
        manifests = render_job(job, labels={QUEUE_LABEL: job.queue, **_shard(job.pool)}, scheduler=SCHEDULER)
        for each in manifests:
            each["metadata"]["annotations"] |= _domain(job)
            if (each["apiVersion"], each["kind"]) == ("batch/v1", "Job"):
                each["metadata"]["annotations"][JOB_MINIMUM] = str(job.min_member)
        return manifests

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """Evicted by which pod and how, or the reason a pod group waits with KAI's own numbers."""
        return kai_status.interpret(pod, events)

    def guarantees(self) -> Sequence[Guarantee]:
        return GUARANTEES

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """What this version makes of a preemptibility it does not know. Priority and preemptibility are two things."""
        if preemptibility != Preemptibility.SEMI_PREEMPTIBLE:
            return ()
        taken = as_scheduled(preemptibility, value)
        return (f"KAI 0.17 does not support semi-preemptible. By its priority, the whole workload is {taken}.",)


def queue_manifest(spec: QueueSpec) -> Manifest:
    """A scheduling.run.ai/v2 Queue. All three limits are always written: KAI reads an absent limit as zero."""
    body: dict[str, Any] = {
        "displayName": spec.display_name,
        "priority": flavours_objects.RANK_TO_PRIORITY[spec.rank],
        "resources": {
            "gpu": _share(spec, spec.deserved.gpu, spec.limit.gpu, None, unit=1000),
            "cpu": _share(spec, spec.deserved.cpu, spec.limit.cpu, spec.cpu_weight, unit=1),
            "memory": _share(spec, spec.deserved.memory, spec.limit.memory, spec.memory_weight, unit=1_000_000),
        },
    }
    if spec.parent:
        body["parentQueue"] = spec.parent
    if spec.min_runtime_minutes is not None:
        body["preemptMinRuntime"] = body["reclaimMinRuntime"] = go_duration(spec.min_runtime_minutes)
    labels = {flavours_objects.POOL: spec.pool.name, **_shard(spec.pool)}
    metadata = owned(spec.name, owner=spec.owner, generation=spec.generation, labels=labels)
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": body}


def _topology(pool: PoolSpec) -> str:
    return pool.name.lower()


def _domain(job: JobSpec) -> dict[str, str]:
    """All pods on nodes with one value of a label, which KAI's pod grouper reads at the object itself."""
    key = ((job.manifest.get("metadata") or {}).get("annotations") or {}).get(flavours_objects.TOPOLOGY_KEY)
    return {TOPOLOGY: _topology(job.pool), REQUIRED_LEVEL: key} if key and job.pool else {}


def _share(
    spec: QueueSpec, deserved: int | None, limit: int | None, weight: float | None, *, unit: int
) -> dict[str, int | float]:
    """`weight`: None is that of GPUs."""
    return {
        "quota": _number(deserved, unit),
        "limit": _number(limit, unit),
        "overQuotaWeight": plain_number(spec.over_quota_weight if weight is None else weight),
    }


def _number(amount: int | None, unit: int) -> int | float:
    """GPU devices, millicores or megabytes (10^6); -1 is unlimited."""
    if amount is None:
        return UNLIMITED
    return amount // unit if amount % unit == 0 else amount / unit


def _shard(pool: PoolSpec | None) -> dict[str, str]:
    """The label by which KAI's scheduler shards tell pools apart, where the pool is made by it."""
    return {NODE_POOL_LABEL: pool.label_value} if pool and pool.label_key == NODE_POOL_LABEL else {}


GUARANTEES: Final = (
    Guarantee(
        "priority_inside_project",
        "Priority applies only within the project",
        "yes",
        "Preemption is limited to one queue. Between queues only quota and fair share count: a lower priority may "
        "reclaim from another project's higher one. The preemption policy of a class is ignored.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods not managed by Rung are not evicted",
        "yes",
        "KAI evicts only pods of its own queues. Pods of other schedulers count as used capacity.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "Priorities with the policy Never do not evict",
        "no",
        "KAI ignores preemptionPolicy: the class preempts like any other.",
        "Give workloads that should not evict others a low priority or a separate project.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible workloads are never evicted",
        "yes",
        "The scheduler never evicts non-preemptible pod groups. Node failures and drains still end them. KAI 0.17 "
        "does not support semi-preemptible: such workloads are preemptible below priority 100 and non-preemptible "
        "from 100.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible workloads stay within the deserved quota",
        "yes",
        "Rejected with NonPreemptibleOverQuota at the queues of the project and the department.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota capacity is lent and reclaimed",
        "yes",
        "Surplus is shared by rank and weight and reclaimed from queues above their share. A queue may fall below "
        "its deserved quota when an evicted job is larger than its excess.",
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "yes",
        "The limit of the parent queue is checked for every job.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for surplus capacity",
        "yes",
        "Rank becomes the queue's priority: surplus goes to the higher rank first. Deserved quota is not affected.",
    ),
    Guarantee(
        "gang",
        "Distributed jobs start all pods together",
        "yes",
        "A pod group starts with its minimum members or waits, and the minimum is evicted together. KAI reads the "
        "minimum from the object: all pods of a PyTorchJob or JobSet, head and minReplicas of a Ray cluster, each "
        "group of a LeaderWorkerSet. For a Job, which KAI would start pod by pod, Rung sets it.",
    ),
    Guarantee(
        "topology",
        "A gang stays in one topology domain",
        "yes",
        "The pool's levels become a KAI Topology. All pods of a gang that requires a level run in one of its "
        "domains; otherwise the gang waits or evicts for it. Nodes without the labels of all levels are not used "
        "for such gangs. KAI does not find a level when all nodes with room are in one domain of a narrower "
        "level: in a pool with a single rack, no gang gets a block.",
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas apply per node pool",
        "yes",
        "Each pool has its own queues. KAI counts quotas and shares over all nodes of a scheduler, so per pool "
        "only if each pool is a SchedulingShard with the label kai.scheduler/node-pool.",
    ),
    Guarantee(
        "min_runtime",
        "Workloads are protected for their minimum runtime",
        "partly",
        "Preempt and reclaim do not evict a workload inside its minimum runtime, except pods above a gang's "
        "minimum. Against other departments only the rule of the victim's department counts. Consolidation may "
        "still move it.",
        "Set the rule on the department. Disable consolidation where a move would lose work.",
    ),
)
