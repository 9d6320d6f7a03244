"""Settings are read again by the request after any program has changed them, and not before."""

from collections.abc import Iterator

import psycopg
import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.db import connection, models, transaction
from django.db.models import Count, Max
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster
from portal.kit.db import read_cache
from portal.kit.db.read_cache import cached_read, cached_reads
from portal.kit.models import SettingsVersion
from tenants.access.models import AccessKey, Membership, ServiceAccount, User
from tenants.quotas.models import DepartmentQuota, PriorityCap
from tests.factories.tenants import (
    AccessKeyFactory,
    DepartmentQuotaFactory,
    MembershipFactory,
    ProjectQuotaFactory,
    ServiceAccountFactory,
)
from tests.factories.workloads import PolicyFactory

calls: list[str] = []


@cached_read
def read(key: str) -> int:
    calls.append(key)
    return len(calls)


def read_in_a_request(key: str = "key") -> int:
    with cached_reads():
        assert read(key) == read(key)
        return read(key)


def version() -> object:
    return tuple(SettingsVersion.objects.aggregate(Count("pk"), Max("pk"), Max("changed_at")).values())


def watched() -> Iterator[tuple[type[models.Model], str]]:
    """Model and column of every update that counts."""
    for app in apps.get_app_configs():
        for name, fields in getattr(app, "cached", {}).items():
            model = app.get_model(name)
            for field in fields or [field.name for field in model._meta.concrete_fields]:
                yield model, str(model._meta.get_field(field).column)


@pytest.fixture
def everything(postgres_db: str) -> None:
    """A row in every table that is watched."""
    project = ProjectQuotaFactory().project
    DepartmentQuotaFactory(department=project.department)
    PriorityCap.objects.create(project=project, priority="low", gpu_limit=1000)
    MembershipFactory(project=project).user.groups.add(Group.objects.create(name="researchers"))
    ServiceAccountFactory()
    AccessKeyFactory()
    PolicyFactory()


@pytest.mark.postgres
@pytest.mark.usefixtures("everything")
def test_every_update_of_settings_changes_the_version() -> None:
    for model, column in watched():
        before = version()
        with connection.cursor() as cursor:
            cursor.execute(f'UPDATE {model._meta.db_table} SET "{column}" = "{column}"')
        assert version() != before, f"{model.__name__}.{column}"


@pytest.mark.postgres
@pytest.mark.usefixtures("everything")
def test_heartbeats_and_sign_ins_leave_the_version() -> None:
    before = version()
    Cluster.objects.update(observed_at=timezone.now(), generation=7)
    for model in (ServiceAccount, AccessKey, User):
        model._default_manager.update(last_login=timezone.now())
    assert version() == before


@pytest.mark.postgres
@pytest.mark.usefixtures("everything")
def test_a_version_that_was_rolled_back_never_returns() -> None:
    before, seen = version(), set()
    for _ in range(3):
        with transaction.atomic():
            DepartmentQuota.objects.update(gpu_deserved=1000)
            seen.add(version())
            transaction.set_rollback(True)
    assert len(seen) == 3
    assert version() == before


@pytest.mark.postgres
@pytest.mark.usefixtures("everything")
def test_a_restored_database_that_counts_its_ids_again_is_read_again() -> None:
    last = SettingsVersion.objects.latest("pk").pk
    DepartmentQuota.objects.update(gpu_deserved=1000)
    first = read_in_a_request()
    with connection.cursor() as cursor:
        SettingsVersion.objects.filter(pk__gt=last).delete()
        cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", [SettingsVersion._meta.db_table, last])
    DepartmentQuota.objects.update(gpu_deserved=2000)
    assert SettingsVersion.objects.latest("pk").pk == last + 1
    assert read_in_a_request() != first


@pytest.mark.postgres
@pytest.mark.usefixtures("everything")
def test_a_value_is_read_once_per_version() -> None:
    first = read_in_a_request()
    assert read_in_a_request() == first
    DepartmentQuota.objects.update(gpu_deserved=1000)
    second = read_in_a_request()
    assert second != first
    Membership.objects.all().delete()
    assert read_in_a_request() not in {first, second}
    assert read("key") != read("key")


@pytest.mark.postgres
@pytest.mark.usefixtures("everything")
def test_changes_wait_for_no_other_change_and_count_when_they_commit(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute("UPDATE clusters_cluster SET served_kinds = '[]'")
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '5s'")
            DepartmentQuota.objects.update(gpu_deserved=1000)
        first = read_in_a_request()
        assert read_in_a_request() == first
    assert read_in_a_request() != first


@pytest.mark.postgres
@pytest.mark.usefixtures("everything")
def test_what_was_read_before_old_changes_are_forgotten_is_read_again() -> None:
    first = read_in_a_request()
    read_cache.forget_old()
    assert SettingsVersion.objects.count() == 1
    assert read_in_a_request() != first


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_db")
def test_pages_read_who_may_see_what_again_only_after_it_has_changed() -> None:
    membership = MembershipFactory(project=ProjectQuotaFactory().project)
    client = Client()
    client.force_login(membership.user)
    assert membership.project.name in client.get("/projects/").content.decode()
    with CaptureQueriesContext(connection) as queries:
        assert membership.project.name in client.get("/projects/").content.decode()
    assert not [each for each in queries if Membership._meta.db_table in each["sql"]]
    membership.delete()
    assert membership.project.name not in client.get("/projects/").content.decode()


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_db")
@pytest.mark.parametrize(
    ("path", "times"),
    [("/projects/", 1), ("/api/v1/whoami", 1), ("/login/", 0), ("/healthz", 0), ("/readyz", 0), ("/metrics", 0)],
)
def test_a_request_reads_the_version_once_but_not_for_a_sign_in_or_health(path: str, times: int) -> None:
    client = Client(headers={"Authorization": "Bearer unknown"})
    client.force_login(MembershipFactory().user)
    with CaptureQueriesContext(connection) as queries:
        client.get(path)
    assert sum(SettingsVersion._meta.db_table in each["sql"] for each in queries) == times


@pytest.mark.django_db
def test_without_a_version_a_value_is_read_once_per_request() -> None:
    assert read_in_a_request() != read_in_a_request()
