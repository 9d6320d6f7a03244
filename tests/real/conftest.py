"""A real control plane that belongs to the tests of this folder: what they reconcile is the whole cluster's."""

import uuid
from collections.abc import Iterator

import pytest

from tests.real.product import Product, cluster_with_operators
from tests.support.lab import LabCluster


@pytest.fixture(scope="session")
def operated_cluster() -> Iterator[LabCluster]:
    """One per worker: it serves every kind a tenant may submit."""
    with cluster_with_operators() as cluster:
        yield cluster


@pytest.fixture
def product(operated_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights, with names of the test's own."""
    product = Product(operated_cluster, uuid.uuid4().hex[:6])
    yield product
    product.end()
