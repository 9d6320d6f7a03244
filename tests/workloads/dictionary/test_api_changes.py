"""The dictionary is written over REST through plans: each answer says what the change did."""

from typing import Any

import pytest

from portal.audit.models import AuditRecord
from tests.factories.workloads import PolicyFactory
from tests.support.rest_clients import Robot
from workloads.dictionary.models import Priority
from workloads.plans.models import Plan

PATH = "v1/workload-priorities"


def of(name: str) -> str:
    return f"{PATH}/{Priority.objects.get(name=name).pk}"


def names(robot: Robot) -> list[str]:
    return [each["name"] for each in robot.get(PATH).json()["priorities"]]


def test_an_entry_is_added_with_its_plan_and_read_by_its_id(robot: Robot) -> None:
    answer = robot.send("POST", PATH, {"name": "urgent", "value": 200, "description": "incidents"})
    assert answer.status_code == 201
    made = answer.json()
    assert (made["value"], made["preemptionPolicy"], made["aliasOf"]) == (200, "PreemptLowerPriority", "")
    assert made["plan"]["objects"][0]["changes"][0]["mark"] == "+"
    assert ["urgent", "very-high"] in made["plan"]["victims"]["new"]
    read = robot.get(f"{PATH}/{made['id']}").json()
    assert read == {key: value for key, value in made.items() if key != "plan"}
    assert names(robot)[-1] == "urgent"
    assert Plan.objects.get(pk=made["plan"]["id"]).state == "applied"
    assert AuditRecord.objects.filter(action="plan.apply", actor_name="platform-robot").count() == 1


def test_a_changed_value_says_that_the_class_is_recreated(robot: Robot) -> None:
    answer = robot.send("PATCH", of("medium"), {"value": 85})
    assert answer.status_code == 200
    assert answer.json()["value"] == 85
    assert any("is replaced" in each for each in answer.json()["plan"]["warnings"])


def test_a_rename_is_an_entry_of_its_own_and_leaves_an_alias(robot: Robot) -> None:
    old = of("medium")
    renamed = robot.send("PATCH", old, {"name": "normal"}).json()
    assert (renamed["name"], renamed["value"]) == ("normal", 80)
    assert f"{PATH}/{renamed['id']}" != old
    assert robot.get(old).json()["aliasOf"] == "normal"
    assert "medium" not in names(robot)


def test_setting_all_of_an_entry_brings_what_is_absent_back_to_its_default(robot: Robot) -> None:
    robot.send("PATCH", of("medium"), {"preemptionPolicy": "Never", "description": "x"})
    answer = robot.send("PUT", of("medium"), {"name": "medium", "value": 80}).json()
    assert (answer["preemptionPolicy"], answer["description"]) == ("PreemptLowerPriority", "")


def test_a_dry_run_shows_the_plan_and_changes_nothing(robot: Robot) -> None:
    answer = robot.send("PATCH", f"{of('medium')}?dryRun=true", {"value": 85})
    assert answer.status_code == 200
    assert "replaced" in answer.json()["plan"]["sentence"]
    assert Priority.objects.get(name="medium").value == 80
    assert not Plan.objects.exists()


def test_an_unused_entry_is_retired_and_gone(robot: Robot) -> None:
    path = of("very-low")
    assert robot.send("DELETE", path).json()["plan"]["title"] == "Retire priority very-low"
    assert robot.get(path).status_code == 404
    assert "very-low" not in names(robot)


@pytest.mark.parametrize(
    ("name", "user"), [("high", "type Job"), ("very-low", "training policy of the whole installation")]
)
def test_t40_an_entry_in_use_is_a_conflict_with_the_list(robot: Robot, name: str, user: str) -> None:
    PolicyFactory(document={"rules": {"priorityClass": {"options": [{"value": "very-low"}]}}})
    answer = robot.send("DELETE", of(name))
    assert answer.status_code == 409
    assert user in answer.json()["errors"][0]["allowed"]
    assert Priority.objects.get(name=name).retired_at is None


@pytest.mark.parametrize(
    ("method", "name", "body", "pointer"),
    [
        ("POST", "", {"name": "a", "value": 1000000001}, "/value"),
        ("POST", "", {"name": "a", "value": -2147483649}, "/value"),
        ("POST", "", {"name": "a", "value": 125}, "/value"),
        ("POST", "", {"name": "high", "value": 7}, "/name"),
        ("POST", "", {"name": "system-a", "value": 7}, "/name"),
        ("POST", "", {"name": "Not a name", "value": 7}, "/name"),
        ("POST", "", {"name": "a", "value": 7, "preemptionPolicy": "Always"}, "/preemptionPolicy"),
        ("POST", "", {"name": "a", "value": 7, "aliasOf": "high"}, "/value"),
        ("POST", "", {"name": "a", "value": 7, "source": "Run:ai"}, "/source"),
        ("POST", "", {"name": "a", "value": "many"}, "/value"),
        ("PUT", "medium", {"value": 80}, "/name"),
        ("PATCH", "medium", {"name": "normal", "value": 81}, "/name"),
        ("PATCH", "medium", {"id": "x"}, "/id"),
    ],
)
def test_t40_t52_a_bad_entry_is_refused_at_its_field_and_nothing_changes(
    robot: Robot, method: str, name: str, body: dict[str, Any], pointer: str
) -> None:
    before = list(Priority.objects.values())
    answer = robot.send(method, of(name) if name else PATH, body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert list(Priority.objects.values()) == before


def test_members_read_and_do_not_write(member: Robot) -> None:
    assert member.get(of("high")).status_code == 200
    assert member.send("POST", PATH, {"name": "mine", "value": 999}).status_code == 403
    for method in ("PATCH", "DELETE"):
        assert member.send(method, of("high"), {}).status_code == 403


def test_the_same_key_adds_once(robot: Robot) -> None:
    body = {"name": "urgent", "value": 200}
    answers = [robot.send("POST", PATH, body, **{"Idempotency-Key": "k"}) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
