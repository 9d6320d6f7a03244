"""F23: the credential is revoked in mid-sync, or another cluster answers at the same address."""

from contextlib import suppress

import pytest

from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.services.inventory import unpause
from clusters.ports.gateway import ClusterError
from clusters.ports.objects import RESOURCE_QUOTA
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM
from tests.factories.workloads import job
from tests.faults.rig import LOW, SEEDS, Rig
from tests.real.product import fresh
from tests.support.faults import Status
from tests.support.lab import LabCluster
from workloads.lifecycle.services.actions import change_priority
from workloads.state.models import Phase, Workload

UNAUTHORIZED = Status(401, "Unauthorized", message="Unauthorized")
FORBIDDEN = Status(403, "Forbidden", message='User "rung" cannot get resource "jobs" in API group "batch"')


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
@pytest.mark.parametrize("refusal", [UNAUTHORIZED, FORBIDDEN], ids=["401", "403"])
def test_f23_a_revoked_credential_stops_work_loses_nothing_and_heals_by_itself(rig: Rig, refusal: Status) -> None:
    workload = running(rig)
    rig.projects(3)
    rig.proxy.breaks(refusal, times=400, spares=rig.random.randint(4, 14))
    rig.until_stopped()
    assert "does not accept work" in rig.troubles()
    with pytest.raises(ClusterError):
        rig.look()
    change_priority(workload=fresh(workload), priority="high", actor=SYSTEM)
    rig.apply(workload)
    still_runs(rig, workload)
    rig.proxy.heal()
    assert rig.object_of(workload) is not None
    rig.settle()
    still_runs(rig, workload)


@pytest.mark.parametrize("seed", SEEDS)
def test_f23_what_is_submitted_while_rights_are_missing_waits_and_then_runs(rig: Rig) -> None:
    project = rig.grant(rig.project("train"), 4)
    rig.reconcile()
    rig.proxy.breaks(FORBIDDEN, method="POST", times=rig.random.randint(1, 12))
    workload = rig.submit(project, job(), **LOW)
    assert fresh(workload).phase == Phase.CREATING
    rig.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)
    assert not fresh(workload).timeline.filter(phase=Phase.FAILED).exists()


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
