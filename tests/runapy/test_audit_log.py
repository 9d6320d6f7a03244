"""The audit log through Run:ai's own client."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from runai import models
from runai.exceptions import BadRequestException
from runai.runai_client import RunaiClient

from portal.audit.models import Result
from portal.audit.services import record
from portal.kit.security.actors import Actor, ActorKind, Channel
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.runapy.conftest import client_of

ALICE = Actor(ActorKind.USER, "0", "alice", Channel.UI, "10.0.0.7", "r-1", None, "POST", "/workloads/submit/")


def period() -> dict[str, datetime]:
    """The last hour, and a minute more."""
    now = datetime.now(UTC)
    return {"start": now - timedelta(hours=1), "end": now + timedelta(minutes=1)}


@pytest.fixture
def trail(llm_team: Project, vision_team: Project) -> None:
    """A submission, a stop and a refused one of alice in llm-team, and a deletion in vision-team."""
    own, other = str(llm_team.pk), str(vision_team.pk)
    detail = {"gpu_milli": 4000, "password": "hunter22", "why": ["a", "b"]}
    for verb, result, project in (
        ("workload.submit", Result.SUCCEEDED, own),
        ("workload.stop", Result.SUCCEEDED, own),
        ("workload.submit", Result.DENIED, own),
        ("workload.delete", Result.SUCCEEDED, other),
    ):
        record(ALICE, verb, None, result=result, detail=detail, project_id=project, entity_type="workload")


def logs(client: RunaiClient, **query: Any) -> list[models.AuditLog]:
    """Every record of the last hour, typed."""
    requested = {"number_of_samples": 1000, **query}
    answer = client.audit.audit_logs.get_audit_logs(**period(), **requested).data
    return list(models.GetAuditLogs200Response.from_dict(answer).audit_logs)


def of_alice(client: RunaiClient, **query: Any) -> list[models.AuditLog]:
    return [each for each in logs(client, **query) if each.subject == "alice"]


def test_records_are_typed_newest_first_with_texts_only(runai: RunaiClient, trail: None) -> None:
    newest, *_rest = of_alice(runai)
    assert (newest.action, newest.subject_type, newest.result, newest.tenant_id) == ("delete", "User", "Succeeded", "1")
    assert (newest.source_ip, newest.request_id, newest.entity_type) == ("10.0.0.7", "r-1", "workload")
    assert (newest.http_method, newest.url, newest.http_status_code) == ("POST", "/workloads/submit/", None)
    assert newest.metadata["gpu_milli"] == "4000"
    assert newest.metadata["why"] == '["a", "b"]'
    assert newest.metadata["verb"] == "workload.delete"
    assert "hunter22" not in str(newest.metadata)


def test_a_closed_set_of_actions_and_results_tells_all_of_ours(runai: RunaiClient, trail: None) -> None:
    told = [(each.action, each.result) for each in of_alice(runai, sort_by="timestamp", sort_order="asc")]
    assert told == [
        ("create", "Succeeded"),
        ("update", "Succeeded"),
        ("create", "Failed"),
        ("delete", "Succeeded"),
    ]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (["action==create"], 2),
        (["action==update", "subject==alice"], 1),
        (["result==Failed"], 1),
        (["subject_type==User"], 4),
        (["subject=@ali", "action!=create"], 2),
        (["url==/x"], 0),
        (["url=@submit"], 4),
        (["timestamp>=2999-01-01T00:00:00Z"], 0),
    ],
)
def test_filters_speak_their_words(runai: RunaiClient, trail: None, wanted: list[str], count: int) -> None:
    assert len(of_alice(runai, filter_by=wanted)) == count


def test_pages_are_followed_by_next_and_counted(runai: RunaiClient, trail: None) -> None:
    ask = runai.audit.audit_logs.get_audit_logs
    first = ask(**period(), number_of_samples=3, filter_by=["subject==alice"]).data
    rest = ask(**period(), number_of_samples=3, offset=first["next"], filter_by=["subject==alice"]).data
    assert (first["total"], first["next"], rest["next"]) == (4, 3, None)
    assert len({each["id"] for each in first["audit_logs"] + rest["audit_logs"]}) == 4
    assert ask(**period(), number_of_samples=0).data["audit_logs"] == []


@pytest.mark.parametrize("column", ["timestamp", "subject_type", "http_method", "entity_id", "url"])
def test_every_column_sorts(runai: RunaiClient, trail: None, column: str) -> None:
    assert len(of_alice(runai, sort_by=column, sort_order="desc")) == 4


def test_an_owner_reads_their_projects_and_what_they_did_and_a_member_only_the_latter(
    live_server: object, trail: None, llm_team: Project
) -> None:
    owner = client_of(live_server, "owning-robot", Role.OWNER, project=llm_team)
    assert [each.action for each in of_alice(owner)] == ["create", "update", "create"]
    member = client_of(live_server, "member-robot", Role.MEMBER, project=llm_team)
    assert {each.subject for each in logs(member)} <= {"member-robot"}


def test_a_file_of_json_holds_the_same(runai: RunaiClient, trail: None) -> None:
    found = runai.audit.audit_logs.download_audit_logs(
        **period(), file_type="JSON", number_of_samples=2, filter_by=["subject==alice"]
    ).data
    assert [models.AuditLog.from_dict(each).action for each in found] == ["delete", "create"]


def test_a_period_that_is_no_time_is_refused_at_its_parameter(runai: RunaiClient) -> None:
    with pytest.raises(BadRequestException) as refused:
        runai.audit.audit_logs.get_audit_logs(start="yesterday", end=datetime.now(UTC))
    assert refused.value.data["errors"][0]["pointer"] == "/start"
