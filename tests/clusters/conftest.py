"""Clusters in memory, and a desired state that the test itself decides."""

from collections.abc import Iterator

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore, forget_all, store_of
from clusters.inventory.models import Cluster
from clusters.ports.flavour import DesiredState
from clusters.sync import selectors as sync_selectors
from clusters.sync.services.reconcile import reconcile
from clusters.watch.services import observations
from tests.clusters.observation_recorder import ObservationRecorder
from tests.clusters.specs import Wanted
from tests.clusters.synced import FULL
from tests.factories.clusters import build_cluster


@pytest.fixture(autouse=True)
def _no_memory_of_other_tests() -> Iterator[None]:
    yield
    forget_all()


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Wanted:
    """The only source of desired state during the test."""
    source = Wanted(DesiredState())
    monkeypatch.setattr(sync_selectors, "_sources", [source])
    return source


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A KAI cluster in memory."""
    return build_cluster(name="blue", flavour="kai")


@pytest.fixture
def plain(db: None) -> Cluster:
    """A cluster in memory with the plain kube-scheduler."""
    return build_cluster(name="plain", flavour="kube")


@pytest.fixture
def store(cluster: Cluster) -> MemoryStore:
    """What the KAI cluster holds."""
    return store_of(str(cluster.pk))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> ObservationRecorder:
    """The only handler of observations during the test."""
    handler = ObservationRecorder()
    monkeypatch.setattr(observations, "_handlers", [handler])
    return handler


@pytest.fixture
def gateway(store: MemoryStore) -> MemoryGateway:
    """The KAI cluster as everybody else reaches it."""
    return MemoryGateway(store)


@pytest.fixture
def synced(cluster: Cluster, wanted: Wanted) -> Cluster:
    """A cluster that holds two priorities, one department and one project."""
    wanted.state = FULL
    reconcile(cluster)
    cluster.refresh_from_db()
    return cluster
