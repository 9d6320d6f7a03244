"""On PostgreSQL a statement whose answer nobody waits for leaves with the next one; nothing else changes by that."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.models import F
from psycopg import sql

from portal.core.postgresql.base import DatabaseWrapper
from tenants.models import Department
from tests.factories.tenants import DepartmentFactory

pytestmark = pytest.mark.postgres
RENAME = "UPDATE tenants_department SET name = %s WHERE id = %s"


@pytest.fixture
def department() -> Department:
    """A row to change."""
    return DepartmentFactory(name="vision")


def leave(*statements: tuple[str, Any]) -> None:
    ours = connections["default"]
    assert isinstance(ours, DatabaseWrapper)
    ours.leave(list(statements))


def name_of(department: Department) -> str:
    return Department.objects.values_list("name", flat=True).get(pk=department.pk)


@contextmanager
def counted(wire: Callable[[], list[str]], expected: int) -> Iterator[None]:
    """Within it the server is waited for so many times."""
    before = len(wire())
    yield
    assert len(wire()) - before == expected


def test_begin_leaves_with_the_first_statement(department: Department, wire: Callable[[], list[str]]) -> None:
    with counted(wire, 2), transaction.atomic():
        assert name_of(department) == "vision"
    with counted(wire, 0), transaction.atomic():
        pass
    with counted(wire, 3), transaction.atomic(), transaction.atomic():
        pass


def test_what_is_left_leaves_with_the_commit(department: Department, wire: Callable[[], list[str]]) -> None:
    with counted(wire, 1), transaction.atomic():
        leave((RENAME, ("speech", department.pk)))
    with counted(wire, 2), transaction.atomic():
        assert name_of(department) == "speech"
        leave((RENAME, ("robots", department.pk)), (RENAME, ("50 % of 'us'", department.pk)))
    assert name_of(department) == "50 % of 'us'"


def test_a_per_cent_sign_stands_doubled_with_values_and_without(department: Department) -> None:
    doubled = "UPDATE tenants_department SET name = '50 %%' WHERE name LIKE 'vi%%'"
    with transaction.atomic():
        leave((doubled, ()))
    assert name_of(department) == "50 %"
    with transaction.atomic():
        leave((RENAME, ("vision", department.pk)), (doubled, ()))
        assert name_of(department) == "50 %"


def test_what_is_left_outside_of_a_transaction_is_done_at_once(department: Department) -> None:
    leave((RENAME, ("speech", department.pk)))
    assert name_of(department) == "speech"


def asked_plainly() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM tenants_department WHERE name LIKE 'sp%' AND name LIKE '%ch'")
        return cursor.fetchone()


def asked_by_name() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM tenants_department WHERE name = %(name)s", {"name": "speech"})
        return cursor.fetchone()


def asked_as_composed() -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SELECT name FROM {}").format(sql.Identifier("tenants_department")))
        return cursor.fetchone()


def asked_in_parts() -> Any:
    return next(Department.objects.values_list("name").iterator(1))


def asked_in_parts_and_locked() -> Any:
    return next(Department.objects.select_for_update().values_list("name").iterator(1))


def asked_after_many() -> Any:
    with connection.cursor() as cursor:
        cursor.executemany("UPDATE tenants_department SET name = name || %s", [("",), ("",)])
    return asked_plainly()


def asked_by_copy() -> Any:
    with connection.cursor() as cursor, cursor.copy("COPY (SELECT name FROM tenants_department) TO STDOUT") as copy:
        (row,) = copy.rows()
        return row


@pytest.mark.parametrize(
    "ask",
    [
        asked_plainly,
        asked_by_name,
        asked_as_composed,
        asked_in_parts,
        asked_in_parts_and_locked,
        asked_after_many,
        asked_by_copy,
    ],
)
def test_whatever_is_asked_next_sees_what_was_left(department: Department, ask: Callable[[], Any]) -> None:
    with transaction.atomic():
        leave((RENAME, ("speech", department.pk)))
        assert tuple(ask()) == ("speech",)
    with transaction.atomic():
        assert tuple(ask()) == ("speech",)
        leave((RENAME, ("speech", department.pk)), (RENAME, ("speech", department.pk)))
        assert tuple(ask()) == ("speech",)


def renamed(department: Department, name: str, *, then: Callable[[], object] = lambda: None) -> None:
    """One transaction: a new name that is left, and what comes then."""
    with transaction.atomic():
        leave((RENAME, (name, department.pk)))
        then()


def fail() -> None:
    raise ZeroDivisionError


def test_a_rollback_takes_along_what_was_left(department: Department) -> None:
    with pytest.raises(ZeroDivisionError):
        renamed(department, "speech", then=fail)
    assert name_of(department) == "vision"


def test_a_savepoint_takes_along_only_what_was_left_within_it(department: Department) -> None:
    with transaction.atomic():
        leave((RENAME, ("speech", department.pk)))
        with pytest.raises(ZeroDivisionError):
            renamed(department, "robots", then=fail)
        with transaction.atomic():
            Department.objects.update(name=F("name"))
    assert name_of(department) == "speech"


def test_an_error_of_what_was_left_comes_from_whatever_takes_it_along(department: Department) -> None:
    other = DepartmentFactory(name="speech", cluster=department.cluster)
    everything = Department.objects.exclude(pk=department.pk)
    with pytest.raises(IntegrityError):
        renamed(department, "moved", then=lambda: everything.update(name="moved") and name_of(department))
    with pytest.raises(IntegrityError):
        renamed(department, "speech")
    assert (name_of(department), name_of(other)) == ("vision", "speech")
    renamed(department, "robots")
    assert name_of(department) == "robots"


def test_nothing_is_left_to_a_transaction_that_is_broken(department: Department) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            leave((RENAME, ("speech", department.pk)))
    assert name_of(department) == "vision"


def test_a_connection_that_died_with_something_left_starts_afresh(department: Department) -> None:
    def dies() -> None:
        name_of(department)
        leave((RENAME, ("robots", department.pk)))
        connection.connection.pgconn.finish()

    with pytest.raises(OperationalError):
        renamed(department, "speech", then=dies)
    connection.close()
    assert name_of(department) == "vision"


def test_rolling_back_by_hand_forgets_what_was_left(department: Department) -> None:
    connection.set_autocommit(False)
    Department.objects.filter(pk=department.pk).update(name="speech")
    connection.rollback()
    connection.set_autocommit(True)
    assert name_of(department) == "vision"
