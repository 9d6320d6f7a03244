"""A workload's objects on its cluster, its pods in numbers and over time, and totals of a list of workloads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import NodePool
from clusters.ports.flavour import (
    GANG_INCOMPLETE,
    WAITS_FOR_VICTIMS,
    JobSpec,
    PodStatusReason,
    PoolSpec,
    SchedulerFlavour,
)
from clusters.ports.gateway import Manifest
from clusters.ports.objects import hash_of, kind_of, stamped
from clusters.ports.pod_templates import OnChange
from clusters.ports.workload_kinds import kind_for
from clusters.sync.rules.changes import AT_ONCE, scheduling_changes, with_pods_hash, written_scheduling
from clusters.sync.rules.diff import Changes
from clusters.sync.selectors import pool_spec
from clusters.sync.services.scheduler_migration import former_flavour_of
from clusters.watch.models import ObservedObject, ObservedPod
from clusters.watch.rules import JobStatus
from clusters.watch.selectors import Metric, SeriesPoint, TimeWindow
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from tenants.access.selectors import visible_projects
from tenants.organisation.models import Project
from tenants.quotas.selectors.runtime_rules import minutes_for
from workloads.dictionary.rules.resolution import Effective
from workloads.dictionary.selectors import current_rows
from workloads.intake import WorkloadSpec
from workloads.policies.services import type_of
from workloads.state.models import DesiredPhase, Workload
from workloads.state.rules import ENDED, HOLDING, PodCounts
from workloads.state.selectors.workloads import object_name, workload_ids

NO_JOB = JobStatus("")


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """What its pods hold now, where, and since when."""

    gpu_milli: int
    running_pods: int
    pool: str
    started_at: datetime | None


def summarize_pods(pods: Iterable[ObservedPod], *, wanted: int, min_member: int, job: JobStatus = NO_JOB) -> PodCounts:
    """Count the pods by what they do."""
    counts = dict.fromkeys(("running", "starting", "waiting", "succeeded", "leaving"), 0)
    for pod in pods:
        if doing := _doing(pod):
            counts[doing] += 1
    return PodCounts(wanted=wanted, min_member=min_member, job=job.phase, **counts)


def _doing(pod: ObservedPod) -> str:
    if pod.gone_at is not None or pod.phase == "Failed":
        return ""
    if pod.phase == "Succeeded":
        return "succeeded"
    if pod.deletion_at is not None:
        return "leaving"
    if pod.phase == "Running":
        return "running"
    return "starting" if pod.node_name else "waiting"


def allocation_of(pods: Sequence[ObservedPod]) -> PodAllocation:
    """Pods on a node hold it until they are gone, also on their way out."""
    held = [pod for pod in pods if pod.gone_at is None and pod.node_name and pod.phase in {"Pending", "Running"}]
    running = [pod for pod in held if pod.phase == "Running" and pod.deletion_at is None]
    starts = [pod.started_at for pod in running if pod.started_at]
    return PodAllocation(
        gpu_milli=sum(pod.gpu_milli for pod in held),
        running_pods=len(running),
        pool=held[0].pool_name if held else "",
        started_at=min(starts, default=None),
    )


def pod_status_reason(
    pods: Sequence[ObservedPod], readings: Mapping[str, PodStatusReason], flavour: SchedulerFlavour
) -> PodStatusReason:
    """Why the first of its waiting pods waits, in the scheduler's words; else why a placed one does not start.

    Of a gang the first that does not just wait for the others. readings: of the pods that have changed.
    """
    for doing in ("waiting", "starting"):
        found = [readings.get(pod.uid) or _stored_reading(pod, flavour) for pod in pods if _doing(pod) == doing]
        if found:
            return next((each for each in found if each.reason not in {GANG_INCOMPLETE, WAITS_FOR_VICTIMS}), found[0])
    return PodStatusReason()


def _stored_reading(pod: ObservedPod, flavour: SchedulerFlavour) -> PodStatusReason:
    """The scheduler's words were stored without the numbers in them: they are read again."""
    condition = {"type": "PodScheduled", "status": "False", "reason": pod.reason, "message": pod.message}
    found = flavour.interpret({"status": {"conditions": [condition]}}) if pod.reason else PodStatusReason()
    return found if found.reason == pod.reason else PodStatusReason(pod.reason, pod.message)


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
    """Minutes for pods that are made now; 0 where queues carry it, or none applies."""
    says = flavour_for(workload.project.cluster.flavour).traits.protects_minimum_runtime == "pods"
    return minutes_for(workload.project) if says and workload.preemptibility == Preemptibility.PREEMPTIBLE else 0


def _pool(workload: Workload) -> PoolSpec | None:
    pool = NodePool.objects.filter(cluster=workload.project.cluster_id, name=workload.pool_name).first()
    return pool_spec(pool) if pool else None


NO_ID: Final = UUID(int=0)


def expected_objects(*, spec: WorkloadSpec, effective: Effective, pool: str, project: Project) -> Sequence[Manifest]:
    """What a submission would apply to its cluster. Zeros are in the place of the id, which a submission chooses."""
    name = f"{spec.name[:57].rstrip('-')}-{NO_ID.hex[:5]}" if spec.generate_name else spec.name
    workload = Workload(
        id=NO_ID,
        name=name,
        project=project,
        type=type_of(spec),
        spec=spec.named(name).as_json(),
        priority=current_rows()[effective.priority.name],
        priority_value=effective.priority.value,
        preemptibility=str(effective.preemptibility),
        pool_name=pool,
    )
    return flavour_for(project.cluster.flavour).render(job_spec(workload))


Held = Literal["same", "changed", "other", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class AppliedObjects:
    """`former`: title of the scheduler that the cluster had before, for which they were made; empty: the present one.

    held: what was seen of its own object: written as it is here and still so, changed there since, written otherwise,
    not there; unknown where nothing was looked at since, or its kind is not compared (a bare Pod, which its cluster
    never lets change). changes: queue, priority, scheduler and suspend, where the cluster holds another.
    """

    manifests: Sequence[Manifest]
    former: str
    held: Held
    changes: Changes
    seen_at: datetime | None


def applied_objects(workload: Workload) -> AppliedObjects:
    """As they are rendered now, by the scheduler that they were made for."""
    cluster, job = workload.project.cluster, job_spec(workload)
    former = None if job.suspended else former_flavour_of(cluster, workload.pk)
    manifests = (former or flavour_for(cluster.flavour)).render(job)
    held, changes = _compare(workload, manifests[-1]) if manifests else ("unknown", ())
    return AppliedObjects(manifests, former.title if former else "", held, changes, cluster.observed_at)


def _compare(workload: Workload, manifest: Manifest) -> tuple[Held, Changes]:
    cluster, kind = workload.project.cluster, kind_of(manifest)
    if not workload.applied_generation or cluster.observed_at is None or workload.phase in ENDED or not kind.group:
        return "unknown", ()
    rows = ObservedObject.objects.filter(cluster=cluster, owner_id=str(workload.pk), kind=kind.key)
    seen = rows.filter(name=manifest["metadata"]["name"]).first()
    if seen is None:
        return "missing", ()
    changes = scheduling_changes(seen.scheduling, written_scheduling(manifest, manifest)) if seen.scheduling else ()
    if seen.applied_hash != hash_of(stamped(with_pods_hash(manifest))):
        return "other", changes
    return ("changed" if changes else "same"), changes


WORDS: Final[Mapping[OnChange, str]] = {
    OnChange.RECREATE: (
        "Takes effect when the workload restarts: after an eviction, or when you stop and resume it. Until then "
        "its pods keep the old value."
    ),
    OnChange.RESTART: (
        "Takes effect when no pod is running, because a change would restart all pods at once. To apply it now, "
        "stop and resume the workload."
    ),
    OnChange.NEW_PODS: "Existing pods keep the old value; new pods get the new one.",
    OnChange.NEXT_RUN: "The current run keeps the old value; the next run gets the new one.",
}


NO_POD_RUNS: Final = "No pod of it runs, so the change takes effect immediately and may evict other workloads."
WHEN_RESUMED: Final = "Takes effect when you resume the workload."
QUEUED: Final = "{title} counts the new value immediately. The kube-scheduler uses the value of the pods. "


def on_change_of(workload: Workload) -> OnChange:
    """What its kind does when its pods are to be described otherwise."""
    kind = kind_for(str(workload.spec.get("api_version")), str(workload.spec.get("kind")))
    return kind.on_change if kind else OnChange.RECREATE


def priority_takes_effect_now(workload: Workload) -> bool:
    """Whether another priority reaches its cluster at once: it is meant to run, and no pod keeps the old value.

    Pods that have not started are recreated, but where its kind lets existing pods stay.
    """
    if workload.desired_phase != DesiredPhase.RUNNING or workload.phase in HOLDING:
        return False
    pods = ObservedPod.objects.live().filter(owner_id=str(workload.pk), deletion_at=None)
    return not (pods if on_change_of(workload) in AT_ONCE else pods.exclude(started_at=None)).exists()


def priority_change_effect(workload: Workload) -> str:
    """Some sentences for the page, before the priority is changed."""
    if workload.desired_phase == DesiredPhase.STOPPED:
        return WHEN_RESUMED
    if priority_takes_effect_now(workload):
        return NO_POD_RUNS
    flavour, words = flavour_for(workload.project.cluster.flavour), WORDS[on_change_of(workload)]
    return QUEUED.format(title=flavour.title) + words if flavour.traits.queues_jobs else words


def warnings_for(workload: Workload) -> Sequence[str]:
    """What its cluster's scheduler will not keep for this priority and preemptibility."""
    flavour = flavour_for(workload.project.cluster.flavour)
    return flavour.cautions(value=workload.priority_value, preemptibility=workload.preemptibility)


Home = tuple[UUID, str]
"""A cluster's id and a namespace in it: where a project lives."""


def visible_pods(actor: Actor) -> QuerySet[ObservedPod]:
    """Pods of workloads, live and gone, in the namespaces of the actor's projects."""
    homes = visible_projects(actor).filter(cluster=OuterRef("cluster"), namespace=OuterRef("namespace"))
    return ObservedPod.objects.exclude(owner_id="").filter(Exists(homes))


def homes_of(pods: Iterable[ObservedPod]) -> Mapping[Home, Project]:
    """The projects in whose namespaces these pods are, in one query."""
    homes = {(pod.cluster_id, pod.namespace) for pod in pods}
    wanted = Q(pk__in=[])
    for cluster in {cluster for cluster, _ in homes}:
        wanted |= Q(cluster=cluster, namespace__in=[space for at, space in homes if at == cluster])
    return {(project.cluster_id, project.namespace): project for project in Project.objects.filter(wanted)}


def owners_of(pods: Iterable[ObservedPod]) -> Mapping[str, Workload]:
    """Workloads by the owner id on their pods, in one query."""
    ids = workload_ids({pod.owner_id for pod in pods})
    rows = Workload.objects.filter(pk__in=ids).only("name", "node_pools", "spec")
    return {str(row.pk): row for row in rows}


PODS: Final = "pods"
RUNNING: Final = "running"
CPU_ASKED: Final = "cpu_asked"
MEMORY_ASKED: Final = "memory_asked"
HELD: Final = Metric.GPU_HELD.value
FIGURES: Final = (PODS, RUNNING, HELD, CPU_ASKED, MEMORY_ASKED)
TIMES: Final = ("created_at", "started_at", "ended_at", "gone_at", "phase", "gpu_milli", "cpu_milli", "memory_bytes")


def known_since(workload: Workload, now: datetime) -> datetime:
    """From when on nothing of it is missing: pods of ended workloads are forgotten some days after they have gone."""
    if workload.deleted_at is None and workload.phase not in ENDED:
        return workload.created_at
    return max(workload.created_at, now - timedelta(days=settings.RUNG_KEEP_PODS_DAYS))


def points(pods: QuerySet[ObservedPod], window: TimeWindow, *, since: datetime, now: datetime) -> list[SeriesPoint]:
    """How it stood at the end of each part of the window, from `since` until now. Each pod is read once."""
    width = (window.end - window.start) / window.parts if window.parts else timedelta()
    parts = (window.start + width * (number + 1) for number in range(window.parts))
    moments = [at for at in parts if since <= at <= now]
    if not moments:
        return []
    steps: list[Counter[str]] = [Counter() for _at in (*moments, None)]
    for pod in pods.filter(created_at__lte=moments[-1]).exclude(gone_at__lte=moments[0]).iterator():
        for begin, end, figures in _spans(pod):
            first, last = bisect_left(moments, begin), len(moments) if end is None else bisect_left(moments, end)
            if first < last:
                steps[first].update(figures)
                steps[last].subtract(figures)
    return [
        SeriesPoint(at, {name: found[name] for name in FIGURES})
        for at, found in zip(moments, _sums(steps), strict=False)
    ]


def _spans(pod: ObservedPod) -> Iterator[tuple[datetime, datetime | None, Mapping[str, int]]]:
    """What it adds to the figures, from when until when. Its end may be seen before or after its going."""
    over = min((at for at in (pod.ended_at, pod.gone_at) if at is not None), default=None)
    yield pod.created_at, pod.gone_at, {PODS: 1}
    yield pod.created_at, over, {CPU_ASKED: pod.cpu_milli, MEMORY_ASKED: pod.memory_bytes}
    if pod.started_at is not None:
        held = {HELD: pod.gpu_milli, RUNNING: int(pod.phase != "Pending")}
        yield max(pod.created_at, pod.started_at), over, held


def _sums(steps: Iterable[Counter[str]]) -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    for step in steps:
        counts.update(step)
        yield counts


MOST_COUNTED: Final = 1000


@dataclass(frozen=True, slots=True)
class WorkloadTotals:
    """Number of workloads and their GPUs in thousandths; more: there are others, which are not counted."""

    workloads: int
    requested: int
    held: int
    more: bool


def totals_of(rows: QuerySet[Workload]) -> WorkloadTotals:
    """Of at most the first thousand rows, so that the cost does not grow with them."""
    part = rows.order_by().values("gpu_milli", "allocated_gpu_milli")[: MOST_COUNTED + 1]
    found = part.aggregate(count=Count("*"), requested=Sum("gpu_milli"), held=Sum("allocated_gpu_milli"))
    count = found["count"]
    return WorkloadTotals(
        min(count, MOST_COUNTED), found["requested"] or 0, found["held"] or 0, more=count > MOST_COUNTED
    )
