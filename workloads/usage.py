"""What projects use now, for the quotas of the tenants' side: held by observed pods, asked for by live workloads."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from django.db.models import Count, QuerySet, Sum

from clusters.models import ObservedPod
from scheduling.priority import Preemptibility
from scheduling.resources import Resources
from tenants.models import Project
from tenants.usage import HeldWork, Usage, UsageProvider
from workloads.lifecycle import LIVE
from workloads.models import Category, DesiredPhase, Priority, Workload

Key = tuple[int, str]
AMOUNTS: Final = {"gpu": Sum("gpu_milli"), "cpu": Sum("cpu_milli"), "memory": Sum("memory_bytes")}


def live(project_ids: Collection[int]) -> QuerySet[Workload]:
    """Workloads of these projects that are neither finished nor deleted."""
    return Workload.objects.filter(project__in=project_ids, deleted_at__isnull=True, phase__in=LIVE)


def usage(project_ids: Collection[int]) -> Mapping[Key, Usage]:
    """Per (project id, pool name): pods on nodes, the never-evicted part of them, and what live workloads ask for."""
    found: dict[Key, Usage] = {}
    for key, amount, preemptible in _held(project_ids):
        fixed = Resources() if preemptible else amount
        found[key] = found.get(key, Usage()) + Usage(allocated=amount, non_preemptible=fixed)
    for key, amount in _asked(project_ids):
        found[key] = found.get(key, Usage()) + Usage(requested=amount)
    return found


def _held(project_ids: Collection[int]) -> Iterable[tuple[Key, Resources, bool]]:
    projects = {
        (cluster, namespace): pk
        for pk, cluster, namespace in Project.objects.filter(pk__in=project_ids).values_list(
            "pk", "cluster", "namespace"
        )
    }
    pods = ObservedPod.objects.holding().filter(
        cluster__in={cluster for cluster, _namespace in projects},
        namespace__in={namespace for _cluster, namespace in projects},
    )
    for row in pods.values("cluster", "namespace", "pool_name", "preemptible").annotate(**AMOUNTS).order_by():
        project = projects.get((row["cluster"], row["namespace"]))
        if project is not None:
            yield (project, row["pool_name"]), _amount(row), row["preemptible"]


def _asked(project_ids: Collection[int]) -> Iterable[tuple[Key, Resources]]:
    rows = live(project_ids).filter(desired_phase=DesiredPhase.RUNNING)
    for row in rows.values("project", "pool_name").annotate(**AMOUNTS).order_by():
        yield (row["project"], row["pool_name"]), _amount(row)


def _amount(row: Mapping[str, Any]) -> Resources:
    return Resources(row["gpu"] or 0, row["cpu"] or 0, row["memory"] or 0)


def preemptible_work(project_ids: Collection[int], pool: str) -> list[HeldWork]:
    """Running preemptible workloads of these projects in a pool: lowest priority first, of equals the youngest."""
    rows = live(project_ids).filter(pool_name=pool, running_pods__gt=0)
    rows = rows.exclude(preemptibility=Preemptibility.NON_PREEMPTIBLE).select_related("project", "priority")
    return [
        HeldWork(
            f"{row.project.name}/{row.name}, {row.priority.name} {row.priority_value}",
            Resources(row.gpu_milli, row.cpu_milli, row.memory_bytes),
        )
        for row in rows.order_by("priority_value", "-started_at")
    ]


def live_workloads(project_ids: Collection[int]) -> Mapping[int, int]:
    """How many live workloads each of these projects has."""
    counted = live(project_ids).values("project").annotate(number=Count("pk")).order_by()
    return {row["project"]: row["number"] for row in counted}


def priority_names() -> frozenset[str]:
    """Names that may be named: aliases too, retired ones not."""
    return frozenset(Priority.objects.filter(retired_at__isnull=True).values_list("name", flat=True))


def category_names() -> frozenset[str]:
    """Names of the categories."""
    return frozenset(Category.objects.values_list("name", flat=True))


PROVIDER: Final = UsageProvider(
    usage=usage,
    live_workloads=live_workloads,
    priority_names=priority_names,
    category_names=category_names,
    preemptible_work=preemptible_work,
)
