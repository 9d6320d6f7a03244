"""Job objects: how they stand, whose they are, and what their loss is noticed by."""

from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import ClusterRefused, Kind, Manifest
from clusters.sandbox.services import simulation, store
from clusters.watch.models import ObservedPod
from clusters.watch.services.informers import observe_cluster
from tests.clusters.observation_recorder import ObservationRecorder
from tests.clusters.sandboxes import bare_pod, furnished, job

pytestmark = pytest.mark.django_db


def row(name_start: str) -> ObservedPod:
    return ObservedPod.objects.get(name__startswith=name_start, gone_at__isnull=True)


def test_a_deletion_between_two_lists_is_found(told: ObservationRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", grace=1))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    sandbox.delete(created)
    sandbox.ticks(3)
    monkeypatch.setattr(store, "KEPT_VERSIONS", 0)
    monkeypatch.setattr(simulation, "KEPT_VERSIONS", 0)
    sandbox.create(job("other"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get(name__startswith="train-").gone_at is not None
    assert told.last.jobs["train"].phase == "missing"
    assert row("other-").gone_at is None


def test_a_job_whose_pods_are_refused_is_blocked_with_its_controllers_words(told: ObservationRecorder) -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="1")
    sandbox.create(job("refused", workload="77aa", gpus=2))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    status = told.last.jobs["77aa"]
    assert (status.phase, status.reason) == ("blocked", "FailedCreate")
    reading = flavour_for("kube").interpret({}, [{"reason": status.reason, "message": status.message}])
    assert (reading.reason, reading.numbers["limited"]) == ("OverLimit", "requests.nvidia.com/gpu=1")


def test_a_bare_pod_stands_for_itself(told: ObservationRecorder) -> None:
    sandbox = furnished()
    body = job("unused", workload="b0b0")["spec"]["template"]
    pod = {**bare_pod("train", seconds="5"), "spec": {**body["spec"]}}
    pod["metadata"]["labels"] |= body["metadata"]["labels"]
    sandbox.create(pod)
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["b0b0"].phase == "active"
    sandbox.tick(after=6)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["b0b0"].phase == "succeeded"
    sandbox.delete(pod)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["b0b0"].phase == "missing"


def test_a_suspended_job_says_so(told: ObservationRecorder) -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", workload="4f1c", grace=1))
    sandbox.ticks(2)
    live = sandbox.get(created)
    assert live is not None
    live["spec"]["suspend"] = True
    sandbox.gateway.update(live, observed=live)
    sandbox.ticks(3)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["4f1c"].phase == "suspended"
    assert sandbox.pods("train") == []


def test_foreign_jobs_are_nobodys(told: ObservationRecorder) -> None:
    sandbox = furnished()
    observe_cluster(sandbox.cluster)
    theirs = job("theirs")
    theirs["metadata"]["labels"] = {}
    sandbox.create(theirs)
    sandbox.create(job("ours", workload="4f1c"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    assert list(told.last.jobs) == ["4f1c"]


def test_a_kind_the_cluster_does_not_serve_is_skipped(
    monkeypatch: pytest.MonkeyPatch, told: ObservationRecorder
) -> None:
    sandbox = furnished()
    sandbox.create(job("train", workload="4f1c"))
    sandbox.tick()
    listed = simulation.SandboxGateway.list

    def without_ray(gateway: simulation.SandboxGateway, kind: Kind, **requested: Any) -> tuple[list[Manifest], str]:
        if kind.group == "ray.io":
            raise ClusterRefused("the server could not find the requested resource")
        return listed(gateway, kind, **requested)

    monkeypatch.setattr(simulation.SandboxGateway, "list", without_ray)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["4f1c"].phase == "active"
