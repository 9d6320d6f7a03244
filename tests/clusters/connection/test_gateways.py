"""One client per process, cluster and credential."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.connection.models import ClusterCredential
from clusters.connection.services import gateways
from clusters.connection.services.gateways import encrypt_connection, forget_gateways, gateway_for
from clusters.inventory.models import Cluster
from clusters.ports.connection import Connection
from clusters.ports.gateway import AddressRefused, CredentialUnreadable
from tests.factories.clusters import build_cluster
from tests.support.listeners import ApiServer, api_server

pytestmark = [pytest.mark.django_db, pytest.mark.enable_socket]


@pytest.fixture(autouse=True)
def _none_of_other_tests() -> Iterator[None]:
    forget_gateways()
    yield
    forget_gateways()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        yield server


def with_credential(cluster: Cluster, api: ApiServer, token: str = "canary") -> Cluster:
    row = ClusterCredential.objects.filter(cluster=cluster).first() or ClusterCredential(cluster=cluster)
    encrypt_connection(row, Connection(api.url, ca=api.authority.pem, token=token), expires_at=None)
    row.version = (row.version or 0) + 1
    row.save()
    return cluster


def test_the_same_cluster_has_the_same_client(api: ApiServer) -> None:
    cluster = with_credential(build_cluster(backend="kubernetes"), api)
    first = gateway_for(cluster)
    assert gateway_for(Cluster.objects.get(pk=cluster.pk)) is first
    assert gateway_for(with_credential(build_cluster(name="other", backend="kubernetes"), api)) is not first


def test_a_new_credential_has_a_client_of_its_own(api: ApiServer) -> None:
    cluster = with_credential(build_cluster(backend="kubernetes"), api)
    first = gateway_for(cluster)
    first.identity()
    with_credential(cluster, api, token="canary-2")
    second = gateway_for(cluster)
    assert second is not first
    second.identity()
    assert [each.headers["Authorization"] for each in api.requests] == ["Bearer canary"] * 2 + ["Bearer canary-2"] * 2


def test_a_child_process_has_none_of_its_parents(api: ApiServer) -> None:
    gateway_for(with_credential(build_cluster(backend="kubernetes"), api))
    child = os.fork()
    if child == 0:
        os._exit(len(gateways._gateways))
    assert os.waitpid(child, 0)[1] == 0
    assert len(gateways._gateways) == 1


def test_a_name_is_resolved_again_after_a_while(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = with_credential(build_cluster(backend="kubernetes"), api)
    first = gateway_for(cluster)
    monkeypatch.setattr(gateways, "RESOLVED_FOR", 0.0)
    assert gateway_for(cluster) is first


def test_without_a_credential_there_is_none() -> None:
    with pytest.raises(CredentialUnreadable):
        gateway_for(build_cluster(backend="kubernetes"))


def test_an_address_out_of_bounds_is_not_reached(api: ApiServer, settings: object) -> None:
    settings.RUNG_CLUSTER_ADDRESSES = []  # type: ignore[attr-defined]  # pytest-django's settings
    with pytest.raises(AddressRefused):
        gateway_for(with_credential(build_cluster(backend="kubernetes"), api))
    assert api.requests == []
