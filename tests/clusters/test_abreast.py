"""Calls side by side: answers come to the thread that asked, the first fault ends it, no thread stays behind."""

import threading
import time

import pytest

from clusters.abreast import abreast


def nothing() -> None:
    """Idle without a thought."""


@pytest.mark.parametrize("threads", [1, 4])
def test_every_task_is_answered_once(threads: int) -> None:
    answers = dict(abreast(range(50), lambda number: number * 2, threads=threads, idle=nothing))
    assert answers == {number: number * 2 for number in range(50)}


def test_they_really_run_at_the_same_time() -> None:
    together = threading.Barrier(4, timeout=10)
    assert len(list(abreast(range(4), lambda _: together.wait(), threads=4, idle=nothing))) == 4


def test_one_at_a_time_happens_in_the_thread_that_asks() -> None:
    done = list(abreast("ab", lambda _: threading.current_thread(), threads=1, idle=nothing))
    assert {thread for _, thread in done} == {threading.current_thread()}


@pytest.mark.parametrize("threads", [1, 4])
def test_a_fault_ends_it_and_nothing_more_is_begun(threads: int) -> None:
    begun: list[int] = []

    def act(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise ZeroDivisionError
        time.sleep(0.01)

    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        list(abreast(range(1000), act, threads=threads, idle=nothing))
    assert len(begun) < 100
    assert set(threading.enumerate()) <= before


def test_whoever_asks_stays_awake_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.abreast.TICK", 0.01)
    awake: list[float] = []
    release = threading.Event()

    def idle() -> None:
        awake.append(time.monotonic())
        if len(awake) == 3:
            release.set()

    assert len(list(abreast([1], lambda _: release.wait(10), threads=2, idle=idle))) == 1
    assert len(awake) >= 3


def test_whoever_stops_asking_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    answers = abreast(range(100), lambda _: time.sleep(0.001), threads=4, idle=nothing)
    next(answers)
    del answers
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [1, 4])
def test_what_is_done_meanwhile_is_done_once_and_by_whoever_asks(threads: int) -> None:
    meanwhile: list[threading.Thread] = []

    def note() -> None:
        meanwhile.append(threading.current_thread())

    found = list(abreast(range(5), lambda number: number, threads=threads, idle=nothing, meanwhile=note))
    assert len(found) == 5
    assert meanwhile == [threading.current_thread()]


def test_it_is_done_while_the_first_answers_are_on_their_way() -> None:
    release = threading.Event()
    answers = abreast([1], lambda _: release.wait(10), threads=2, idle=nothing, meanwhile=release.set)
    assert list(answers) == [(1, True)]


def test_where_it_raises_no_list_under_way_is_left_behind() -> None:
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

    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        list(abreast(range(1000), act, threads=3, idle=nothing, meanwhile=fail))
    assert set(threading.enumerate()) <= before
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 100


def test_one_at_a_time_nothing_is_begun_where_it_raises() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    begun: list[int] = []
    with pytest.raises(ZeroDivisionError):
        list(abreast(range(3), begun.append, threads=1, idle=nothing, meanwhile=fail))
    assert begun == []
