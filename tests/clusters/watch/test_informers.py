"""Open watches under faults: what a list, a watch or a line of it may do wrong, and what must hold nevertheless."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster, Node
from clusters.ports.gateway import (
    ClusterBusy,
    ClusterChanged,
    ClusterUnreachable,
    Kind,
    Manifest,
    NotAuthorized,
    VersionExpired,
    WatchEvent,
)
from clusters.ports.objects import POD, ref_of
from clusters.sync.selectors import STALE_AFTER
from clusters.watch.models import ObservedPod, ObserverLease
from clusters.watch.services import informers, watch_buffer
from clusters.watch.services.informers import ConcurrentObserver
from tests.clusters.observation_recorder import ObservationRecorder
from tests.clusters.watch.streaming import Misbehaving, Twist, streaming

pytestmark = pytest.mark.django_db

JOBS = "Job.batch"


@pytest.fixture
def gateway(plain: Cluster, monkeypatch: pytest.MonkeyPatch) -> Misbehaving:
    """The API server of `plain`; watches of it are short."""
    monkeypatch.setattr(informers, "BETWEEN", 0.02)
    return Misbehaving(plain)


def live() -> set[str]:
    return set(ObservedPod.objects.filter(gone_at=None).values_list("name", flat=True))


def test_what_is_listed_and_what_comes_later_become_rows(plain: Cluster, gateway: Misbehaving) -> None:
    gateway.pod("first")
    with streaming(plain, gateway) as watching:
        watching.until(lambda: live() == {"first"})
        second = gateway.pod("second")
        watching.until(lambda: live() == {"first", "second"})
        gateway.delete(ref_of(second))
        watching.until(lambda: live() == {"first"})
    assert gateway.listed == 1


def test_after_a_restart_it_goes_on_where_it_was(plain: Cluster, gateway: Misbehaving) -> None:
    gateway.pod("first")
    with streaming(plain, gateway) as watching:
        watching.until(lambda: live() == {"first"})
    gateway.pod("second")
    with streaming(plain, gateway) as watching:
        watching.until(lambda: live() == {"first", "second"})
    assert gateway.listed == 1


def expired(_events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
    raise VersionExpired("too old resource version")
    yield


def expired_in_mid_stream(events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
    yield from islice(events, 1)
    raise VersionExpired("too old resource version")


@pytest.mark.parametrize("twist", [expired, expired_in_mid_stream], ids=["as a status", "in mid-stream"])
def test_f12_an_expired_version_is_listed_again_and_deletions_in_the_gap_are_found(
    twist: Twist, plain: Cluster, gateway: Misbehaving
) -> None:
    gone, stays = gateway.pod("gone"), gateway.pod("stays")
    with streaming(plain, gateway) as watching:
        watching.until(lambda: live() == {"gone", "stays"})
        gateway.twists = [twist]
        with gateway.store.lock:
            gateway.now(stays, phase="Running")
            gateway.delete(ref_of(gone))
            gateway.compact()
        watching.until(lambda: live() == {"stays"})
        watching.until(lambda: ObservedPod.objects.get(name="stays").phase == "Running")
    assert ObservedPod.objects.get(name="gone").gone_at is not None


def test_f12_without_any_bookmark_a_kind_that_is_quiet_is_listed_again_once_its_version_is_too_old(
    plain: Cluster, gateway: Misbehaving
) -> None:
    gateway.pod("stays")
    with streaming(plain, gateway) as watching:
        watching.until(lambda: live() == {"stays"})
        gateway.compact()
        before = gateway.listed
        watching.until(lambda: gateway.listed > before)
        watching.until(lambda: int(ObserverLease.objects.get().versions[POD.key]) >= gateway.store.oldest)
    assert live() == {"stays"}


def test_bookmarks_move_the_version_without_a_change(plain: Cluster, gateway: Misbehaving) -> None:
    def marked(events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
        yield from events
        yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "4711"}})

    with streaming(plain, gateway) as watching:
        watching.until(lambda: gateway.listed)
        gateway.twists = [marked]
        gateway.pod("one")
        watching.until(lambda: ObserverLease.objects.get().versions.get(POD.key) == "4711")
    assert live() == {"one"}


def test_f13_a_watch_that_falls_silent_makes_the_cluster_stale(
    plain: Cluster, gateway: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
        raise ClusterUnreachable("The watch received no data.")
        yield

    monkeypatch.setattr(informers, "LIFE_EVERY", 0.05)
    with streaming(plain, gateway) as watching:
        watching.until(lambda: Cluster.objects.get().observed_at)
        gateway.twists = [silent] * 1000
        gateway.pod("unseen")
        seen = Cluster.objects.get().observed_at
        watching.until(lambda: len(gateway.twists) < 998)
        moved = Cluster.objects.get().observed_at
    assert seen
    assert moved
    assert moved - seen < timedelta(seconds=1)
    assert live() == set()


def is_current(cluster: Cluster) -> bool:
    return cluster.observed_at is not None and timezone.now() - cluster.observed_at <= STALE_AFTER


def test_a_quiet_cluster_stays_current(plain: Cluster, gateway: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informers, "LIFE_EVERY", 0.05)
    with streaming(plain, gateway) as watching:
        watching.until(lambda: Cluster.objects.get().observed_at)
        Cluster.objects.update(observed_at=timezone.now() - timedelta(minutes=5))
        watching.until(lambda: is_current(Cluster.objects.get()))


def test_f14_a_stream_cut_in_mid_line_goes_on_after_the_last_whole_event(plain: Cluster, gateway: Misbehaving) -> None:
    def cut(events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
        yield from islice(events, 1)
        raise ClusterUnreachable("The stream ended in the middle of a line.")

    with streaming(plain, gateway) as watching:
        watching.until(lambda: gateway.listed)
        gateway.twists = [cut]
        with gateway.store.lock:
            gateway.pod("one")
            gateway.pod("two")
        watching.until(lambda: live() == {"one", "two"})
    assert gateway.listed == 1


def doubled(events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
    seen = list(events)
    yield from seen
    yield from seen


def reversed_order(events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
    yield from reversed(list(events))


@pytest.mark.parametrize("twist", [doubled, reversed_order], ids=["doubled", "reversed"])
def test_f14_events_out_of_order_never_take_a_pod_back(
    twist: Twist, plain: Cluster, gateway: Misbehaving, told: ObservationRecorder
) -> None:
    with streaming(plain, gateway) as watching:
        pod = gateway.pod("train")
        watching.until(lambda: live() == {"train"})
        gateway.twists = [twist]
        with gateway.store.lock:
            gateway.now(pod, phase="Pending", message="waits")
            gateway.now(pod, phase="Running")
            gateway.now(pod, phase="Succeeded")
        watching.until(lambda: ObservedPod.objects.get().phase == "Succeeded")
        gateway.pod("last")
        watching.until(lambda: "last" in live())
    phases = [row.phase for seen in told.observations for row in seen.pods if row.name == "train"]
    assert phases.index("Succeeded") == len(phases) - 1
    assert ObservedPod.objects.get(name="train").phase == "Succeeded"


def test_f14_a_list_from_a_server_that_lags_behind_is_not_believed(plain: Cluster, gateway: Misbehaving) -> None:
    with streaming(plain, gateway) as watching:
        watching.until(lambda: gateway.listed)
        old = gateway.list(POD)
        gateway.pod("train")
        watching.until(lambda: live() == {"train"})
        gateway.lists = [old]
        gateway.compact()
        watching.until(lambda: not gateway.lists)
        gateway.pod("second")
        watching.until(lambda: live() == {"train", "second"})
    assert ObservedPod.objects.get(name="train").gone_at is None


def test_f15_a_pod_recreated_under_the_same_name_is_another_one(plain: Cluster, gateway: Misbehaving) -> None:
    with streaming(plain, gateway) as watching:
        first = gateway.pod("train")
        watching.until(lambda: live() == {"train"})
        gateway.twists = [expired]
        with gateway.store.lock:
            gateway.delete(ref_of(first))
            second = gateway.pod("train")
            gateway.compact()
        watching.until(lambda: ObservedPod.objects.count() == 2)
    rows = dict(ObservedPod.objects.values_list("uid", "gone_at"))
    assert rows[first["metadata"]["uid"]] is not None
    assert rows[second["metadata"]["uid"]] is None


def test_f16_of_two_observers_each_change_is_told_by_one(
    plain: Cluster, gateway: Misbehaving, told: ObservationRecorder
) -> None:
    with streaming(plain, gateway) as one, streaming(plain, gateway) as other:
        one.until(lambda: Cluster.objects.get().observed_at)
        gateway.pod("train")
        one.until(lambda: live() == {"train"})
        with pytest.raises(ConcurrentObserver):
            other.until(lambda: False)
    assert [row.name for seen in told.observations for row in seen.pods] == ["train"]


def test_a_handlers_fault_takes_everything_back_and_the_same_comes_again(
    plain: Cluster, gateway: Misbehaving, told: ObservationRecorder
) -> None:
    with streaming(plain, gateway) as watching:
        watching.until(lambda: Cluster.objects.get().observed_at)
        kept = ObserverLease.objects.get().versions
        told.broken = True
        gateway.pod("train")
        with pytest.raises(RuntimeError, match="handler"):
            watching.until(lambda: live() == {"train"})
    assert ObserverLease.objects.get().versions == kept
    told.broken = False
    with streaming(plain, gateway) as watching:
        watching.until(lambda: live() == {"train"})
    assert [row.name for row in told.last.pods] == ["train"]


@pytest.mark.parametrize("error", [NotAuthorized("401"), ClusterChanged("another uid")], ids=["revoked", "rebuilt"])
def test_a_refusal_ends_the_watches_and_loses_no_pod(
    error: NotAuthorized | ClusterChanged, plain: Cluster, gateway: Misbehaving
) -> None:
    with streaming(plain, gateway) as watching:
        gateway.pod("train")
        watching.until(lambda: live() == {"train"})
        gateway.refusals = [error]
        gateway.compact()
        with pytest.raises(type(error)):
            watching.until(lambda: False)
    assert live() == {"train"}


def test_a_busy_server_is_asked_again_when_it_said(plain: Cluster, gateway: Misbehaving) -> None:
    gateway.refusals = [ClusterBusy("429", retry_after=1), ClusterBusy("503")]
    gateway.pod("train")
    with streaming(plain, gateway) as watching:
        watching.until(lambda: live() == {"train"})
    assert gateway.listed == 3


def test_a_full_inbox_makes_its_feeds_wait_and_loses_nothing(
    plain: Cluster, gateway: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_buffer, "ROOM", 3)
    with streaming(plain, gateway) as watching:
        watching.until(lambda: gateway.listed)
        names = {f"pod-{number}" for number in range(20)}
        for name in names:
            gateway.pod(name)
        watching.until(lambda: live() == names)
    assert gateway.listed == 1


def test_a_change_of_nothing_that_is_kept_writes_and_tells_nothing(
    plain: Cluster, gateway: Misbehaving, told: ObservationRecorder
) -> None:
    with streaming(plain, gateway) as watching:
        pod = gateway.pod("train")
        watching.until(lambda: live() == {"train"})
        gateway.now(pod, phase="Pending", conditions=[{"type": "Ready", "status": "False", "lastProbeTime": "now"}])
        gateway.pod("next")
        watching.until(lambda: "next" in live())
    assert [row.name for seen in told.observations for row in seen.pods].count("train") == 1


def test_a_kind_that_may_not_be_read_leaves_the_others_alone(
    plain: Cluster, gateway: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "serves", lambda kind: kind.group in {"", "batch"})
    gateway.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})
    with streaming(plain, gateway) as watching:
        watching.until(Node.objects.exists)
        watching.until(lambda: JOBS in ObserverLease.objects.get().versions)
    assert not any("ray.io" in key for key in ObserverLease.objects.get().versions)


def test_a_kind_whose_right_comes_later_is_seen_then(
    plain: Cluster, gateway: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informers, "FIRST_REFUSAL", 0.02)
    refusals = [NotAuthorized("403")] * 3
    listed = gateway.list

    def list_(kind: Kind, **requested: Any) -> tuple[list[Manifest], str]:
        if kind.key == JOBS and refusals:
            raise refusals.pop()
        return listed(kind, **requested)

    monkeypatch.setattr(gateway, "list", list_)
    with streaming(plain, gateway) as watching:
        watching.until(lambda: JOBS in ObserverLease.objects.get().versions)
    assert not refusals
