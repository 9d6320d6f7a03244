"""Versions, watches, deletions with grace, and ticks that race or are killed."""

import threading
from datetime import timedelta

import pytest
from django.db import connection

from clusters.ports.gateway import VersionExpired
from clusters.ports.objects import EVENT, NAMESPACE, POD, WORKLOAD_KINDS, kind_of, ref_of
from clusters.ports.workload_kinds import KINDS
from clusters.sandbox.models import SandboxClock, SandboxObject
from clusters.sandbox.services import store
from clusters.sandbox.services.simulation import TickResult, tick
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, job

JOBS = next(kind for kind in WORKLOAD_KINDS if kind.key == "Job.batch")


def seen(sandbox: Sandbox, since: str) -> list[tuple[str, str]]:
    return [(event.type, event.manifest["metadata"]["name"]) for event in sandbox.gateway.watch(JOBS, since=since)]


@pytest.mark.django_db
def test_a_watch_tells_what_was_added_changed_and_deleted_since() -> None:
    sandbox = furnished()
    old = sandbox.create(job("old"))
    kept = sandbox.create(job("kept"))
    _, version = sandbox.gateway.list(JOBS)
    sandbox.create(job("new"))
    sandbox.gateway.update(job("kept", parallelism=2), observed=kept)
    sandbox.delete(old)
    brief = sandbox.create(job("brief"))
    sandbox.delete(brief)
    assert seen(sandbox, version) == [("ADDED", "new"), ("MODIFIED", "kept"), ("DELETED", "old")]


@pytest.mark.django_db
def test_a_watch_from_the_newest_version_is_silent() -> None:
    sandbox = furnished()
    sandbox.create(job("old"))
    assert seen(sandbox, sandbox.gateway.list(JOBS)[1]) == []


@pytest.mark.django_db
@pytest.mark.parametrize("since", ["", "yesterday", "999999999", "0"])
def test_a_version_that_is_not_kept_has_expired(since: str) -> None:
    sandbox = furnished()
    SandboxClock.objects.filter(cluster=sandbox.cluster).update(version=store.KEPT_VERSIONS + 50)
    with pytest.raises(VersionExpired):
        list(sandbox.gateway.watch(JOBS, since=since))


@pytest.mark.django_db
def test_old_tombstones_and_events_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_VERSIONS", 20)
    sandbox = furnished()
    sandbox.delete(sandbox.create(job("old")))
    sandbox.ticks(2)
    for number in range(12):
        sandbox.create(job(f"more-{number}"))
        sandbox.tick()
    rows = SandboxObject.objects.filter(cluster=sandbox.cluster)
    assert not rows.filter(kind=JOBS.key, name="old").exists()
    assert rows.filter(kind=EVENT.key).count() <= 20


@pytest.mark.django_db
def test_every_write_has_a_version_of_its_own() -> None:
    sandbox = furnished()
    for number in range(3):
        sandbox.create(job(f"job-{number}"))
    sandbox.ticks(3)
    versions = list(SandboxObject.objects.filter(cluster=sandbox.cluster).values_list("version", flat=True))
    assert len(set(versions)) == len(versions)
    assert max(versions) == SandboxClock.objects.get(cluster=sandbox.cluster).version


@pytest.mark.django_db
def test_a_running_pod_leaves_after_its_grace_and_a_waiting_one_at_once() -> None:
    sandbox = furnished()
    running = sandbox.create(bare_pod("running", gpus=8, grace=10))
    sandbox.ticks(2)
    waiting = sandbox.create(bare_pod("waiting", gpus=8))
    sandbox.tick()
    for pod in (running, waiting):
        sandbox.delete(pod)
    assert sandbox.get(waiting) is None
    leaving = sandbox.get(running)
    assert leaving is not None
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 10
    sandbox.tick(after=11)
    assert sandbox.get(running) is None


@pytest.mark.django_db
def test_a_delete_that_names_another_uid_leaves_the_object_alone() -> None:
    sandbox = furnished()
    created = sandbox.create(job("train"))
    sandbox.gateway.delete(ref_of(created), uid="00000000-0000-0000-0000-000000000000")
    assert sandbox.get(created) is not None


@pytest.mark.django_db
def test_a_deleted_job_takes_its_pods_with_it() -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", grace=5))
    sandbox.ticks(2)
    sandbox.delete(created)
    sandbox.tick()
    assert ["deletionTimestamp" in pod["metadata"] for pod in sandbox.pods()] == [True]
    sandbox.tick(after=6)
    assert sandbox.pods() == []


@pytest.mark.django_db
def test_a_deleted_namespace_takes_everything_with_it() -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.ticks(2)
    namespace = sandbox.gateway.list(NAMESPACE, managed_only=False)[0][0]
    sandbox.gateway.delete(ref_of(namespace))
    sandbox.tick()
    assert sandbox.pods() == []
    assert sandbox.gateway.list(JOBS)[0] == []


@pytest.mark.django_db
def test_identity_stays_and_differs_between_clusters() -> None:
    one, other = Sandbox(), Sandbox(name="other")
    assert one.gateway.identity() == one.gateway.identity()
    assert one.gateway.identity()[0] != other.gateway.identity()[0]
    assert one.gateway.identity()[1].endswith("sandbox")


@pytest.mark.django_db
def test_two_clusters_do_not_see_each_others_objects() -> None:
    one, other = furnished(), Sandbox(name="other")
    one.create(job("train"))
    one.tick()
    assert other.pods() == []
    assert other.tick().written == 0


@pytest.mark.django_db
def test_the_same_moment_is_ticked_once() -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    assert sandbox.tick().claimed
    assert sandbox.tick(after=0) == TickResult()


@pytest.mark.django_db
def test_a_clock_that_was_far_ahead_does_not_stop_time() -> None:
    sandbox = furnished()
    sandbox.tick(after=600)
    sandbox.now -= timedelta(seconds=600)
    assert sandbox.tick().claimed


@pytest.mark.django_db
def test_a_tick_that_dies_in_the_middle_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = furnished()
    sandbox.create(job("train", parallelism=3))
    before = list(SandboxObject.objects.order_by("uid").values_list("uid", "version"))

    def die(_self: store.ObjectStore) -> int:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(store.ObjectStore, "prune", die)
        with pytest.raises(SystemExit):
            sandbox.tick()
    assert list(SandboxObject.objects.order_by("uid").values_list("uid", "version")) == before
    assert SandboxClock.objects.get(cluster=sandbox.cluster).ticked_at is None
    sandbox.ticks(2)
    assert sandbox.phases() == ["Running"] * 3


@pytest.mark.postgres
def test_racing_tickers_create_each_pod_once() -> None:
    sandbox = furnished()
    for number in range(4):
        sandbox.create(job(f"job-{number}", parallelism=2))
    sandbox.now += timedelta(seconds=1)
    results: list[TickResult] = []
    start = threading.Barrier(4)

    def race() -> None:
        start.wait()
        try:
            results.append(tick(sandbox.cluster, now=sandbox.now))
        finally:
            connection.close()

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.claimed for result in results) == [False, False, False, True]
    assert len(sandbox.gateway.list(POD, namespace=TEAM, managed_only=False)[0]) == 8


def test_every_kind_a_tenant_may_submit_is_served() -> None:
    assert {kind_of({"apiVersion": kind.api_version, "kind": kind.kind}).plural for kind in KINDS} == {
        kind.plural for kind in KINDS
    }
