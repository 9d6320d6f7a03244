"""KAI tells of evictions by events about pod groups of its own: they are kept as events about the pods they name."""

from typing import Any

import pytest

from clusters.models import ClusterEvent
from clusters.ports import Manifest
from clusters.services.observe import observe_cluster
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, owned_by

pytestmark = pytest.mark.django_db

TAKER = "4bdbb833-3911-4a8a-a48d-57cfb68e54c1"
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


def test_the_same_words_about_a_pod_made_anew_are_another_event() -> None:
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
