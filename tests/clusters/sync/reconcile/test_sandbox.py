"""The embedded default is synced like any cluster, in both dialects."""

import pytest

from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import PRIORITY_CLASS
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.sync.models import Drift, SyncState
from clusters.sync.services.reconcile import reconcile
from tests.clusters.specs import Wanted, priority, project, queue, state
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_it_converges_rests_and_repairs(flavour: str, wanted: Wanted) -> None:
    wanted.state = state(
        project("vision", deserved=4, limit=8, caps={"high": 2000}),
        priorities=(priority("high", 125), priority("low", 40)),
        departments=(queue("department.1", parent=None),),
    )
    cluster = build_cluster(flavour=flavour, backend="sandbox")
    gateway = SandboxGateway(cluster)
    size = len(list(flavour_for(flavour).objects_for(wanted.state)))

    first, second = reconcile(cluster), reconcile(cluster)
    assert [(run.state, run.written) for run in (first, second)] == [
        (SyncState.SUCCEEDED, size),
        (SyncState.SUCCEEDED, 0),
    ]

    gateway.delete(ObjectRef(PRIORITY_CLASS, "high"))
    wanted.state = state(*wanted.state.projects, priorities=(priority("high", 125), priority("low", 45)))
    run = reconcile(cluster)
    assert run.state == SyncState.SUCCEEDED
    assert {("create", "high"), ("replace", "low")} <= set(run.outcomes.values_list("action", "name"))
    assert reconcile(cluster).written == 0
    assert not Drift.objects.exists()
