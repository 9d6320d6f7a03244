"""A control plane of this folder's own, since what is reconciled is the whole cluster; a proxy and a rig per test."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.backends.kubernetes import gateway
from clusters.backends.kubernetes.transport import TransportLimits
from tests.faults.invariants import assert_all, sampled
from tests.faults.rig import Rig
from tests.support.faultproxy import FaultProxy
from tests.support.lab import Kept, LabCluster, own_cluster

HERE = Path(__file__).parent
LIMITS = TransportLimits(connect=1.0, read=1.5, total=3.0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder speaks to a real API server; on SQLite unless it says PostgreSQL."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.enable_socket)
            if not item.get_closest_marker("postgres"):
                item.add_marker(pytest.mark.django_db)


@pytest.fixture
def broken_cluster(kept: Kept) -> LabCluster:
    """One for all tests of this folder."""
    return kept.cluster(own_cluster)


@pytest.fixture
def seed() -> int:
    """Tests that repeat themselves say another."""
    return 0


@pytest.fixture
def proxy(broken_cluster: LabCluster, seed: int) -> Iterator[FaultProxy]:
    with FaultProxy(broken_cluster, seed) as proxy:
        yield proxy


@pytest.fixture
def database(request: pytest.FixtureRequest) -> None:
    """A transaction that is rolled back; where threads are to see each other's rows, a PostgreSQL of the test's own."""
    request.getfixturevalue("postgres_db" if request.node.get_closest_marker("postgres") else "db")


@pytest.fixture
def unchecked(
    broken_cluster: LabCluster, proxy: FaultProxy, seed: int, database: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    """The product with little patience."""
    monkeypatch.setitem(gateway.KubernetesGateway.__init__.__kwdefaults__, "limits", LIMITS)
    rig = Rig(broken_cluster, proxy, uuid.uuid4().hex[:6], seed)
    try:
        yield rig
    finally:
        rig.end()


@pytest.fixture
def rig(unchecked: Rig) -> Iterator[Rig]:
    """The same; afterwards the invariants are checked, whatever the test did."""
    with sampled(unchecked) as samples:
        yield unchecked
    assert_all(unchecked, samples)
