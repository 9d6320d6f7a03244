"""Whether anybody may administer the portal, and how the first one is made."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from portal.kit.security.actors import SYSTEM
from tenants.access.models import AccessRole, Role, User
from tenants.access.rules import SETS
from tenants.access.selectors import access_for, has_platform_admin
from tenants.access.services import credentials
from tenants.access.services.credentials import exchange
from tenants.access.services.roles import create_role, update_role
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory, ServiceAccountFactory, UserFactory

PASSWORD = "correct-horse-battery"

pytestmark = pytest.mark.django_db


def in_group(*people: User) -> Group:
    group = Group.objects.create(name="rung-admins")
    group.user_set.set(people)
    return group


def everything(*, enabled: bool = True) -> AccessRole:
    role = create_role(name="Everything", permission_sets=tuple(SETS), actor=SYSTEM)
    sets = tuple(SETS)
    return update_role(role=role, name=role.name, description="", permission_sets=sets, enabled=enabled, actor=SYSTEM)


def granted(role: str = Role.PLATFORM_ADMIN, **more: object) -> object:
    return MembershipFactory(role=role, project=None, **more)


CASES: dict[str, tuple[Callable[[], object], bool]] = {
    "no account": (lambda: None, False),
    "a superuser": (lambda: User.objects.create_superuser("root"), True),
    "a disabled superuser": (lambda: User.objects.create_superuser("root", is_active=False), False),
    "staff without a role": (lambda: UserFactory(is_staff=True), False),
    "a person with the role": (granted, True),
    "a disabled person with the role": (lambda: granted(user__is_active=False), False),
    "a person with another role everywhere": (lambda: granted(Role.VIEWER), False),
    "a person with a custom role of every set": (lambda: granted(everything().key), True),
    "a person with a disabled role of every set": (lambda: granted(everything(enabled=False).key), False),
    "a custom role of every set in one project": (lambda: MembershipFactory(role=everything().key), False),
    "a group with a member": (lambda: granted(user=None, group=in_group(UserFactory())), True),
    "a group without members": (lambda: granted(user=None, group=in_group()), False),
    "a group of the disabled": (lambda: granted(user=None, group=in_group(UserFactory(is_active=False))), False),
    "a service account": (lambda: granted(user=None, service_account=ServiceAccountFactory()), False),
}


@pytest.mark.parametrize(("given", "expected"), CASES.values(), ids=CASES)
def test_who_counts_as_an_admin(given: Callable[[], object], expected: bool) -> None:
    given()
    assert has_platform_admin() is expected
    assert any(access_for(acting(person)).is_platform_admin for person in User.objects.all()) is expected


def test_the_command_of_the_documents_makes_one_who_may_do_everything(
    client: Client, llm_team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", interactive=False, username="root", email="root@example.org", verbosity=0)
    signed_in = client.post(reverse("login"), {"username": "root", "password": PASSWORD})
    assert signed_in.status_code == 302
    pages = ["/", "/clusters/", "/priorities/", "/types/", "/policies/", "/audit/", "/projects/", "/admin/"]
    pages += ["/admin/tenants/user/add/", "/admin/tenants/membership/add/", "/admin/tenants/project/"]
    assert {page: client.get(page).status_code for page in pages} == dict.fromkeys(pages, 200)
    root = User.objects.get(username="root")
    key, secret = credentials.create_access_key(name="first", actor=acting(root))
    program = Client(headers={"Authorization": f"Bearer {exchange(key.client_id, secret).text}"})
    routes = ["users", "service-accounts", "authorization/access-rules", "authorization/roles", "clusters"]
    assert {route: program.get(f"/api/v1/{route}").status_code for route in routes} == dict.fromkeys(routes, 200)
