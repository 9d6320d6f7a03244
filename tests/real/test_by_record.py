"""Queues by the thousand are known by the API server's record of who wrote what, and no change is missed by that."""

import copy
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.backends.kubernetes import KubernetesGateway
from clusters.kinds_core import ref_of
from clusters.models import Cluster
from clusters.ports import Kind, Manifest, ObjectRef, Page
from clusters.services import listing, sightings
from clusters.services.reconcile import reconcile
from tests.clusters.specs import POOL
from tests.clusters.synced import outcomes
from tests.real.other_schedulers import QUEUES, Real

pytestmark = pytest.mark.lab


class Reads:
    """What a look read whole: kinds that were listed so, and the names of what it asked for."""

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.asked: set[str] = set()

    def forget(self) -> None:
        self.listed, self.asked = set(), set()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    found, pages, get = Reads(), KubernetesGateway.pages, KubernetesGateway.get

    def noting(gateway: KubernetesGateway, kind: Kind, *, by_record: bool = False) -> Iterator[Page]:
        for page in pages(gateway, kind, by_record=by_record):
            found.listed |= {each["kind"] for each in page.objects if "spec" in each or page.whole}
            yield page

    def asking(gateway: KubernetesGateway, ref: ObjectRef) -> Manifest | None:
        found.asked |= {ref.name} if ref.kind.kind == "Queue" else set()
        return get(gateway, ref)

    monkeypatch.setattr(KubernetesGateway, "pages", noting)
    monkeypatch.setattr(KubernetesGateway, "get", asking)
    return found


@pytest.fixture
def synced(real: Real, reads: Reads) -> Real:
    """All of it is there, and was read whole a moment ago."""
    real.hold()
    assert reconcile(real.cluster).failed == 0
    reads.forget()
    return real


def leaf(real: Real, number: int = 2) -> ObjectRef:
    return ObjectRef(QUEUES[real.flavour], f"project.{number}.{POOL.name}")


def cold(real: Real) -> list[tuple[str, str, bool]]:
    """What a process does that knows nothing of the cluster."""
    sightings.forget(real.cluster.pk)
    return outcomes(reconcile(Cluster.objects.get(pk=real.cluster.pk)))


def a_share(real: Real, amount: int) -> dict[str, Any]:
    """A merge patch of one amount, deep inside the queue."""
    if real.flavour == "kai":
        return {"spec": {"resources": {"gpu": {"limit": amount}}}}
    return {"spec": {"capability": {"nvidia.com/gpu": str(amount)}}}


def test_as_long_as_nobody_else_wrote_them_queues_are_not_read(synced: Real, reads: Reads) -> None:
    assert cold(synced) == []
    assert "Queue" not in reads.listed
    assert reads.asked == set()
    assert "Namespace" in reads.listed


def test_a_value_changed_by_hand_is_found_and_put_right(synced: Real, reads: Reads) -> None:
    synced.lab.admin.patch(leaf(synced), a_share(synced, 23))
    assert cold(synced) == [("update", leaf(synced).name, True)]
    assert reads.asked == {leaf(synced).name}
    reads.forget()
    assert cold(synced) == []
    assert (reads.asked, "Queue" in reads.listed) == (set(), False)


def test_a_field_taken_away_by_hand_is_found_and_put_back(synced: Real) -> None:
    gone = {"kai": "priority", "volcano": "capability"}[synced.flavour]
    synced.lab.admin.patch(leaf(synced), {"spec": {gone: None}})
    assert cold(synced) == [("update", leaf(synced).name, True)]
    assert cold(synced) == []


def test_a_queue_made_anew_from_a_copy_with_our_marks_is_read_before_it_is_believed(synced: Real) -> None:
    ref = leaf(synced)
    copied = copy.deepcopy(synced.lab.admin.must(ref))
    for name in ("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"):
        copied["metadata"].pop(name)
    synced.lab.admin.delete(ref)
    synced.lab.admin.create(copied)
    synced.lab.admin.patch(ref, a_share(synced, 25))
    assert cold(synced) == [("update", ref.name, True)]


def test_labels_of_others_and_a_schedulers_status_are_not_worth_a_write(synced: Real, reads: Reads) -> None:
    synced.lab.admin.patch(leaf(synced), {"metadata": {"labels": {"team": "vision"}}})
    synced.lab.admin.patch_status(leaf(synced), {"childQueues": ["x"]} if synced.flavour == "kai" else {"pending": 3})
    assert cold(synced) == []
    assert reads.asked == set()


def test_what_is_wanted_otherwise_by_now_is_read_and_written(synced: Real, reads: Reads) -> None:
    synced.hold(limit=12, generation=2)
    assert cold(synced) == [("update", leaf(synced).name, True)]
    assert reads.asked == {leaf(synced).name}


def test_one_that_goes_between_the_list_and_its_reading_is_made_anew(
    synced: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced.lab.admin.patch(leaf(synced), a_share(synced, 23))
    read = listing.Listing.read

    def late(*asked: Any, **how: Any) -> None:
        synced.lab.admin.delete(leaf(synced))
        synced.lab.admin.wait_gone(leaf(synced))
        read(*asked, **how)

    monkeypatch.setattr(listing.Listing, "read", late)
    assert cold(synced) == [("create", leaf(synced).name, True)]


def test_of_many_that_are_not_vouched_for_the_whole_kind_is_listed_once_more(
    synced: Real, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "FEW", 1)
    for number in (1, 2):
        synced.lab.admin.patch(leaf(synced, number), a_share(synced, 23))
    assert sorted(cold(synced)) == [("update", leaf(synced, number).name, True) for number in (1, 2)]
    assert (reads.asked, "Queue" in reads.listed) == (set(), True)


def test_after_a_look_by_record_the_next_one_still_sees_what_happens(synced: Real) -> None:
    cold(synced)
    synced.lab.admin.patch(leaf(synced), a_share(synced, 23))
    run = reconcile(Cluster.objects.get(pk=synced.cluster.pk))
    assert outcomes(run) == [("update", leaf(synced).name, True)]
    assert reconcile(Cluster.objects.get(pk=synced.cluster.pk)).written == 0


def test_once_an_hour_everything_is_read(synced: Real, reads: Reads) -> None:
    before = timezone.now()
    Cluster.objects.update(read_whole_at=before - timedelta(minutes=61))
    assert cold(synced) == []
    assert "Queue" in reads.listed
    assert Cluster.objects.get().read_whole_at > before


def test_where_the_server_takes_something_otherwise_than_it_was_written_everything_is_read_again(
    synced: Real, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a webhook would that changes what is written: the record then names us for its value."""
    update = KubernetesGateway.update

    def changing(gateway: KubernetesGateway, manifest: Manifest, *, observed: Manifest) -> Manifest:
        changed = copy.deepcopy(manifest)
        if ref_of(manifest) == leaf(synced):
            merge(changed, a_share(synced, 27))
        return update(gateway, changed, observed=observed)

    with monkeypatch.context() as patch:
        patch.setattr(KubernetesGateway, "update", changing)
        synced.hold(limit=12, generation=2)
        assert cold(synced) == [("update", leaf(synced).name, True)]
    assert Cluster.objects.get().read_whole_at is None
    assert cold(synced) == [("update", leaf(synced).name, True)]
    assert "Queue" in reads.listed
    reads.forget()
    assert cold(synced) == []
    assert "Queue" not in reads.listed


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
