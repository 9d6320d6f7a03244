"""Whose workload is applied next: shares of clusters, turns of projects, and clusters that take no work."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.backends.memory import forget_all, store_of
from clusters.connection.services import work_limits
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ClusterError, ClusterUnreachable, Invalid, NotAuthorized, ObjectRef
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import job, spec_of
from workloads.lifecycle.services import apply_queue
from workloads.lifecycle.services.apply_queue import take_turn
from workloads.state.models import Phase, Workload
from workloads.submission.services import submit

FORBIDDEN = NotAuthorized('jobs is forbidden: User "rung" cannot create resource "jobs"')
Submit = Callable[..., list[Workload]]


@pytest.fixture(autouse=True)
def _synced(llm_team: Project, vision_team: Project, cluster: Cluster) -> None:
    forget_all()
    reconcile(cluster)


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Clusters for which a worker was notified."""
    found: list[object] = []
    monkeypatch.setattr(apply_queue, "notify_apply", found.append)
    return found


def submitted(project: Project, count: int, name: str = "train") -> list[Workload]:
    """So many workloads of a project, oldest first."""
    return [submit(spec=spec_of(job(f"{name}-{n}", gpus=1)), project=project, actor=SYSTEM) for n in range(count)]


def creations(cluster: Cluster) -> list[str]:
    """Names of the created Jobs, in order."""
    return [ref.name for verb, ref in store_of(str(cluster.pk)).writes if verb == "ADDED" and ref.kind.kind == "Job"]


def answers(cluster: Cluster, error: ClusterError | None, *, only: str = "") -> None:
    """Answer every write with the error; None: take writes again."""

    def refuse(_verb: str, ref: ObjectRef) -> ClusterError | None:
        return error if only in ref.name else None

    store_of(str(cluster.pk)).faults[:] = [refuse] if error else []


def retried_now(cluster: Cluster) -> Cluster:
    """The cluster with its breaker's retry due, and every workload due."""
    now = timezone.now()
    Cluster.objects.filter(pk=cluster.pk).exclude(breaker_reason="").update(breaker_retry_at=now)
    Workload.objects.filter(due_at__isnull=False).update(due_at=now)
    cluster.refresh_from_db()
    return cluster


def test_projects_take_turns_however_much_one_of_them_submitted_before(
    llm_team: Project, vision_team: Project, cluster: Cluster
) -> None:
    submitted(llm_team, 6, "burst")
    submitted(vision_team, 3, "other")
    assert take_turn(cluster.pk) == 9
    order = [name.split("-")[0] for name in creations(cluster)]
    assert all(one != following for one, following in pairwise(order[:6]))
    assert order[6:] == ["burst"] * 3


def test_a_turn_begins_behind_the_project_that_was_served_last(
    llm_team: Project, vision_team: Project, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, woken: list[object]
) -> None:
    monkeypatch.setattr(apply_queue, "TURN_SECONDS", -1.0)
    submitted(llm_team, 2, "burst")
    submitted(vision_team, 2, "other")
    for _ in range(4):
        assert take_turn(cluster.pk) == 1
    order = [name.split("-")[0] for name in creations(cluster)]
    assert all(one != following for one, following in pairwise(order))
    assert woken == [cluster.pk] * 3, "work that is left has another worker notified"


def test_a_cluster_whose_share_of_workers_is_taken_waits(
    llm_team: Project, cluster: Cluster, settings: Settings, woken: list[object]
) -> None:
    settings.RUNG_CLUSTER_WORKERS = 2
    submitted(llm_team, 1)
    with work_limits.acquire_slot(cluster, spare=1) as slot:
        assert slot is not None
        assert take_turn(cluster.pk) == 0
        with work_limits.acquire_slot(cluster) as spare:
            assert spare is not None, "a slot is left to the reconcile"
            with work_limits.acquire_slot(cluster) as none:
                assert none is None
    assert take_turn(cluster.pk) == 1


def test_work_that_comes_while_the_last_slot_is_held_is_not_forgotten(
    llm_team: Project, cluster: Cluster, settings: Settings, woken: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RUNG_CLUSTER_WORKERS = 1
    submitted(llm_team, 1)
    serve = apply_queue._serve

    def serve_and_submit(*args: object, **options: object) -> int:
        tried = serve(*args, **options)  # type: ignore[arg-type]  # as it was called
        submitted(llm_team, 1, "late")
        assert take_turn(cluster.pk) == 0
        return tried

    monkeypatch.setattr(apply_queue, "_serve", serve_and_submit)
    take_turn(cluster.pk)
    assert woken == [cluster.pk]


@pytest.mark.parametrize("error", [FORBIDDEN, ClusterUnreachable("no route to host")])
def test_a_cluster_in_trouble_costs_one_try_and_keeps_the_reason(
    llm_team: Project, cluster: Cluster, error: ClusterError
) -> None:
    rows = submitted(llm_team, 5)
    answers(cluster, error)
    assert take_turn(cluster.pk) == 1
    cluster.refresh_from_db()
    assert cluster.breaker_reason == error.message
    assert take_turn(cluster.pk) == 0, "not before the retry"
    assert {row.phase for row in Workload.objects.all()} == {Phase.CREATING}
    retried_now(cluster)
    assert take_turn(cluster.pk) == 1, "one workload tries"
    answers(cluster, None)
    retried_now(cluster)
    assert take_turn(cluster.pk) == 1
    cluster.refresh_from_db()
    assert (cluster.breaker_reason, cluster.breaker_failures, cluster.breaker_since) == ("", 0, None)
    Workload.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
    take_turn(cluster.pk)
    assert len(creations(cluster)) == len(rows)


def test_a_retry_that_finds_no_free_worker_is_not_lost(llm_team: Project, cluster: Cluster, settings: Settings) -> None:
    settings.RUNG_CLUSTER_WORKERS = 1
    submitted(llm_team, 1)
    answers(cluster, FORBIDDEN)
    take_turn(cluster.pk)
    answers(cluster, None)
    retried_now(cluster)
    with work_limits.acquire_slot(cluster):
        assert take_turn(cluster.pk) == 0
    assert take_turn(cluster.pk) == 1


def test_retries_of_a_cluster_come_further_and_further_apart(llm_team: Project, cluster: Cluster) -> None:
    submitted(llm_team, 1)
    answers(cluster, FORBIDDEN)
    pauses: list[timedelta] = []
    for _ in range(8):
        take_turn(retried_now(cluster).pk)
        cluster.refresh_from_db()
        assert cluster.breaker_retry_at is not None
        pauses.append(cluster.breaker_retry_at - timezone.now())
    assert pauses[0] < timedelta(seconds=2) < pauses[3]
    assert timedelta(seconds=20) < pauses[-1] < timedelta(seconds=40)
    row = Workload.objects.get()
    assert row.due_at is not None
    assert row.due_at < timezone.now() + timedelta(seconds=61)


def test_one_kind_that_may_not_be_created_does_not_stop_the_others(
    llm_team: Project, vision_team: Project, cluster: Cluster
) -> None:
    submitted(llm_team, 1, "forbidden")
    submitted(vision_team, 3, "fine")
    answers(cluster, FORBIDDEN, only="forbidden")
    for _ in range(3):
        retried_now(cluster)
        take_turn(cluster.pk)
        take_turn(retried_now(cluster).pk)
    assert sum("fine" in name for name in creations(cluster)) == 3


def test_an_object_that_is_refused_does_not_stop_its_cluster(llm_team: Project, cluster: Cluster) -> None:
    submitted(llm_team, 3)
    answers(cluster, Invalid("spec: wrong"), only="train-0")
    assert take_turn(cluster.pk) == 3
    cluster.refresh_from_db()
    assert cluster.breaker_reason == ""


def test_a_successful_reconcile_sends_work_again(cluster: Cluster) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(breaker_reason="no route", breaker_failures=3)
    cluster.refresh_from_db()
    reconcile(cluster)
    cluster.refresh_from_db()
    assert cluster.breaker_reason == ""


def test_the_sweep_notifies_workers_of_clusters_with_due_work(
    llm_team: Project, cluster: Cluster, woken: list[object]
) -> None:
    assert apply_queue.sweep() == 0
    submitted(llm_team, 2)
    assert apply_queue.sweep() == 1
    Cluster.objects.filter(pk=cluster.pk).update(state="paused")
    assert apply_queue.sweep() == 0
    assert woken == [cluster.pk]


def test_a_paused_cluster_takes_no_turn(llm_team: Project, cluster: Cluster) -> None:
    submitted(llm_team, 1)
    Cluster.objects.filter(pk=cluster.pk).update(state="paused")
    assert take_turn(cluster.pk) == 0


def test_a_project_never_has_the_last_worker_of_its_cluster(
    llm_team: Project, vision_team: Project, cluster: Cluster, settings: Settings, woken: list[object]
) -> None:
    settings.RUNG_CLUSTER_WORKERS = 3
    submitted(llm_team, 2, "burst")
    with work_limits.acquire_slot(cluster, spare=1) as slot:
        assert slot is not None
        work_limits.record_holder(slot, llm_team.pk)
        assert take_turn(cluster.pk) == 0
        submitted(vision_team, 2, "other")
        assert take_turn(cluster.pk) == 2
        assert woken == [], "what another worker serves needs no third one"
    assert take_turn(cluster.pk) == 2
    assert sorted({name.split("-")[0] for name in creations(cluster)}) == ["burst", "other"]


def test_a_reconcile_that_has_a_slot_keeps_no_project_from_its_turn(
    llm_team: Project, cluster: Cluster, settings: Settings
) -> None:
    settings.RUNG_CLUSTER_WORKERS = 3
    submitted(llm_team, 1)
    assert take_turn(cluster.pk) == 1
    submitted(llm_team, 1, "second")
    with work_limits.acquire_slot(cluster) as slot:
        assert slot is not None
        assert slot.cursor == llm_team.pk
        assert take_turn(cluster.pk) == 1
