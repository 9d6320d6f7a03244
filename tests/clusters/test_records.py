"""What the API server's record of who wrote which field vouches for, and what has to be read all the same."""

import copy
from typing import Any

import pytest

from clusters.backends.kubernetes_objects import tidied
from clusters.diff import by_place, holds
from clusters.flavours.kai import queue_manifest
from clusters.kinds_core import KUEUE_QUEUE
from clusters.ports import Manifest
from tests.clusters.specs import queue

DESIRED = queue_manifest(queue("project.1", limit=8))
LEAF: dict[str, Any] = {}


def fields_of(content: Any, atomic: tuple[str, ...] = ()) -> Any:
    """The record of whoever wrote all of it: a map with its own dot, values and lists as leaves."""
    if not isinstance(content, dict):
        return {}
    below = {f"f:{key}": {} if key in atomic else fields_of(each, atomic) for key, each in content.items()}
    return {".": {}, **below}


def entry(content: Any, **said: Any) -> dict[str, Any]:
    """An entry of the record, by default of our own writes."""
    standard = {"manager": "rung", "operation": "Update", "apiVersion": "scheduling.run.ai/v2"}
    return {**standard, "fieldsType": "FieldsV1", "fieldsV1": content, **said}


def written(*others: Any, fields: Any = None, desired: Manifest = DESIRED) -> Manifest:
    """The metadata of our object as a list of metadata shows them, with its record."""
    (stamped,) = by_place([desired]).values()
    mine = {"f:spec": fields_of(desired["spec"])} if fields is None else fields
    record = [entry({"f:metadata": {"f:labels": {"f:a": {}}}, **mine}, apiVersion=desired["apiVersion"]), *others]
    metadata = {**stamped["metadata"], "uid": "u", "managedFields": record}
    alone = {"apiVersion": desired["apiVersion"], "kind": desired["kind"], "metadata": metadata}
    return tidied(copy.deepcopy(alone), record=True)


def is_vouched_for(observed: Manifest, desired: Manifest = DESIRED) -> bool:
    (stamped,) = by_place([desired]).values()
    return holds(observed, stamped, whole=False)


def test_an_object_whose_every_wanted_field_we_wrote_last_need_not_be_read() -> None:
    assert is_vouched_for(written())


def test_what_the_server_filled_in_beside_it_changes_nothing() -> None:
    filled = {"f:spec": {**fields_of(DESIRED["spec"]), "f:default": {}}}
    assert is_vouched_for(written(fields=filled))


def test_a_status_and_labels_of_others_change_nothing() -> None:
    status = entry({"f:status": {"f:allocated": {}}}, manager="queue-controller", subresource="status")
    labels = entry({"f:metadata": {"f:labels": {"f:team": {}}}}, manager="kubectl-label")
    assert is_vouched_for(written(status, labels))


@pytest.mark.parametrize(
    ("path", "left"),
    [
        pytest.param(("f:spec", "f:priority"), None, id="a value was changed or removed"),
        pytest.param(("f:spec", "f:resources", "f:gpu", "f:limit"), None, id="a value deep inside"),
        pytest.param(("f:spec", "f:resources", "f:gpu"), {}, id="everything in a map was removed, the map stands"),
        pytest.param(("f:spec",), None, id="nothing of it is ours any more"),
        pytest.param(("f:spec", "f:resources"), "f:gpu", id="the record is none"),
    ],
)
def test_a_field_that_is_ours_no_longer_makes_it_be_read(path: tuple[str, ...], left: Any) -> None:
    fields = {"f:spec": fields_of(DESIRED["spec"])}
    inside = fields
    for step in path[:-1]:
        inside = inside[step]
    if left is None:
        del inside[path[-1]]
    else:
        inside[path[-1]] = left
    assert not is_vouched_for(written(fields=fields))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(entry({"f:spec": {"f:new": {}}}, manager="kubectl-edit"), id="a field of somebody else's"),
        pytest.param(entry({"f:spec": LEAF}, operation="Apply"), id="applied under our name"),
        pytest.param(entry({"f:spec": LEAF}, apiVersion="scheduling.run.ai/v1"), id="ours of another version"),
        pytest.param(entry({"f:data": LEAF}, manager="x"), id="another part of the object"),
    ],
)
def test_content_of_anybody_else_makes_it_be_read(other: dict[str, Any]) -> None:
    assert not is_vouched_for(written(other))


def test_an_object_made_anew_by_somebody_else_from_a_copy_of_ours_is_read() -> None:
    theirs = written()
    theirs["metadata"]["managedFields"] = [
        entry({"f:metadata": {}, "f:spec": fields_of(DESIRED["spec"])}, manager="kubectl-create")
    ]
    assert not is_vouched_for(theirs)


@pytest.mark.parametrize("record", [None, [], [{}], "none", [3], [entry("none")], [entry({"f:spec": 3})]])
def test_without_a_record_that_can_be_read_nothing_is_vouched_for(record: Any) -> None:
    bare = written()
    bare["metadata"]["managedFields"] = record
    assert not is_vouched_for(tidied(bare, record=True))


def test_what_metadata_show_by_themselves_is_compared_as_ever() -> None:
    for change in (
        {"labels": {**DESIRED["metadata"]["labels"], "rung.dev/owner": "project.2"}},
        {"annotations": {}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ):
        other = written()
        other["metadata"] |= change
        assert not is_vouched_for(other)
    raised = queue_manifest(queue("project.1", limit=9))
    assert not is_vouched_for(written(), raised)


def test_a_list_that_the_api_has_as_one_value_is_vouched_for_where_its_kind_says_so() -> None:
    spec = {
        "cohortName": "c",
        "namespaceSelector": {"matchLabels": {"a": "b"}},
        "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"]}],
    }
    metadata = {key: DESIRED["metadata"][key] for key in ("name", "labels", "annotations")}
    desired = {"apiVersion": KUEUE_QUEUE.api_version, "kind": KUEUE_QUEUE.kind, "metadata": metadata, "spec": spec}
    whole = {"f:spec": fields_of(spec, ("namespaceSelector", "resourceGroups"))}
    assert is_vouched_for(written(fields=whole, desired=desired), desired)
    whole["f:spec"]["f:resourceGroups"] = {'k:{"name":"x"}': {}}
    assert not is_vouched_for(written(fields=whole, desired=desired), desired)
    listed = {**desired, "spec": {**spec, "admissionChecks": ["x"]}}
    assert not is_vouched_for(written(fields={"f:spec": fields_of(listed["spec"])}, desired=listed), listed)
