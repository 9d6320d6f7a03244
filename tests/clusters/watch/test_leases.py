"""Observers share the clusters out: evenly, by the database's clock, and whoever dies loses everything soon."""

from collections import Counter
from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from clusters.inventory.models import Cluster, ClusterState
from clusters.watch.models import ObserverLease, ObserverSeat
from clusters.watch.services.observer import LEASE, balance_leases, release
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db


def clusters(count: int) -> None:
    for number in range(count):
        build_cluster(name=f"c{number}")


def settled(*holders: str, rounds: int = 3) -> Counter[str]:
    """How many clusters each holds once everybody has had a few rounds."""
    for _ in range(rounds):
        for holder in holders:
            balance_leases(holder=holder)
    return Counter(ObserverLease.objects.exclude(holder="").values_list("holder", flat=True))


def later(seconds: float) -> None:
    """As if so much time had passed on the database's clock."""
    span = timedelta(seconds=seconds)
    ObserverLease.objects.update(expires_at=F("expires_at") - span)
    ObserverSeat.objects.update(seen_at=F("seen_at") - span)


@pytest.mark.parametrize(("count", "shares"), [(6, [2, 2, 2]), (7, [3, 2, 2]), (4, [2, 1, 1]), (2, [1, 1]), (1, [1])])
def test_the_shares_differ_by_one_at_most(count: int, shares: list[int]) -> None:
    clusters(count)
    assert sorted(settled("a", "b", "c").values(), reverse=True) == shares


def test_one_observer_has_them_all_and_gives_a_newcomer_its_share() -> None:
    clusters(5)
    assert settled("a") == {"a": 5}
    assert settled("a", "b") == {"a": 3, "b": 2}


def test_no_cluster_has_two_holders_on_the_way() -> None:
    clusters(5)
    balance_leases(holder="a")
    for _ in range(3):
        held = [balance_leases(holder=holder) for holder in ("b", "a", "c")]
        assert len(set.union(*held)) == sum(map(len, held))


def test_a_dead_observers_clusters_are_taken_over_within_a_lease() -> None:
    clusters(4)
    settled("a", "b")
    later(LEASE.total_seconds() - 1)
    assert settled("b", rounds=1)["b"] == 2
    later(2)
    assert settled("b")["b"] == 4
    assert timedelta(seconds=15) >= LEASE


def test_a_seat_given_back_leaves_its_share_to_the_others_at_once() -> None:
    clusters(4)
    settled("a", "b")
    release(holder="a")
    assert settled("b") == {"b": 4}


def test_who_wakes_up_late_holds_nothing_any_more() -> None:
    clusters(2)
    settled("a")
    later(LEASE.total_seconds() + 5)
    settled("b")
    assert balance_leases(holder="a") <= set()
    assert settled("a", "b") == {"a": 1, "b": 1}


@pytest.mark.parametrize("skew", [timedelta(minutes=10), -timedelta(minutes=10)], ids=["ahead", "behind"])
def test_a_workers_clock_takes_nothing_from_anybody(skew: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    """F18: the skewed one neither steals nor keeps."""
    clusters(4)
    settled("a", "b")
    now = timezone.now()
    with monkeypatch.context() as skewed:
        skewed.setattr(timezone, "now", lambda: now + skew)
        balance_leases(holder="b")
        assert settled("a", "b") == {"a": 2, "b": 2}
        settled("b", rounds=1)
    later(LEASE.total_seconds() + 1)
    assert settled("a") == {"a": 4}


def test_a_paused_cluster_is_nobodys() -> None:
    clusters(2)
    settled("a")
    Cluster.objects.filter(name="c0").update(state=ClusterState.PAUSED)
    assert balance_leases(holder="a") == {Cluster.objects.get(name="c1").pk}
