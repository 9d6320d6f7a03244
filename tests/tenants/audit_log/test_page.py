"""The audit trail on screen: who may read which part, and how it is narrowed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.audit.services import record
from portal.kit.security.actors import CredentialLimits
from tenants.access.models import User
from tenants.audit_log.selectors import readable_records
from tenants.organisation.models import Project
from tests.factories.cast import acting

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


@pytest.fixture
def records(llm_team: Project, vision_team: Project, admin: User, alice: User, bob: User, charlie: User) -> None:
    """One record in each project, one of the installation."""
    record(acting(bob), "workload.submit", llm_team, detail={"gpu": 8}, project_id=str(llm_team.pk))
    record(acting(charlie), "workload.delete", vision_team, project_id=str(vision_team.pk))
    record(acting(admin), "plan.apply", None, entity_type="plan", entity_name="medium to 85")


def shown(client: Client, query: str = "") -> set[str]:
    page = client.get(f"/audit/{query}")
    assert page.status_code == 200
    text = page.content.decode()
    return {
        action
        for action in ("workload.submit", "workload.delete", "plan.apply")
        if f'<span class="mono">{action}</span>' in text
    }


@pytest.mark.parametrize(
    ("who", "actions"),
    [
        pytest.param("admin", {"workload.submit", "workload.delete", "plan.apply"}, id="a platform admin: everything"),
        pytest.param("alice", {"workload.submit"}, id="an owner: the project's part"),
        pytest.param("bob", {"workload.submit"}, id="a member: what they did"),
        pytest.param("charlie", {"workload.delete"}, id="another member: what they did"),
    ],
)
def test_each_reads_their_part(client_of: Clients, records: None, who: str, actions: set[str]) -> None:
    assert shown(client_of(User.objects.get(username=who))) == actions


@pytest.mark.parametrize(
    ("query", "actions"),
    [
        ("?who=BOB", {"workload.submit"}),
        ("?action=workload.", {"workload.submit", "workload.delete"}),
        ("?what=medium", {"plan.apply"}),
        ("?result=Denied", set()),
        ("?entity_id__gte=0", {"workload.submit", "workload.delete", "plan.apply"}),
    ],
)
def test_it_is_narrowed_by_the_address(
    client_of: Clients, records: None, admin: User, query: str, actions: set[str]
) -> None:
    assert shown(client_of(admin), query) == actions


def test_a_record_shows_the_request_that_asked(client_of: Clients, admin: User) -> None:
    asked = replace(acting(admin), http_method="POST", url="/workloads/submit/")
    record(asked, "workload.submit", None, entity_type="workload")
    assert "POST /workloads/submit/" in client_of(admin).get("/audit/").content.decode()


def test_t51_no_filter_widens_what_one_may_read(client_of: Clients, records: None, alice: User) -> None:
    assert shown(client_of(alice), "?who=charlie&action=workload.delete") == set()
    assert client_of(alice).get("/audit/?after=forged").status_code == 400


def test_t57_what_was_recorded_is_text(client_of: Clients, records: None, admin: User) -> None:
    evil = "<script>alert(1)</script>"
    record(acting(admin), "plan.apply", None, entity_type="plan", entity_name=evil, detail={"x": evil})
    text = client_of(admin).get("/audit/").content.decode()
    assert text.count("&lt;script&gt;alert(1)") == 2
    assert "<script>alert" not in text


def test_a_page_is_fifty_records_and_costs_the_same_however_many_there_are(
    client_of: Clients, admin: User, llm_team: Project
) -> None:
    client = client_of(admin)
    counts = []
    for more in (10, 60):
        for _ in range(more):
            record(acting(admin), "workload.stop", llm_team, project_id=str(llm_team.pk))
        with CaptureQueriesContext(connection) as queries:
            page = client.get("/audit/")
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert len(page.context["page"].rows) == 50
    assert "Next page" in page.content.decode()


def test_a_key_that_is_bound_to_a_project_reads_its_owners_own_records_of_that_project_only(
    alice: User, llm_team: Project, vision_team: Project
) -> None:
    for project in (llm_team, vision_team):
        record(acting(alice), "workload.submit", None, project_id=str(project.pk), entity_type="workload")
    bound = replace(acting(alice), limits=CredentialLimits(key="k", project_id=llm_team.pk))
    assert {row.project_id for row in readable_records(bound, {})} == {str(llm_team.pk)}
    assert {row.project_id for row in readable_records(acting(alice), {})} >= {str(llm_team.pk), str(vision_team.pk)}
