"""Home's projects, the list and one project: bars, members, caps, who changed a quota and why."""

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.inventory.models import Cluster, NodePool
from tenants.access.models import Role, User
from tenants.organisation.models import Department, Project
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import set_priority_cap, set_project_quota
from tests.factories.cast import acting, applied
from tests.factories.tenants import DepartmentFactory, MembershipFactory, ProjectFactory, ProjectQuotaFactory

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
PAGE = "/projects/llm-team/"


def words(client: Client, page: str = PAGE) -> str:
    answer = client.get(page)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_the_bar_and_its_text_say_the_same(client_of: Clients, alice: User) -> None:
    text = words(client_of(alice))
    assert "4 GPUs can start in h100 within quota" in text
    assert "0 GPUs in use, 4 deserved" in text
    assert "limit 12" in text


def test_members_are_named_with_their_roles(client_of: Clients, alice: User, bob: User) -> None:
    text = words(client_of(alice))
    assert 'alice <span class="quiet">Project administrator</span>' in text
    assert 'bob <span class="quiet">L1 researcher</span>' in text


def test_a_quota_change_shows_who_and_why(client_of: Clients, alice: User, admin: User, h100: NodePool) -> None:
    project = Project.objects.get(name="llm-team")
    quota = project.quotas.get(node_pool=h100)
    values = QuotaValues.of(quota)
    raised = QuotaValues(**{**vars_of(values), "deserved": values.deserved.__class__(gpu=6000)})
    set_project_quota(project=project, node_pool=h100, values=raised, actor=acting(admin), reason="for the paper")
    text = words(client_of(alice))
    assert "GPU deserved 4 GPUs → 6 GPUs" in text
    assert "admin · “for the paper”" in text


def vars_of(values: QuotaValues) -> dict[str, object]:
    return {name: getattr(values, name) for name in values.__slots__}


@pytest.mark.parametrize(
    ("flavour", "said"),
    [("kai", "weight 2.5 (CPU 1)<"), ("kueue", "weight 2.5<"), ("volcano", "weight 2<"), ("kube", "")],
)
def test_weights_are_shown_as_far_as_the_scheduler_has_them(
    client_of: Clients, alice: User, llm_team: Project, flavour: str, said: str
) -> None:
    Cluster.objects.update(flavour=flavour)
    llm_team.quotas.update(over_quota_weight=2.5, cpu_weight=1)
    text = words(client_of(alice))
    assert f"Over-quota {said}" in text if said else "Over-quota weight" not in text


def test_a_changed_weight_is_in_the_history(client_of: Clients, alice: User, admin: User, h100: NodePool) -> None:
    project = Project.objects.get(name="llm-team")
    raised = QuotaValues(**{**vars_of(QuotaValues.of(project.quotas.get(node_pool=h100))), "cpu_weight": 0.5})
    set_project_quota(project=project, node_pool=h100, values=raised, actor=acting(admin), reason="shares")
    assert "over-quota weight of CPU as for GPUs → 0.5" in words(client_of(alice))


def test_a_cap_is_said_and_its_history_too(client_of: Clients, alice: User, admin: User, llm_team: Project) -> None:
    set_priority_cap(project=llm_team, priority="high", gpu_limit=2000, actor=acting(admin), reason="fairness")
    text = words(client_of(alice))
    assert "Cap: at most 2 GPUs with priority high." in text
    assert "Cap of high" in text
    assert "“fairness”" in text


def test_a_removed_cap_stays_in_the_history(client_of: Clients, alice: User, admin: User, llm_team: Project) -> None:
    for limit in (2000, None):
        set_priority_cap(project=llm_team, priority="high", gpu_limit=limit, actor=acting(admin))
    text = words(client_of(alice))
    assert "present → removed" in text
    assert "Cap: at most" not in text


@pytest.mark.parametrize("name", ["vision-team", "no-such-project", "LLM-TEAM"])
def test_a_foreign_project_is_as_absent_as_none(
    client_of: Clients, alice: User, vision_team: Project, name: str
) -> None:
    answer = client_of(alice).get(f"/projects/{name}/")
    assert answer.status_code == 404
    assert b"vision-team" not in answer.content.replace(f"/projects/{name}/".encode(), b"")


def test_the_list_holds_what_one_may_see(client_of: Clients, alice: User, vision_team: Project) -> None:
    text = words(client_of(alice), "/projects/")
    assert "llm-team" in text
    assert "vision-team" not in text


def test_nobody_without_a_project_is_left_without_a_word(client_of: Clients, db: None) -> None:
    stranger = User.objects.create_user("stranger")
    assert "You are not in any project yet" in words(client_of(stranger), "/projects/")
    assert "You are not in any project yet" in words(client_of(stranger), "/")


@pytest.mark.parametrize("page", ["/", "/projects/"])
def test_many_projects_cost_no_more_queries(client_of: Clients, admin: User, llm_team: Project, page: str) -> None:
    client = client_of(admin)
    counts = []
    for more in (2, 5):
        for project in ProjectFactory.create_batch(more, department=llm_team.department):
            ProjectQuotaFactory(project=project, node_pool=llm_team.quotas.get().node_pool)
        with CaptureQueriesContext(connection) as queries:
            client.get(page)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_t57_what_admins_typed_is_text(client_of: Clients, alice: User, admin: User, llm_team: Project) -> None:
    evil = "<script>alert(1)</script>"
    Project.objects.update(description=evil)
    set_priority_cap(project=llm_team, priority="high", gpu_limit=2000, actor=acting(admin), reason=evil)
    text = words(client_of(alice))
    assert text.count("&lt;script&gt;alert(1)") == 2
    assert "<script>alert" not in text


def listed(client: Client, page: str) -> list[str]:
    """Names of the projects on a page of the list, in order."""
    return re.findall(r'href="/projects/([\w-]+)/"', client.get(page).content.decode())


def test_the_list_is_paged_by_cluster_and_name(client_of: Clients, admin: User, llm_team: Project) -> None:
    others = DepartmentFactory.create()
    for number in (3, 1, 2, *range(4, 14)):
        for department in (llm_team.department, others):
            ProjectFactory.create(department=department, name=f"p{number:02}-{department.name}")
    client, page, found = client_of(admin), "/projects/", []
    while page:
        names = listed(client, page)
        assert len(names) <= 20
        found += names
        following = re.search(r'href="(\?[^"]+)"\s+rel="next"', client.get(page).content.decode())
        page = f"/projects/{following[1].replace('&amp;', '&')}" if following else ""
    assert found == list(Project.objects.order_by("cluster__name", "name").values_list("name", flat=True))
    assert len(found) == 27
    page = words(client, "/projects/")
    assert page.index(f">{min(others.cluster.name, llm_team.cluster.name)}</a>") < page.index(f">{found[0]}</a>")


def test_the_list_is_searched_by_a_part_of_the_name(client_of: Clients, alice: User, vision_team: Project) -> None:
    assert listed(client_of(alice), "/projects/?q=LLM") == ["llm-team"]
    assert listed(client_of(alice), "/projects/?q=vision") == []
    assert "No project of yours has “vision” in its name." in words(client_of(alice), "/projects/?q=vision")


def test_the_list_shows_one_cluster_and_keeps_to_it_while_one_searches(
    client_of: Clients, admin: User, llm_team: Project
) -> None:
    elsewhere = ProjectFactory.create(name="llm-elsewhere")
    client = client_of(admin)
    page = client.get(f"/projects/?cluster={elsewhere.cluster.name}").content.decode()
    assert f"Only projects on {elsewhere.cluster.name}." in page
    assert f'<input type="hidden" name="cluster" value="{elsewhere.cluster.name}">' in page
    assert listed(client, f"/projects/?cluster={elsewhere.cluster.name}") == ["llm-elsewhere"]
    assert listed(client, f"/projects/?cluster={llm_team.cluster.name}&q=llm") == ["llm-team"]
    assert sorted(listed(client, "/projects/?q=llm")) == ["llm-elsewhere", "llm-team"]
    assert "No project of yours is on absent." in words(client, "/projects/?cluster=absent")


def test_the_department_page_plans_enforcement_and_members_cannot(
    client_of: Clients, admin: User, alice: User, research: Department, llm_team: Project
) -> None:
    page, act = f"/departments/{research.pk}/", f"/departments/{research.pk}/enforce-deserved/"
    assert client_of(alice).post(act, {"enforced": "on"}).status_code == 404
    client = client_of(admin)
    assert "Its projects together may deserve more than the department." in words(client, page)
    applied(client, client.post(act, {"enforced": "on"}))
    assert "cannot deserve more than the department." in words(client, page)
    applied(client, client.post(act, {"enforced": ""}))
    research.refresh_from_db()
    assert not research.enforce_deserved
    viewer = client_of(MembershipFactory(role=Role.VIEWER, project=None, department=research).user)
    assert "Enforce…" not in words(viewer, page)
    assert viewer.post(act, {"enforced": "on"}).status_code == 403
