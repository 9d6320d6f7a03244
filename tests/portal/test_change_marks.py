"""A mark is drawn anew by the database with every change that counts, and by nothing else."""

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection, models, transaction
from django.utils import timezone

from clusters.models import Cluster
from portal.core.marks import Kept, read_marks, steady
from tenants.models import AccessKey, DepartmentQuota, Membership, PriorityCap, Project, ServiceAccount, User
from tests.factories.tenants import AccessKeyFactory, ServiceAccountFactory
from tests.factories.workloads import PolicyFactory

TOPICS = ("access", "rules")


def watched() -> Iterator[tuple[str, type[models.Model], str]]:
    """Topic, model and column of every update that counts."""
    for app in apps.get_app_configs():
        for topic, tables in getattr(app, "marked", {}).items():
            for name, fields in tables.items():
                model = app.get_model(name)
                for field in fields or [field.name for field in model._meta.concrete_fields]:
                    yield topic, model, str(model._meta.get_field(field).column)


@pytest.fixture
def everything(llm_team: Project, bob: User) -> None:
    """At least one row in every table that is watched."""
    ServiceAccountFactory()
    AccessKeyFactory()
    bob.groups.add(Group.objects.create(name="researchers"))
    PriorityCap.objects.create(project=llm_team, priority="low", gpu_limit=1000)
    PolicyFactory()


@pytest.mark.usefixtures("everything")
def test_every_update_that_counts_draws_the_mark_of_its_topic_and_no_other() -> None:
    for topic, model, column in watched():
        before = read_marks()
        with connection.cursor() as cursor:
            cursor.execute(f'UPDATE {model._meta.db_table} SET "{column}" = "{column}"')
        after = read_marks()
        moved = {each for each in TOPICS if getattr(before, each) != getattr(after, each)}
        assert moved == {topic}, f"{model.__name__}.{column}"


@pytest.mark.usefixtures("everything")
def test_rows_that_come_and_go_count_too() -> None:
    seen = {read_marks().access}
    Membership.objects.all().delete()
    seen.add(read_marks().access)
    ServiceAccountFactory()
    seen.add(read_marks().access)
    assert len(seen) == 3


@pytest.mark.usefixtures("everything")
def test_being_seen_and_signing_in_are_no_changes() -> None:
    before = read_marks()
    Cluster.objects.update(observed_at=timezone.now(), generation=7)
    ServiceAccount.objects.update(last_login=timezone.now())
    AccessKey.objects.update(last_login=timezone.now())
    User.objects.update(last_login=timezone.now())
    assert read_marks() == before


@pytest.mark.usefixtures("everything")
def test_a_mark_that_was_rolled_back_is_never_drawn_again() -> None:
    before, seen = read_marks(), set()
    for _ in range(3):
        with transaction.atomic():
            DepartmentQuota.objects.update(gpu_deserved=1000)
            seen.add(read_marks().rules)
            transaction.set_rollback(True)
    assert len(seen) == 3
    assert read_marks() == before


@pytest.mark.usefixtures("everything")
def test_what_is_kept_is_read_once_per_mark() -> None:
    kept, reads = Kept[int]("rules"), []

    def read() -> int:
        reads.append(1)
        return len(reads)

    def asked() -> int:
        with steady():
            return kept.of("key", read)

    assert [asked(), asked()] == [1, 1]
    DepartmentQuota.objects.update(gpu_deserved=1000)
    assert [asked(), asked()] == [2, 2]
    Membership.objects.all().delete()
    assert asked() == 2
    assert [kept.of("key", read), kept.of("key", read)] == [3, 4]


@pytest.mark.django_db
def test_nothing_is_kept_before_the_first_mark() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM core_changemark")
    kept = Kept[object]("rules")
    with steady():
        assert kept.of("key", object) is not kept.of("key", object)


@pytest.mark.postgres
def test_a_migration_back_and_forth_leaves_the_tables_writable_and_marked(postgres_db: str) -> None:
    call_command("migrate", "core", "0001", verbosity=0)
    ServiceAccountFactory()
    call_command("migrate", verbosity=0)
    assert not read_marks().access
    ServiceAccountFactory()
    assert read_marks().access
