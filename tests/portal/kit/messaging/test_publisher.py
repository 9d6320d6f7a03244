"""A wake-up is sent after the commit, never waits for a broker, and may be lost."""

import base64
import json
import os
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import redis
from django.db import transaction
from kombu import pools
from pytest_django.fixtures import Settings

from portal.kit.messaging import publisher

BOUND_SECONDS = 0.1


@pytest.fixture(autouse=True)
def _switched_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.RUNG_WAKEUPS = "on"
    monkeypatch.setitem(publisher._state, "quiet_until", 0.0)
    yield
    publisher.flush(5)
    pools.reset()


def use_broker(settings: Settings, url: str) -> None:
    settings.CELERY_BROKER_URL = url
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {}


def seconds_of_a_wake_up() -> float:
    started = time.monotonic()
    publisher.notify_worker("core.canary", "sync", queue="sync")
    return time.monotonic() - started


@contextmanager
def black_hole() -> Iterator[socket.socket]:
    """A listener that lets anybody connect and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.setblocking(False)
        yield listener


def url_of(listener: socket.socket) -> str:
    return f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def new_connections(listener: socket.socket) -> int:
    """How many were opened since the last call."""
    number = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            number += 1
    return number


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_swallows_everything_holds_nobody_up(socket_enabled: None, settings: Settings) -> None:
    with black_hole() as listener:
        use_broker(settings, url_of(listener))
        assert seconds_of_a_wake_up() < BOUND_SECONDS
        assert publisher.flush(5)


@pytest.mark.django_db(transaction=True)
def test_after_a_failure_nothing_is_tried_for_a_while(socket_enabled: None, settings: Settings) -> None:
    with black_hole() as listener:
        use_broker(settings, url_of(listener))
        seconds_of_a_wake_up()
        assert publisher.flush(5)
        assert new_connections(listener) >= 1
        for _ in range(100):
            publisher.notify_worker("core.canary", "sync", queue="sync")
        assert publisher.flush(5)
        assert new_connections(listener) == 0


@pytest.mark.django_db(transaction=True)
def test_what_no_longer_fits_behind_a_slow_broker_is_dropped(socket_enabled: None, settings: Settings) -> None:
    with black_hole() as listener:
        use_broker(settings, url_of(listener))
        taken = [seconds_of_a_wake_up() for _ in range(2 * publisher.LONGEST_QUEUE)]
        assert statistics.median(taken[publisher.LONGEST_QUEUE :]) < 0.001
        assert publisher.flush(5)


@pytest.mark.django_db(transaction=True)
def test_a_forked_process_sends_its_own_messages(redis_url: str, settings: Settings) -> None:
    use_broker(settings, redis_url)
    with redis.Redis.from_url(redis_url) as broker:
        broker.flushdb()
        seconds_of_a_wake_up()
        assert publisher.flush(5)
        if (child := os.fork()) == 0:
            seconds_of_a_wake_up()
            os._exit(0 if publisher.flush(5) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert broker.llen("sync") == 2


@pytest.mark.django_db(transaction=True)
def test_a_request_goes_on_when_nobody_listens(socket_enabled: None, settings: Settings) -> None:
    use_broker(settings, "redis://127.0.0.1:1/0")
    with transaction.atomic():
        assert seconds_of_a_wake_up() < BOUND_SECONDS


@pytest.mark.django_db(transaction=True)
def test_the_message_leaves_after_the_commit_and_not_before(redis_url: str, settings: Settings) -> None:
    use_broker(settings, redis_url)
    with redis.Redis.from_url(redis_url) as broker:
        broker.flushdb()
        with transaction.atomic():
            publisher.notify_worker("core.canary", "sync", queue="sync")
            assert publisher.flush(5)
            assert broker.llen("sync") == 0
        assert publisher.flush(5)
        assert broker.llen("sync") == 1


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_change_wakes_nobody(redis_url: str, settings: Settings) -> None:
    use_broker(settings, redis_url)

    def change_and_fail() -> None:
        with transaction.atomic():
            publisher.notify_worker("core.canary", "sync", queue="sync")
            raise ZeroDivisionError

    with redis.Redis.from_url(redis_url) as broker:
        broker.flushdb()
        with pytest.raises(ZeroDivisionError):
            change_and_fail()
        assert publisher.flush(5)
        assert broker.llen("sync") == 0


@pytest.mark.django_db(transaction=True)
def test_a_burst_of_one_message_is_sent_a_few_times(redis_url: str, settings: Settings) -> None:
    use_broker(settings, redis_url)
    with redis.Redis.from_url(redis_url) as broker:
        broker.flushdb()
        for each in ["one", "two"] * 100:
            publisher.notify_worker("workloads.apply_due", each, queue="workloads")
        assert publisher.flush(5)
        sent = [json.loads(base64.b64decode(json.loads(each)["body"])) for each in broker.lrange("workloads", 0, -1)]
    assert {tuple(args) for args, *_ in sent} == {("one",), ("two",)}
    assert len(sent) < 20
