"""The audit log as a file, and what is refused."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from portal.audit.services import record
from portal.kit.security.actors import SYSTEM
from tenants.audit_log.serializers import ACTIONS, UPDATE
from tests.support.rest_clients import Robot

PERIOD = "start=2000-01-01T00:00:00Z&end=2100-01-01T00:00:00Z"


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", " =1"])
def test_t59_no_cell_of_the_file_is_a_formula(robot: Robot, name: str) -> None:
    record(SYSTEM, "workload.submit", None, detail={"note": name}, entity_type="workload", entity_name=name)
    answer = robot.get(f"v1/audit/log/file?{PERIOD}&filterBy=entity_type==workload")
    assert answer["Content-Type"].startswith("text/csv")
    assert "attachment" in answer["Content-Disposition"]
    (row,) = csv.DictReader(io.StringIO(answer.content.decode()))
    assert row["entity_name"] == f"'{name}"
    assert all(not cell.startswith(("=", "+", "-", "@", "\t")) for cell in row.values())


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        ("workload.submit", "create"),
        ("membership.grant", "create"),
        ("cluster.connect", "create"),
        ("policy.lift", "delete"),
        ("user.disconnect", "delete"),
        ("workload.stop", "update"),
        ("workload.resume", "update"),
        ("access_key.rotate", "update"),
        ("session.start", "sign-in"),
        ("session.end", "sign-out"),
        ("user.password", "reset-password"),
    ],
)
def test_every_verb_is_told_as_one_of_their_actions(robot: Robot, verb: str, told: str) -> None:
    record(SYSTEM, verb, None, entity_type="thing")
    query = f"{PERIOD}&filterBy=entity_type==thing"
    assert [each["action"] for each in robot.get(f"v1/audit/log?{query},action=={told}").json()["audit_logs"]] == [told]
    assert robot.get(f"v1/audit/log?{query},action!={told}").json()["total"] == 0


def test_a_record_tells_the_request_that_asked(robot: Robot, submitted: Callable[..., str]) -> None:
    robot.client.defaults["HTTP_USER_AGENT"] = "rung-cli/1.0"
    address = "/api/v2/workloads"
    submitted()
    record(SYSTEM, "workload.stop", None, entity_type="workload")
    logs = f"v1/audit/log?{PERIOD}&filterBy=entity_type==workload"
    told = robot.get(f"{logs},url=$/v2/workloads,http_method==POST&sortBy=url").json()
    (requested,) = told["audit_logs"]
    assert (requested["http_method"], requested["url"], requested["metadata"]["channel"]) == ("POST", address, "cli")
    assert "http_status_code" not in requested
    (worker,) = robot.get(f"{logs},subject==rung&sortBy=http_method").json()["audit_logs"]
    assert (worker["http_method"], worker["url"]) == (None, None)
    file = robot.get(f"v1/audit/log/file?{PERIOD}&filterBy=url=={address}").content.decode()
    (row,) = csv.DictReader(io.StringIO(file))
    assert (row["http_method"], row["url"]) == ("POST", address)


def test_a_method_that_their_client_does_not_read_is_left_out(robot: Robot) -> None:
    record(replace(SYSTEM, http_method="OPTIONS", url="/x"), "workload.stop", None, entity_type="thing")
    (told,) = robot.get(f"v1/audit/log?{PERIOD}&filterBy=entity_type==thing").json()["audit_logs"]
    assert (told["http_method"], told["url"]) == (None, "/x")


@pytest.mark.parametrize("parameter", ["file_type", "fileType"])
def test_both_names_of_the_file_type_are_understood(robot: Robot, parameter: str) -> None:
    answer = robot.get(f"v1/audit/log/file?{PERIOD}&{parameter}=json")
    assert answer["Content-Type"].startswith("application/json")
    assert {each["action"] for each in answer.json()} <= {*ACTIONS, UPDATE}


@pytest.mark.parametrize(
    ("path", "query", "pointer"),
    [
        ("v1/audit/log", "end=2100-01-01", "/start"),
        ("v1/audit/log", f"{PERIOD}&numberOfSamples=1001", "/numberOfSamples"),
        ("v1/audit/log", f"{PERIOD}&offset=-1", "/offset"),
        ("v1/audit/log", f"{PERIOD}&filterBy=detail==x", "/filterBy"),
        ("v1/audit/log", f"{PERIOD}&sortBy=digest", "/sortBy"),
        ("v1/audit/log/file", f"{PERIOD}&fileType=XML", "/fileType"),
        ("v1/audit/log/file", "start=9999999-01-01&end=2100-01-01", "/start"),
        ("v1/audit/log", "start=0001-01-01T00:00:00%2B14:00&end=2100-01-01", "/start"),
    ],
)
def test_t51_what_is_no_parameter_of_it_is_400_at_its_name(robot: Robot, path: str, query: str, pointer: str) -> None:
    answer = robot.get(f"{path}?{query}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer
