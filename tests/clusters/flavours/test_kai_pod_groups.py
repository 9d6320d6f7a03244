"""What KAI writes into the conditions of a PodGroup, told as events about the object whose pods it groups."""

from typing import Any

import pytest

from clusters.flavours.kai_status import FREE, RUNS, STARTED, pod_group_events
from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import PodStatusReason
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import FINGERPRINT, KAI_POD_GROUP, KUEUE_WORKLOAD, NODE, VOLCANO_POD_GROUP
from clusters.watch.models import ClusterEvent, ObserverLease
from clusters.watch.rules import sanitize
from clusters.watch.services.informers import SHARED_KINDS, kinds_of, observe_cluster
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, owned_by

EARLY, LATE = "2026-11-21T06:00:00Z", "2026-11-21T06:01:00Z"
AT_LIMIT = (
    "llm in a100 quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 8 GPUs allocated and "
    "workload requested 1 GPUs"
)
OVER_QUOTA = (
    "Non-preemptible workload is over quota. Workload requested 4 GPUs, but llm in a100 quota is 2 GPUs, while 1 GPUs "
    "are already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
)
NO_NODE = "Resources were not found for pod a/train-0 due to: no nodes with enough resources were found"
NO_DOMAIN = "topology h100, requirement example.com/rack couldn't be satisfied for job <a/pg-train-1>"
DELAYED = "Workload is within its preemption delay window (5m0s) and may not trigger evictions before 2026-11-21"
SHORT = ("Not enough resources for the workload", "node-group(s) didn't have enough resources: GPUs")


def waits(*reasons: tuple[str, str], at: str = EARLY, pool: str = "", **more: str) -> dict[str, Any]:
    """As KAI 0.17 writes it."""
    explained = [{"reason": reason, "message": message, "details": {"queueDetails": {}}} for reason, message in reasons]
    said = {"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "message": "Unable."}
    return {**said, "nodePool": pool, "reasons": explained, "lastTransitionTime": at, "transitionID": "1", **more}


def group(*conditions: dict[str, Any], started: str = "", **more: Any) -> Manifest:
    """As it comes from a cluster, and is believed."""
    owner = {"kind": "Job", "name": "train", "uid": "of the job"}
    annotations = {STARTED: started} if started else {}
    named = {"name": "pg-train-1", "namespace": TEAM, "uid": "the-group", "resourceVersion": "7"}
    metadata = {**named, "annotations": annotations, "ownerReferences": [owner]}
    status = {"schedulingConditions": list(conditions), "resourcesStatus": {}}
    found = sanitize(KAI_POD_GROUP, {"metadata": metadata, "spec": {"queue": "llm"}, "status": status, **more})
    assert found is not None
    return found


def told(found: Manifest) -> list[tuple[str, str, str | None]]:
    return [(each["reason"], each["message"], each["lastTimestamp"]) for each in pod_group_events(found)]


def read(found: Manifest) -> PodStatusReason:
    [event] = pod_group_events(found)
    return flavour_for("kai").interpret({}, [event])


@pytest.mark.parametrize(
    ("explained", "reason", "numbers"),
    [
        pytest.param(
            ("OverLimit", AT_LIMIT),
            "OverLimit",
            {"queue": "llm in a100", "resource": "GPUs", "limit": "8", "used": "8", "requested": "1"},
            id="limit",
        ),
        pytest.param(
            ("NonPreemptibleOverQuota", OVER_QUOTA),
            "NonPreemptibleOverQuota",
            {"requested": "4", "resource": "GPUs", "queue": "llm in a100", "deserved": "2", "used": "1"},
            id="quota",
        ),
        pytest.param(
            ("PodSchedulingErrors", NO_DOMAIN),
            "NoDomain",
            {"topology": "h100", "level": "example.com/rack"},
            id="domain",
        ),
        pytest.param(("QueueDoesNotExist", "queue 'llm' does not exist"), "QueueMissing", {}, id="queue"),
        pytest.param(("PreemptionDelayNotElapsed", DELAYED), "PreemptionDelayNotElapsed", {}, id="delay"),
        pytest.param(("PodSchedulingErrors", NO_NODE), "Unschedulable", {}, id="no room"),
        pytest.param(("SomethingNew", "in a later version"), "Unschedulable", {}, id="unknown"),
    ],
)
def test_why_a_group_waits_is_told_in_our_words_with_its_numbers(
    explained: tuple[str, str], reason: str, numbers: dict[str, str]
) -> None:
    [(kind, message, at)] = told(group(waits(explained)))
    assert (kind, message, at) == ("Queued", ": ".join(explained), EARLY)
    found = read(group(waits(explained)))
    assert (found.reason, found.message, found.numbers) == (reason, message, numbers)


def test_of_several_reasons_each_is_told_once_and_quotas_count_before_room() -> None:
    """KAI's own message has the words of all and the reasons of none."""
    found = read(group(waits(("PodSchedulingErrors", NO_NODE), SHORT, SHORT, ("OverLimit", AT_LIMIT))))
    assert found.reason == "OverLimit"
    assert found.message.splitlines() == [
        f"PodSchedulingErrors: {NO_NODE}",
        ": ".join(SHORT),
        f"OverLimit: {AT_LIMIT}",
    ]


def test_without_reasons_its_message_stands() -> None:
    assert told(group(waits(message="OverLimit: llm"))) == [("Queued", "OverLimit: llm", EARLY)]


def test_of_several_node_pools_the_last_one_counts() -> None:
    both = group(waits(("OverLimit", AT_LIMIT), pool="a100"), waits(("SomethingNew", "x"), pool="h100", at=LATE))
    assert told(both) == [("Queued", "SomethingNew: x", LATE)]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(group(), ("Admitted", FREE, None), id="taken back"),
        pytest.param(group(waits(status="False")), ("Admitted", FREE, None), id="not so"),
        pytest.param(group(started=LATE), ("Admitted", RUNS, LATE), id="started"),
        pytest.param(group(started=LATE, status=None), ("Admitted", RUNS, LATE), id="started at once"),
        pytest.param(
            group(waits(("OverLimit", "x")), started=LATE), ("Admitted", RUNS, LATE), id="older than the start"
        ),
        pytest.param(
            group(waits(("OverLimit", "x"), at=LATE), started=EARLY),
            ("Queued", "OverLimit: x", LATE),
            id="evicted since",
        ),
    ],
)
def test_that_it_waits_no_more_is_told_too(found: Manifest, said: tuple[str, str, str | None]) -> None:
    assert told(found) == [said]


def test_what_it_says_later_rewrites_what_it_said() -> None:
    [first] = pod_group_events(group(waits(("OverLimit", AT_LIMIT))))
    [later] = pod_group_events(group(started=LATE))
    assert first["metadata"]["uid"] == later["metadata"]["uid"]
    assert (first["involvedObject"]["kind"], first["involvedObject"]["uid"]) == ("Job", "of the job")


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(group(status=None), id="nobody has looked at it"),
        pytest.param(group(status="Unschedulable"), id="a word for a status"),
        pytest.param(group(waits(), metadata={"name": "x", "uid": "y"}), id="nobody's"),
    ],
)
def test_t25_what_says_nothing_known_is_not_told(found: Manifest) -> None:
    assert told(found) == []


def test_nothing_is_kept_of_a_group_but_whose_it_is_and_why_it_waits() -> None:
    """Neither its spec, nor KAI's copies of every amount, nor a fingerprint."""
    found = group(waits(("OverLimit", AT_LIMIT)))
    assert found.keys() == {"apiVersion", "kind", "metadata", "status"}
    assert FINGERPRINT not in found
    [condition] = found["status"]["schedulingConditions"]
    assert condition.keys() == {"status", "message", "reasons", "lastTransitionTime"}
    assert condition["reasons"] == [{"reason": "OverLimit", "message": AT_LIMIT}]


@pytest.mark.django_db
class TestObserved:
    """By the same watch as the objects of Kueue and Volcano."""

    @staticmethod
    def waiting() -> tuple[Sandbox, Manifest]:
        sandbox = furnished("kai")
        body = bare_pod("train-0")
        return sandbox, sandbox.create({**body, "metadata": {**body["metadata"], "labels": owned_by("4f1c")}})

    @staticmethod
    def grouped(pod: Manifest, **labels: str) -> Manifest:
        """KAI's group of a pod carries the labels of the pod."""
        meta = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        name = f"pg-{meta['name']}-{meta['uid']}"
        metadata = {"name": name, "namespace": TEAM, "labels": labels, "ownerReferences": [owner]}
        status = {"schedulingConditions": [waits(("OverLimit", AT_LIMIT))]}
        kind = {"apiVersion": KAI_POD_GROUP.api_version, "kind": KAI_POD_GROUP.kind}
        return {**kind, "metadata": metadata, "spec": {"queue": "team"}, "status": status}

    @staticmethod
    def kept() -> list[tuple[str, str]]:
        found = ClusterEvent.objects.filter(reason="Queued")
        return [(each.owner_id, each.message) for each in found]

    def test_what_a_group_of_ours_says_is_kept_with_the_workload(self) -> None:
        sandbox, pod = self.waiting()
        sandbox.create(self.grouped(pod, **owned_by("4f1c")))
        observe_cluster(sandbox.cluster)
        assert self.kept() == [("4f1c", f"OverLimit: {AT_LIMIT}")]
        assert KAI_POD_GROUP.key in ObserverLease.objects.get(cluster=sandbox.cluster).versions

    def test_a_group_without_our_label_is_not_even_asked_for(self) -> None:
        sandbox, pod = self.waiting()
        sandbox.create(self.grouped(pod))
        observe_cluster(sandbox.cluster)
        assert self.kept() == []

    @pytest.mark.parametrize(
        ("kind", "everybodys"),
        [
            pytest.param(KAI_POD_GROUP, False, id="carries our labels"),
            pytest.param(KUEUE_WORKLOAD, True, id="carries none"),
            pytest.param(VOLCANO_POD_GROUP, True, id="perhaps not made by us"),
            pytest.param(NODE, True, id="nobody's"),
        ],
    )
    def test_only_what_may_be_ours_without_our_label_is_asked_for_of_everybody(
        self, kind: Kind, everybodys: bool
    ) -> None:
        assert (kind.key in SHARED_KINDS) is everybodys

    def test_it_is_watched_on_kai_alone(self) -> None:
        watched = {name: KAI_POD_GROUP in kinds_of(Sandbox(name, name=name).cluster) for name in ("kai", "volcano")}
        assert watched == {"kai": True, "volcano": False}
