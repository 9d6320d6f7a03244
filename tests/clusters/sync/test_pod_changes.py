"""How pods are described may be written only where that disturbs none that runs."""

from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.workload_kinds import kind_named
from clusters.sync.rules.pod_changes import needs_replacing, with_pods_hash, writable
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
