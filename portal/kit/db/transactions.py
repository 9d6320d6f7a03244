"""One transaction around services that have their own: a dry run, or work that is bound to an idempotency key.

No transaction waits for another system. A service calls one by `external_call`: the attempt is rolled back, the other
system is called, and the attempt is repeated with its answer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from django.db import transaction

from portal.kit.errors import RungError

Value = TypeVar("Value")
Question = Callable[[], Any]


class _ExternalCallNeeded(Exception):
    """Has to be asked before the attempt can go on."""

    def __init__(self, question: Question) -> None:
        super().__init__("to be asked outside of the transaction")
        self.question = question


class _ExternalResults:
    """What other systems have said to the questions of an attempt, in their order; each try asks the same ones."""

    def __init__(self) -> None:
        self._known: list[Any] = []
        self._next = 0

    def begin(self) -> None:
        self._next = 0

    def to(self, question: Question) -> Any:
        if self._next == len(self._known):
            raise _ExternalCallNeeded(question)
        answer = self._known[self._next]
        self._next += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, question: Question) -> None:
        try:
            self._known.append(question())
        except Exception as error:  # raised at the place of the question
            self._known.append(error)


_within: ContextVar[bool] = ContextVar("_within", default=False)
_external_results: ContextVar[_ExternalResults | None] = ContextVar("_external_results", default=None)


def with_external_calls(work: Callable[[], Value]) -> Value:
    """What `work` answers, which makes one attempt; repeated after each call of another system.

    Inside another one the attempt is a part of that one's.
    """
    if _external_results.get() is not None and in_rollback_scope():
        return work()
    answers = _ExternalResults()
    token = _external_results.set(answers)
    try:
        while True:
            answers.begin()
            try:
                return work()
            except _ExternalCallNeeded as asks:
                answers.ask(asks.question)
    finally:
        _external_results.reset(token)


def external_call(question: Callable[[], Value]) -> Value:
    """What another system says, or raises. It is asked while no transaction of an attempt is open, and once."""
    answers = _external_results.get()
    return question() if answers is None or not in_rollback_scope() else cast("Value", answers.to(question))


@contextmanager
def rollback_scope() -> Iterator[None]:
    """A refusal ends it with a commit and goes on: the service has rolled back what it did; the record of its "no",
    and tries that were counted, stay. Every other error rolls everything back.
    """
    refusal: RungError | None = None
    token = _within.set(True)
    try:
        with transaction.atomic():
            try:
                yield
            except RungError as error:
                refusal = error
    finally:
        _within.reset(token)
    if refusal is not None:
        raise refusal


def in_rollback_scope() -> bool:
    """Is the transaction around the caller one that commits when something is refused?"""
    return _within.get()
