"""On PostgreSQL a process reads an observed cluster once, then what has changed: the same as another process reads."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import ClusterEvent, ObservedPod
from portal.kit.db.transactions import rollback_scope
from scheduling.model.snapshot import Snapshot
from tenants.organisation.models import Project
from tests.factories.clusters import NodeFactory, ObservedPodFactory
from tests.factories.tenants import UserFactory
from tests.factories.workloads import WorkloadFactory, deployment, pytorch_job, spec_of
from workloads.dictionary.models import Priority, WorkloadType
from workloads.forecast.selectors import snapshot as snapshots
from workloads.forecast.selectors.snapshot import snapshot_of
from workloads.state.models import Workload
from workloads.state.rules import HELD_BACK

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
FIRST = ("first-0", "first-1")
Change = Callable[[Cluster], object]


@pytest.fixture(params=["kai", "kube", "kueue"])
def watched(request: pytest.FixtureRequest, cluster: Cluster, h100: NodePool, llm_team: Project) -> Cluster:
    """Three nodes; two workloads and a Deployment with two pods each, a pod of others, a workload that waits."""
    Cluster.objects.filter(pk=cluster.pk).update(flavour=request.param, backend="kubernetes")
    for number in range(3):
        NodeFactory(cluster=cluster, pool=h100, name=f"here-{number}", observed_at=timezone.now())
    for name in ("first", "second"):
        owner = WorkloadFactory(project=llm_team, name=name, pool_name=h100.name)
        for number in range(2):
            pod(cluster, f"{name}-{number}", owner_id=str(owner.pk), node_name="here-0", phase="Running")
    serves = WorkloadFactory(
        project=llm_team,
        name="serves",
        type=WorkloadType.objects.get(name="Deployment"),
        spec=spec_of(deployment()).as_json(),
        phase="Running",
    )
    for number in range(2):
        pod(cluster, f"serves-{number}", owner_id=str(serves.pk), node_name="here-1", phase="Running")
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


def waiting(**values: Any) -> Change:
    """A worker or a tenant writes the workload that waits; `updated_at` need not follow."""
    return lambda _cluster: Workload.objects.filter(name="waits").update(**values)


def another_priority(_cluster: Cluster) -> None:
    other = Priority.objects.get(name="very-high")
    Workload.objects.filter(name="waits").update(priority=other, priority_value=other.value)


def its_first_pod(cluster: Cluster) -> None:
    owner = Workload.objects.get(name="waits")
    pod(cluster, "waits-0", owner_id=str(owner.pk), phase="Pending")


def said(cluster: Cluster) -> None:
    """The queue of jobs has let one in; other schedulers have no such event."""
    owner = Workload.objects.get(name="first")
    ClusterEvent.objects.create(
        cluster=cluster, uid="let-in", owner_id=str(owner.pk), kind="Workload", reason="Admitted", at=timezone.now()
    )


CHANGES: dict[str, Change] = {
    "a pod ends": seen("first-0", deletion_at=timezone.now()),
    "the last pods go": lambda cluster: [
        seen(name, gone_at=timezone.now())(cluster) for name in ("first-0", "first-1")
    ],
    "a pod of a deployment ends": seen("serves-0", deletion_at=timezone.now()),
    "a pod of a deployment is held back": seen("serves-0", node_name="", phase="Pending", reason="SchedulingGated"),
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
    "a waiting workload gets another priority": another_priority,
    "a waiting workload may not be evicted": waiting(preemptibility="non-preemptible", priority_value=150),
    "a waiting workload gets another size": waiting(spec=spec_of(pytorch_job(gpus=2)).as_json()),
    "a waiting workload is held back": waiting(phase="Pending", phase_reason=HELD_BACK),
    "a waiting workload is to stop": waiting(desired_phase="Stopped"),
    "a waiting workload is in another pool": waiting(pool_name="nowhere"),
    "a waiting workload gets its first pod": its_first_pod,
    "another workload waits": lambda cluster: WorkloadFactory(
        project=Project.objects.get(cluster=cluster), name="new", pool_name="h100", phase="Creating"
    ),
    "a queue lets a job in": said,
    "a priority gets another value": lambda _cluster: Priority.objects.filter(name="high").update(value=126),
    "a priority in use is retired": lambda _cluster: Priority.objects.update(retired_at=timezone.now()),
    "a user joins": lambda _cluster: UserFactory(),
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
    assert name in UNLIKE or here != first


UNLIKE = {
    "a node says when",
    "a pool is filled otherwise",
    "a queue lets a job in",
    "a priority gets another value",
    "a priority in use is retired",
    "a user joins",
    "desired state changes",
}
"""Changes of which no snapshot, or only that of some scheduler, shows anything."""


def test_a_question_after_nothing_has_changed_reads_no_rows_again(
    watched: Cluster, django_assert_max_num_queries: Callable[..., AbstractContextManager[Any]]
) -> None:
    snapshot_of(watched)
    snapshot_of(watched)
    with django_assert_max_num_queries(4) as requested:  # stamp, changed pods, what queues said, versions of who waits
        snapshot_of(watched)
    columns = " ".join(query["sql"] for query in requested.captured_queries)
    assert "spec" not in columns
    assert "priority_class" not in columns


def test_a_change_of_other_settings_does_not_read_the_pods_again(
    watched: Cluster,
) -> None:
    snapshot_of(watched)
    before = snapshots._observed[watched.pk]
    UserFactory()
    snapshot_of(watched)
    assert snapshots._observed[watched.pk] is before


def test_a_workload_that_was_never_stored_is_in_no_later_answer(watched: Cluster) -> None:
    first = plain(snapshot_of(watched)[0])
    with rollback_scope():
        CHANGES["another workload waits"](watched)
        CHANGES["a waiting workload gets another size"](watched)
        assert plain(snapshot_of(watched)[0]) != first
        transaction.set_rollback(True)
    assert plain(snapshot_of(watched)[0]) == first


def test_what_was_stored_a_moment_ago_may_be_older_than_what_was_read(
    watched: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_of(watched)
    before = timezone.now() - timedelta(seconds=1)
    ObservedPod.objects.filter(name="first-0").update(deletion_at=timezone.now(), observed_at=before)
    here = plain(snapshot_of(watched)[0])
    monkeypatch.setattr(snapshots, "_observed", {})
    assert here == plain(snapshot_of(watched)[0])


def test_a_question_that_loses_the_database_half_way_forgets_no_change(watched: Cluster) -> None:
    def lost(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        if "priority_class" in sql:
            raise OperationalError("the connection is lost")
        return execute(sql, *arguments)

    first = plain(snapshot_of(watched)[0])
    CHANGES["a pod ends"](watched)
    with connection.execute_wrapper(lost), pytest.raises(OperationalError):
        snapshot_of(watched)
    assert plain(snapshot_of(watched)[0]) != first
