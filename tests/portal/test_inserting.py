"""Rows written together hold what the ORM would have written, whatever stands in them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.models import Cluster, ObservedPod
from portal.core.inserting import TOGETHER, insert, upsert
from tests.factories.clusters import build_cluster
from tests.factories.workloads import WorkloadFactory
from workloads.models import WorkloadEvent

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


@pytest.fixture(
    params=[pytest.param("sqlite", marks=pytest.mark.django_db), pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def cluster() -> Cluster:
    """A cluster in either database: each has a way of its own."""
    return build_cluster(name="lab")


def pod(cluster: Cluster, uid: str, **said: Any) -> ObservedPod:
    plain = {"namespace": "ns", "name": uid, "created_at": MOMENT, "observed_at": MOMENT, "resource_version": "1"}
    return ObservedPod(cluster=cluster, uid=uid, **{**plain, **said})


def stored() -> dict[str, dict[str, Any]]:
    rows = ObservedPod.objects.values()
    return {row["uid"]: {key: value for key, value in row.items() if key not in {"id", "uid"}} for row in rows}


def test_any_text_number_moment_and_document_comes_back_as_by_the_orm(cluster: Cluster) -> None:
    for text in ODD:
        said: dict[str, Any] = {
            "name": "one",
            "message": text,
            "memory_bytes": 2**53 + 1,
            "gone_at": MOMENT,
            "node_selector": {text: text},
            "tolerations": [{"key": text, "n": None}, 1, True],
        }
        pod(cluster, f"by-orm {text}", **said).save()
        upsert([pod(cluster, f"together {text}", **said)], unique=["cluster", "uid"], update=UPDATED)
        found = stored()
        assert found[f"together {text}"] == found[f"by-orm {text}"]


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


@pytest.mark.usefixtures("cluster")
def test_one_row_comes_back_as_by_the_orm_too() -> None:
    workload = WorkloadFactory()
    for text in ODD:
        detail = {text: [text, None, True, 0, -1.5, 10**30, 2**63, {}, []], "moment": None}
        said: dict[str, Any] = {"workload": workload, "at": MOMENT, "type": "action", "message": text, "detail": detail}
        by_orm, inserted = WorkloadEvent(**said), WorkloadEvent(**said)
        by_orm.save()
        insert(inserted)
        first, second = WorkloadEvent.objects.filter(pk__in=[by_orm.pk, inserted.pk]).order_by("pk").values()
        assert {**first, "id": 0} == {**second, "id": 0}
        assert second["detail"] == detail
    inserted.message = "changed"
    inserted.save()
    assert WorkloadEvent.objects.get(pk=inserted.pk).message == "changed"
