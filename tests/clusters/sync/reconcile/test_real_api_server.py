"""Reconcile against a real API server: it converges, rests without a write, repairs, replaces, refuses and adopts."""

import time
from collections.abc import Callable, Iterator

import pytest

from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.connection.services.gateways import forget_gateways, gateway_for
from clusters.connection.services.registration import register_cluster
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import NAMESPACE, PRIORITY_CLASS, RESOURCE_QUOTA
from clusters.sync.models import Drift, SyncState
from clusters.sync.services import object_reads
from clusters.sync.services.drift import adopt
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from tests.clusters.specs import Wanted, priority, project, state
from tests.clusters.synced import outcomes
from tests.support.lab import LabCluster
from tests.support.processes import eventually

pytestmark = [pytest.mark.lab, pytest.mark.django_db]


@pytest.fixture
def real(fresh_lab_cluster: LabCluster, wanted: Wanted) -> Iterator[Cluster]:
    """A cluster of the test's own, reached with the few rights Rung asks for."""
    wanted.state = DesiredState()
    lab = fresh_lab_cluster
    entered = ConnectionFormData(server=lab.server, ca=lab.ca, token=lab.token)
    yield register_cluster(name="real", flavour="kube", source=entered, actor=SYSTEM)[0]
    forget_gateways()


def many(count: int, *, limit: int = 8, changed: int = -1, generation: int = 1) -> DesiredState:
    """So many projects; one may have another limit, at its next generation."""
    found = [
        project(
            f"p{number}",
            owner=f"project.{number}",
            limit=limit + 4 if number == changed else limit,
            generation=generation,
            caps={"real-high": 2000},
        )
        for number in range(count)
    ]
    return state(*found, priorities=(priority("real-high", 125), priority("real-low", 40)))


def versions(cluster: Cluster) -> dict[str, str]:
    """resourceVersion of all that is ours, by uid."""
    found = [each["metadata"] for kind in flavour_for("kube").kinds() for each in gateway_for(cluster).list(kind)[0]]
    return {metadata["uid"]: metadata["resourceVersion"] for metadata in found}


def settled(cluster: Cluster) -> dict[str, str]:
    """The same once the quotas' own controller has written every status."""
    seen: list[dict[str, str]] = [{}]

    def still() -> bool:
        time.sleep(1)
        seen.append(versions(cluster))
        quotas, _ = gateway_for(cluster).list(RESOURCE_QUOTA)
        return all(each.get("status", {}).get("hard") for each in quotas) and seen[-1] == seen[-2]

    eventually(still, seconds=60)
    return seen[-1]


def test_it_converges_rests_follows_and_repairs(real: Cluster, wanted: Wanted) -> None:
    wanted.state = many(20)
    run = reconcile(real)
    assert (run.state, run.written, run.failed) == (SyncState.SUCCEEDED, 2 + 20 * 5, 0)

    before = settled(real)
    for remembered in (False, True, True):
        if not remembered:
            object_reads.forget(real.pk)
        assert reconcile(real).written == 0
    assert versions(real) == before

    wanted.state = many(20, changed=3, generation=2)
    mark_dirty(real, owner="project.3")
    run = reconcile(real)
    assert (run.scope, outcomes(run)) == ("project.3", [("update", "rung-limit", True)])

    gateway = gateway_for(real)
    gateway.delete(ObjectRef(RESOURCE_QUOTA, "rung-deserved", "runai-p7"))
    run = reconcile(real, trigger="sweep")
    if not run.written:  # the watch may tell it a moment later
        run = reconcile(real)
    assert outcomes(run) == [("create", "rung-deserved", True)]


def test_a_changed_value_replaces_the_class(real: Cluster, wanted: Wanted) -> None:
    wanted.state = state(priorities=(priority("real-low", 40),))
    reconcile(real)
    wanted.state = state(priorities=(priority("real-low", 45),))
    assert outcomes(reconcile(real)) == [("replace", "real-low", True)]
    found = gateway_for(real).get(ObjectRef(PRIORITY_CLASS, "real-low"))
    assert found is not None
    assert found["value"] == 45


def test_a_foreign_namespace_is_left_alone_until_it_is_adopted(
    real: Cluster, wanted: Wanted, fresh_lab_cluster: LabCluster
) -> None:
    theirs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "runai-p0", "labels": {"team": "theirs"}}}
    fresh_lab_cluster.admin.apply(theirs, manager="somebody")
    wanted.state = many(2)
    run = reconcile(real)
    refused = run.outcomes.filter(ok=False)
    assert {row.namespace or row.name for row in refused} == {"runai-p0"}
    assert set(refused.values_list("code", flat=True)) == {"object_conflict"}
    drift = Drift.objects.get(cluster=real, kind="Namespace")
    adopt(drift=drift, uid=drift.object_uid, actor=SYSTEM)
    assert reconcile(real).state == SyncState.SUCCEEDED
    found = gateway_for(real).get(ObjectRef(NAMESPACE, "runai-p0"))
    assert found is not None
    assert found["metadata"]["labels"]["team"] == "theirs"
    assert reconcile(real).written == 0


def test_f22_edits_during_the_first_sync_end_with_the_last_one_everywhere(
    real: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = gateway_for(real)
    create: Callable[[Manifest], Manifest] = gateway.create

    def edit_and_create(manifest: Manifest) -> Manifest:
        wanted.state = many(30, limit=16, generation=2)
        return create(manifest)

    wanted.state = many(30)
    with monkeypatch.context() as patch:
        patch.setattr(gateway, "create", edit_and_create)
        reconcile(real)
    mark_dirty(real)
    assert reconcile(real).state == SyncState.SUCCEEDED
    limits = [
        each["spec"]["hard"]["requests.nvidia.com/gpu"]
        for each in gateway.list(RESOURCE_QUOTA)[0]
        if each["metadata"]["name"] == "rung-limit"
    ]
    assert limits == ["16"] * 30
    real.refresh_from_db()
    assert real.synced_generation == real.generation
    assert reconcile(real).written == 0
