"""What a queueing scheduler answers: a workload's page shows its place and its age, a cluster's page a shut door."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from clusters.flavours.kueue_status import QUEUE_POSITION
from clusters.inventory.models import Cluster
from clusters.watch.models import ClusterEvent
from clusters.watch.services.visibility_poller import VisibilityResult, store_visibility
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from workloads.forecast.selectors.waiting import queue_place, queue_rank
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
SHUT = 'failed calling webhook "mjob.kb.io": connection refused'


@pytest.fixture
def waiting(llm_team: Project) -> Workload:
    """It waits since an hour on a cluster with Kueue."""
    Cluster.objects.filter(pk=llm_team.cluster_id).update(flavour="kueue")
    llm_team.cluster.refresh_from_db()
    since = timezone.now() - timedelta(hours=1)
    made: Workload = WorkloadFactory(project=llm_team, phase=Phase.PENDING, phase_at=since)
    return made


def told(workload: Workload, message: str, *, seconds: int = 5) -> None:
    ClusterEvent.objects.create(
        cluster=workload.project.cluster,
        uid=f"{workload.pk}.place",
        namespace=workload.project.namespace,
        owner_id=str(workload.pk),
        kind="Job",
        name=workload.name,
        reason=QUEUE_POSITION,
        message=message,
        at=timezone.now() - timedelta(seconds=seconds),
    )


def text_of(client: Client, where: str) -> str:
    return " ".join(client.get(where).content.decode().split())


def test_the_place_is_the_one_that_the_scheduler_counts(waiting: Workload) -> None:
    told(waiting, "3 of 7 in queue project.1.a100")
    place = queue_rank(waiting)
    assert place
    assert (place.number, place.among) == (3, 7)


def test_the_page_says_what_the_scheduler_counts(client_of: Clients, alice: User, waiting: Workload) -> None:
    assert "First in its queue" in text_of(client_of(alice), f"/workloads/{waiting.pk}/")
    told(waiting, "3 of 7 in queue project.1.a100")
    text = text_of(client_of(alice), f"/workloads/{waiting.pk}/")
    assert (
        f"Position 3 of 7 in the queue of {waiting.project.name} in {waiting.pool_name}, reported by the scheduler"
        in text
    )
    assert "First in its queue" not in text


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        pytest.param("3 of 7 in queue x", 121, id="two minutes old"),
        pytest.param("3 of 7 in queue x", 3601, id="of an earlier wait"),
        pytest.param("first", 1, id="no place at all"),
    ],
)
def test_an_answer_that_is_none_any_more_is_not_shown(waiting: Workload, message: str, seconds: int) -> None:
    told(waiting, message, seconds=seconds)
    assert queue_place(waiting) is None


def test_who_runs_has_no_place(waiting: Workload) -> None:
    told(waiting, "1 of 1 in queue x")
    assert queue_place(waiting) is not None
    waiting.phase = Phase.RUNNING
    assert queue_place(waiting) is None


def test_a_shut_door_stands_on_the_clusters_page_until_it_opens(
    client_of: Clients, admin: User, waiting: Workload
) -> None:
    cluster = waiting.project.cluster
    where = f"/clusters/{cluster.name}/"
    assert "no new job can be created" not in text_of(client_of(admin), where)
    store_visibility(cluster, VisibilityResult(shut=SHUT), at=timezone.now())
    text = text_of(client_of(admin), where)
    assert "Kueue does not respond: no new job can be created on this cluster." in text
    assert "mjob.kb.io" in text
    assert "kubectl -n kueue-system" in text
    store_visibility(cluster, VisibilityResult(shut=""), at=timezone.now())
    assert "no new job can be created" not in text_of(client_of(admin), where)


def test_when_it_opens_only_who_was_refused_is_tried_at_once(waiting: Workload) -> None:
    cluster, later = waiting.project.cluster, timezone.now() + timedelta(minutes=5)
    other: Workload = WorkloadFactory(project=waiting.project, due_at=later)
    Workload.objects.filter(pk=waiting.pk).update(due_at=later, apply_error=SHUT)
    store_visibility(cluster, VisibilityResult(shut=SHUT), at=timezone.now())
    store_visibility(cluster, VisibilityResult(shut=""), at=(opened := timezone.now()))
    due = dict(Workload.objects.values_list("pk", "due_at"))
    assert (due[waiting.pk], due[other.pk]) == (opened, later)
