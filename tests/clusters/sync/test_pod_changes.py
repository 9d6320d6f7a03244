"""How pods are described may be written only where that disturbs none that runs."""

from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.workload_kinds import kind_named
from clusters.sync.rules.changes import (
    needs_replacing,
    scheduling_changes,
    with_pods_hash,
    writable,
    written_scheduling,
)
from tests.clusters.samples import sample
from tests.clusters.specs import job


def rendered(kind: str, **fields: Any) -> Manifest:
    (manifest,) = flavour_for("kube").render(job(sample(kind_named(kind)), **fields))
    return with_pods_hash(manifest)


def priority(manifest: Manifest) -> str:
    return str(manifest["spec"]["template"]["spec"]["priorityClassName"])


@pytest.mark.parametrize(
    ("kind", "replaced", "while_running", "at_rest"),
    [
        ("Job", True, "low", "low"),
        ("Deployment", False, "low", "high"),
        ("StatefulSet", False, "low", "high"),
        ("ReplicaSet", False, "high", "high"),
    ],
)
def test_another_priority_is_written_as_the_kind_allows(
    kind: str,
    replaced: bool,
    while_running: str,
    at_rest: str,
) -> None:
    before, after = rendered(kind), rendered(kind, priority_class="high")
    assert needs_replacing(before, after) is replaced
    assert priority(writable(before, after, pods_run=True)) == while_running
    assert priority(writable(before, after, pods_run=False)) == at_rest


def test_what_the_server_filled_in_is_no_other_description() -> None:
    before, after = rendered("Job"), rendered("Job", suspended=True, generation=4)
    before["spec"]["completions"] = 1
    before["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] = "train"
    assert not needs_replacing(before, after)
    body = writable(before, after, pods_run=True)
    assert body["spec"] == {**before["spec"], "suspend": True}
    assert body["metadata"]["annotations"]["rung.dev/generation"] == "4"


def test_a_description_that_was_not_written_says_so_until_it_is() -> None:
    before, after = rendered("Deployment"), rendered("Deployment", priority_class="high")
    held = writable(before, after, pods_run=True)
    assert (
        held["metadata"]["annotations"]["rung.dev/pods-hash"] == before["metadata"]["annotations"]["rung.dev/pods-hash"]
    )
    assert priority(writable(held, after, pods_run=False)) == "high"


QUEUE = "/metadata/labels/kueue.x-k8s.io~1queue-name"
SCHEDULER = "/spec/template/spec/schedulerName"


def paths(held: dict[str, str | bool], written: dict[str, str | bool]) -> list[str]:
    return [each.path for each in scheduling_changes(held, written)]


def test_a_queue_or_scheduler_counts_also_where_only_the_cluster_has_one() -> None:
    assert paths({QUEUE: "a"}, {QUEUE: "b"}) == [QUEUE]
    assert paths({}, {QUEUE: "b"}) == [QUEUE]
    assert paths({QUEUE: "a", SCHEDULER: "mine"}, {}) == [QUEUE, SCHEDULER]
    assert paths({QUEUE: "a"}, {QUEUE: "a"}) == []


def test_what_schedulers_write_beside_rung_is_no_difference() -> None:
    assert paths({"/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name": "a", "/spec/suspend": True}, {}) == []
    assert paths({}, {"/spec/suspend": False}) == []
    assert paths({"/spec/suspend": True}, {"/spec/suspend": False}) == ["/spec/suspend"]


def test_what_was_written_leaves_out_suspend_where_a_queue_writes_it() -> None:
    said = rendered("Job")
    assert written_scheduling(said, said)["/spec/suspend"] is False
    (queued,) = flavour_for("kueue").render(job(sample(kind_named("Job"))))
    held = with_pods_hash(queued)
    held["spec"]["suspend"] = True
    assert "/spec/suspend" not in written_scheduling(held, with_pods_hash(queued))


def test_an_older_description_of_pods_counts_as_it_is_held() -> None:
    before, after = rendered("Job"), rendered("Job", priority_class="high")
    found = written_scheduling(writable(before, after, pods_run=True), after)
    assert found["/metadata/labels/priorityClassName"] == "high"
    assert found["/spec/template/spec/priorityClassName"] == "low"
