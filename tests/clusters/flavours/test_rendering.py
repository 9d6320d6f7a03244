"""A workload's object as a cluster gets it: the effective values everywhere, nothing of what a tenant tried to say."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.ports.flavour import PoolSpec
from clusters.ports.gateway import Manifest
from clusters.ports.pod_templates import TemplateShape, WorkloadKind, parts_in
from clusters.ports.workload_kinds import KINDS, kind_named
from tests.clusters.samples import sample
from tests.clusters.specs import WORKLOAD, job, job_manifest, pod_template, templates_in
from tests.support import kubernetes_schema

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
every_flavour = pytest.mark.parametrize("flavour", sorted(FLAVOURS))
UNPLACED = {"AMLJob", "SPOTRequest"}  # no public schema: nothing is known of where their pods' fields stand


def rendered(flavour: str, body: Manifest, **fields: Any) -> Manifest:
    (manifest,) = flavour_for(flavour).render(job(body, **fields))
    return manifest


def everywhere(node: Any, key: str) -> Iterator[Any]:
    """Every value of a key, at any depth."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from everywhere(value, key)
    elif isinstance(node, list):
        for item in node:
            yield from everywhere(item, key)


@every_flavour
@every_kind
def test_every_pod_template_carries_the_effective_values(flavour: str, kind: WorkloadKind) -> None:
    manifest = rendered(flavour, sample(kind))
    for found in templates_in(manifest, kind):
        assert found.template["spec"]["priorityClassName"] == "low"
        assert found.template["spec"]["nodeSelector"] == {"rung.dev/node-pool": "a100"}
        labels = found.template["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "rung"
        assert labels["rung.dev/owner"] == f"workload.{WORKLOAD}"
        assert labels["rung.dev/role"] == found.role
        assert found.template["metadata"]["annotations"]["rung.dev/min-member"] == "1"


@every_kind
def test_kai_is_told_how_many_pods_of_a_job_belong_together_and_counts_those_of_other_kinds_itself(
    kind: WorkloadKind,
) -> None:
    told = list(everywhere(rendered("kai", sample(kind), min_member=3), "kai.scheduler/batch-min-member"))
    assert told == (["3"] if kind.name == "Job" else [])


@every_kind
def test_kai_is_told_queue_scheduler_and_preemptibility(kind: WorkloadKind) -> None:
    manifest = rendered("kai", sample(kind))
    assert manifest["metadata"]["labels"]["kai.scheduler/queue"] == "project.1.a100"
    assert manifest["metadata"]["labels"]["kai.scheduler/preemptibility"] == "preemptible"
    for found in templates_in(manifest, kind):
        assert found.template["spec"]["schedulerName"] == "kai-scheduler"
        assert found.template["metadata"]["labels"]["kai.scheduler/queue"] == "project.1.a100"
        assert found.template["metadata"]["labels"]["kai.scheduler/preemptibility"] == "preemptible"


def test_pods_described_without_a_template_carry_the_labels_too() -> None:
    predictor = rendered("kai", sample(kind_named("InferenceService")))["spec"]["predictor"]
    assert predictor["priorityClassName"] == "low"
    assert predictor["schedulerName"] == "kai-scheduler"
    assert predictor["labels"]["kai.scheduler/queue"] == "project.1.a100"
    assert predictor["labels"]["rung.dev/role"] == "predictor"
    assert predictor["annotations"]["rung.dev/min-member"] == "1"


@every_kind
def test_kube_leaves_the_default_scheduler(kind: WorkloadKind) -> None:
    manifest = rendered("kube", sample(kind))
    assert list(everywhere(manifest, "schedulerName")) == []
    assert list(everywhere(manifest, "kai.scheduler/queue")) == []


@every_kind
def test_pods_without_a_template_are_placed_too(kind: WorkloadKind) -> None:
    manifest = rendered("kai", sample(kind))
    selectors = list(everywhere(manifest, "nodeSelector"))
    assert all(each == {"rung.dev/node-pool": "a100"} for each in selectors)
    assert bool(selectors) is (kind.name not in UNPLACED)


SPOOFED = {
    "app.kubernetes.io/managed-by": "helm",
    "rung.dev/owner": "workload.of-somebody-else",
    "kai.scheduler/queue": "project.2.a100",
    "kai.scheduler/node-pool": "h100",
    "kai.scheduler/preemptibility": "non-preemptible",
    "priorityClassName": "very-high",
    "kueue.x-k8s.io/queue-name": "theirs",
    "pod-security.kubernetes.io/enforce": "privileged",
}


@every_flavour
@every_kind
def test_t9_managed_labels_of_a_tenant_do_not_survive(flavour: str, kind: WorkloadKind) -> None:
    body = sample(kind, labels=dict(SPOOFED), annotations={"rung.dev/generation": "999", "rung.dev/applied-hash": "x"})
    for part in parts_in(body, kind):
        if part.shape is TemplateShape.TEMPLATE:
            part.part["metadata"]["labels"] = dict(SPOOFED)
    manifest = rendered(flavour, body)
    for key, spoofed in SPOOFED.items():
        assert spoofed not in list(everywhere(manifest, key))
    assert set(everywhere(manifest, "rung.dev/generation")) == {"3"}
    assert list(everywhere(manifest, "rung.dev/applied-hash")) == []


@every_flavour
@every_kind
def test_t8_fields_of_the_server_are_never_passed_through(flavour: str, kind: WorkloadKind) -> None:
    spoofed = {
        "uid": "u",
        "resourceVersion": "1",
        "ownerReferences": [],
        "finalizers": ["x"],
        "namespace": "kube-system",
    }
    manifest = rendered(flavour, {**sample(kind, **spoofed), "status": {"phase": "Running"}})
    assert set(manifest["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert (manifest["metadata"]["name"], manifest["metadata"]["namespace"]) == ("train-0b0e5a3c", "runai-vision")
    assert "status" not in manifest


@every_kind
def test_a_suspended_workload_is_suspended_or_absent(kind: WorkloadKind) -> None:
    manifests = flavour_for("kai").render(job(sample(kind), suspended=True))
    if kind.suspend is None:
        assert manifests == []
    else:
        assert list(everywhere(manifests[0], "suspend")) == [True]
        assert list(everywhere(rendered("kai", sample(kind)), "suspend")) == [False]


@every_flavour
@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.core])
def test_kinds_of_kubernetes_itself_stay_valid(flavour: str, name: str) -> None:
    body = sample(kind_named(name))
    spec = body["spec"]
    if name in {"Deployment", "ReplicaSet", "StatefulSet"}:
        spec["selector"] = {"matchLabels": {"app": "x"}}
    if name == "StatefulSet":
        spec["serviceName"] = "x"
    if name == "CronJob":
        spec["schedule"] = "0 3 * * *"
    kubernetes_schema.validate(rendered(flavour, body))


@every_kind
def test_pods_are_described_the_same_whatever_the_generation(kind: WorkloadKind) -> None:
    """Else a Job's template would be refused as immutable, and a Deployment would restart its pods."""
    first, later = rendered("kai", sample(kind), generation=1), rendered("kai", sample(kind), generation=2)
    assert first["spec"] == later["spec"]
    generations = [each["metadata"]["annotations"]["rung.dev/generation"] for each in (first, later)]
    assert generations == ["1", "2"]


def test_a_tenants_own_labels_and_selectors_stay() -> None:
    body = job_manifest(labels={"team": "vision"}, annotations={"rung.dev/run-seconds": "60"})
    body["spec"]["template"] = pod_template(nodeSelector={"gpu": "a100", "rung.dev/node-pool": "h100"})
    manifest = rendered("kai", body)
    assert manifest["metadata"]["labels"]["team"] == "vision"
    assert manifest["metadata"]["annotations"]["rung.dev/run-seconds"] == "60"
    assert manifest["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "a100", "rung.dev/node-pool": "a100"}


def test_a_workload_without_a_pool_may_run_anywhere() -> None:
    manifest = rendered("kai", job_manifest(), pool=None)
    assert "nodeSelector" not in manifest["spec"]["template"]["spec"]


def test_a_pool_of_a_shard_is_named_to_that_shard() -> None:
    manifest = rendered("kai", job_manifest(), pool=PoolSpec("h100", "kai.scheduler/node-pool", "h100-nodes"))
    assert manifest["metadata"]["labels"]["kai.scheduler/node-pool"] == "h100-nodes"
    assert manifest["spec"]["template"]["spec"]["nodeSelector"] == {"kai.scheduler/node-pool": "h100-nodes"}


def test_rays_own_priority_label_is_the_effective_one() -> None:
    manifest = rendered("kai", sample(kind_named("RayJob"), labels={"ray.io/priority-class-name": "very-high"}))
    assert manifest["metadata"]["labels"]["ray.io/priority-class-name"] == "low"


def test_a_gangs_own_priority_is_rewritten_where_it_stands() -> None:
    kind = kind_named("PyTorchJob")
    body = sample(kind)
    assert "schedulingPolicy" not in rendered("kai", body)["spec"].get("runPolicy", {})
    body["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": "very-high"}}
    assert rendered("kai", body)["spec"]["runPolicy"]["schedulingPolicy"] == {"priorityClass": "low"}


@every_kind
def test_the_stored_body_stays_as_it_was(kind: WorkloadKind) -> None:
    body = sample(kind)
    before = copy.deepcopy(body)
    rendered("kai", body)
    assert body == before
