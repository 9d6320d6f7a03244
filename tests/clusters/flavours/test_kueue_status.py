"""What Kueue says in Rung's words: the messages are those its controller was seen to write."""

import json
from pathlib import Path
from typing import Any

import pytest

from clusters.flavours.kueue import Kueue
from clusters.flavours.kueue_status import workload_events
from clusters.ports.gateway import Manifest

TRUTHS = Path(__file__).parents[2] / "scheduling" / "truths" / "kueue.jsonl"
UID = "0b0e5a3c-5f0c-4c39-8d5e-2f7f2c1a9d10"
PREEMPTED = (
    "Preempted to accommodate a workload (UID: 5f0c4c39-0000-4c39-8d5e-2f7f2c1a9d10, JobUID: 77aa) due to "
    "{why}; preemptor path: /co/cq-b; preemptee path: /co/cq-a"
)


def said(reason: str, message: str) -> list[Manifest]:
    return [{"reason": reason, "message": message}]


def condition(kind: str, status: str, message: str = "", *, at: str = "2026-11-21T11:00:00Z") -> dict[str, Any]:
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": at}


def workload(*conditions: dict[str, Any], version: str = "7") -> Manifest:
    owner = {"kind": "Job", "name": "train", "uid": "77aa", "controller": True}
    metadata = {"name": "job-train-1", "namespace": "runai-vision", "uid": UID, "resourceVersion": version}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("message", "reason", "numbers"),
    [
        (
            "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor gpu, "
            "2 more needed",
            "WaitingForQuota",
            {"resource": "nvidia.com/gpu", "flavor": "gpu", "missing": "2"},
        ),
        (
            "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor gpu, previously "
            "considered podsets requests (0) + current podset request (8) > maximum capacity (6)",
            "OverLimit",
            {"resource": "nvidia.com/gpu", "flavor": "gpu", "requested": "8", "limit": "6"},
        ),
        (
            "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor gpu, "
            "2 more needed. Pending the preemption of 1 workload(s)",
            "PreemptionPending",
            {"workloads": "1"},
        ),
        ("ClusterQueue project.1 is inactive", "Misconfigured", {"queue": "ClusterQueue"}),
        (
            "couldn't assign flavors to pod set main: resource example.com/fpga unavailable in ClusterQueue",
            "NoMatchingFlavor",
            {"resource": "example.com/fpga"},
        ),
        ("something that nobody has seen yet", "Queued", {}),
    ],
)
def test_a_queued_job_says_why_with_its_numbers(message: str, reason: str, numbers: dict[str, str]) -> None:
    reading = Kueue().interpret({}, said("Queued", message))
    assert (reading.reason, reading.message, reading.numbers) == (reason, message, numbers)


@pytest.mark.parametrize(
    ("why", "reason", "cause"),
    [
        ("prioritization in the ClusterQueue", "Preempted", "preempt"),
        ("reclamation within the cohort", "Reclaimed", "reclaim"),
    ],
)
def test_an_eviction_names_the_job_that_gained_and_how(why: str, reason: str, cause: str) -> None:
    reading = Kueue().interpret({}, said("Preempted", PREEMPTED.format(why=why)))
    assert (reading.reason, reading.cause, reading.preemptor) == (reason, cause, "uid:77aa")


def test_an_admitted_pod_without_a_node_speaks_for_itself() -> None:
    message = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    status = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    }
    assert Kueue().interpret({"status": status}).reason == "Unschedulable"


def test_every_message_on_record_is_understood() -> None:
    understood = set()
    for line in TRUTHS.read_text(encoding="utf-8").splitlines():
        outcome = json.loads(line)["outcome"]
        waiting = outcome["quota_reserved"]
        if waiting and waiting["status"] == "False":
            understood.add(Kueue().interpret({}, said("Queued", waiting["message"])).reason)
        for each in outcome["evictions"]:
            understood.add(Kueue().interpret({}, said("Preempted", each["message"])).cause)
    assert understood == {"WaitingForQuota", "OverLimit", "preempt", "reclaim"}


class TestWorkloads:
    """Kueue's own objects, as events about jobs."""

    def test_one_that_waits_is_an_event_about_its_job(self) -> None:
        (event,) = workload_events(workload(condition("QuotaReserved", "False", "insufficient")))
        assert event["involvedObject"] == {"kind": "Job", "name": "train", "uid": "77aa", "namespace": "runai-vision"}
        assert (event["reason"], event["message"]) == ("Queued", "insufficient")
        assert (event["metadata"]["resourceVersion"], event["metadata"]["namespace"]) == ("7", "runai-vision")
        assert len(event["metadata"]["uid"]) <= 64

    def test_a_place_in_the_queue_is_one_event_that_is_rewritten(self) -> None:
        (waiting,) = workload_events(workload(condition("QuotaReserved", "False")))
        (let_go,) = workload_events(workload(condition("QuotaReserved", "True"), condition("Admitted", "True")))
        assert (waiting["reason"], let_go["reason"]) == ("Queued", "Admitted")
        assert waiting["metadata"]["uid"] == let_go["metadata"]["uid"]

    def test_a_place_that_is_reserved_is_still_waited_for(self) -> None:
        (event,) = workload_events(workload(condition("QuotaReserved", "True"), condition("Admitted", "False")))
        assert event["reason"] == "Queued"

    @pytest.mark.parametrize(
        ("kind", "again", "reason"),
        [("Pod", "False", "LeftOut"), ("Pod", "True", "Queued"), ("Job", "False", "Queued")],
    )
    def test_a_pod_that_is_not_queued_again_is_left_out(self, kind: str, again: str, reason: str) -> None:
        requeued = {**condition("Requeued", again, "Preempted by x"), "reason": "Preempted"}
        found = workload(condition("QuotaReserved", "False", "Preempted by x"), requeued)
        found["metadata"]["ownerReferences"][0]["kind"] = kind
        (event,) = workload_events(found)
        assert event["reason"] == reason
        assert Kueue().interpret({}, said("Queued", event["message"])).reason == reason
        (later,) = workload_events(workload(condition("Admitted", "True"), requeued))
        assert (later["reason"], later["metadata"]["uid"]) == ("Admitted", event["metadata"]["uid"])

    def test_each_preemption_is_an_event_of_its_own(self) -> None:
        times = ("2026-11-21T11:00:00Z", "2026-11-21T11:00:01Z")
        told = [list(workload_events(workload(condition("Preempted", "True", "by", at=at)))) for at in times]
        assert [event["reason"] for each in told for event in each] == ["Preempted", "Preempted"]
        assert len({event["metadata"]["uid"] for each in told for event in each}) == 2
        assert [event["lastTimestamp"] for each in told for event in each] == list(times)

    @pytest.mark.parametrize(
        "found",
        [
            {"metadata": {"name": "x", "uid": "y"}},
            {"metadata": {"name": "x", "uid": "y", "ownerReferences": []}, "status": {}},
            workload(),
            workload(condition("Preempted", "False")),
        ],
    )
    def test_one_of_which_nothing_is_decided_tells_nothing(self, found: Manifest) -> None:
        assert list(workload_events(found)) == []

    def test_a_finished_one_waits_for_nothing(self) -> None:
        (event,) = workload_events(workload(condition("Finished", "True"), condition("QuotaReserved", "False")))
        assert event["reason"] == "Admitted"

    def test_a_time_that_cannot_be_read_is_none(self) -> None:
        (event,) = workload_events(workload(condition("Preempted", "True", "by", at="soon")))
        assert event["metadata"]["uid"].endswith(".evicted.0")
