"""The product on a real API server that it reaches only through a fault proxy."""

import os
import time
from dataclasses import replace
from functools import cached_property
from math import inf
from random import Random
from typing import Any

from django.test import Client, override_settings
from django.utils import timezone

from clusters.flavours.kube import CAP_QUOTA, DESERVED_QUOTA, LIMIT_QUOTA
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import pause, unpause
from clusters.ports.gateway import ClusterError, Manifest, TransientClusterError
from clusters.ports.objects import RESOURCE_QUOTA
from clusters.sync.models import Drift, DriftKind, SyncRun, SyncState
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Limit
from tenants.access.models import User
from tenants.organisation.models import Project
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services import quotas
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, UserFactory
from tests.faults.grants import Ledger
from tests.real.product import Product
from tests.support.faultproxy import FaultProxy
from tests.support.lab import LabCluster
from workloads.state.models import Workload

SEEDS = range(int(os.environ.get("RUNG_FAULT_SEEDS", "1")))
"""How often each fault is repeated, every time with another schedule. A failing number repeats itself."""
PATIENCE = 80.0
CAPPED = "low"
LOW = {"priority": "low", "preemptibility": "preemptible"}


class Rig(Product):
    """A registered cluster, its projects, and what stands between."""

    def __init__(self, lab: LabCluster, proxy: FaultProxy, mark: str, seed: int) -> None:
        super().__init__(replace(lab, server=proxy.server, ca=proxy.ca), mark)
        self.proxy, self.random = proxy, Random(seed)
        self.kubeconfig = lab.kubeconfig
        self.second: NodePool = NodePoolFactory(cluster=self.cluster, name="second")
        self.ledger = Ledger()
        self._granted: dict[int, dict[str, tuple[float, float]]] = {}
        self._caps: dict[int, int] = {}

    def project(self, name: str, *, deserved: int = 8, limit: int | None = None, **fields: Any) -> Project:
        """One with its first quota."""
        found = super().project(name, deserved=deserved, limit=limit, **fields)
        self._granted[found.pk] = {self.pool.name: (deserved, inf if limit is None else limit)}
        self._granted[found.pk][self.second.name] = (0, inf)
        self._note(found)
        return found

    def projects(self, count: int) -> list[Project]:
        """Some projects with quotas as the seed says."""
        return [self.grant(self.project(f"p{number}")) for number in range(count)]

    def grant(self, project: Project, gpus: int | None = None) -> Project:
        """Other quotas in both pools and another cap, through the services and one after the other."""
        most = self.random.randint(0, 8) if gpus is None else gpus
        for pool, deserved in self.random.sample([(self.pool, most), (self.second, self.random.randint(0, 4))], 2):
            self._grant_in(pool, project, deserved, deserved + self.random.randint(0, 2))
        self._caps[project.pk] = self.random.randint(1, 8)
        self._note(project)
        cap = self._caps[project.pk] * GPU
        quotas.set_priority_cap(project=project, priority=CAPPED, gpu_limit=cap, actor=SYSTEM, reason="a test")
        return project

    def _grant_in(self, pool: NodePool, project: Project, deserved: int, limit: int) -> None:
        self._granted[project.pk][pool.name] = (deserved, limit)
        self._note(project)
        given, bound = (Limit(gpu=gpus * GPU, cpu=None, memory=None) for gpus in (deserved, limit))
        values = QuotaValues(deserved=given, limit=bound, over_quota_weight=1)
        quotas.set_project_quota(project=project, node_pool=pool, values=values, actor=SYSTEM, reason="a test")

    def _note(self, project: Project) -> None:
        pools = self._granted[project.pk].values()
        amounts = {DESERVED_QUOTA: sum(each[0] for each in pools), LIMIT_QUOTA: sum(each[1] for each in pools)}
        if project.pk in self._caps:
            amounts[CAP_QUOTA + CAPPED] = self._caps[project.pk]
        self.ledger.note(project.namespace, amounts)

    def reconcile(self) -> None:
        """Everything is in the cluster as it was granted last.

        As a worker, try again where the server took too long: one that has just started may, by the limits set here.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                super().reconcile()
                break
            except ClusterError as error:
                if not error.transient or time.monotonic() > deadline:
                    raise
        self.ledger.rest()

    def attempt(self) -> SyncRun | ClusterError:
        """What a worker does for a cluster that is due, whole."""
        now = timezone.now()
        Cluster.objects.filter(pk=self.cluster.pk).update(sync_due_at=now, resync_due_at=now)
        try:
            return reconcile(Cluster.objects.get(pk=self.cluster.pk))
        except ClusterError as error:
            return error

    def resync(self) -> SyncRun:
        """One whole attempt. A watch broken before may end late and keep the cluster from being asked a moment."""
        deadline = time.monotonic() + PATIENCE
        while isinstance(said := self.attempt(), ClusterError):
            assert said.transient, said
            assert time.monotonic() < deadline, said
            time.sleep(min(said.retry_after or 0.2, 3))
        return said

    def look_at_rest(self) -> None:
        """A look when nothing is broken any more: what was may end late, and then it is tried a moment later."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                return self.look()
            except TransientClusterError as error:
                time.sleep(min(error.retry_after or 0.2, 3))
        return self.look()

    def settle(self) -> None:
        """Nothing is broken any more: sweeps and workers go on until everything is done."""
        self.proxy.heal()
        deadline = time.monotonic() + PATIENCE
        while not self.is_done(said := self.attempt()):
            assert time.monotonic() < deadline, said
            time.sleep(min(said.retry_after or 0.2, 3) if isinstance(said, ClusterError) else 0.2)
        self.ledger.rest()
        self.work()

    def until_stopped(self) -> None:
        """Sweeps go on until no work is sent to the cluster any more."""
        deadline = time.monotonic() + PATIENCE
        while not Cluster.objects.get(pk=self.cluster.pk).breaker_reason:
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

    def troubles(self) -> set[str]:
        """What an admin is shown of the cluster, on its page and in the list, and the portal's own health."""
        admin = Client()
        admin.force_login(self.viewer)
        page = admin.get(f"/clusters/{self.cluster.name}/").content.decode()
        listed = admin.get("/clusters/").content.decode()
        found = {"failing": "sync runs failed" in page, "failed": ">Failed<" in listed}
        found |= {"paused": ">Paused<" in listed, "stale": 'class="age age-fresh"' not in page}
        found |= {
            "does not accept work": ">Not accepting work<" in listed and "has sent no workloads to this cluster" in page
        }
        with override_settings(RUNG_METRICS_TOKEN="only-for-tests"):
            health = admin.get("/readyz", headers={"Authorization": "Bearer only-for-tests"}).json()
        for trouble, part in (("waiting", "missing"), ("degraded", "degraded")):
            found[trouble] = f"cluster:{self.cluster.name}" in health[part]
        return {name for name, is_so in found.items() if is_so}

    @cached_property
    def viewer(self) -> User:
        """A platform admin."""
        admin: User = UserFactory.create(is_superuser=True, is_staff=True)
        return admin

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
