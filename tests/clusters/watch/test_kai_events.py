"""KAI tells of evictions by events about pod groups of its own: they are kept as events about the pods they name.

That too few pods are there for a group to be tried it tells there alone, too: kept as an event about their object.
"""

from typing import Any

import pytest

from clusters.flavours.kai_status import redirected_event
from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.objects import POD
from clusters.watch.models import ClusterEvent
from clusters.watch.services.informers import observe_cluster
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, job, owned_by

pytestmark = pytest.mark.django_db

TAKER = "4bdbb833-3911-4a8a-a48d-57cfb68e54c1"
UID = "9c1f7d0a-5a53-4c3f-8a55-1d2f0c5be0a1"
LATE = "2036-11-21T06:00:00Z"
EARLY = "2016-11-21T06:00:00Z"


def told(name: str, *, reason: str = "Evict", at: str = LATE, group: str = "scheduling.run.ai/v2alpha2") -> Manifest:
    """As KAI writes it."""
    about = {"apiVersion": group, "kind": "PodGroup", "name": "pg-train-1", "namespace": TEAM, "uid": "of the group"}
    message = f"Pod {TEAM}/{name} was preempted by higher priority workload {TEAM}/pg-serve-{TAKER}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "evicted", "namespace": TEAM},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "count": 1,
        "lastTimestamp": at,
    }


def with_a_pod(flavour: str = "kai") -> tuple[Sandbox, Manifest]:
    sandbox = furnished(flavour)
    body = bare_pod("train-0")
    return sandbox, sandbox.create({**body, "metadata": {**body["metadata"], "labels": owned_by("4f1c")}})


def kept() -> list[tuple[str, str, str]]:
    found = ClusterEvent.objects.filter(reason="Evict")
    return [(each.owner_id, each.kind, each.object_uid) for each in found.order_by("pk")]


def test_the_event_is_about_the_pod_that_it_names() -> None:
    sandbox, pod = with_a_pod()
    sandbox.create(told("train-0"))
    observe_cluster(sandbox.cluster)
    assert kept() == [("4f1c", "Pod", pod["metadata"]["uid"])]


def test_the_same_words_about_a_pod_recreated_are_another_event() -> None:
    sandbox, pod = with_a_pod()
    event = sandbox.create(told("train-0"))
    observe_cluster(sandbox.cluster)
    sandbox.delete(pod)
    sandbox.tick()
    body = bare_pod("train-0")
    again = sandbox.create({**body, "metadata": {**body["metadata"], "labels": owned_by("4f1c")}})
    sandbox.gateway.update({**event, "count": 2}, observed=event)
    observe_cluster(sandbox.cluster)
    assert [uid for *_more, uid in kept()] == [pod["metadata"]["uid"], again["metadata"]["uid"]]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("another", {}, id="a pod that nobody saw"),
        pytest.param("train-0", {"reason": "Pipelined"}, id="no eviction"),
        pytest.param("train-0", {"group": "scheduling.k8s.io/v1alpha2"}, id="somebody else's pod group"),
        pytest.param("train-0", {"at": EARLY}, id="an earlier pod of the name"),
    ],
)
def test_what_is_not_about_the_pod_is_not_kept(name: str, more: dict[str, Any]) -> None:
    sandbox, _pod = with_a_pod()
    sandbox.create(told(name, **more))
    observe_cluster(sandbox.cluster)
    assert kept() == []


def test_another_scheduler_is_not_read_so() -> None:
    sandbox, _pod = with_a_pod("volcano")
    sandbox.create(told("train-0"))
    observe_cluster(sandbox.cluster)
    assert kept() == []


TOO_FEW = "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated"


def not_ready(group: str, **more: Any) -> Manifest:
    """As KAI writes it again and again while pods are missing."""
    event = told("none", reason="NotReady", at=EARLY)
    return {**event, "message": TOO_FEW, "involvedObject": {**event["involvedObject"], "name": group, **more}}


def told_of_missing() -> list[tuple[str, str, str, str]]:
    found = ClusterEvent.objects.filter(reason="NotReady").order_by("pk")
    return [(each.owner_id, each.kind, each.name, each.object_uid) for each in found]


def test_that_pods_are_missing_is_about_the_object_whose_pods_they_are() -> None:
    sandbox = furnished("kai")
    uid = sandbox.create(job("train", workload="4f1c"))["metadata"]["uid"]
    sandbox.create(not_ready(f"pg-train-{uid}"))
    observe_cluster(sandbox.cluster)
    assert told_of_missing() == [("4f1c", "Job", "train", uid)]


def test_that_a_pod_which_stands_alone_is_held_by_a_gate_is_about_the_pod() -> None:
    sandbox, pod = with_a_pod()
    sandbox.create(not_ready(f"pg-train-0-{pod['metadata']['uid']}"))
    observe_cluster(sandbox.cluster)
    assert told_of_missing() == [("4f1c", POD.kind, "train-0", pod["metadata"]["uid"])]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(not_ready(f"pg-train-{UID}"), id="an object that nobody saw"),
        pytest.param(not_ready("of-mine"), id="a group that somebody else has named"),
        pytest.param(not_ready(f"pg-train-{UID}", kind="Queue"), id="no pod group"),
    ],
)
def test_of_nobody_here_it_is_not_kept(event: Manifest) -> None:
    sandbox, _pod = with_a_pod()
    sandbox.create(event)
    observe_cluster(sandbox.cluster)
    assert told_of_missing() == []


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        pytest.param(TOO_FEW, {"minimum": "2", "existing": "1", "gated": "0"}, id="whole"),
        pytest.param(
            "Job is not ready for scheduling. Waiting for 1 pods for SubGroup leader, currently 0 exist, 0 are gated. "
            "Waiting for 4 pods for SubGroup worker, currently 4 exist, 4 are gated.",
            {"minimum": "1", "part": "leader", "existing": "0", "gated": "0"},
            id="in parts",
        ),
        pytest.param("Job is not ready for scheduling.", {}, id="without numbers"),
    ],
)
def test_it_is_told_in_our_words_with_its_numbers(message: str, numbers: dict[str, str]) -> None:
    event = redirected_event({**not_ready(f"pg-train-{UID}-1"), "message": message})
    assert event is not None
    assert event["involvedObject"] == {"namespace": TEAM, "uid": UID}
    found = flavour_for("kai").interpret({}, [event])
    assert (found.reason, found.message, found.numbers) == ("GangIncomplete", message, numbers)
