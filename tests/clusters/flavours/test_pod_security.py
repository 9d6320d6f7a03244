"""What Pod Security `restricted` demands stands in every pod that is rendered, whatever its manifest left out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.pod_templates import TemplateShape, WorkloadKind, parts_in
from clusters.ports.workload_kinds import KINDS, kind_named
from tests.clusters.samples import sample
from tests.clusters.specs import job, job_manifest, pod_template, project, state

TEMPLATED = [kind for kind in KINDS if kind.templates]


def rendered(body: Manifest, **fields: Any) -> Manifest:
    (manifest,) = flavour_for("kube").render(job(body, **fields))
    return manifest


def pods(manifest: Manifest, kind: WorkloadKind) -> Iterator[dict[str, Any]]:
    for found in parts_in(manifest, kind):
        if found.shape is TemplateShape.TEMPLATE:
            yield dict(found.part["spec"])


def contexts(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What holds for each container: its own securityContext over its pod's."""
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        yield {**pod.get("securityContext", {}), **container["securityContext"]}


@pytest.mark.parametrize("kind", TEMPLATED, ids=lambda kind: kind.name)
def test_every_container_of_every_template_satisfies_restricted(kind: WorkloadKind) -> None:
    found = list(pods(rendered(sample(kind)), kind))
    assert found
    for pod in found:
        assert pod["automountServiceAccountToken"] is False
        for context in contexts(pod):
            assert context["runAsNonRoot"] is True
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]


def test_init_containers_and_a_tenants_own_settings_are_kept() -> None:
    early = {
        "name": "early",
        "image": "registry.example/a:1",
        "securityContext": {"runAsUser": 1000, "capabilities": {"drop": ["NET_RAW"]}},
    }
    body = job_manifest()
    body["spec"]["template"] = pod_template(initContainers=[early], securityContext={"fsGroup": 2000})
    (pod,) = pods(rendered(body), kind_named("Job"))
    assert pod["securityContext"]["fsGroup"] == 2000
    assert pod["initContainers"][0]["securityContext"] == {
        "runAsUser": 1000,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_knative_is_told_at_each_container_since_it_takes_no_pods_context() -> None:
    (pod,) = pods(rendered(sample(kind_named("Service"))), kind_named("Service"))
    assert "securityContext" not in pod
    assert pod["containers"][0]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("InferenceService", ("spec", "predictor", "securityContext")),
        ("TaskRun", ("spec", "podTemplate", "securityContext")),
        ("PipelineRun", ("spec", "taskRunTemplate", "podTemplate", "securityContext")),
        ("Workflow", ("spec", "securityContext")),
        ("ScheduledWorkflow", ("spec", "workflow", "spec", "securityContext")),
        ("DevWorkspace", ("spec", "template", "attributes", "pod-overrides", "spec", "securityContext")),
        ("DynamoGraphDeployment", ("spec", "services", "worker", "extraPodSpec", "securityContext")),
    ],
)
def test_kinds_without_a_template_say_it_where_their_operator_reads_it(name: str, path: tuple[str, ...]) -> None:
    node: Any = rendered(sample(kind_named(name)))
    for step in path:
        node = node[step]
    assert node["runAsNonRoot"] is True


def test_under_baseline_images_that_start_as_root_run() -> None:
    (pod,) = pods(rendered(job_manifest(), pod_security="baseline"), kind_named("Job"))
    assert "runAsNonRoot" not in pod["securityContext"]
    assert "securityContext" not in pod["containers"][0]
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_a_namespace_enforces_the_level_of_its_cluster(level: str) -> None:
    desired = state(replace(project("vision"), pod_security=level))
    (space,) = [each for each in flavour_for("kube").objects_for(desired) if each["kind"] == "Namespace"]
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == level
