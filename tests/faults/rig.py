"""The product on a real API server that it reaches only through a fault proxy."""

import os
import time
from collections import defaultdict
from dataclasses import replace
from random import Random

from django.utils import timezone

from clusters.errors import ClusterError
from clusters.kinds_core import RESOURCE_QUOTA
from clusters.models import Cluster, ClusterState, Drift, DriftKind, SyncRun, SyncState
from clusters.ports import Manifest
from clusters.services.estate import pause, unpause
from clusters.services.reconcile import reconcile
from portal.core.actors import SYSTEM
from scheduling.resources import Limit
from tenants.models import Project
from tenants.quota_values import QuotaValues
from tenants.services import quotas
from tests.real.product import Product
from tests.support.faultproxy import FaultProxy
from tests.support.lab import LabCluster
from workloads.models import Workload

SEEDS = range(int(os.environ.get("RUNG_FAULT_SEEDS", "2")))
"""How often each fault is repeated, every time with another schedule. A failing number repeats itself."""
PATIENCE = 40.0
LOW = {"priority": "low", "preemptibility": "preemptible"}


class Rig(Product):
    """A registered cluster, its projects, and what stands between."""

    def __init__(self, lab: LabCluster, proxy: FaultProxy, mark: str, seed: int) -> None:
        super().__init__(replace(lab, server=proxy.server, ca=proxy.ca), mark)
        self.proxy, self.random = proxy, Random(seed)
        self.kubeconfig = lab.kubeconfig
        self.granted: dict[int, int] = {}
        self.ever_granted: dict[int, set[int]] = defaultdict(set)

    def projects(self, count: int) -> list[Project]:
        """Some projects with quotas as the seed says."""
        return [self.grant(self.project(f"p{number}")) for number in range(count)]

    def grant(self, project: Project, gpus: int | None = None) -> Project:
        """Another quota, through the service."""
        self.granted[project.pk] = self.random.randint(0, 8) if gpus is None else gpus
        self.ever_granted[project.pk].add(self.granted[project.pk])
        given = Limit(gpu=self.granted[project.pk] * 1000, cpu=None, memory=None)
        values = QuotaValues(deserved=given, limit=given, over_quota_weight=1)
        quotas.set_project_quota(project=project, node_pool=self.pool, values=values, actor=SYSTEM, reason="a test")
        return project

    def attempt(self) -> SyncRun | ClusterError:
        """What a worker does for a cluster that is due, whole."""
        now = timezone.now()
        Cluster.objects.filter(pk=self.cluster.pk).update(sync_due_at=now, resync_due_at=now)
        try:
            return reconcile(Cluster.objects.get(pk=self.cluster.pk))
        except ClusterError as error:
            return error

    def settle(self) -> None:
        """Nothing is broken any more: sweeps and workers go on until everything is done."""
        self.proxy.heal()
        deadline = time.monotonic() + PATIENCE
        while not self.is_done(said := self.attempt()):
            assert time.monotonic() < deadline, said
            time.sleep(min(said.retry_after or 0.2, 3) if isinstance(said, ClusterError) else 0.2)
        self.work()

    def until_paused(self) -> None:
        """Sweeps go on until the cluster is let alone."""
        deadline = time.monotonic() + PATIENCE
        while Cluster.objects.get(pk=self.cluster.pk).state == ClusterState.ACTIVE:
            said = self.attempt()
            assert time.monotonic() < deadline, said

    def adopt(self) -> None:
        """An admin says that whoever answers now is the cluster."""
        cluster = Cluster.objects.get(pk=self.cluster.pk)
        pause(cluster=cluster, reason="a test", actor=SYSTEM)
        unpause(cluster=cluster, actor=SYSTEM, adopt=True)

    def quotas(self, namespace: str) -> list[Manifest]:
        """What the API server enforces there."""
        return self.admin.list(RESOURCE_QUOTA, namespace=namespace)

    def conflicts(self) -> list[str]:
        """Names of objects that an admin is shown as somebody else's."""
        found = Drift.objects.filter(cluster=self.cluster, category=DriftKind.CONFLICT)
        return list(found.values_list("name", flat=True))

    def work(self) -> None:
        """Workers bring every due workload about."""
        due = Workload.objects.filter(project__cluster=self.cluster, due_at__isnull=False, deleted_at__isnull=True)
        for workload in due:
            self.apply(workload)

    def end(self) -> None:
        """Leave the API server as it was found."""
        self.proxy.heal()
        super().end()

    @staticmethod
    def is_done(said: SyncRun | ClusterError) -> bool:
        return isinstance(said, SyncRun) and said.state == SyncState.SUCCEEDED
