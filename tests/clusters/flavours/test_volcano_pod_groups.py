"""What Volcano writes into a PodGroup, told as events about the object whose pods it groups."""

from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.flavours.volcano import NOT_THERE, NOT_TRIED, PHASE_WORDS, pod_group_events
from clusters.ports.gateway import Manifest
from clusters.ports.objects import VOLCANO_POD_GROUP
from clusters.watch.rules import sanitize

NOT_READY = "pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable"
NO_ROOM = f"{NOT_READY}. Origin reason is train-0: 0/3 nodes are unavailable: 3 Insufficient nvidia.com/gpu."
EARLY, LATE = "2026-11-21T06:00:00Z", "2026-11-21T06:01:00Z"


def waiting(text: str = NO_ROOM, *, pending: str = "2/2", reason: str = "NotEnoughResources") -> dict[str, str]:
    message = f"{pending} tasks in gang unschedulable: {text}"
    said = {"type": "Unschedulable", "status": "True", "reason": reason, "message": message}
    return {**said, "lastTransitionTime": EARLY}


def scheduled() -> dict[str, str]:
    said = {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"}
    return {**said, "lastTransitionTime": LATE}


def group(phase: object, *conditions: dict[str, str], **metadata: Any) -> Manifest:
    """As it comes from a cluster, and is believed."""
    owner = {"kind": "Job", "name": "train", "uid": "of the job", "controller": True}
    named = {"name": "podgroup-1", "namespace": "a", "uid": "the-group", "resourceVersion": "7"}
    given = {"metadata": {**named, "ownerReferences": [owner], **metadata}}
    found = sanitize(VOLCANO_POD_GROUP, {**given, "status": {"phase": phase, "conditions": list(conditions)}})
    assert found is not None
    return found


def told(found: Manifest) -> list[tuple[str, str, str]]:
    return [(each["reason"], each["message"], each["lastTimestamp"]) for each in pod_group_events(found)]


def test_a_group_in_phase_pending_is_held_outside_in_its_own_words() -> None:
    [(reason, message, at)] = told(group("Pending", waiting(NOT_READY)))
    assert (reason, at) == ("Queued", EARLY)
    assert message == f"{PHASE_WORDS['Pending']} Message: 2/2 tasks in gang unschedulable: {NOT_READY}"
    found = flavour_for("volcano").interpret({}, [{"reason": reason, "message": message}])
    assert (found.reason, found.message) == ("Queued", message)


def test_one_whose_queue_has_no_quota_for_it_is_at_its_limit() -> None:
    full = f"{NOT_READY}. Origin reason is queue resource quota insufficient: insufficient nvidia.com/gpu"
    [(reason, message, _at)] = told(group("Pending", waiting(full)))
    assert flavour_for("volcano").interpret({}, [{"reason": reason, "message": message}]).reason == "OverLimit"


@pytest.mark.parametrize(
    ("condition", "reason", "begins"),
    [
        pytest.param(waiting(), "Unschedulable", "2/2 tasks in gang unschedulable", id="no node has room"),
        pytest.param(waiting(NOT_READY), "OverLimit", NOT_TRIED, id="no node was tried"),
        pytest.param(waiting("x", pending="2/0"), "GangIncomplete", NOT_THERE, id="no pod is there"),
        pytest.param(waiting("x", reason="NotEnoughTasks"), "GangIncomplete", NOT_THERE, id="some pods are missing"),
        pytest.param({**waiting(), "message": "of another kind"}, "Unschedulable", "of another kind", id="unknown"),
    ],
)
def test_one_that_is_let_in_says_what_it_lacks(condition: dict[str, str], reason: str, begins: str) -> None:
    admitted, (said, message, at) = told(group("Inqueue", condition))
    assert admitted == ("Admitted", PHASE_WORDS["Inqueue"], EARLY)
    assert (said, at) == (reason, EARLY)
    assert message.startswith(begins)


def test_what_it_said_while_it_waited_is_over_once_it_runs() -> None:
    assert told(group("Running", waiting(), scheduled())) == [("Admitted", PHASE_WORDS["Running"], LATE)]


def test_each_event_is_of_the_version_that_it_was_read_from_and_rewritten_by_the_next() -> None:
    first, second = pod_group_events(group("Inqueue", waiting()))
    [later] = pod_group_events(group("Running", scheduled(), resourceVersion="9"))
    assert first["metadata"]["uid"] == later["metadata"]["uid"] != second["metadata"]["uid"]
    assert [each["metadata"]["resourceVersion"] for each in (first, later)] == ["7", "9"]


def test_it_is_told_of_whose_pods_they_are_and_of_itself_beside_a_workload_of_ours() -> None:
    [theirs] = pod_group_events(group("Running"))
    assert (theirs["involvedObject"]["kind"], theirs["involvedObject"]["uid"]) == ("Job", "of the job")
    [ours] = pod_group_events(group("Running", ownerReferences=[], labels={"rung.dev/owner": "workload.4f1c"}))
    assert (ours["involvedObject"]["kind"], ours["involvedObject"]["uid"]) == ("PodGroup", "the-group")


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(group("Running", ownerReferences=[]), id="nobody's"),
        pytest.param(group(""), id="nobody has looked at it"),
        pytest.param(group("Haunted", waiting()), id="a phase of its own"),
        pytest.param(group(["Pending"]), id="a list for a phase"),
    ],
)
def test_t25_what_says_nothing_known_is_not_told(found: Manifest) -> None:
    assert told(found) == []
