"""Rows written together hold what the ORM would have written, whatever stands in them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.models import Cluster, ObservedPod
from portal.core.inserting import TOGETHER, upsert

pytestmark = pytest.mark.django_db
MOMENT = datetime(2026, 2, 28, 23, 59, 59, 123456, tzinfo=UTC)
ODD = [
    "",
    "it's",
    '"quoted"',
    "50 % of %s",
    "back\\slash",
    "ünï 🚀",
    "a\nb\tc",
    "{1,2}",
    "null",
    "\u2028",
    "<b>",
    "\x7f",
]
UPDATED = ["name", "message", "memory_bytes", "node_selector", "tolerations", "gone_at", "observed_at"]


def pod(cluster: Cluster, uid: str, **said: Any) -> ObservedPod:
    plain = {"namespace": "ns", "name": uid, "created_at": MOMENT, "observed_at": MOMENT, "resource_version": "1"}
    return ObservedPod(cluster=cluster, uid=uid, **{**plain, **said})


def stored() -> dict[str, dict[str, Any]]:
    rows = ObservedPod.objects.values()
    return {row["uid"]: {key: value for key, value in row.items() if key not in {"id", "uid"}} for row in rows}


@pytest.mark.parametrize("text", ODD)
def test_any_text_number_moment_and_document_comes_back_as_by_the_orm(cluster: Cluster, text: str) -> None:
    said: dict[str, Any] = {
        "message": text,
        "memory_bytes": 2**53 + 1,
        "gone_at": MOMENT,
        "node_selector": {text: text},
        "tolerations": [{"key": text, "n": None}, 1, True],
    }
    pod(cluster, "by-orm", **{**said, "name": "one"}).save()
    upsert([pod(cluster, "together", **{**said, "name": "one"})], unique=["cluster", "uid"], update=UPDATED)
    found = stored()
    assert found["together"] == found["by-orm"]


def test_rows_that_are_there_take_the_named_fields_and_keep_the_others(cluster: Cluster) -> None:
    first = pod(cluster, "old", phase="Running")
    first.save()
    again, fresh = pod(cluster, "old", name="changed", phase="Failed"), pod(cluster, "new")
    upsert([fresh, again], unique=["cluster", "uid"], update=UPDATED)
    first.refresh_from_db()
    assert (first.name, first.phase) == ("changed", "Running")
    assert (again.pk, fresh.pk) == (first.pk, ObservedPod.objects.get(uid="new").pk)
    fresh.phase = "Running"
    fresh.save()
    assert ObservedPod.objects.get(uid="new").phase == "Running"


def test_more_rows_than_one_statement_holds_are_all_written(cluster: Cluster) -> None:
    rows = [pod(cluster, f"pod-{number}") for number in range(TOGETHER + 5)]
    upsert(rows, unique=["cluster", "uid"], update=UPDATED)
    assert {row.pk: row.uid for row in rows} == dict(ObservedPod.objects.values_list("pk", "uid"))
    upsert([], unique=["cluster", "uid"], update=UPDATED)
