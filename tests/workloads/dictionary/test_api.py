"""Priorities, categories and types in Run:ai's shapes, and the seed's four-step recipe."""

import re
from uuid import uuid4

import pytest

from portal.audit.models import AuditRecord
from tests.support.rest_clients import Robot
from workloads.dictionary.models import WorkloadType
from workloads.plans.models import Plan

SEVEN = ["very-low", "low", "medium-low", "medium", "medium-high", "high", "very-high"]


def types(robot: Robot) -> dict[str, dict[str, str]]:
    return {each["name"]: each for each in robot.get("v1/workload-types").json()["types"]}


def test_the_dictionary_has_seven_priorities_weakest_first(robot: Robot) -> None:
    priorities = robot.get("v1/workload-priorities").json()["priorities"]
    assert [each["name"] for each in priorities] == SEVEN
    assert [each["value"] for each in priorities] == [25, 40, 65, 80, 90, 125, 150]
    assert all(each["status"][0]["phase"] for each in priorities)


def test_filters_and_sorting_are_run_ais(robot: Robot) -> None:
    found = robot.get("v1/workload-priorities?filterBy=value>=80,name!=high&sortBy=value&sortOrder=desc").json()
    assert [each["name"] for each in found["priorities"]] == ["very-high", "medium-high", "medium"]


def test_enum_names_of_their_client_are_understood(robot: Robot) -> None:
    found = robot.get("v1/workload-priorities?sortBy=PriorityFields.VALUE&sortOrder=SortOrder.DESC").json()
    assert found["priorities"][0]["name"] == "very-high"


@pytest.mark.parametrize("query", ["filterBy=secret==1", "filterBy=value~1", "filterBy=value>=many", "sortBy=owner"])
def test_t51_what_cannot_be_filtered_is_400_naming_what_can(robot: Robot, query: str) -> None:
    response = robot.get(f"v1/workload-priorities?{query}")
    assert response.status_code == 400
    assert set(response.json()["errors"][0].get("allowed", ["name"])) <= {"name", "source", "value"}


def test_every_type_satisfies_the_patterns_of_their_client(robot: Robot) -> None:
    listed = types(robot)
    assert len(listed) > 35
    for each in listed.values():
        assert re.fullmatch(r"[A-Z][a-z0-9]*([A-Z][a-z0-9]*)*", each["name"])
        assert re.fullmatch(r"[a-z](?:[a-z0-9.-]*[a-z0-9])?", each["group"])
        assert isinstance(each["categoryId"], str)
        assert isinstance(each["priorityId"], str)


def test_surprising_defaults_are_told_as_they_are(robot: Robot) -> None:
    listed = types(robot)
    defaults = {name: (listed[name]["priorityName"], listed[name]["preemptibility"]) for name in ("Job", "Pod")}
    assert defaults == {"Job": ("high", "non-preemptible"), "Pod": ("very-high", "non-preemptible")}
    assert (listed["SPOTRequest"]["categoryId"], listed["SPOTRequest"]["priorityId"]) == ("", "")


def test_external_types_leave_the_native_ones_out(robot: Robot) -> None:
    external = {each["name"] for each in robot.get("v1/workload-types?externalTypesOnly=true").json()["types"]}
    assert "PyTorchJob" in external
    assert "Workspace" not in external


def test_the_four_steps_change_a_default_at_once(robot: Robot) -> None:
    kind = types(robot)["PyTorchJob"]
    priorities = {each["name"]: each["id"] for each in robot.get("v1/workload-priorities").json()["priorities"]}
    response = robot.send("PUT", f"v1/workload-types/{kind['id']}", {"priorityId": priorities["medium"]})
    assert response.status_code == 200
    assert response.json()["priorityName"] == "medium"
    assert robot.get(f"v1/workload-types/{kind['id']}").json()["priorityId"] == priorities["medium"]
    assert Plan.objects.filter(state="applied").exists()
    assert AuditRecord.objects.filter(actor_name="platform-robot", entity_type="workloadtype").exists()


def test_a_types_preemptibility_is_taken_and_told_back(robot: Robot) -> None:
    kind = types(robot)["Job"]
    changed = robot.send("PUT", f"v1/workload-types/{kind['id']}", {"preemptibility": "preemptible"})
    assert changed.status_code == 200
    assert (changed.json()["preemptibility"], changed.json()["priorityName"]) == ("preemptible", "high")
    assert types(robot)["Job"]["preemptibility"] == "preemptible"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"priorityId": str(uuid4())}, "/priorityId"),
        ({"priorityId": "high"}, "/priorityId"),
        ({"categoryId": str(uuid4())}, "/categoryId"),
        ({"preemptibility": "maybe"}, "/preemptibility"),
        ({"name": "Other"}, "/name"),
        ({"resourceInterfaces": [1, 2, 3, 4, 5]}, "/resourceInterfaces"),
    ],
)
def test_t52_a_refused_change_points_at_its_field_and_changes_nothing(
    robot: Robot, body: dict[str, object], pointer: str
) -> None:
    kind = WorkloadType.objects.get(name="Job")
    response = robot.send("PUT", f"v1/workload-types/{kind.pk}", body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == pointer
    assert WorkloadType.objects.get(name="Job").updated_at == kind.updated_at


def test_a_member_may_read_types_but_not_change_them(member: Robot) -> None:
    kind = types(member)["Job"]
    assert member.send("PUT", f"v1/workload-types/{kind['id']}", {"preemptibility": "preemptible"}).status_code == 403


@pytest.mark.parametrize("path", ["v1/workload-types", "v1/workload-categories"])
def test_t68_an_unknown_id_is_404(robot: Robot, path: str) -> None:
    for wrong in (uuid4(), "%2e%2e", "10" * 30, "x;y"):
        response = robot.get(f"{path}/{wrong}")
        assert response.status_code == 404
        assert response["Content-Type"].startswith("application/json")


def test_a_category_is_read_by_id(robot: Robot) -> None:
    for each in robot.get("v1/workload-categories").json()["categories"]:
        assert robot.get(f"v1/workload-categories/{each['id']}").json()["name"] == each["name"]
