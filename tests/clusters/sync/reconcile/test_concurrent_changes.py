"""What is wanted is read while the cluster is listed, and once more where it has changed by then."""

from collections.abc import Callable

import pytest
from django.db.models import F

from clusters.backends.memory import MemoryGateway
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind
from clusters.ports.objects import PRIORITY_CLASS
from clusters.sync import selectors as sync_selectors
from clusters.sync.models import SyncState
from clusters.sync.services.reconcile import reconcile
from tests.clusters.specs import Wanted, priority, state
from tests.clusters.synced import names, outcomes

FEW = state(priorities=(priority("low", 40),))
MORE = state(priorities=(priority("low", 40), priority("high", 125)))


@pytest.fixture(autouse=True)
def _every_change_counts(wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of quotas and priorities: a change of what is wanted is another generation."""
    monkeypatch.setattr(sync_selectors, "_counted", [wanted])


@pytest.fixture
def while_listed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Something happens once while the cluster's priorities are being listed."""
    real = MemoryGateway.list

    def register(happen: Callable[[], object]) -> None:
        left = [happen]

        def listed(gateway: MemoryGateway, kind: Kind, **options: bool) -> object:
            if kind == PRIORITY_CLASS and left:
                left.pop()()
            return real(gateway, kind, **options)

        monkeypatch.setattr(MemoryGateway, "list", listed)

    return register


def test_a_change_while_lists_are_under_way_is_written_by_the_same_run(
    cluster: Cluster, wanted: Wanted, gateway: MemoryGateway, while_listed: Callable[[Callable[[], object]], None]
) -> None:
    wanted.state = FEW

    def change() -> None:
        wanted.state = MORE
        Cluster.objects.filter(pk=cluster.pk).update(generation=F("generation") + 1)

    while_listed(change)
    run = reconcile(cluster)
    cluster.refresh_from_db()
    assert (run.state, run.generation) == (SyncState.SUCCEEDED, cluster.generation)
    assert outcomes(run) == [("create", "high", True), ("create", "low", True)]
    assert sorted(names(gateway)) == ["high", "low"]
    assert cluster.synced_generation == cluster.generation


def test_where_nothing_has_changed_it_is_read_once(
    cluster: Cluster, wanted: Wanted, while_listed: Callable[[Callable[[], object]], None]
) -> None:
    wanted.state = FEW
    read: list[int] = []
    while_listed(lambda: read.append(len(wanted.requested)))
    reconcile(cluster)
    assert read == [1]
    assert len(wanted.requested) == 1
