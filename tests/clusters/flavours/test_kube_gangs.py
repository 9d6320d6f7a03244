"""What a cluster gets for a gang: Workload and PodGroup, and the group's name wherever its pods are described."""

from typing import Any

import pytest

from clusters.flavours.kube import Kube, KubeGangs
from clusters.ports.gateway import Manifest
from clusters.ports.pod_templates import TemplateShape, WorkloadKind, parts_in
from clusters.ports.workload_kinds import KINDS, kind_named
from tests.clusters.samples import sample
from tests.clusters.specs import WORKLOAD, job, job_manifest
from tests.support import kubernetes_schema

GANGS = [kind for kind in KINDS if kind.gang and any(path.shape is TemplateShape.TEMPLATE for path in kind.paths)]
UID = "9f1c2f8e-53d2-4b54-a4e3-1c6f7d0f3a11"


def rendered(body: Manifest | None = None, **fields: Any) -> list[Manifest]:
    return KubeGangs().render(job(body, **{"min_member": 4, **fields}))


def test_the_group_comes_before_the_pods_that_name_it() -> None:
    workload, group, own = rendered()
    assert [each["kind"] for each in (workload, group, own)] == ["Workload", "PodGroup", "Job"]
    assert {each["metadata"]["name"] for each in (workload, group, own)} == {"train-0b0e5a3c"}
    assert own["spec"]["template"]["spec"]["schedulingGroup"] == {"podGroupName": "train-0b0e5a3c"}


def test_a_group_and_its_template_agree_word_for_word() -> None:
    workload, group, _own = rendered(min_member=3)
    [template] = workload["spec"]["podGroupTemplates"]
    terms = {key: value for key, value in group["spec"].items() if key != "podGroupTemplateRef"}
    assert {key: value for key, value in template.items() if key != "name"} == terms
    assert terms == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "priorityClassName": "low",
        "disruptionMode": "PodGroup",
    }
    origin = {"workloadName": workload["metadata"]["name"], "podGroupTemplateName": template["name"]}
    assert group["spec"]["podGroupTemplateRef"] == {"workload": origin}


def test_what_stands_beside_a_workload_is_the_workloads() -> None:
    for each in rendered():
        assert each["metadata"]["labels"]["rung.dev/owner"] == f"workload.{WORKLOAD}"
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "rung"
        assert each["metadata"]["annotations"]["rung.dev/generation"] == "3"
        assert each["metadata"]["namespace"] == "runai-vision"


def test_a_gang_may_ask_for_nodes_of_one_domain() -> None:
    workload, group, own = rendered(job_manifest(annotations={"rung.dev/topology-key": "rack"}))
    assert group["spec"]["schedulingConstraints"] == {"topology": [{"key": "rack"}]}
    assert workload["spec"]["podGroupTemplates"][0]["schedulingConstraints"] == {"topology": [{"key": "rack"}]}
    assert "schedulingConstraints" not in rendered()[1]["spec"]
    assert "topology" not in str(own["spec"])


@pytest.mark.parametrize("kind", GANGS, ids=lambda kind: kind.name)
def test_every_template_of_a_gang_names_the_group_but_for_what_starts_later(kind: WorkloadKind) -> None:
    *_beside, own = rendered(sample(kind), min_member=2)
    for found in parts_in(own, kind):
        named = found.part["spec"].get("schedulingGroup")
        assert named == (None if found.role in kind.later else {"podGroupName": "train-0b0e5a3c"})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_workload_of_one_pod_is_a_plain_one(kind: WorkloadKind) -> None:
    spec = job(sample(kind), min_member=1)
    assert KubeGangs().render(spec) == Kube().render(spec)


@pytest.mark.parametrize("name", ["AMLJob", "DynamoGraphDeployment", "Deployment"])
def test_pods_that_no_template_describes_are_no_gang(name: str) -> None:
    assert len(rendered(sample(kind_named(name)))) == 1


def test_a_gang_that_cannot_be_suspended_leaves_with_its_group() -> None:
    assert rendered(sample(kind_named("RayService")), suspended=True) == []
    assert len(rendered(suspended=True)) == 3


@pytest.mark.parametrize("suspended", [False, True])
def test_kubernetes_takes_it(suspended: bool) -> None:
    *_beside, own = rendered(job_manifest(), suspended=suspended)
    kubernetes_schema.validate(own)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("pod group is unschedulable, waiting for minCount pods from a gang to be scheduled", "GangIncomplete"),
        ("waiting for minCount pods from a gang to appear in scheduling queue", "GangIncomplete"),
        ("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.", "Unschedulable"),
    ],
)
def test_a_pod_that_waits_for_the_others_is_told_from_one_without_room(message: str, reason: str) -> None:
    held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    said = KubeGangs().interpret({"status": {"conditions": [held]}})
    assert (said.reason, said.message) == (reason, message)


@pytest.mark.parametrize(
    ("condition", "event", "whole"),
    [
        ("default-scheduler: preempting to accommodate a higher priority podgroup", "", True),
        ("", f"Preempted by podgroup {UID} on node n", True),
        ("default-scheduler: preempting to accommodate a higher priority pod", "", False),
        ("", f"Preempted by pod {UID} on node n", False),
    ],
)
def test_only_a_gang_evicts_a_gang_whole(condition: str, event: str, whole: bool) -> None:
    held = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": condition}
    pod = {"status": {"conditions": [held]}} if condition else {}
    events = [{"reason": "Preempted", "message": event}] if event else []
    said = KubeGangs().interpret(pod, events)
    assert (said.cause, said.whole, said.preemptor) == ("preempt", whole, f"uid:{UID}" if event else "")
