"""Pods as rows: from creation to their end, by uid, and never back to an older version."""

from typing import Any

import pytest

from clusters.inventory.models import NodePool
from clusters.ports.objects import POD
from clusters.watch.models import ObservedPod
from clusters.watch.rules import sanitize_all
from clusters.watch.services.informers import observe_cluster
from clusters.watch.services.observations import ObservedChanges, lease_of, store_changes
from clusters.watch.services.watch_buffer import WatchBatch
from tests.clusters.observation_recorder import ObservationRecorder
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, job

pytestmark = pytest.mark.django_db


def row(name_start: str) -> ObservedPod:
    return ObservedPod.objects.get(name__startswith=name_start, gone_at__isnull=True)


def test_a_pod_is_followed_from_creation_to_its_end(told: ObservationRecorder) -> None:
    sandbox = furnished()
    sandbox.create(job("train", workload="4f1c", gpus=2, seconds="60", priority="medium"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    pod = row("train-")
    assert (pod.owner_id, pod.phase, pod.node_name, pod.gpu_milli) == ("4f1c", "Pending", "node-0", 2000)
    assert (pod.priority_class, pod.priority, pod.preemptible, pod.queue) == ("medium", 80, True, "team")
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    started = row("train-")
    assert (started.phase, started.started_at) == ("Running", sandbox.now)
    sandbox.tick(after=61)
    observe_cluster(sandbox.cluster)
    assert (row("train-").phase, row("train-").reason) == ("Succeeded", "Completed")
    assert [status.phase for seen in told.observations for status in seen.jobs.values()][-1] == "succeeded"


def ended(**end: Any) -> dict[str, Any]:
    """The status of a container."""
    return {"state": {"terminated": end}}


@pytest.mark.parametrize(
    ("containers", "said"),
    [
        pytest.param(
            [{"name": "main", **ended(exitCode=137, reason="OOMKilled", finishedAt="2026-11-21T06:00:00Z")}],
            ("OOMKilled", "Container main ended with exit code 137 (OOMKilled)"),
            id="out of memory",
        ),
        pytest.param(
            [
                {"name": "main", **ended(exitCode=0, reason="Completed", finishedAt="2026-11-21T06:00:09Z")},
                {"name": "proxy", **ended(exitCode=2, reason="Error", finishedAt="2026-11-21T06:00:05Z")},
                {"name": "logs", **ended(exitCode=3, reason="Error", finishedAt="2026-11-21T06:00:01Z")},
            ],
            ("Error", "Container proxy ended with exit code 2"),
            id="the last that failed",
        ),
        pytest.param([{"name": "main", "state": {"running": {}}}], ("", ""), id="its node did not say"),
    ],
)
def test_a_failed_pod_says_which_container_failed_and_how(
    containers: list[dict[str, Any]], said: tuple[str, str]
) -> None:
    cluster = furnished().cluster
    pod = bare_pod("fails")
    pod["status"] = {"phase": "Failed", "containerStatuses": containers}
    pod["metadata"] |= {"uid": "4f1c", "resourceVersion": "1"}
    looks = {POD.key: WatchBatch(POD, "1", sanitize_all(POD, [pod]))}
    store_changes(cluster, ObservedChanges(lease_of(cluster).versions, looks))
    assert (row("fails").reason, row("fails").message) == said


def test_a_waiting_pod_carries_the_schedulers_reason() -> None:
    sandbox = Sandbox()
    sandbox.node()
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.queue("team", limit=1)
    sandbox.create(job("waits", gpus=2))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    assert row("waits-").reason == "OverLimit"
    assert "Limit is 1 GPUs" in row("waits-").message


def test_parts_of_a_shared_gpu_are_counted_and_what_holds_it_is_not() -> None:
    """On KAI a pod of its own asks for the device whose parts other pods have."""
    sandbox = furnished()
    shares = {"runai-gpu-group": "device-1"}
    note = {"pod-group-name": "pg-share-1", "gpu-fraction": "0.5"}
    for name, gpus, notes in (("share", 0, note), ("holder", 1, {})):
        pod = bare_pod(name, gpus=gpus)
        pod["metadata"]["labels"] |= shares
        pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **notes}
        sandbox.create(pod)
    observe_cluster(sandbox.cluster)
    found = {row.name: (row.gpu_milli, row.device, row.pod_group) for row in ObservedPod.objects.all()}
    assert found == {"share": (500, "device-1", "pg-share-1"), "holder": (0, "", "")}


def test_an_eviction_is_recorded_with_its_time_and_its_culprit(told: ObservationRecorder) -> None:
    sandbox = furnished()
    sandbox.create(job("weak", gpus=8, priority="low"))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    victim = ObservedPod.objects.get(disrupted_at__isnull=False)
    assert (victim.disrupted_at, victim.disruption_reason) == (sandbox.now, "PreemptionByScheduler")
    assert victim.deletion_at is not None
    reading = told.last.readings[victim.uid]
    assert (reading.cause, reading.preemptor) == ("preempt", f"{TEAM}/strong")


def test_a_pod_that_left_keeps_its_row_with_the_time() -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", grace=1))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    sandbox.delete(created)
    sandbox.ticks(3)
    seen = observe_cluster(sandbox.cluster)
    pod = ObservedPod.objects.get()
    assert pod.gone_at == seen.at
    assert [each.pk for each in seen.pods] == [pod.pk]
    assert seen.jobs["train"].phase == "missing"


def test_the_same_name_with_another_uid_is_another_pod() -> None:
    sandbox = furnished()
    first = sandbox.create(bare_pod("train", gpus=8))
    observe_cluster(sandbox.cluster)
    sandbox.delete(first)
    second = sandbox.create(bare_pod("train", gpus=4))
    observe_cluster(sandbox.cluster)
    old, new = ObservedPod.objects.order_by("created_at")
    assert (old.uid, old.gone_at is None) == (first["metadata"]["uid"], False)
    assert (new.uid, new.gone_at) == (second["metadata"]["uid"], None)


def test_a_name_taken_by_another_uid_ends_the_old_row_even_if_no_deletion_was_told() -> None:
    sandbox = furnished()
    observe_cluster(sandbox.cluster)
    created = sandbox.create(bare_pod("train"))
    ObservedPod.objects.create(
        cluster=sandbox.cluster, uid="old", namespace=TEAM, name="train", phase="Running",
        created_at=sandbox.now, observed_at=sandbox.now,
    )  # fmt: skip
    seen = observe_cluster(sandbox.cluster)
    assert {pod.uid for pod in seen.pods} == {"old", created["metadata"]["uid"]}
    assert ObservedPod.objects.get(uid="old").gone_at == seen.at


def test_an_older_version_of_a_pod_changes_nothing() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train"))
    observe_cluster(sandbox.cluster)
    ObservedPod.objects.update(resource_version="999999", phase="Running")
    sandbox.tick()
    assert observe_cluster(sandbox.cluster).pods == ()
    assert ObservedPod.objects.get().phase == "Running"


def test_foreign_pods_are_rows_without_an_owner() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("theirs", gpus=4))
    observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get().owner_id == ""


def test_a_pods_pool_is_its_label_else_its_node_selector_else_the_default() -> None:
    sandbox = furnished()
    NodePool.objects.create(cluster=sandbox.cluster, name="a100", label_value="a100", is_default=True)
    NodePool.objects.create(cluster=sandbox.cluster, name="h100", label_key="pool", label_value="h")
    plain, selecting, labelled = bare_pod("plain"), bare_pod("selecting"), bare_pod("labelled")
    selecting["spec"]["nodeSelector"] = {"pool": "h"}
    labelled["metadata"]["labels"]["rung.dev/node-pool"] = "other"
    for pod in (plain, selecting, labelled):
        sandbox.create(pod)
    observe_cluster(sandbox.cluster)
    pools = dict(ObservedPod.objects.values_list("name", "pool_name"))
    assert pools == {"plain": "a100", "selecting": "h100", "labelled": "other"}
