"""Made histories: what the observer and the services would have stored."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from tenants.organisation.models import Project
from tests.factories.clusters import NodeFactory
from tests.factories.tenants import GPU
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.dictionary.models import Priority
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload


class History:
    """A watched cluster of two nodes, and what has happened on it until now."""

    def __init__(self, pool: NodePool) -> None:
        self.now = timezone.now()
        self.pool = pool
        pool.nodes.all().delete()
        for name in ("node-a", "node-b", "node-c"):
            NodeFactory(cluster=pool.cluster, pool=pool, name=name)
        self.observe(self.now)

    @property
    def cluster(self) -> Cluster:
        """As it is stored now."""
        return Cluster.objects.get(pk=self.pool.cluster_id)

    def observe(self, at: datetime) -> None:
        Cluster.objects.filter(pk=self.pool.cluster_id).update(observed_at=at)

    def ago(self, **span: float) -> datetime:
        return self.now - timedelta(**span)

    def waiting(self, project: Project, name: str, *, gpus: int = 8, **facts: Any) -> Workload:
        """It waits for 20 min for room."""
        at = facts.pop("since", self.ago(minutes=20))
        values = {"phase_reason": "NoRoom", "phase_at": at, "created_at": at, **self._priority(facts)}
        row: Workload = WorkloadFactory(project=project, name=name, gpu_milli=gpus * GPU, **(values | facts))
        return row

    def running(self, project: Project, name: str, *, gpus: int = 8, node: str = "node-a", **facts: Any) -> Workload:
        """It started five minutes ago on one node."""
        at = facts.pop("since", self.ago(minutes=5))
        amounts = {"gpu_milli": gpus * GPU, "allocated_gpu_milli": gpus * GPU}
        values = {"phase": Phase.RUNNING, "phase_at": at, "started_at": at, "created_at": at, **self._priority(facts)}
        row: Workload = WorkloadFactory(project=project, name=name, **(amounts | values | facts))
        ObservedPodFactory(workload=row, node_name=node, gpu_milli=gpus * GPU, started_at=at)
        return row

    def evicted(self, victim: Workload, preemptor: Workload, **facts: Any) -> PreemptionRecord:
        """It lost a run of six hours half an hour ago."""
        values = {
            "at": self.ago(minutes=30),
            "cause": "preempt",
            "ran_seconds": 6 * 3600,
            "gpu_milli": victim.gpu_milli,
            "lost_gpu_seconds": 6 * 3600 * victim.gpu_milli // 1000,
            "preemptor_name": preemptor.name,
        }
        names = {"cluster": self.cluster, "pod_uid": str(uuid.uuid4()), "pod_name": "pod"}
        return PreemptionRecord.objects.create(victim=victim, preemptor=preemptor, **(names | values | facts))

    def _priority(self, facts: dict[str, Any]) -> dict[str, Any]:
        name = facts.pop("priority", "low")
        return {"priority": Priority.objects.get(name=name)}


@pytest.fixture
def history(h100: NodePool) -> History:
    return History(h100)
