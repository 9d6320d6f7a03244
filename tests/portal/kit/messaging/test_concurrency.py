"""Calls side by side: answers come to the thread that asked, the first fault ends it, no thread stays behind."""

import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from portal.kit.messaging.concurrency import flat_map_concurrently, map_concurrently


def nothing() -> None:
    """Idle without a thought."""


@pytest.fixture
def begun_threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Those that the test begins itself: servers of other tests may begin threads at any time."""
    found: list[threading.Thread] = []
    begin, asking = threading.Thread.start, threading.current_thread()

    def noted(thread: threading.Thread) -> None:
        if threading.current_thread() is asking:
            found.append(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return found


def alive(threads: Iterable[threading.Thread]) -> list[str]:
    return [thread.name for thread in threads if thread.is_alive()]


@pytest.mark.parametrize("threads", [1, 4])
def test_every_task_is_answered_once(threads: int) -> None:
    answers = dict(map_concurrently(range(50), lambda number: number * 2, threads=threads, idle=nothing))
    assert answers == {number: number * 2 for number in range(50)}


def test_they_really_run_at_the_same_time() -> None:
    together = threading.Barrier(4, timeout=10)
    assert len(list(map_concurrently(range(4), lambda _: together.wait(), threads=4, idle=nothing))) == 4


def test_one_at_a_time_happens_in_the_thread_that_asks() -> None:
    done = list(map_concurrently("ab", lambda _: threading.current_thread(), threads=1, idle=nothing))
    assert {thread for _, thread in done} == {threading.current_thread()}


@pytest.mark.parametrize("threads", [1, 4])
def test_a_fault_ends_it_and_nothing_more_is_begun(threads: int, begun_threads: list[threading.Thread]) -> None:
    begun: list[int] = []

    def act(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise ZeroDivisionError
        time.sleep(0.01)

    with pytest.raises(ZeroDivisionError):
        list(map_concurrently(range(1000), act, threads=threads, idle=nothing))
    assert len(begun) < 100
    assert len(begun_threads) == (threads if threads > 1 else 0)
    assert not alive(begun_threads)


def test_whoever_asks_stays_awake_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.kit.messaging.concurrency.TICK", 0.01)
    awake: list[float] = []
    release = threading.Event()

    def idle() -> None:
        awake.append(time.monotonic())
        if len(awake) == 3:
            release.set()

    assert len(list(map_concurrently([1], lambda _: release.wait(10), threads=2, idle=idle))) == 1
    assert len(awake) >= 3


def test_an_abandoned_question_leaves_no_thread_behind(begun_threads: list[threading.Thread]) -> None:
    answers = map_concurrently(range(100), lambda _: time.sleep(0.001), threads=4, idle=nothing)
    next(answers)
    answers.close()
    assert len(begun_threads) == 4
    assert not alive(begun_threads)


@pytest.mark.parametrize("threads", [1, 4])
def test_what_is_done_meanwhile_is_done_once_and_by_whoever_asks(threads: int) -> None:
    meanwhile: list[threading.Thread] = []

    def note() -> None:
        meanwhile.append(threading.current_thread())

    found = list(map_concurrently(range(5), lambda number: number, threads=threads, idle=nothing, meanwhile=note))
    assert len(found) == 5
    assert meanwhile == [threading.current_thread()]


def test_it_is_done_while_the_first_answers_are_on_their_way() -> None:
    release = threading.Event()
    answers = map_concurrently([1], lambda _: release.wait(10), threads=2, idle=nothing, meanwhile=release.set)
    assert list(answers) == [(1, True)]


def test_where_it_raises_no_list_under_way_is_left_behind(begun_threads: list[threading.Thread]) -> None:
    begun: list[int] = []
    ended: list[int] = []
    under_way = threading.Barrier(4, timeout=10)

    def act(number: int) -> None:
        begun.append(number)
        if number < 3:
            under_way.wait()
        time.sleep(0.05)
        ended.append(number)

    def fail() -> None:
        under_way.wait()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(map_concurrently(range(1000), act, threads=3, idle=nothing, meanwhile=fail))
    assert len(begun_threads) == 3
    assert not alive(begun_threads)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 100


def test_one_at_a_time_nothing_is_begun_where_it_raises() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    begun: list[int] = []
    with pytest.raises(ZeroDivisionError):
        list(map_concurrently(range(3), begun.append, threads=1, idle=nothing, meanwhile=fail))
    assert begun == []


@pytest.mark.parametrize("threads", [1, 3])
def test_an_answer_in_parts_is_told_as_it_comes_and_in_its_order(threads: int) -> None:
    def act(number: int) -> Iterator[str]:
        for part in range(number):
            time.sleep(0.001)
            yield f"{number}.{part}"

    found = list(flat_map_concurrently(range(5), act, threads=threads, idle=nothing))
    assert sorted(found) == [(number, f"{number}.{part}") for number in range(5) for part in range(number)]
    for number in range(5):
        parts = [part for task, part in found if task == number]
        assert parts == sorted(parts)


def test_a_part_does_not_wait_for_the_next_one() -> None:
    told = threading.Event()

    def act(_: int) -> Iterator[int]:
        yield 1
        assert told.wait(10)
        yield 2

    found = []
    for _, part in flat_map_concurrently([0], act, threads=2, idle=nothing):
        found.append(part)
        told.set()
    assert found == [1, 2]


def test_an_abandoned_question_ends_an_answer_between_its_parts(begun_threads: list[threading.Thread]) -> None:
    parts = flat_map_concurrently([0], lambda _: iter(int, 1), threads=2, idle=nothing)
    assert next(parts) == (0, 0)
    parts.close()
    assert len(begun_threads) == 1
    assert not alive(begun_threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_fault_between_two_parts_is_raised_after_the_first(threads: int) -> None:
    def act(_: int) -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    parts = flat_map_concurrently([0], act, threads=threads, idle=nothing)
    assert next(parts) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        next(parts)
