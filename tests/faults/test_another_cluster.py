"""F23: the credential is revoked in mid-sync, or another cluster answers at the same address."""

from contextlib import suppress

import pytest

from clusters.errors import ClusterError
from clusters.kinds_core import RESOURCE_QUOTA
from clusters.models import Cluster, ClusterState, ObservedPod
from clusters.services.estate import unpause
from portal.core.actors import SYSTEM
from tests.factories.workloads import job
from tests.faults.rig import LOW, SEEDS, Rig
from tests.real.product import fresh
from tests.support.faults import Status
from tests.support.lab import LabCluster
from workloads.models import Phase, Workload


def running(rig: Rig) -> Workload:
    """A workload that runs, and more projects that wait to be synced."""
    project = rig.grant(rig.project("train"), 4)
    rig.reconcile()
    workload = rig.submit(project, job(), **LOW)
    rig.until(workload, lambda row: row.phase == Phase.RUNNING)
    return workload


def paused(rig: Rig) -> Cluster:
    cluster = Cluster.objects.get(pk=rig.cluster.pk)
    assert cluster.state == ClusterState.PAUSED
    assert cluster.paused_reason
    return cluster


def still_runs(rig: Rig, workload: Workload) -> None:
    """Nothing was marked lost or deleted, and nothing was."""
    assert fresh(workload).phase == Phase.RUNNING
    assert not ObservedPod.objects.filter(cluster=rig.cluster, gone_at__isnull=False).exists()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (403, "Forbidden")])
def test_f23_a_revoked_credential_pauses_and_loses_nothing(rig: Rig, code: int, reason: str) -> None:
    workload = running(rig)
    rig.projects(3)
    spared = rig.random.randint(4, 14)
    rig.proxy.breaks(Status(code, reason), times=400, spares=spared)
    rig.until_paused()
    cluster = paused(rig)
    with pytest.raises(ClusterError):
        rig.look()
    still_runs(rig, workload)
    rig.proxy.heal()
    assert rig.object_of(workload) is not None
    unpause(cluster=cluster, actor=SYSTEM)
    rig.settle()
    still_runs(rig, workload)


@pytest.mark.parametrize("seed", [0])
def test_f23_a_cluster_rebuilt_empty_is_neither_believed_nor_written_to_until_it_is_adopted(
    rig: Rig, broken_cluster: LabCluster, fresh_lab_cluster: LabCluster
) -> None:
    workload = running(rig)
    rig.proxy.points_at(fresh_lab_cluster)
    before = len(rig.proxy.writes())
    rig.attempt()
    cluster = paused(rig)
    with suppress(ClusterError):
        rig.look()
    still_runs(rig, workload)
    assert rig.proxy.writes()[before:] == []
    unpause(cluster=cluster, actor=SYSTEM, adopt=True)
    rig.settle()
    assert fresh_lab_cluster.admin.list(RESOURCE_QUOTA, namespace=workload.project.namespace)
    rig.proxy.points_at(broken_cluster)
    rig.adopt()
