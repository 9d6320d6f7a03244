"""T63: guesses are counted exactly, whoever makes them at once, and a right one does not count."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from portal.kit.errors import TooManyRequests
from portal.kit.models import LimiterBucket
from portal.kit.security import rate_limit


def tries(key: str, number: int, *, limit: int = 3) -> list[bool]:
    return [passes(key, limit=limit) for _ in range(number)]


def passes(key: str, *, limit: int = 3) -> bool:
    try:
        rate_limit.hit("test", key, limit=limit, per=60)
    except TooManyRequests:
        return False
    return True


@pytest.mark.django_db
def test_the_first_few_tries_pass_and_the_next_is_told_when_to_come_back() -> None:
    assert tries("alice", 3) == [True, True, True]
    with pytest.raises(TooManyRequests) as refused:
        rate_limit.hit("test", "alice", limit=3, per=60)
    assert 0 < (refused.value.retry_after or 0) <= 60


@pytest.mark.django_db
def test_keys_are_counted_apart() -> None:
    assert tries("alice", 4)[-1] is False
    assert passes("bob")


@pytest.mark.django_db
def test_a_window_that_is_over_starts_again() -> None:
    tries("alice", 4)
    LimiterBucket.objects.update(ends_at=timezone.now() - timedelta(seconds=1))
    assert tries("alice", 4) == [True, True, True, False]


@pytest.mark.django_db
def test_a_right_guess_gives_its_try_back() -> None:
    tries("alice", 3)
    rate_limit.refund("test", "alice")
    assert tries("alice", 2) == [True, False]


@pytest.mark.django_db
def test_no_name_or_address_is_kept() -> None:
    passes("alice@example.org")
    assert "alice" not in LimiterBucket.objects.get().key


@pytest.mark.postgres
def test_of_many_parallel_tries_exactly_the_limit_passes() -> None:
    def guess(_number: int) -> bool:
        try:
            return passes("alice", limit=7)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(guess, range(200))) == 7
