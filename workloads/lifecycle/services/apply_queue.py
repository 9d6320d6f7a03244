"""Whose workload is applied next: turns by cluster, and within a turn one workload per project after the other.

A project that submits ten thousand workloads delays another project by the one that is being applied, not by the rest;
and it never has the last worker that its cluster may hold, where there are several.
"""

import time
from collections import Counter
from collections.abc import Collection
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from clusters.connection.models import WorkerSlot
from clusters.connection.services import work_limits
from clusters.connection.services.work_limits import Admission
from clusters.inventory.models import Cluster, ClusterState
from tenants.organisation.models import Project
from workloads.lifecycle.services.apply import apply
from workloads.state.models import Workload
from workloads.state.services import notify_apply

TURN_SECONDS: Final = 4.0
SPARE_SLOTS: Final = 1
"""Slots of a cluster that are left to its reconcile and its observation."""


def sweep() -> int:
    """Notify a worker for each cluster with due workloads: every message may be lost. Answers how many clusters."""
    due = Workload.objects.due().filter(project__cluster=OuterRef("pk"))
    clusters = Cluster.objects.filter(Exists(due), state=ClusterState.ACTIVE).values_list("pk", flat=True)
    for cluster_id in clusters:
        notify_apply(cluster_id)
    return len(clusters)


def take_turn(cluster_id: UUID | str) -> int:
    """Apply the due workloads of one cluster for a few seconds; answers how many rows were tried.

    1. leave the cluster alone while it is paused, its circuit breaker is open, or its share of the workers is taken
    2. apply one workload of each project in turn, beginning behind the project that was served last
    3. notify another worker if some are still due: also those that came while this turn had the last slot
    """
    cluster = Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first()
    if cluster is None or not _projects_with_due(cluster).exists():
        return 0
    with work_limits.acquire_slot(cluster, spare=SPARE_SLOTS) as slot:
        if slot is None or (admitted := work_limits.admission(cluster)) is Admission.NONE:
            return 0
        tried = _serve(cluster, slot, most=1 if admitted is Admission.ONE else None)
    if _projects_with_due(cluster).exists():
        notify_apply(cluster.pk)
    return tried


def drain() -> int:
    """Apply everything that is due in this process, as when the example organisation is loaded; answers how many."""
    tried = 0
    for cluster_id in Cluster.objects.values_list("pk", flat=True):
        while some := take_turn(cluster_id):
            tried += some
    return tried


def _serve(cluster: Cluster, slot: WorkerSlot, *, most: int | None) -> int:
    until, tried = time.monotonic() + TURN_SECONDS, 0
    while (following := _next_due(cluster, slot)) is not None:
        tried += apply(following)
        if tried == most or time.monotonic() > until:
            break
    return tried


def _next_due(cluster: Cluster, slot: WorkerSlot) -> UUID | None:
    """Return the workload that has been due longest of the next project that has any, and move the cursor there."""
    keys = _projects_with_due(cluster, slot).order_by("pk").values_list("pk", flat=True)
    project = keys.filter(pk__gt=slot.cursor).first() or (keys.first() if slot.cursor else None)
    if project is None:
        return None
    work_limits.record_holder(slot, project)
    return Workload.objects.due().filter(project=project).order_by("due_at").values_list("pk", flat=True).first()


def _projects_with_due(cluster: Cluster, slot: WorkerSlot | None = None) -> QuerySet[Project]:
    """Select the projects that another worker may serve now.

    None once the cluster was paused, or was found in trouble, after `cluster` was read.
    """
    same = {"cluster__state": ClusterState.ACTIVE, "cluster__breaker_failures__lte": cluster.breaker_failures}
    due = Workload.objects.due().filter(project=OuterRef("pk"))
    projects = Project.objects.filter(Exists(due), cluster=cluster, **same)
    return projects.exclude(pk__in=_saturated(cluster, slot))


def _saturated(cluster: Cluster, slot: WorkerSlot | None) -> Collection[int]:
    """Return the projects that have as many workers as one may have: all but one that may apply in the cluster."""
    most = max(1, settings.RUNG_CLUSTER_WORKERS - SPARE_SLOTS - 1)
    served = Counter(work_limits.holders_elsewhere(cluster, slot))
    return [project for project, count in served.items() if count >= most]
