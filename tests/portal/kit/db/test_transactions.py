"""A dry run, or work under an idempotency key: no transaction is open while another system is asked."""

from collections.abc import Callable

import pytest
from django.db import connection, transaction

from portal.kit.db.transactions import external_call, rollback_scope, with_external_calls
from portal.kit.errors import ValidationFailed
from tenants.organisation.models import Department
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db(transaction=True)


class Other:
    """Another system: what it was asked, and whether a transaction was open then."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, bool]] = []

    def question(self, name: str, *, fails: bool = False) -> Callable[[], str]:
        def ask() -> str:
            self.requested.append((name, connection.in_atomic_block))
            if fails:
                raise ConnectionError(name)
            return f"{name} answered"

        return ask


@pytest.fixture
def other() -> Other:
    """The system beside."""
    return Other()


def within(work: Callable[[], object]) -> Callable[[], object]:
    """The work in an attempt."""

    def run() -> object:
        with rollback_scope():
            return work()

    return run


def test_each_question_is_asked_once_and_outside_and_what_was_done_before_it_is_done_once(other: Other) -> None:
    cluster = build_cluster(name="lab")

    def work() -> list[str]:
        Department.objects.create(name="vision", cluster=cluster)
        first = external_call(other.question("first"))
        Department.objects.create(name=first, cluster=cluster)
        return [first, external_call(other.question("second"))]

    assert with_external_calls(within(work)) == ["first answered", "second answered"]
    assert other.requested == [("first", False), ("second", False)]
    assert sorted(Department.objects.values_list("name", flat=True)) == ["first answered", "vision"]


def test_what_it_raises_is_raised_where_it_is_asked(other: Other) -> None:
    def work() -> str:
        try:
            return external_call(other.question("first", fails=True))
        except ConnectionError as error:
            return external_call(other.question(f"after {error}"))

    assert with_external_calls(within(work)) == "after first answered"
    assert other.requested == [("first", False), ("after first", False)]


def test_a_refusal_after_the_answer_is_raised_and_keeps_what_was_recorded(other: Other) -> None:
    cluster = build_cluster(name="lab")

    def work() -> None:
        external_call(other.question("first"))
        Department.objects.create(name="recorded", cluster=cluster)
        raise ValidationFailed("No.")

    with pytest.raises(ValidationFailed):
        with_external_calls(within(work))
    assert Department.objects.get().name == "recorded"


def test_where_nothing_is_attempted_the_question_is_asked_at_once(other: Other) -> None:
    assert external_call(other.question("first")) == "first answered"
    assert with_external_calls(lambda: external_call(other.question("second"))) == "second answered"
    with transaction.atomic():
        external_call(other.question("third"))
    assert other.requested == [("first", False), ("second", False), ("third", True)]


def test_an_attempt_within_a_question_is_one_of_its_own(other: Other) -> None:
    def inner() -> str:
        return str(with_external_calls(within(lambda: external_call(other.question("inner")))))

    assert with_external_calls(within(lambda: external_call(inner))) == "inner answered"
    assert other.requested == [("inner", False)]
