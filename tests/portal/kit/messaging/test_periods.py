"""Periodic work happens once per period, however many beats send it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from portal.kit.messaging import tasks
from portal.kit.models import Period

NOON = datetime(2026, 1, 1, 12, 0, 7, tzinfo=UTC)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Set the clock."""
    return lambda moment: monkeypatch.setattr(timezone, "now", lambda: moment)


@pytest.mark.django_db
def test_the_first_to_come_gets_the_period_and_the_second_does_not(at: Callable[[datetime], None]) -> None:
    at(NOON)
    assert [tasks.claim_period("sweep", every=10), tasks.claim_period("sweep", every=10)] == [
        True,
        False,
    ]


@pytest.mark.django_db
def test_the_next_period_is_free_again(at: Callable[[datetime], None]) -> None:
    at(NOON)
    tasks.claim_period("sweep", every=10)
    at(NOON + timedelta(seconds=3))
    assert tasks.claim_period("sweep", every=10)


@pytest.mark.django_db
def test_jobs_do_not_share_periods(at: Callable[[datetime], None]) -> None:
    at(NOON)
    assert tasks.claim_period("sweep", every=10)
    assert tasks.claim_period("tick", every=10)


def test_every_process_cuts_time_at_the_same_instants() -> None:
    assert tasks.period_start(NOON, 10) == datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    assert tasks.period_start(NOON, 1) == NOON


@pytest.mark.django_db
def test_old_claims_are_forgotten(at: Callable[[datetime], None]) -> None:
    at(NOON)
    tasks.claim_period("sweep", every=10)
    at(NOON + timedelta(days=2))
    tasks.claim_period("sweep", every=10)
    assert tasks.forget_old_periods() == 1
    assert Period.objects.count() == 1


@pytest.mark.postgres
def test_of_many_at_the_same_instant_one_wins(at: Callable[[datetime], None]) -> None:
    at(NOON)

    def claim(_number: int) -> bool:
        try:
            return tasks.claim_period("sweep", every=10)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(claim, range(64))) == 1
