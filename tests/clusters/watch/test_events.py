"""Events about our objects: kept once, grown with their count, and adopted by objects seen later."""

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.ports.gateway import Manifest
from clusters.watch.models import ClusterEvent
from clusters.watch.services import informers
from clusters.watch.services.informers import observe_cluster
from tests.clusters.observation_recorder import ObservationRecorder
from tests.clusters.sandboxes import TEAM, bare_pod, furnished, job, owned_by

pytestmark = pytest.mark.django_db


def event_about(about: Manifest | None, reason: str, *, count: int = 1, at: str | None = None, **more: Any) -> Manifest:
    """As a controller writes it, about a live object."""
    assert about is not None
    meta = about["metadata"]
    named = {"kind": about["kind"], "name": meta["name"], "namespace": meta.get("namespace", ""), "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{reason.lower()}", "namespace": TEAM},
        "involvedObject": named,
        "reason": reason,
        "type": "Warning",
        "message": "It happened.",
        "count": count,
        "lastTimestamp": at,
        **more,
    }


def test_events_about_our_objects_are_kept_once() -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="1")
    sandbox.create(job("runs", workload="4f1c"))
    sandbox.create(job("refused", workload="77aa", gpus=2))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    observe_cluster(sandbox.cluster)
    told = list(ClusterEvent.objects.values_list("owner_id", "reason"))
    assert sorted(told) == [("4f1c", "Scheduled"), ("4f1c", "Started"), ("77aa", "FailedCreate")]


def test_an_event_that_comes_before_its_job_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, told: ObservationRecorder
) -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="1")
    sandbox.create(job("refused", workload="77aa", gpus=2))
    gone = sandbox.create(job("gone", workload="88bb", gpus=2))
    sandbox.tick()
    sandbox.delete(gone)
    with monkeypatch.context() as without_jobs:
        without_jobs.setattr(informers, "JOB_KINDS", ())
        observe_cluster(sandbox.cluster)
    assert told.last.events == ()
    sandbox.create(job("other", workload="99cc"))
    observe_cluster(sandbox.cluster)
    assert [(event.owner_id, event.reason) for event in told.last.events] == [("77aa", "FailedCreate")]


def test_what_happens_again_is_the_same_event_with_a_higher_count(told: ObservationRecorder) -> None:
    sandbox = furnished()
    pod = sandbox.create(
        {**bare_pod("train"), "metadata": {**bare_pod("train")["metadata"], "labels": owned_by("4f1c")}}
    )
    created = sandbox.create(event_about(pod, "BackOff", count=1, at="2026-11-21T06:00:00Z"))
    observe_cluster(sandbox.cluster)
    sandbox.gateway.update({**created, "count": 7, "lastTimestamp": "2026-11-21T06:05:00Z"}, observed=created)
    observe_cluster(sandbox.cluster)
    kept = ClusterEvent.objects.get(reason="BackOff")
    assert (kept.count, kept.at, kept.owner_id) == (7, datetime(2026, 11, 21, 6, 5, tzinfo=UTC), "4f1c")
    assert [event.count for event in told.last.events] == [7]


def test_a_series_counts_and_its_last_time_is_the_events_time() -> None:
    sandbox = furnished()
    sandbox.create(job("train", workload="4f1c"))
    sandbox.tick()
    series = {"count": 3, "lastObservedTime": "2026-11-21T06:05:00.250000Z"}
    said = event_about(
        sandbox.pods("train")[0], "FailedScheduling", eventTime="2026-11-21T06:00:00.000000Z", series=series
    )
    sandbox.create(said)
    observe_cluster(sandbox.cluster)
    kept = ClusterEvent.objects.get(reason="FailedScheduling")
    assert (kept.count, kept.at.isoformat()) == (3, "2026-11-21T06:05:00.250000+00:00")


def test_events_about_foreign_pods_leave_nothing_behind() -> None:
    sandbox = furnished()
    pod = sandbox.create(bare_pod("theirs"))
    sandbox.create(event_about(pod, "BackOff"))
    observe_cluster(sandbox.cluster)
    sandbox.create(event_about(pod, "Killing"))
    sandbox.create(
        event_about(sandbox.get({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}}), "Full")
    )
    observe_cluster(sandbox.cluster)
    assert not ClusterEvent.objects.exists()
