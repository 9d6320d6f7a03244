"""A part of a name is found by an index on PostgreSQL, and by a scan where the extension is not to be had."""

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import Model

from portal.audit.models import AuditRecord
from portal.kit.db import search_indexes
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db


def indexes() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE indexname LIKE '%trigrams'")
        return {name for (name,) in cursor.fetchall()}


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("model", "lookup", "column"),
    [
        pytest.param(Workload, "name__icontains", "name", id="workload"),
        pytest.param(AuditRecord, "actor_name__icontains", "actor_name", id="who"),
        pytest.param(AuditRecord, "action__istartswith", "action", id="action"),
        pytest.param(AuditRecord, "entity_name__icontains", "entity_name", id="what"),
    ],
)
def test_a_search_by_a_part_of_a_name_can_use_an_index(model: type[Model], lookup: str, column: str) -> None:
    with connection.cursor() as cursor:
        for way in ("seqscan", "indexscan", "indexonlyscan"):
            cursor.execute(f"SET enable_{way} = off")
    plan = model._default_manager.filter(**{lookup: "llama"}).order_by().explain()
    assert f"{model._meta.db_table}_{column}_trigrams" in plan


@pytest.mark.postgres
def test_without_the_extension_migrate_goes_on_and_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP EXTENSION pg_trgm CASCADE")
    with monkeypatch.context() as patched:
        patched.setattr(search_indexes, "_EXTENSION", "CREATE EXTENSION not_there")
        search_indexes.install(apps.get_app_config("workloads"), using="default")
    assert not indexes()
    assert Workload.objects.filter(name__icontains="llama").count() == 0
    search_indexes.install(apps.get_app_config("workloads"), using="default")
    assert indexes() == {"workloads_workload_name_trigrams"}
