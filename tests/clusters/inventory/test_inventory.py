"""Clusters and node pools as an admin changes them: checked, audited, and followed by a reconcile."""

from typing import Any

import pytest
from django.utils import timezone

from clusters.connection.services.registration import create_cluster
from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import Cluster, ClusterState, NodePool
from clusters.inventory.services.inventory import (
    create_node_pool,
    delete_node_pool,
    mark_dirty,
    pause,
    unpause,
    update_node_pool,
)
from clusters.watch.models import ObservedPod
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, RungError, ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Department
from tenants.quotas.models import DepartmentQuota
from tests.factories.clusters import ObservedPodFactory

pytestmark = pytest.mark.django_db


def code_of(error: pytest.ExceptionInfo[RungError]) -> tuple[str, str]:
    (problem,) = error.value.problems
    return problem.pointer, problem.code


def audited() -> list[str]:
    return list(AuditRecord.objects.order_by("id").values_list("action", flat=True))


def pool(cluster: Cluster, name: str = "a100", **fields: Any) -> NodePool:
    return create_node_pool(cluster=cluster, name=name, actor=SYSTEM, **fields)


def test_a_new_cluster_is_due_at_once() -> None:
    cluster = create_cluster(name="blue", flavour="kai", actor=SYSTEM)
    assert (cluster.backend, cluster.state) == ("sandbox", ClusterState.ACTIVE)
    assert list(Cluster.objects.due(timezone.now())) == [cluster]
    assert audited() == ["cluster.create"]


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"name": "Blue"}, "/name", "invalid"),
        ({"name": "-"}, "/name", "invalid"),
        ({"name": "b" * 64}, "/name", "invalid"),
        ({"name": "blue\n"}, "/name", "invalid"),
        ({"flavour": "slurm"}, "/flavour", "unknown"),
        ({"backend": "carrier-pigeon"}, "/backend", "unknown"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(fields: dict[str, str], pointer: str, code: str) -> None:
    with pytest.raises(ValidationFailed) as error:
        create_cluster(**{"name": "blue", "flavour": "kai", "actor": SYSTEM, **fields})
    assert code_of(error) == (pointer, code)
    assert audited() == []


def test_two_clusters_cannot_share_a_name() -> None:
    create_cluster(name="blue", flavour="kai", actor=SYSTEM)
    with pytest.raises(Conflict) as error:
        create_cluster(name="blue", flavour="kube", actor=SYSTEM)
    assert code_of(error) == ("/name", "name_taken")


def test_a_pause_and_its_end_are_recorded_once(cluster: Cluster) -> None:
    for _ in range(2):
        pause(cluster=cluster, reason="maintenance", actor=SYSTEM)
    assert (cluster.state, cluster.paused_reason) == (ClusterState.PAUSED, "maintenance")
    for _ in range(2):
        unpause(cluster=cluster, actor=SYSTEM)
    assert (cluster.state, cluster.paused_reason) == (ClusterState.ACTIVE, "")
    assert audited() == ["cluster.pause", "cluster.unpause"]


def test_an_identity_is_only_given_up_when_that_is_said(cluster: Cluster) -> None:
    Cluster.objects.update(uid="known")
    for adopt, uid in ((False, "known"), (True, "")):
        pause(cluster=cluster, reason="x", actor=SYSTEM)
        unpause(cluster=cluster, actor=SYSTEM, adopt=adopt)
        assert cluster.uid == uid


def test_a_change_of_desired_state_is_a_new_generation_and_due(cluster: Cluster) -> None:
    Cluster.objects.update(sync_due_at=timezone.now() + timezone.timedelta(hours=1))
    mark_dirty(cluster)
    cluster.refresh_from_db()
    assert cluster.generation == 2
    assert Cluster.objects.due(timezone.now()).exists()


def test_the_first_pool_is_the_default_and_made_by_rungs_label(cluster: Cluster) -> None:
    first, second = pool(cluster), pool(cluster, "h100", label_key="gpu/type", label_value="H100")
    assert (first.is_default, second.is_default) == (True, False)
    assert (first.label_key, first.label_value) == ("rung.dev/node-pool", "a100")
    assert (second.label_key, second.label_value) == ("gpu/type", "H100")
    cluster.refresh_from_db()
    assert cluster.generation == 3
    assert audited() == ["node_pool.create", "node_pool.create"]


RACK = "example.com/rack"


@pytest.mark.parametrize(
    ("levels", "pointer", "code"),
    [
        (["a b"], "/topology_levels/0", "invalid"),
        (["x", "-.y/z"], "/topology_levels/1", "invalid"),
        (["x" * 254], "/topology_levels/0", "invalid"),
        ([RACK, "x", RACK], "/topology_levels/2", "repeated"),
        (["kubernetes.io/hostname", RACK], "/topology_levels/0", "not_last"),
        ([f"level-{number}" for number in range(9)], "/topology_levels", "too_many"),
    ],
)
def test_t_levels_that_no_scheduler_takes_are_refused_at_their_place(
    cluster: Cluster, levels: list[str], pointer: str, code: str
) -> None:
    Cluster.objects.update(flavour="kai")
    cluster.refresh_from_db()
    with pytest.raises(ValidationFailed) as error:
        pool(cluster, topology_levels=levels)
    assert code_of(error) == (pointer, code)


@pytest.mark.parametrize("flavour", ["kube"])
def test_levels_are_refused_with_the_name_of_a_scheduler_that_knows_none(cluster: Cluster, flavour: str) -> None:
    pool(cluster)
    Cluster.objects.update(flavour=flavour)
    found = NodePool.objects.get()
    with pytest.raises(ValidationFailed, match=f"{FLAVOURS[flavour].title} on ") as error:
        update_node_pool(pool=found, topology_levels=[RACK], actor=SYSTEM)
    assert code_of(error) == ("/topology_levels", "topology_unsupported")


def test_levels_are_told_in_the_audit_and_count_where_a_scheduler_never_changes_them(cluster: Cluster) -> None:
    Cluster.objects.update(flavour="kueue")
    pool(cluster)
    told: list[tuple[list[str], int]] = []
    racked: dict[str, Any] = {"topology_levels": [RACK]}
    for change in (racked, racked, {"label_value": "b"}, {"topology_levels": []}):
        found = update_node_pool(pool=NodePool.objects.get(), actor=SYSTEM, **change)
        told.append((found.topology_levels, found.topology_revision))
    assert told == [([RACK], 0), ([RACK], 0), ([RACK], 1), ([], 2)]
    last = AuditRecord.objects.order_by("pk").last()
    assert last is not None
    assert [last.detail[when]["topology_levels"] for when in ("before", "after")] == [[RACK], []]


def test_levels_that_kueue_counts_by_change_only_once_nothing_runs_under_them(cluster: Cluster) -> None:
    Cluster.objects.update(flavour="kueue")
    ObservedPodFactory(cluster=cluster, pool_name=pool(cluster).name, owner_id="w1", node_name="n", phase="Running")
    update_node_pool(pool=NodePool.objects.get(), topology_levels=[RACK], actor=SYSTEM)
    with pytest.raises(Conflict, match="1 workload is running in a100") as error:
        update_node_pool(pool=NodePool.objects.get(), topology_levels=["x", RACK], actor=SYSTEM)
    assert error.value.code == "pool_busy"
    ObservedPod.objects.update(phase="Succeeded")
    assert update_node_pool(pool=NodePool.objects.get(), topology_levels=["x"], actor=SYSTEM).topology_revision == 1


def test_there_is_one_default(cluster: Cluster) -> None:
    first, second = pool(cluster), pool(cluster, "h100")
    update_node_pool(pool=second, is_default=True, actor=SYSTEM)
    first.refresh_from_db()
    assert (first.is_default, second.is_default) == (False, True)
    with pytest.raises(ValidationFailed) as error:
        update_node_pool(pool=second, is_default=False, actor=SYSTEM)
    assert code_of(error) == ("/is_default", "default_needed")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": "A100"}, "/name"),
        ({"name": "a.b"}, "/name"),
        ({"label_key": "a/b/c"}, "/label_key"),
        ({"label_key": "/x"}, "/label_key"),
        ({"label_value": "a b"}, "/label_value"),
        ({"label_value": "a" * 64}, "/label_value"),
        ({"gpu_placement": "random"}, "/gpu_placement"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(cluster: Cluster, fields: dict[str, str], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as error:
        create_node_pool(**{"cluster": cluster, "name": "a100", "actor": SYSTEM, **fields})
    assert code_of(error)[0] == pointer
    assert not NodePool.objects.exists()


@pytest.mark.parametrize(("name", "value", "pointer"), [("a100", "x", "/name"), ("x", "a100", "/label_value")])
def test_name_and_label_of_a_pool_are_its_own(cluster: Cluster, name: str, value: str, pointer: str) -> None:
    pool(cluster)
    with pytest.raises(Conflict) as error:
        pool(cluster, name, label_value=value)
    assert code_of(error) == (pointer, "taken")
    assert NodePool.objects.count() == 1


def test_a_change_of_a_pool_is_audited_with_before_and_after(cluster: Cluster) -> None:
    update_node_pool(pool=pool(cluster), label_value="A100", gpu_placement="spread", actor=SYSTEM)
    detail = AuditRecord.objects.get(action="node_pool.update").detail
    assert (detail["before"]["label"], detail["after"]["label"]) == (
        "rung.dev/node-pool=a100",
        "rung.dev/node-pool=A100",
    )
    assert detail["after"]["gpu_placement"] == "spread"


def test_a_pool_that_a_quota_names_stays(cluster: Cluster) -> None:
    used = pool(cluster)
    DepartmentQuota.objects.create(
        department=Department.objects.create(cluster=cluster, name="research"), node_pool=used, gpu_deserved=8000
    )
    with pytest.raises(Conflict, match="1 quota uses node pool"):
        delete_node_pool(pool=used, actor=SYSTEM)
    assert NodePool.objects.get() == used
    assert audited() == ["node_pool.create"]


def test_the_default_goes_last(cluster: Cluster) -> None:
    first, second = pool(cluster), pool(cluster, "h100")
    with pytest.raises(Conflict):
        delete_node_pool(pool=first, actor=SYSTEM)
    delete_node_pool(pool=second, actor=SYSTEM)
    delete_node_pool(pool=first, actor=SYSTEM)
    assert not NodePool.objects.exists()
    assert audited()[-2:] == ["node_pool.delete", "node_pool.delete"]
