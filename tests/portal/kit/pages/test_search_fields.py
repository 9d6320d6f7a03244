"""A field with few rows is a select box, one with many a search field; without scripts both take what is typed."""

from collections.abc import Callable

import pytest
from django.test import Client

from portal.kit.pages.forms import MOST_OPTIONS, MOST_SUGGESTIONS
from tenants.access.models import AccessKey, Role, User
from tenants.organisation.models import Department, Project
from tests.factories.tenants import MembershipFactory
from workloads.reports.models import Report
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def person(alice: User, llm_team: Project, client_of: Callable[[User], Client]) -> Client:
    """Alice, who submits in so many projects of her department that no select box holds them."""
    department = llm_team.department
    Project.objects.bulk_create(
        Project(department=department, cluster=department.cluster, name=f"p-{number:03}", namespace=f"p-{number:03}")
        for number in range(MOST_OPTIONS)
    )
    MembershipFactory(user=alice, project=None, department=department, role_id=Role.DEPARTMENT_ADMIN)
    return client_of(alice)


def options(person: Client, path: str, field: str, text: str) -> list[str]:
    answer = person.get(path, {"suggest": field, field: text}).content.decode()
    return [part.split("</option>")[0] for part in answer.split("<option>")[1:]]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/workloads/", "project"),
        ("/workloads/submit/", "project"),
        ("/workloads/submit/yaml/", "project"),
        ("/policies/", "project"),
        ("/templates/add/", "place"),
        ("/reports/", "filter_by"),
        ("/access-keys/", "reach"),
    ],
)
def test_pages_list_no_more_projects_than_a_select_box_holds(person: Client, path: str, field: str) -> None:
    page = person.get(path).content.decode()
    assert f'hx-get="?suggest={field}"' in page
    assert "p-001" not in page.replace('value="p-001"', "")
    found = options(person, path, field, "p-01")
    assert [each.rpartition(" ")[2] for each in found] == [f"p-01{digit}" for digit in range(10)]


def test_an_admin_finds_every_kind_of_scope_for_a_policy(
    person: Client, admin: User, research: Department, client_of: Callable[[User], Client]
) -> None:
    everything = options(client_of(admin), "/policies/add/", "place", "")
    assert everything[:2] == ["the whole installation", f"cluster {research.cluster.name}"]
    assert f"department {research.name} on {research.cluster.name}" in everything
    assert options(client_of(admin), "/policies/add/", "place", "project p-04")[0] == "project p-040"


def test_suggestions_are_few_and_only_what_the_reader_sees(person: Client, vision_team: Project) -> None:
    assert len(options(person, "/workloads/", "project", "p-")) == MOST_SUGGESTIONS
    assert options(person, "/workloads/", "project", "LLM") == ["llm-team"]
    assert options(person, "/workloads/", "project", "vision") == []
    assert options(person, "/workloads/", "project", "<script>\x00") == []


def test_a_field_that_is_no_search_field_suggests_nothing(person: Client) -> None:
    assert "<html" in person.get("/workloads/", {"suggest": "phase", "phase": "R"}).content.decode()


def test_a_name_that_is_unknown_or_foreign_is_refused_at_the_field(person: Client, vision_team: Project) -> None:
    for name in ("vision-team", "absent", "p-00\x00"):
        answer = person.post("/workloads/submit/", {"project": name, "type": "Training", "name": "x", "image": "y"})
        assert answer.status_code == 422
        assert list(answer.context["form"].errors.as_data()["project"])
        assert 'aria-invalid="true"' in str(answer.context["form"]["project"])
    assert not Workload.objects.exists()


def test_a_typed_place_is_that_place(person: Client, research: Department) -> None:
    words = f"department {research.name} on {research.cluster.name}"
    for number, typed in enumerate(("project p-007", f" {words} ")):
        person.post("/access-keys/", {"name": f"key-{number}", "lasts": "90", "reach": typed})
    first, second = AccessKey.objects.order_by("name")
    assert (first.project.name if first.project else "", second.department) == ("p-007", research)
    days = {"start": "2026-01-01", "end": "2026-01-02", "group_by": "Project", "name": "use"}
    person.post("/reports/", {**days, "filter_by": words})
    report = Report.objects.get()
    assert report.filter_by == [f"departmentName=={research.name}", f"clusterId=={research.cluster_id}"]


def test_a_filter_by_a_typed_project_narrows_the_list(person: Client) -> None:
    page = person.get("/workloads/", {"project": "p-007"}).content.decode()
    assert 'value="p-007"' in page
    assert "Remove filter project: p-007" in page
    assert "not found" in person.get("/workloads/", {"project": "vision-team"}).content.decode()


def test_an_effective_policy_of_an_unknown_project_is_refused_at_the_field(person: Client) -> None:
    assert "Effective policy for p-007" in person.get("/policies/", {"project": "p-007"}).content.decode()
    page = person.get("/policies/", {"project": "absent"}).content.decode()
    assert "“absent” not found. Choose one of the suggestions." in page


@pytest.mark.postgres
@pytest.mark.parametrize(("path", "field"), [("/policies/add/", "place"), ("/reports/", "filter_by")])
def test_scopes_are_found_on_postgresql(
    path: str, field: str, research: Department, admin: User, client_of: Callable[[User], Client]
) -> None:
    for name in ("cluster", "department"):
        (found,) = options(client_of(admin), path, field, f"{name} ")
        assert found.startswith(f"{name} ")


@pytest.mark.postgres
@pytest.mark.parametrize("path", ["/projects/", "/quotas/", "/plans/approval/"])
def test_a_search_text_with_nul_finds_nothing_and_does_not_fail(
    path: str, admin: User, llm_team: Project, client_of: Callable[[User], Client]
) -> None:
    answer = client_of(admin).get(path, {"q": "no-such\x00name" + "x" * 5000})
    assert answer.status_code == 200
    assert llm_team.department.name not in answer.content.decode().partition("<main")[2]
