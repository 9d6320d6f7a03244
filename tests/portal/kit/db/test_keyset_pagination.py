"""Pages by keyset: every row once, in order, whatever the ties; a forged cursor is refused."""

import base64
import json
from datetime import timedelta

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from portal.kit.db.keyset_pagination import page_of
from portal.kit.errors import BadRequest
from portal.kit.models import Period

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows() -> QuerySet[Period]:
    """Seven rows; the moments repeat."""
    now = timezone.now()
    Period.objects.bulk_create(Period(job=f"job-{n}", start=now - timedelta(hours=n // 3)) for n in range(7))
    return Period.objects.all()


@pytest.mark.parametrize("column", ["start", "-start", "job", "-job"])
def test_walking_shows_every_row_once_and_in_order(rows: QuerySet[Period], column: str) -> None:
    seen, after = [], ""
    while True:
        page = page_of(rows, column=column, after=after, size=2)
        seen += page.rows
        if not (after := page.next):
            break
    sign = "-" if column.startswith("-") else ""
    assert seen == list(rows.order_by(column, f"{sign}id"))


def test_the_last_page_has_no_next(rows: QuerySet[Period]) -> None:
    assert page_of(rows, column="job", after="", size=7).next == ""


@pytest.mark.parametrize(
    "cursor",
    [
        pytest.param("%%%", id="no base64"),
        pytest.param("bm9uZQ", id="no JSON"),
        pytest.param(base64.urlsafe_b64encode(json.dumps([1, 2, 3]).encode()).decode(), id="wrong length"),
        pytest.param(base64.urlsafe_b64encode(json.dumps([{"a": 1}, "1"]).encode()).decode(), id="an object"),
        pytest.param(base64.urlsafe_b64encode(json.dumps(["yesterday", "1"]).encode()).decode(), id="no moment"),
        pytest.param(base64.urlsafe_b64encode(json.dumps(["2026-01-01", "x' OR 1=1"]).encode()).decode(), id="no id"),
        pytest.param("ü", id="not ASCII"),
    ],
)
def test_t51_a_forged_cursor_is_refused(rows: QuerySet[Period], cursor: str) -> None:
    with pytest.raises(BadRequest):
        page_of(rows, column="start", after=cursor, size=2)


def test_an_empty_table_is_one_empty_page() -> None:
    assert page_of(Period.objects.none(), column="start", after="", size=2).rows == []
