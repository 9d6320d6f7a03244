"""Priorities, categories and types through Run:ai's own client, typed; and the verbs beyond it by its own wire."""

from uuid import uuid4

import pytest
from runai import models
from runai.exceptions import BadRequestException, ConflictException, NotFoundException
from runai.runai_client import RunaiClient


def test_the_whole_catalogue_is_read_typed(runai: RunaiClient) -> None:
    properties = runai.workloads.workload_properties
    priorities = models.GetWorkloadPriorities200Response.from_dict(properties.get_workload_priorities().data).priorities
    assert [(each.name, each.value) for each in priorities][::6] == [("very-low", 25), ("very-high", 150)]
    types = models.ListWorkloadTypes200Response.from_dict(properties.list_workload_types().data).types
    assert {each.name for each in types} >= {"Job", "PyTorchJob", "Training", "SPOTRequest"}
    external = properties.list_workload_types(external_types_only=True).data["types"]
    assert "Training" not in {each["name"] for each in external}
    for listed in properties.list_categories().data["categories"]:
        typed = models.WorkloadCategory.from_dict(properties.get_category_by_id(listed["id"]).data)
        assert typed.name == listed["name"]


def test_filters_and_order_are_understood_as_their_client_sends_them(runai: RunaiClient) -> None:
    properties = runai.workloads.workload_properties
    found = properties.get_workload_priorities(
        filter_by=["value>=80", "name!=high"], sort_by="value", sort_order="desc"
    )
    assert [each["name"] for each in found.data["priorities"]] == ["very-high", "medium-high", "medium"]
    (kind,) = properties.list_workload_types(filter_by=["name==Job", "group=^batch"]).data["types"]
    assert models.WorkloadTypeConfig.from_dict(properties.get_workload_type(kind["id"]).data).group == "batch"
    with pytest.raises(NotFoundException):
        properties.get_workload_type(str(uuid4()))


def test_a_plain_body_sets_a_types_preemptibility_which_their_model_lacks(runai: RunaiClient) -> None:
    properties = runai.workloads.workload_properties
    (kind,) = properties.list_workload_types(filter_by=["name==Job"]).data["types"]
    changed = properties.update_workload_type(kind["id"], {"preemptibility": "preemptible"}).data
    assert (changed["preemptibility"], changed["priorityName"]) == ("preemptible", "high")


def test_a_type_is_withdrawn_and_offered_again_and_one_of_ones_own_is_not_taken(runai: RunaiClient) -> None:
    properties = runai.workloads.workload_properties
    (kind,) = properties.list_workload_types(filter_by=["name==RayJob"]).data["types"]
    fields = {"category_id": kind["categoryId"], "priority_id": kind["priorityId"]}
    again = models.WorkloadTypeCreateFields(name="RayJob", group="ray.io", **fields)
    with pytest.raises(ConflictException):
        properties.create_workload_type(again)
    assert properties.delete_workload_type(kind["id"]).status_code == 204
    with pytest.raises(NotFoundException):
        properties.get_workload_type(kind["id"])
    assert models.WorkloadTypeConfig.from_dict(properties.create_workload_type(again).data).id == kind["id"]
    with pytest.raises(BadRequestException) as refused:
        properties.create_workload_type(models.WorkloadTypeCreateFields(name="Robot", group="example.com", **fields))
    assert refused.value.data["errors"][0]["pointer"] == "/name"


def test_the_dictionary_is_written_by_the_same_wire(runai: RunaiClient) -> None:
    api, path = runai.workloads.workload_properties._api_client, "/api/v1/workload-priorities"
    made = api.call_api(resource_path=path, method="POST", body={"name": "urgent", "value": 200})
    assert made.status_code == 201
    assert made.data["plan"]["sentence"]
    one = f"{path}/{made.data['id']}"
    assert api.call_api(resource_path=one, method="PATCH", body={"value": 201}).data["value"] == 201
    assert models.WorkloadPriority.from_dict(api.call_api(resource_path=one, method="GET").data).value == 201
    (high,) = runai.workloads.workload_properties.get_workload_priorities(filter_by=["name==high"]).data["priorities"]
    with pytest.raises(ConflictException) as in_use:
        api.call_api(resource_path=f"{path}/{high['id']}", method="DELETE")
    assert "type Job" in in_use.value.data["errors"][0]["allowed"]
    assert api.call_api(resource_path=one, method="DELETE").data["plan"]["title"] == "Retire priority urgent"
    with pytest.raises(NotFoundException):
        api.call_api(resource_path=one, method="GET")
