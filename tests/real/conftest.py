"""A real control plane that belongs to the tests of this folder: what they reconcile is the whole cluster's."""

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from clusters.sync import selectors as sync_selectors
from tests.real.other_schedulers import QUEUES, Real
from tests.real.product import Product, cluster_with_operators, cluster_with_schedulers, grant
from tests.real.queued import with_kueue
from tests.support.lab import Kept, LabCluster, own_cluster
from tests.support.real import by_hand


@pytest.fixture
def operated_cluster(kept: Kept) -> LabCluster:
    """One for all tests that ask for it: it serves every kind a tenant may submit."""
    return kept.cluster(cluster_with_operators)


@pytest.fixture
def scheduled_cluster(kept: Kept) -> LabCluster:
    """One for all tests that give pods to kube-scheduler itself; each test removes its scenarios."""
    return kept.cluster(own_cluster)


@pytest.fixture
def schedulers_cluster(kept: Kept) -> LabCluster:
    """One for all that ask for the resources of KAI and Volcano, of which neither runs."""
    return kept.cluster(cluster_with_schedulers)


@pytest.fixture(params=list(QUEUES))
def real(
    request: pytest.FixtureRequest,
    schedulers_cluster: LabCluster,
    db: None,
    socket_enabled: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Real]:
    """That control plane as a cluster of one flavour, reached with the rights that this flavour needs and no others."""
    grant(schedulers_cluster, request.param)
    found = Real(schedulers_cluster, request.param)
    monkeypatch.setattr(sync_selectors, "_sources", [found.wanted])
    yield found
    found.end()


def with_gangs() -> AbstractContextManager[LabCluster]:
    """A control plane with the alpha gates of gang scheduling."""
    return own_cluster("--gang", flavour="kube-gangs")


@pytest.fixture
def gang_cluster(kept: Kept) -> LabCluster:
    """One for the product's gangs and for those put to the model; each leaves it empty."""
    return kept.cluster(with_gangs)


@pytest.fixture
def kueue_cluster(kept: Kept) -> LabCluster:
    """One with Kueue for all tests of a unit; each leaves its queues empty."""
    return kept.cluster(with_kueue)


def with_volcano() -> AbstractContextManager[LabCluster]:
    """A control plane on which Volcano's scheduler runs, configured as Rung needs it."""
    return own_cluster("--volcano", flavour="volcano")


@pytest.fixture
def volcano_cluster(kept: Kept) -> LabCluster:
    """One for whoever wants to see what Volcano does; each leaves it empty."""
    by_hand("LAB_VOLCANO_BIN", "Volcano 1.15.1")
    return kept.cluster(with_volcano)


def with_kai() -> AbstractContextManager[LabCluster]:
    """A control plane on which KAI runs as it ships."""
    return own_cluster("--kai", flavour="kai")


@pytest.fixture
def kai_cluster(kept: Kept) -> LabCluster:
    """One for all tests of KAI. Each removes its queues, because KAI divides the GPUs of a cluster among all queues."""
    by_hand("LAB_KAI_BIN", "KAI 0.17.0")
    return kept.cluster(with_kai)


@pytest.fixture
def product(operated_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights, with names of the test's own."""
    product = Product(operated_cluster, uuid.uuid4().hex[:6])
    yield product
    product.end()
