"""Fewer at a time when a cluster says so, none while it rests or is dead, and one try now and then until it lives."""

import threading
import time
from contextlib import suppress

import pytest

from clusters.backends.rate_limit import AdaptiveConcurrency, RateLimiter, RequestBreaker
from clusters.ports.gateway import ClusterBusy, ClusterUnreachable


def test_a_refusal_halves_and_answers_bring_one_back_at_a_time() -> None:
    pace = AdaptiveConcurrency(start=8, most=10)
    pace.pushed_back(100.0)
    assert pace.allowed == 4
    for _ in range(4):
        pace.answered()
    assert pace.allowed == 4  # a little less than one more: each answer counts by what is allowed then
    pace.answered()
    assert pace.allowed == 5


def test_there_is_a_most_and_a_least() -> None:
    pace = AdaptiveConcurrency(start=2, most=3)
    for _ in range(100):
        pace.answered()
    assert pace.allowed == 3
    for second in range(10):
        pace.pushed_back(float(second * 2))
    assert pace.allowed == 1


def test_refusals_of_one_round_are_one_message() -> None:
    pace = AdaptiveConcurrency(start=8)
    for _ in range(8):
        pace.pushed_back(100.0)
    assert pace.allowed == 4
    pace.pushed_back(101.5)
    assert pace.allowed == 2


def test_the_longest_rest_that_was_asked_for_counts() -> None:
    pace = AdaptiveConcurrency()
    pace.pushed_back(100.0, rest=30)
    pace.pushed_back(101.0, rest=5)
    assert pace.rests_until == 130.0


def test_a_breaker_opens_after_failures_in_a_row() -> None:
    breaker = RequestBreaker(after=3, first=1.0)
    for _ in range(2):
        breaker.failed(100.0, chance=1.0)
    breaker.succeeded()
    for _ in range(2):
        breaker.failed(100.0, chance=1.0)
    assert breaker.wait(100.0) == 0
    breaker.failed(100.0, chance=1.0)
    assert breaker.wait(100.0) == 1.0


@pytest.mark.parametrize(("chance", "waits"), [(1.0, [1, 2, 4, 8, 10, 10]), (0.0, [0.5, 1, 2, 4, 5, 5])])
def test_tries_become_ever_more_seldom_and_are_spread(chance: float, waits: list[float]) -> None:
    breaker = RequestBreaker(after=1, first=1.0, longest=10.0)
    seen, now = [], 0.0
    for _ in waits:
        breaker.tried(now)
        breaker.failed(now, chance=chance)
        seen.append(breaker.wait(now))
        now += breaker.wait(now)
    assert seen == waits


def test_many_connections_that_break_at_once_are_one_message() -> None:
    breaker = RequestBreaker(after=3, first=1.0, longest=60.0)
    for _ in range(20):
        breaker.failed(100.0, chance=1.0)
    assert breaker.wait(100.0) == 1.0


def test_one_alone_tries_while_it_is_open() -> None:
    breaker = RequestBreaker(after=1, first=1.0, longest=60.0)
    breaker.failed(100.0, chance=1.0)
    assert breaker.wait(101.0) == 0
    breaker.tried(101.0)
    assert breaker.wait(101.0) == 60.0
    breaker.succeeded()
    assert breaker.wait(101.0) == 0


def test_who_asks_while_another_one_tries_comes_again_soon_for_the_outcome() -> None:
    valve = RateLimiter("blue", breaker=RequestBreaker(after=1, first=0.5))
    fails(valve)
    time.sleep(0.51)
    with valve.turn():
        with pytest.raises(ClusterUnreachable) as refused, valve.turn():
            pass
        valve.answered()
    assert refused.value.retry_after == 1


def fails(valve: RateLimiter) -> None:
    with pytest.raises(ClusterUnreachable, match="silence"), valve.turn():
        raise ClusterUnreachable("silence")


def test_a_dead_cluster_refuses_at_once_and_lives_again_with_one_answer() -> None:
    valve = RateLimiter("blue", breaker=RequestBreaker(after=2, first=0.5))
    fails(valve)
    fails(valve)
    with pytest.raises(ClusterUnreachable, match="blue failed 2 times"), valve.turn():
        pass
    time.sleep(0.51)
    with valve.turn():
        valve.answered()
    with valve.turn():
        pass


def test_who_waits_for_a_turn_hears_that_the_cluster_died() -> None:
    valve = RateLimiter("blue", pace=AdaptiveConcurrency(start=1), breaker=RequestBreaker(after=1, first=60))
    heard: list[BaseException] = []
    inside = threading.Event()

    def wait() -> None:
        inside.wait(5)
        try:
            with valve.turn():
                pass
        except ClusterUnreachable as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    with suppress(ClusterUnreachable), valve.turn():
        inside.set()
        time.sleep(0.1)
        raise ClusterUnreachable("silence")
    thread.join(2)
    assert not thread.is_alive()
    assert len(heard) == 1


def test_no_more_are_under_way_than_allowed() -> None:
    valve = RateLimiter("blue", pace=AdaptiveConcurrency(start=3, most=3))
    lock, now, most = threading.Lock(), [0], [0]
    together = threading.Barrier(3, timeout=10)

    def work() -> None:
        with valve.turn():
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            together.wait()
            with lock:
                now[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == [3]


def test_a_short_rest_is_waited_for_and_a_long_one_is_told() -> None:
    valve = RateLimiter("blue")
    valve.answered(busy=True, rest=0.2)
    started = time.monotonic()
    with valve.turn():
        assert time.monotonic() - started >= 0.19
    valve.answered(busy=True, rest=30)
    with pytest.raises(ClusterBusy) as error, valve.turn():
        pass
    assert error.value.retry_after == 30
