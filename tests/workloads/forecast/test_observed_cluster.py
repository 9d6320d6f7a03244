"""On PostgreSQL a process reads an observed cluster once, then what has changed: the same as another process reads."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import ObservedPod
from scheduling.model.snapshot import Snapshot
from tenants.organisation.models import Project
from tests.factories.clusters import NodeFactory, ObservedPodFactory
from tests.factories.workloads import WorkloadFactory
from workloads.forecast.selectors import snapshot as snapshots
from workloads.forecast.selectors.snapshot import snapshot_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
FIRST = ("first-0", "first-1")
Change = Callable[[Cluster], object]


@pytest.fixture(params=["kai", "kube", "kueue"])
def watched(request: pytest.FixtureRequest, cluster: Cluster, h100: NodePool, llm_team: Project) -> Cluster:
    """Three nodes; two workloads with two pods each, a pod of others, a workload that waits."""
    Cluster.objects.filter(pk=cluster.pk).update(flavour=request.param)
    for number in range(3):
        NodeFactory(cluster=cluster, pool=h100, name=f"here-{number}", observed_at=timezone.now())
    for name in ("first", "second"):
        owner = WorkloadFactory(project=llm_team, name=name, pool_name=h100.name)
        for number in range(2):
            pod(cluster, f"{name}-{number}", owner_id=str(owner.pk), node_name="here-0", phase="Running")
    pod(cluster, "foreign", node_name="here-1", phase="Running")
    WorkloadFactory(project=llm_team, name="waits", pool_name=h100.name, phase="Creating")
    return Cluster.objects.get(pk=cluster.pk)


def pod(cluster: Cluster, name: str, **more: Any) -> ObservedPod:
    found: ObservedPod = ObservedPodFactory(cluster=cluster, name=name, observed_at=timezone.now(), **more)
    return found


def seen(name: str, **values: Any) -> Change:
    """What the observer stores of a pod that it knows."""
    return lambda cluster: ObservedPod.objects.filter(cluster=cluster, name=name).update(
        observed_at=timezone.now(), **values
    )


def plain(found: Snapshot) -> object:
    return (found.nodes, found.queues, sorted(found.groups, key=lambda group: group.name), found.pools)


CHANGES: dict[str, Change] = {
    "a pod ends": seen("first-0", deletion_at=timezone.now()),
    "the last pods go": lambda cluster: [
        seen(name, gone_at=timezone.now())(cluster) for name in ("first-0", "first-1")
    ],
    "a foreign pod moves": seen("foreign", node_name="here-2"),
    "a foreign pod goes": seen("foreign", gone_at=timezone.now()),
    "a foreign pod comes": lambda cluster: pod(cluster, "another", node_name="here-2", phase="Running"),
    "a pod waits": lambda cluster: pod(cluster, "waiting", phase="Pending"),
    "a node is cordoned": lambda cluster: cluster.nodes.filter(name="here-1").update(
        unschedulable=True, observed_at=timezone.now()
    ),
    "a node says when": lambda cluster: cluster.nodes.update(observed_at=timezone.now()),
    "a node goes": lambda cluster: Node.objects.filter(cluster=cluster, name="here-2").delete(),
    "a pool is filled otherwise": lambda cluster: cluster.node_pools.update(gpu_placement="spread"),
    "desired state changes": lambda cluster: Cluster.objects.filter(pk=cluster.pk).update(
        generation=F("generation") + 1
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_seen(watched: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = plain(snapshot_of(watched)[0])
    CHANGES[name](watched)
    here = plain(snapshot_of(watched)[0])
    monkeypatch.setattr(snapshots, "_observed", {})
    assert here == plain(snapshot_of(watched)[0])
    assert name in {"a node says when", "a pool is filled otherwise", "desired state changes"} or here != first


def test_what_was_stored_a_moment_ago_may_be_older_than_what_was_read(
    watched: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_of(watched)
    before = timezone.now() - timedelta(seconds=1)
    ObservedPod.objects.filter(name="first-0").update(deletion_at=timezone.now(), observed_at=before)
    here = plain(snapshot_of(watched)[0])
    monkeypatch.setattr(snapshots, "_observed", {})
    assert here == plain(snapshot_of(watched)[0])
