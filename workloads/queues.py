"""A workload's row as the job a cluster runs: its queue, its node pool and its name there."""

from clusters.flavours import flavour_for
from clusters.models import NodePool
from clusters.ports import JobSpec, PoolSpec
from clusters.sources import pool_spec
from scheduling.priority import Preemptibility
from tenants.min_runtimes import minutes_for
from workloads.intake import WorkloadSpec
from workloads.models import DesiredPhase, Workload


def object_name(workload: Workload) -> str:
    """`<name>-<first eight of the uuid>`: the same on every try, never another workload's."""
    return f"{workload.name[:50].rstrip('-.')}-{workload.pk.hex[:8]}"


def queue_of(workload: Workload) -> str:
    """The queue it competes in: its project's, in its node pool."""
    flavour = flavour_for(workload.project.cluster.flavour)
    return flavour.queue_name(workload.project.owner, workload.pool_name)


def job_spec(workload: Workload) -> JobSpec:
    """Everything a flavour needs to render it. Reads the pool's row, and the rules that its pods are to carry."""
    spec = WorkloadSpec.from_json(workload.spec)
    return JobSpec(
        id=str(workload.pk),
        type_name=workload.type.name,
        name=object_name(workload),
        namespace=workload.project.namespace,
        manifest=spec.manifest,
        priority_class=workload.priority.name,
        priority_value=workload.priority_value,
        preemptibility=workload.preemptibility,
        queue=queue_of(workload),
        pool=_pool(workload),
        min_member=spec.min_member,
        generation=workload.generation,
        suspended=workload.desired_phase == DesiredPhase.STOPPED,
        pod_security=workload.project.cluster.pod_security,
        min_runtime_minutes=_min_runtime(workload),
    )


def _min_runtime(workload: Workload) -> int:
    """Minutes for pods that are made now; 0 where queues say it, or nobody has to."""
    says = flavour_for(workload.project.cluster.flavour).traits.spares_young == "pods"
    return minutes_for(workload.project) if says and workload.preemptibility == Preemptibility.PREEMPTIBLE else 0


def _pool(workload: Workload) -> PoolSpec | None:
    pool = NodePool.objects.filter(cluster=workload.project.cluster_id, name=workload.pool_name).first()
    return pool_spec(pool) if pool else None
