"""What schedulers say about a pod, in Rung's words. The sentences are those of real schedulers."""

import json
from pathlib import Path
from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import PodStatusReason
from clusters.ports.gateway import Manifest

UID = "9f1c2f8e-53d2-4b54-a4e3-1c6f7d0f3a11"
TRUTHS = Path(__file__).parents[2] / "scheduling" / "truths" / "kai.jsonl"


def pod(*conditions: dict[str, str]) -> Manifest:
    return {
        "kind": "Pod",
        "metadata": {"name": "train-0"},
        "status": {"phase": "Pending", "conditions": list(conditions)},
    }


def unscheduled(message: str, reason: str = "Unschedulable") -> dict[str, str]:
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}


def disrupted(message: str, reason: str = "PreemptionByScheduler") -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


def event(reason: str, message: str) -> Manifest:
    return {"kind": "Event", "reason": reason, "message": message}


def read(flavour: str, found: Manifest, *events: Manifest) -> PodStatusReason:
    return flavour_for(flavour).interpret(found, events)


class TestKube:
    """Conditions, events, and refusals of the quota admission."""

    def test_nodes_are_counted_per_cause(self) -> None:
        message = (
            "0/16 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 14 Insufficient "
            "nvidia.com/gpu. preemption: 0/16 nodes are available: 16 No preemption victims found for incoming pod."
        )
        found = read("kube", pod(unscheduled(message)))
        assert (found.reason, found.message) == ("Unschedulable", message)
        assert found.numbers == {
            "nodes": "16",
            "fitting": "0",
            "node(s) didn't match Pod's node affinity/selector": "2",
            "Insufficient nvidia.com/gpu": "14",
        }

    def test_a_gated_pod_says_so(self) -> None:
        assert read("kube", pod(unscheduled("gated", "SchedulingGated"))).reason == "SchedulingGated"

    @pytest.mark.parametrize("quota", ["rung-limit", "rung-deserved", "rung-cap-high", "theirs"])
    def test_a_quota_that_refuses_is_named_with_its_numbers(self, quota: str) -> None:
        gpus = "requests.nvidia.com/gpu"
        message = (
            f'Error creating: pods "train-x" is forbidden: exceeded quota: {quota}, '
            f"requested: {gpus}=8, used: {gpus}=12, limited: {gpus}=16"
        )
        found = read("kube", {}, event("FailedCreate", message))
        reasons = {
            "rung-limit": "OverLimit",
            "rung-deserved": "NonPreemptibleOverQuota",
            "rung-cap-high": "OverPriorityCap",
        }
        assert found.reason == reasons.get(quota, "ExceededQuota")
        assert found.numbers == {
            "quota": quota,
            "requested": f"{gpus}=8",
            "used": f"{gpus}=12",
            "limited": f"{gpus}=16",
        }

    @pytest.mark.parametrize(
        ("found", "events"),
        [
            pytest.param(pod(disrupted(f"Preempted by pod {UID} on node n1")), [], id="condition that names it"),
            pytest.param(pod(), [event("Preempted", f"Preempted by pod {UID} on node n1")], id="event only"),
            pytest.param(
                pod(disrupted("kube-scheduler: preempting to accommodate a higher priority pod")),
                [event("Preempted", f"Preempted by pod {UID} on node n1")],
                id="condition without a name, event with it",
            ),
            pytest.param(pod(), [event("Preempted", f"Preempted by podgroup {UID} on node n1")], id="by a pod group"),
        ],
    )
    def test_a_victims_preemptor_is_found_by_uid(self, found: Manifest, events: list[Manifest]) -> None:
        reading = read("kube", found, *events)
        assert (reading.reason, reading.cause, reading.preemptor) == ("Preempted", "preempt", f"uid:{UID}")

    def test_a_nameless_preemption_is_still_one(self) -> None:
        reading = read("kube", pod(disrupted("kube-scheduler: preempting to accommodate a higher priority pod")))
        assert (reading.cause, reading.preemptor) == ("preempt", "")

    def test_a_drain_is_no_preemption(self) -> None:
        assert read("kube", pod(disrupted("Eviction API: evicting", "EvictionByEvictionAPI"))) == PodStatusReason()

    def test_a_running_pod_has_nothing_to_say(self) -> None:
        assert read("kube", pod({"type": "PodScheduled", "status": "True"})) == PodStatusReason()


class TestKai:
    """Reasons of pod groups, and evictions with their culprit."""

    @pytest.mark.parametrize(
        ("message", "reason", "cause", "preemptor"),
        [
            (
                "Pod runai-a/p4 was preempted by higher priority workload runai-a/pg-train-4adb7",
                "Preempted",
                "preempt",
                "runai-a/pg-train-4adb7",
            ),
            ("preempted by higher priority workload runai-a/train", "Preempted", "preempt", "runai-a/train"),
            (
                "Pod runai-a/p3 was preempted by workload runai-b/pg-big-f53d.\nqa uses <GPU: 10> with a quota of <2>",
                "Reclaimed",
                "reclaim",
                "runai-b/pg-big-f53d",
            ),
            ("reclaimed by runai-b/big for queue project.2.a100", "Reclaimed", "reclaim", "runai-b/big"),
            ("Resources were reclaimed for another queue", "Evicted", "reclaim", ""),
            (
                "Pod runai-a/p3 was preempted and rescheduled due to bin packing (resource consolidation) procedure",
                "Consolidated",
                "consolidate",
                "",
            ),
        ],
    )
    @pytest.mark.parametrize("where", ["condition", "event"])
    def test_an_eviction_names_who_and_why(
        self, where: str, message: str, reason: str, cause: str, preemptor: str
    ) -> None:
        found = [pod(disrupted(message))] if where == "condition" else [pod(), event("Evict", message)]
        reading = read("kai", *found)
        assert (reading.reason, reading.cause, reading.preemptor, reading.message) == (
            reason,
            cause,
            preemptor,
            message,
        )

    @pytest.mark.parametrize("group", [f"pg-train-{UID}", f"pg-pg-a-{UID}", f"pg-serve-{UID}-group-2"])
    def test_who_gained_is_found_by_the_uid_in_the_name_of_its_pod_group(self, group: str) -> None:
        message = f"Pod runai-a/p3 was preempted by workload runai-b/{group}.\nqa uses <GPU: 10> with a quota of <2>"
        assert read("kai", pod(), event("Evict", message)).preemptor == f"uid:{UID}"

    @pytest.mark.parametrize("queue", ["project.1.a100", "llm team in a100"])
    def test_over_quota_comes_with_its_numbers(self, queue: str) -> None:
        message = (
            "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 4 GPUs, but "
            f"{queue} quota is 2 GPUs, while 1 GPUs are already allocated for non-preemptible pods. Use a "
            "preemptible workload to go over quota.."
        )
        reading = read("kai", pod(unscheduled(message)))
        assert reading.reason == "NonPreemptibleOverQuota"
        assert reading.numbers == {
            "requested": "4",
            "resource": "GPUs",
            "queue": queue,
            "deserved": "2",
            "used": "1",
        }

    @pytest.mark.parametrize("queue", ["project.1.a100", "llm team in a100"])
    def test_a_limit_comes_with_its_numbers(self, queue: str) -> None:
        message = (
            f"OverLimit: {queue} quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 8 "
            "GPUs allocated and workload requested 1 GPUs."
        )
        reading = read("kai", pod(unscheduled(message)))
        assert (reading.reason, reading.numbers["queue"]) == ("OverLimit", queue)
        assert reading.numbers["limit"] == reading.numbers["used"] == "8"

    def test_a_gang_that_finds_no_domain_says_of_which_level(self) -> None:
        message = "topology h100, requirement example.com/rack couldn't be satisfied for job <team/pg-train-1>"
        reading = read("kai", pod(unscheduled(message)))
        assert reading.reason == "NoDomain"
        assert reading.numbers == {"topology": "h100", "level": "example.com/rack"}

    def test_what_its_group_says_counts_more_than_what_the_pod_does(self) -> None:
        said = event("Queued", "OverLimit: dep quota has reached")
        assert read("kai", pod(unscheduled("not ready")), said).reason == "OverLimit"

    def test_too_few_resources_stay_in_the_schedulers_words(self) -> None:
        message = "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs"
        assert read("kai", pod(unscheduled(message))) == PodStatusReason("Unschedulable", message)


def truths() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TRUTHS.read_text().splitlines()] if TRUTHS.exists() else []


def test_every_recorded_eviction_of_kai_is_understood() -> None:
    causes = {"preempts": "preempt", "reclaims": "reclaim", "consolidates": "consolidate"}
    seen = 0
    for truth in truths():
        for said in truth["outcome"].get("messages") or []:
            reading = read("kai", pod(), event("Evict", said["message"]))
            assert reading.cause == causes[truth["outcome"]["kind"]]
            by = said["message"].partition("/pg-candidate-")[2][:36]
            assert reading.preemptor == f"uid:{by}" or (reading.cause, by) == ("consolidate", "")
            seen += 1
    assert seen > 30


def test_every_recorded_refusal_of_kai_is_understood() -> None:
    seen = set()
    for truth in truths():
        for condition in truth["outcome"].get("conditions") or []:
            reading = read("kai", pod(unscheduled(condition["message"])))
            reasons = {each["reason"] for each in condition["reasons"]}
            assert reading.reason in reasons or reading.reason == "Unschedulable"
            assert (reading.reason == "Unschedulable") == (not reasons & {"OverLimit", "NonPreemptibleOverQuota"})
            seen |= {reading.reason}
    assert seen == {"OverLimit", "NonPreemptibleOverQuota", "Unschedulable"}


@pytest.mark.parametrize("place", ["containerStatuses", "initContainerStatuses"])
def test_a_placed_pod_that_does_not_start_says_why(place: str) -> None:
    message = "container has runAsNonRoot and image will run as root"
    held = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    pod = {"status": {"phase": "Pending", place: [{"name": "main", "state": held}]}}
    found = flavour_for("kube").interpret(pod)
    assert (found.reason, found.message) == ("CreateContainerConfigError", message)


def test_a_pod_that_is_just_starting_says_nothing() -> None:
    held = {"waiting": {"reason": "ContainerCreating"}}
    pod = {"status": {"phase": "Pending", "containerStatuses": [{"name": "main", "state": held}]}}
    assert flavour_for("kube").interpret(pod).reason == ""
