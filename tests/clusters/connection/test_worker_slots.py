"""The bulkhead: a cluster's share of the workers, by leases that a living task renews and a killed one loses."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection
from django.db.models.functions import Now
from pytest_django.fixtures import Settings

from clusters.connection.models import WorkerSlot
from clusters.connection.services import work_limits
from clusters.connection.services.work_limits import acquire_slot
from clusters.inventory.models import Cluster
from tests.factories.clusters import ClusterFactory


@pytest.fixture(autouse=True)
def _share(settings: Settings) -> None:
    settings.RUNG_CLUSTER_WORKERS = 2


def test_a_cluster_never_holds_more_than_its_share(cluster: Cluster) -> None:
    with acquire_slot(cluster) as one, acquire_slot(cluster) as two, acquire_slot(cluster) as three:
        assert one is not None
        assert two is not None
        assert three is None
    with acquire_slot(cluster) as again:
        assert again is not None


def test_another_cluster_has_its_own(cluster: Cluster) -> None:
    other = ClusterFactory(name="other")
    with acquire_slot(cluster), acquire_slot(cluster), acquire_slot(other) as slot:
        assert slot is not None


def test_a_slot_comes_back_when_the_work_fails(cluster: Cluster) -> None:
    def fail() -> None:
        with acquire_slot(cluster):
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fail()
    assert not WorkerSlot.objects.exclude(holder="").exists()


def test_the_slot_of_a_killed_task_is_free_once_its_lease_is_over(cluster: Cluster) -> None:
    with acquire_slot(cluster), acquire_slot(cluster):
        WorkerSlot.objects.update(expires_at=Now() - timedelta(seconds=1))
        with acquire_slot(cluster) as slot:
            assert slot is not None


@pytest.mark.postgres
def test_a_task_that_takes_long_renews_its_lease(postgres_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_limits, "LEASE", timedelta(seconds=1))
    monkeypatch.setattr(work_limits, "RENEW_SECONDS", 0.2)
    cluster = ClusterFactory(name="slow")
    with acquire_slot(cluster, spare=1) as slot:
        assert slot is not None
        time.sleep(1.6)
        with acquire_slot(cluster, spare=1) as other:
            assert other is None


@pytest.mark.postgres
def test_many_tasks_at_once_share_the_slots_exactly(postgres_db: str) -> None:
    cluster, start, end = ClusterFactory(name="busy"), Barrier(8), Barrier(8)

    def hold(_number: int) -> bool:
        try:
            start.wait()
            with acquire_slot(cluster) as slot:
                end.wait()
                return slot is not None
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(hold, range(8))) == 2
