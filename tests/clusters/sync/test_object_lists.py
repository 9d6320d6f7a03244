"""What a cluster holds is sifted while its lists come, and no change in the meantime is missed by that."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models import F

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, ListPage, Manifest, ObjectRef
from clusters.ports.objects import KAI_QUEUE, NAMESPACE
from clusters.sync.models import SyncState
from clusters.sync.rules.diff import by_place, diff
from clusters.sync.services import object_reads
from clusters.sync.services.object_reads import ObjectLists
from clusters.sync.services.reconcile import reconcile
from tests.clusters.specs import Wanted, project, state
from tests.clusters.synced import FULL, PRIORITIES, edit, outcomes

MORE = state(project("vision", deserved=7, generation=2), priorities=PRIORITIES, departments=FULL.departments)
LEFT_OUT = state(priorities=PRIORITIES, departments=FULL.departments)
QUEUE = ObjectRef(KAI_QUEUE, "project.1.a100")


def space(name: str, **metadata: Any) -> Manifest:
    labels = {"app.kubernetes.io/managed-by": "rung", "rung.dev/owner": "project.1"}
    said = {"name": name, "uid": name, "labels": labels, "annotations": {}, **metadata}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": said}


def as_written(*wanted: Manifest) -> list[Manifest]:
    return list(by_place(wanted).values())


def spaces_of(*pages: ListPage, wanted: list[Manifest]) -> ObjectLists:
    listing = ObjectLists(fence=False)
    for page in pages:
        listing.take(NAMESPACE, page, by_place(wanted))
    return listing


def test_of_what_is_as_it_is_wanted_only_its_place_is_kept() -> None:
    one, two = as_written(space("one"), space("two"))
    changed = {**two, "metadata": {**two["metadata"], "labels": {**two["metadata"]["labels"], "rung.dev/owner": "x"}}}
    leaving = {
        **one,
        "metadata": {**one["metadata"], "name": "three", "uid": "three", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    wanted = [space("one"), space("two"), space("three")]
    listing = spaces_of(ListPage([one, changed], "9"), ListPage([leaving], "9", first=False), wanted=wanted)
    assert [ref.name for ref in listing.held] == ["one"]
    assert [each["metadata"]["name"] for each in listing.others] == ["two", "three"]
    assert (listing.count(), listing.count([NAMESPACE.key]), listing.count([KAI_QUEUE.key])) == (3, 3, 0)
    assert listing.namespaces == {"one", "two", "three"}
    assert listing.owners == {"one": "project.1", "two": "x", "three": "project.1"}


def test_an_object_that_has_lost_its_labels_does_not_hold_whatever_its_annotations_say() -> None:
    (one,) = as_written(space("one"))
    for labels in (None, {}):
        bare = {**one, "metadata": {**one["metadata"], "labels": labels}}
        without = {**one, "metadata": {key: part for key, part in one["metadata"].items() if key != "labels"}}
        listing = spaces_of(ListPage([bare, without], "9"), wanted=[space("one")])
        assert (listing.held, len(listing.others)) == (frozenset(), 2)
        assert diff([bare], [space("one")], adopted={"one"})[0].ref.name == "one"


def test_a_list_that_begins_again_voids_what_came_of_it_before() -> None:
    one, two = as_written(space("one"), space("two"))
    wanted = [space("one"), space("two")]
    listing = spaces_of(ListPage([one, space("odd")], "8"), ListPage([two], "9"), wanted=wanted)
    assert ([ref.name for ref in listing.held], listing.others, listing.count()) == (["two"], [], 1)
    assert listing.versions == {NAMESPACE.key: "9"}
    assert listing.owners == {"two": "project.1"}


@pytest.fixture
def changed_meanwhile(synced: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is put into it is wanted as soon as the queues have been listed; once."""
    pages = MemoryGateway.pages
    coming: list[Any] = []

    def changing(gateway: MemoryGateway, kind: Kind, **how: Any) -> Iterator[ListPage]:
        yield from pages(gateway, kind, **how)
        if kind == KAI_QUEUE and coming:
            wanted.state = coming.pop()
            Cluster.objects.filter(pk=synced.pk).update(generation=F("generation") + 1)

    monkeypatch.setattr(MemoryGateway, "pages", changing)
    object_reads.forget(synced.pk)
    return coming


def test_what_is_wanted_otherwise_while_the_lists_come_is_brought_about_by_the_same_run(
    synced: Cluster, changed_meanwhile: list[Any], gateway: MemoryGateway
) -> None:
    changed_meanwhile.append(MORE)
    run = reconcile(synced)
    assert (run.state, outcomes(run)) == (SyncState.SUCCEEDED, [("update", "project.1.a100", True)])
    live = gateway.get(QUEUE)
    assert live is not None
    assert live["spec"]["resources"]["gpu"]["quota"] == 7
    synced.refresh_from_db()
    assert synced.synced_generation == synced.generation


def test_what_nobody_wants_any_more_by_then_goes_with_the_same_run(
    synced: Cluster, changed_meanwhile: list[Any], gateway: MemoryGateway
) -> None:
    changed_meanwhile.append(LEFT_OUT)
    reconcile(synced)
    assert gateway.get(QUEUE) is None


def test_what_is_kept_of_a_look_is_enough_to_see_the_next_change(
    synced: Cluster, store: MemoryStore, gateway: MemoryGateway
) -> None:
    object_reads.forget(synced.pk)
    assert outcomes(reconcile(synced)) == []
    live = gateway.get(QUEUE)
    assert live is not None
    live["spec"]["resources"]["gpu"]["quota"] = 99
    edit(gateway, QUEUE, spec=live["spec"])
    assert outcomes(reconcile(synced)) == [("update", "project.1.a100", True)]
