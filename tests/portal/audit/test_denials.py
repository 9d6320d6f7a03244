"""A write that somebody may not do leaves one record, whichever service refuses it and however it is asked for."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import AccessRole, Role, User
from tenants.access.services.access_rules import grant
from tenants.access.services.roles import create_role
from tenants.organisation.models import Project
from tests.factories.tenants import UserFactory
from tests.support.rest_clients import Person, Robot

ROLES = "v2/authorization/roles"
RULES = "v1/authorization/access-rules"
ROLE = {"name": "Auditor", "permissionSets": [{"id": "view-event-history"}]}


def told() -> list[tuple[str, str, str, str]]:
    """Who was refused what where, and why."""
    rows = AuditRecord.objects.filter(result="Denied").order_by("id")
    return list(rows.values_list("actor_name", "action", "entity_name", "detail__code"))


@pytest.mark.parametrize(
    ("query", "headers"),
    [("", {}), ("?dryRun=true", {}), ("", {"Idempotency-Key": "one"})],
    ids=["plain", "dry run", "with a key"],
)
def test_one_record_says_who_sent_what_where(member: Robot, query: str, headers: dict[str, str]) -> None:
    assert member.send("POST", f"{ROLES}{query}", ROLE, **headers).status_code == 403
    assert told() == [("member-robot", "request.post", f"/api/{ROLES}", "denied")]


def test_what_a_service_records_itself_is_not_told_twice(member: Robot, submitted: Callable[..., str]) -> None:
    assert member.send("DELETE", f"v2/workloads/{submitted()}").status_code == 403
    assert [action for _who, action, _where, _why in told()] == ["workload.delete"]


def test_a_key_that_only_reads_is_told_of(llm_team: Project) -> None:
    reader = Person("rita", role=Role.PLATFORM_ADMIN, read_only=True)
    assert reader.client.post(f"/api/{ROLES}", ROLE, "application/json").status_code == 403
    assert told() == [("rita", "request.post", f"/api/{ROLES}", "read_only_key")]


def test_reading_and_what_is_absent_leave_no_record(member: Robot) -> None:
    assert member.get("v1/users").status_code == 403
    assert member.send("DELETE", f"{RULES}/999999").status_code == 404
    assert told() == []


def test_where_no_record_can_be_kept_the_database_is_what_is_told_of(member: Robot) -> None:
    def full(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT"):
            raise OperationalError("database or disk is full")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(full):
        answer = member.send("POST", ROLES, ROLE)
    assert (answer.status_code, answer["Retry-After"], answer.json()["details"]) == (503, "2", "unavailable")


@pytest.mark.parametrize("query", ["", "?dryRun=true"])
def test_each_refused_part_of_a_batch_is_told_of(llm_team: Project, query: str) -> None:
    owner = Robot("owning-robot", role=Role.OWNER, project=llm_team)
    strong = create_role(name="Strong", permission_sets=["manage-projects"], actor=SYSTEM)
    dana = UserFactory(username="dana")
    held = grant(subject=dana, role=strong, project=llm_team, actor=SYSTEM)
    viewer = AccessRole.objects.get(key=Role.VIEWER)
    body: dict[str, Any] = {"ids": [str(held.pk), "999999"], "action": "delete"}
    assert len(owner.send("POST", f"{RULES}/batch{query}", body).json()["failed"]) == 2
    subjects = [{"subjectId": UserFactory().username, "subjectType": "user"} for _ in range(2)]
    scopes = [{"scopeId": "", "scopeType": "tenant"}]
    payload = {"payload": {"roleId": viewer.pk, "subjects": subjects, "scopes": scopes}}
    assert len(owner.send("POST", f"{RULES}/batch-create{query}", payload).json()["failed"]) == 2
    rows = AuditRecord.objects.filter(result="Denied").order_by("id")
    assert rows[0].detail["rule"] == str(held.pk)
    assert [row.detail["subjectId"] for row in rows[1:]] == [each["subjectId"] for each in subjects]


def test_a_page_that_refuses_is_told_of(cluster: Cluster, bob: User, client_of: Callable[[User], Client]) -> None:
    page = "/clusters/lab/pools/a100/remove/"
    assert client_of(bob).post(page).status_code == 403
    assert told() == [("bob", "request.post", page, "denied")]
