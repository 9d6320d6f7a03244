"""KAI scheduler: a Queue per department and project in each node pool; preemptibility is a label. Pure.

KAI runs one scheduler for each SchedulingShard. It sees the nodes, queues and pod groups that carry one value of the
label `kai.scheduler/node-pool`, or those without the label, and shares out what it sees as one amount. Source: KAI
0.17, its operator and `conf.SchedulingNodePoolParams`.

Sources: KAI 0.17 (`scheduling.run.ai/v2` Queue) and the messages its scheduler was seen to write.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from clusters.flavours import objects as flavours_objects
from clusters.flavours.kai import status as kai_status
from clusters.flavours.objects import go_duration
from clusters.flavours.rendering import render_job
from clusters.ports.flavour import DesiredState, Guarantee, JobSpec, PodStatusReason, PoolSpec, QueueSpec, Traits
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.kinds import KAI_POD_GROUP, KAI_QUEUE, KAI_SHARD, KAI_TOPOLOGY, NAMESPACE, PRIORITY_CLASS
from clusters.ports.ownership import owned
from scheduling.model.preemptibility import THRESHOLD, Preemptibility

NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"


def value_of(shard: Manifest) -> str:
    """The value of the label whose nodes a SchedulingShard takes; empty: those without the label."""
    value = (shard.get("spec") or {}).get("partitionLabelValue")
    return value[:63] if isinstance(value, str) else ""


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
        counts_classes=True,
        shares_gpus=True,
        singly=SINGLY,
        placements=flavours_objects.PLACEMENTS,
        places_by_pool=True,
        minimum="own",
        told_minimum=("Job",),
        tells={KAI_POD_GROUP: kai_status.pod_group_events},
        told_by_label=(KAI_POD_GROUP,),
        retells=kai_status.redirected_event,
        shards=(KAI_SHARD, NODE_POOL_LABEL),
        topologies=KAI_TOPOLOGY,
        spares_young="queues",
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

        Of a Job KAI starts any pod it can, unless it is told how many belong together.
        """
        manifests = render_job(job, labels={QUEUE_LABEL: job.queue, **_shard(job.pool)}, scheduler=SCHEDULER)
        for each in manifests:
            each["metadata"]["annotations"] |= _domain(job)
            if (each["apiVersion"], each["kind"]) == ("batch/v1", "Job"):
                each["metadata"]["annotations"][JOB_MINIMUM] = str(job.min_member)
        return manifests

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """Evicted by whom and how, or the reason a pod group waits with KAI's own numbers."""
        return kai_status.interpret(pod, events)

    def semantics(self) -> Sequence[Guarantee]:
        return GUARANTEES

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """What this version makes of a preemptibility it does not know. Priority and preemptibility are two things."""
        if preemptibility != Preemptibility.SEMI_PREEMPTIBLE:
            return ()
        taken = Preemptibility.PREEMPTIBLE if value < THRESHOLD else Preemptibility.NON_PREEMPTIBLE
        return (f"KAI 0.17 does not know semi-preemptible: by its priority all of the workload is {taken}.",)


def queue_manifest(spec: QueueSpec) -> Manifest:
    """A scheduling.run.ai/v2 Queue. All three limits are always written: KAI reads an absent limit as zero."""
    body: dict[str, Any] = {
        "displayName": spec.display_name,
        "priority": flavours_objects.RANK_TO_PRIORITY[spec.rank],
        "resources": {
            "gpu": _share(spec, spec.deserved.gpu, spec.limit.gpu, unit=1000),
            "cpu": _share(spec, spec.deserved.cpu, spec.limit.cpu, unit=1),
            "memory": _share(spec, spec.deserved.memory, spec.limit.memory, unit=1_000_000),
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


def _share(spec: QueueSpec, deserved: int | None, limit: int | None, *, unit: int) -> dict[str, int | float]:
    return {
        "quota": _number(deserved, unit),
        "limit": _number(limit, unit),
        "overQuotaWeight": spec.over_quota_weight,
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
        "Priority acts only inside the project",
        "yes",
        "Preemption stays inside one queue. Between queues only quota and fair share count: a lower priority may "
        "reclaim from another project's higher one. The preemption policy of a class is ignored.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods that are none of Rung's are left alone",
        "yes",
        "KAI evicts only pods of its own queues; pods of other schedulers are room that is taken.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "An entry with the policy Never evicts nobody",
        "no",
        "KAI ignores preemptionPolicy: such a class preempts like any other.",
        "Keep what should evict nobody on a low priority, or in a project of its own.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible work is never evicted",
        "yes",
        "Non-preemptible pod groups are never victims of the scheduler. Node failures and drains still end them. "
        "KAI 0.17 does not know semi-preemptible: below a priority of 100 all of such work may be evicted, from 100 on "
        "none of it.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible work stays inside the deserved quota",
        "yes",
        "Refused with NonPreemptibleOverQuota at the project's and at the department's queue.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota use is lent out and reclaimed",
        "yes",
        "Surplus is shared by rank and weight and reclaimed from queues above their share. A queue may fall below its "
        "deserved quota when one of its jobs is larger than what it had too much.",
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "yes",
        "The parent queue's limit is checked with every job.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for the surplus",
        "yes",
        "The queue's priority: surplus goes to the higher rank first; guaranteed quota is not affected.",
    ),
    Guarantee(
        "gang",
        "A distributed job starts whole or not at all",
        "yes",
        "A pod group starts with its minimum members or waits as a whole, and its minimum goes as a whole. How many "
        "those are KAI takes from the object: all pods of a PyTorchJob or a JobSet, of a Ray cluster its head and "
        "minReplicas, of a LeaderWorkerSet each group of its size; of a Job, which it would start pod by pod, as many "
        "as Rung says.",
    ),
    Guarantee(
        "topology",
        "A gang keeps to one domain of close nodes",
        "yes",
        "The pool's levels become a Topology of KAI's; all pods of a gang that names a level run in one of its "
        "domains, else the gang waits, or evicts for it as for any room. Nodes without all labels of the levels "
        "take none of such gangs. A level is not found where all nodes with room are in one domain of a narrower one: "
        "in a pool of a single rack nobody gets a block.",
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas hold per node pool",
        "yes",
        "Each pool has its own queues. Quotas and shares are counted over all nodes of a scheduler: pool by pool only "
        "where each pool is a SchedulingShard of KAI, labelled kai.scheduler/node-pool.",
    ),
    Guarantee(
        "min_runtime",
        "Young work is left alone for its min guaranteed runtime",
        "partly",
        "Neither preempt nor reclaim takes a run before its time, but for pods above a gang's minimum. Towards other "
        "departments only the rule of the victim's department counts, not its project's. Consolidation may move it.",
        "Set the rule at the department; switch consolidation off where a move costs the run.",
    ),
)
