"""One way of updating: what was ours and is not wanted goes, what others wrote or the server filled in stays."""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusters.backends.kubernetes.gateway import KubernetesGateway
from clusters.backends.kubernetes.protocol import update_body
from clusters.ports.gateway import Invalid, Manifest, VersionConflict
from clusters.ports.objects import owned, ref_of
from tests.clusters.backends.real_gateways import gateway_to_lab
from tests.support.lab import LabCluster


def quota(live: dict[str, Any], fields: dict[str, Any], **labels: str) -> Manifest:
    """A quota as it was read, with the record of what was written under our name."""
    entry = {"manager": "rung", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}
    metadata = {"name": "q", "uid": "u", "resourceVersion": "7", "labels": labels, "managedFields": [entry]}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": live}


def wanted(spec: dict[str, Any], **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "labels": labels}, "spec": spec}


def put(spec: dict[str, Any], live: dict[str, Any], fields: dict[str, Any]) -> Any:
    """The spec that is sent."""
    return update_body(wanted(spec), quota(live, {"f:spec": fields} if fields else {}), manager="rung")["spec"]


def test_labels_of_others_stay_and_ours_that_are_not_wanted_go() -> None:
    live = quota({}, {"f:metadata": {"f:labels": {".": {}, "f:old": {}, "f:kept": {}}}}, old="1", kept="1", team="x")
    body = update_body(wanted({}, kept="2"), live, manager="rung")
    assert body["metadata"]["labels"] == {"kept": "2", "team": "x"}


def test_the_version_that_was_read_is_the_condition_and_the_record_is_left_to_the_server() -> None:
    body = update_body(wanted({}), quota({}, {}), manager="rung")
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == ("u", "7")
    assert "managedFields" not in body["metadata"]


@pytest.mark.parametrize(
    ("spec", "live", "fields", "sent"),
    [
        pytest.param({}, {"a": 1}, {"f:a": {}}, {}, id="ours goes"),
        pytest.param({}, {"a": 1}, {}, {"a": 1}, id="another's stays"),
        pytest.param({"a": 2}, {"a": 1}, {}, {"a": 2}, id="what is wanted is written over another's"),
        pytest.param({}, {"a": {"b": 1, "c": 2}}, {"f:a": {"f:b": {}}}, {"a": {"c": 2}}, id="part of a map"),
        pytest.param({}, {"a": {"b": 1}}, {"f:a": {".": {}, "f:b": {}}}, {}, id="a map left empty"),
        pytest.param({"a": {"x": 1}}, {"a": {"y": 1}}, {"f:a": {}}, {"a": {"x": 1}}, id="a map that is one value"),
        pytest.param(
            {"hard": {"cpu": 1}}, {"hard": {"pods": 1}}, {}, {"hard": {"cpu": 1}}, id="amounts are wholly ours"
        ),
        pytest.param({"a": [1]}, {"a": [1, 2]}, {"f:a": {}}, {"a": [1]}, id="a plain list"),
        pytest.param({"a": [1]}, {"a": [2, 3]}, {"f:a": {"v:2": {}}}, {"a": [1, 3]}, id="a set"),
        pytest.param({}, {"a": [2, 3]}, {"f:a": {"v:2": {}}}, {"a": [3]}, id="our part of a set"),
        pytest.param(
            {"a": [{"name": "x", "v": 2}]},
            {"a": [{"name": "x", "v": 1, "filled": True}, {"name": "y"}, {"name": "z"}]},
            {"f:a": {'k:{"name":"x"}': {".": {}, "f:v": {}}, 'k:{"name":"y"}': {".": {}}}},
            {"a": [{"name": "x", "v": 2, "filled": True}, {"name": "z"}]},
            id="items with names",
        ),
        pytest.param(
            {"a": [{"port": 80}]},
            {"a": [{"port": 80, "protocol": "TCP", "node": 3}]},
            {"f:a": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}}}},
            {"a": [{"port": 80, "node": 3}]},
            id="a key that the server filled in",
        ),
    ],
)
def test_every_shape_of_field(
    spec: dict[str, Any], live: dict[str, Any], fields: dict[str, Any], sent: dict[str, Any]
) -> None:
    before = copy.deepcopy((spec, live))
    assert put(spec, live, fields) == sent
    assert (spec, live) == before


def test_a_record_of_another_writer_or_version_prunes_nothing() -> None:
    live = quota({"a": 1}, {"f:spec": {"f:a": {}}})
    assert update_body(wanted({}), live, manager="kubectl")["spec"] == {"a": 1}
    live["metadata"]["managedFields"][0]["apiVersion"] = "v1beta1"
    assert update_body(wanted({}), live, manager="rung")["spec"] == {"a": 1}


@pytest.fixture
def gateway(lab_cluster: LabCluster) -> Iterator[KubernetesGateway]:
    with gateway_to_lab(lab_cluster) as real:
        yield real


@pytest.fixture
def namespace(lab_cluster: LabCluster, unique: Callable[[str], str]) -> Iterator[str]:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique("updates")}}
    lab_cluster.admin.create(manifest)
    yield manifest["metadata"]["name"]  # type: ignore[index]  # a str by what stands above
    lab_cluster.admin.delete(ref_of(manifest))


def job(namespace: str, **labels: str) -> Manifest:
    container = {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}
    template = {"metadata": {"labels": {"l": "1"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": owned("train", namespace=namespace, owner="workload.1", generation=1, labels=labels),
        "spec": {"suspend": True, "backoffLimit": 3, "template": template},
    }


def patiently(gateway: KubernetesGateway, manifest: Manifest) -> Manifest:
    """The job controller writes a status in between."""
    for _ in range(20):
        live = gateway.get(ref_of(manifest))
        assert live is not None
        try:
            return gateway.update(manifest, observed=live)
        except VersionConflict:
            time.sleep(0.1)
    pytest.fail("somebody writes all the time")


def test_letting_a_job_go_keeps_what_the_server_filled_in(gateway: KubernetesGateway, namespace: str) -> None:
    created = gateway.create(job(namespace))
    body = job(namespace)
    body["spec"]["suspend"] = False
    updated = patiently(gateway, body)
    assert updated["spec"]["suspend"] is False
    assert updated["spec"]["selector"] == created["spec"]["selector"]
    assert updated["spec"]["template"] == created["spec"]["template"]


def test_a_field_left_out_goes_back_to_its_default_and_a_label_left_out_goes(
    gateway: KubernetesGateway, namespace: str
) -> None:
    gateway.create(job(namespace, extra="1"))
    body = job(namespace)
    del body["spec"]["backoffLimit"]
    updated = patiently(gateway, body)
    assert updated["spec"]["backoffLimit"] == 6
    assert "extra" not in updated["metadata"]["labels"]


def test_what_others_added_stays(gateway: KubernetesGateway, lab_cluster: LabCluster, namespace: str) -> None:
    created = gateway.create(job(namespace))
    theirs = {"labels": {"team": "theirs"}, "annotations": {"note": "theirs"}, "finalizers": ["example.com/hold"]}
    lab_cluster.admin.patch(ref_of(created), {"metadata": theirs})
    try:
        updated = patiently(gateway, job(namespace, ours="1"))
        assert updated["metadata"]["labels"].items() >= {"team": "theirs", "ours": "1"}.items()
        assert updated["metadata"]["annotations"]["note"] == "theirs"
        assert updated["metadata"]["finalizers"] == ["example.com/hold"]
    finally:
        lab_cluster.admin.patch(ref_of(created), {"metadata": {"finalizers": None}})


def test_the_same_again_changes_nothing_on_the_server(gateway: KubernetesGateway, namespace: str) -> None:
    gateway.create(job(namespace))
    first = patiently(gateway, job(namespace, a="1"))
    time.sleep(0.5)
    second = patiently(gateway, job(namespace, a="1"))
    third = patiently(gateway, job(namespace, a="1"))
    assert second["metadata"]["resourceVersion"] == third["metadata"]["resourceVersion"]
    assert second["spec"] == first["spec"]


def test_what_never_changes_is_refused_in_the_servers_words(gateway: KubernetesGateway, namespace: str) -> None:
    gateway.create(job(namespace))
    body = job(namespace)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    body["spec"]["template"]["metadata"]["labels"] = {"job-name": "mine"}
    with pytest.raises(Invalid, match="job-name"):
        patiently(gateway, body)


def test_a_field_that_the_server_does_not_know_is_refused_not_dropped(
    gateway: KubernetesGateway, namespace: str
) -> None:
    body = job(namespace)
    body["spec"]["sortOf"] = True
    with pytest.raises(Invalid, match="sortOf"):
        gateway.create(body)
