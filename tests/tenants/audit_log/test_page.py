"""The audit trail on screen: who may read which part, and how it is narrowed."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.audit import chain
from portal.audit.models import AuditRecord, Result
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
        ("?result=Succeeded", {"workload.submit", "workload.delete", "plan.apply"}),
        ("?entity_id__gte=0", {"workload.submit", "workload.delete", "plan.apply"}),
    ],
)
def test_it_is_narrowed_by_the_address(
    client_of: Clients, records: None, admin: User, query: str, actions: set[str]
) -> None:
    assert shown(client_of(admin), query) == actions


def test_a_record_shows_the_request_that_asked(client_of: Clients, admin: User) -> None:
    requested = replace(acting(admin), http_method="POST", url="/workloads/submit/")
    record(requested, "workload.submit", None, entity_type="workload")
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
    assert {row.project_id for row in readable_records(bound)} == {str(llm_team.pk)}
    assert {row.project_id for row in readable_records(acting(alice))} >= {str(llm_team.pk), str(vision_team.pk)}


@pytest.fixture
def days(admin: User) -> None:
    """A record at the end of 1 March 2026 (UTC), one in the middle of the 2nd and one at the start of the 3rd."""
    moments = {"workload.submit": (1, 23, 59), "workload.delete": (2, 12, 0), "plan.apply": (3, 0, 0)}
    for action, (day, hour, minute) in moments.items():
        at = datetime(2026, 3, day, hour, minute, tzinfo=UTC)
        AuditRecord.objects.create(at=at, action=action, actor_name="admin", result=Result.SUCCEEDED)


@pytest.mark.parametrize(
    ("query", "actions"),
    [
        ("?start=2026-03-02&end=2026-03-02", {"workload.delete"}),
        ("?end=2026-03-02", {"workload.submit", "workload.delete"}),
        ("?start=2026-03-02&end=2026-03-31", {"workload.delete", "plan.apply"}),
        ("?start=2026-03-02&action=plan.", {"plan.apply"}),
    ],
)
def test_first_and_last_day_are_included_in_utc(
    client_of: Clients, days: None, admin: User, query: str, actions: set[str]
) -> None:
    assert shown(client_of(admin), query) == actions


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("start=2026-02-30", "Enter a valid date."),
        ("start=yesterday", "Enter a valid date."),
        ("start=0001-01-01", "greater than or equal to"),
        ("end=9999-12-31", "less than or equal to"),
        ("start=2026-03-02&end=2026-03-01", "Must not be before “From”."),
        ("result=Refused", "Select a valid choice."),
        ("who=%00", "Null characters are not allowed."),
    ],
)
def test_an_invalid_filter_is_an_error_at_its_field_and_loses_nothing(
    client_of: Clients, days: None, admin: User, query: str, error: str
) -> None:
    page = client_of(admin).get(f"/audit/?action=plan.&{query}").content.decode()
    assert error in page
    assert 'value="plan."' in page
    assert "No records shown: correct the filter." in page
    assert client_of(admin).get(f"/audit/csv/?{query}").headers["Location"].startswith("/audit/?")


def test_sign_ins_that_succeeded_can_be_left_out(client_of: Clients, records: None, admin: User) -> None:
    record(acting(admin), "session.start", admin, result=Result.DENIED)
    client = client_of(admin)
    page = client.get("/audit/?sessions=failed")
    assert [row.result for row in page.context["page"].rows if row.action.startswith("session.")] == ["Denied"]
    assert shown(client, "?sessions=failed") == {"workload.submit", "workload.delete", "plan.apply"}
    assert 'href="?"' in page.content.decode()
    assert "sessions: failed" in page.content.decode()


def test_each_filter_is_a_chip_that_removes_it(client_of: Clients, days: None, admin: User) -> None:
    page = client_of(admin).get("/audit/?start=2026-03-02&action=plan.").content.decode()
    assert "start: 2026-03-02" in page
    assert 'href="?action=plan."' in page


def test_the_records_of_the_filter_are_downloaded_all_pages(client_of: Clients, admin: User, llm_team: Project) -> None:
    for _ in range(60):
        record(acting(admin), "workload.stop", llm_team, project_id=str(llm_team.pk))
    record(acting(admin), "plan.apply", None, result=Result.DENIED, entity_type="plan")
    client = client_of(admin)
    assert "/audit/csv/?action=workload." in client.get("/audit/?action=workload.").content.decode()
    table = client.get("/audit/csv/?action=workload.")
    assert "audit-log.csv" in table["Content-Disposition"]
    assert len(list(csv.DictReader(io.StringIO(table.content.decode())))) == 60
    (denied,) = client.get("/audit/json/?result=Denied").json()
    assert (denied["metadata"]["verb"], denied["metadata"]["outcome"]) == ("plan.apply", "Denied")


def test_t51_a_download_has_what_its_reader_may_read(client_of: Clients, records: None, alice: User) -> None:
    rows = client_of(alice).get("/audit/json/?sessions=failed").json()
    assert {row["metadata"]["verb"] for row in rows} == {"workload.submit"}


@pytest.mark.django_db(transaction=True)
def test_those_who_may_read_all_see_how_far_the_chain_is_sealed(
    client_of: Clients, admin: User, alice: User, llm_team: Project
) -> None:
    admins, owners = client_of(admin), client_of(alice)
    assert "Hash chain: no record sealed yet." in admins.get("/audit/").content.decode()
    chain.seal()
    count = AuditRecord.objects.count()
    page = admins.get("/audit/").content.decode()
    assert f"Hash chain: {count} records sealed" in page
    assert "not sealed was recorded" not in page
    record(acting(admin), "plan.apply", None, entity_type="plan")
    assert "not sealed was recorded" in admins.get("/audit/").content.decode()
    assert "Hash chain" not in owners.get("/audit/").content.decode()
