"""The built-in dictionary and roles are there after `migrate`, and stay as admins changed them."""

import pytest
from django.apps import apps

from tenants.access.models import AccessRole
from tenants.access.services.roles import PREDEFINED, install_roles
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.dictionary.services.builtin import CATEGORIES, KINDS, NATIVE, PRIORITIES, install_dictionary

pytestmark = pytest.mark.django_db


def test_a_new_installation_has_run_ais_priorities_categories_and_types() -> None:
    assert list(Priority.objects.order_by("value").values_list("name", "value")) == [each[:2] for each in PRIORITIES]
    assert set(Category.objects.values_list("name", flat=True)) == {each[0] for each in CATEGORIES}
    assert WorkloadType.objects.count() == len(NATIVE) + len(KINDS) + 2
    training = WorkloadType.objects.get(name="Training")
    assert (training.category.name, training.priority.name, training.preemptibility) == ("Train", "low", "preemptible")


def test_a_later_migrate_leaves_a_changed_dictionary_alone() -> None:
    Priority.objects.filter(name="very-low").delete()
    Priority.objects.filter(name="low").update(description="Ours.")
    install_dictionary(apps=apps, using="default")
    assert Priority.objects.count() == len(PRIORITIES) - 1
    assert Priority.objects.get(name="low").description == "Ours."


def test_a_later_migrate_adds_the_built_in_roles_that_are_missing() -> None:
    AccessRole.objects.filter(key="viewer").update(description="Ours.")
    AccessRole.objects.filter(key="member").delete()
    install_roles(apps=apps, using="default")
    assert set(AccessRole.objects.values_list("key", flat=True)) == {each[0] for each in PREDEFINED}
    assert AccessRole.objects.get(key="viewer").description == "Ours."
