"""The page where an admin names a cluster's Prometheus."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from clusters.connection.models import MetricsSource
from clusters.inventory.models import Cluster
from tenants.access.models import User
from tests.support.listeners import api_server

PAGE = "/clusters/lab/gpu-use/"
Signed = Callable[[User], Client]


@pytest.mark.enable_socket
def test_an_admin_names_it_changes_it_and_removes_it(
    cluster: Cluster, client_of: Signed, admin: User, tmp_path: Path
) -> None:
    Cluster.objects.update(backend="kubernetes")
    client = client_of(admin)
    with api_server(tmp_path) as prometheus:
        prometheus.answers = lambda _: (200, {"data": {"result": []}})
        typed = {"server": prometheus.url, "ca": prometheus.authority.pem, "token": "canary", "metric": "gpu_util"}
        assert client.post(PAGE, typed).status_code == 302
        again = client.post(PAGE, {**typed, "token": "", "metric": "other"})
        assert again.status_code == 302
        assert prometheus.requests[-1].headers["Authorization"] == "Bearer canary"
    page = client.get(PAGE).content.decode()
    assert MetricsSource.objects.get().metric == "other"
    assert prometheus.url in page
    assert "canary" not in page
    assert client.post(f"{PAGE}remove/").status_code == 302
    assert not MetricsSource.objects.exists()


def test_what_does_not_answer_is_told_at_its_field_and_the_token_is_not_shown(
    cluster: Cluster, client_of: Signed, admin: User
) -> None:
    Cluster.objects.update(backend="kubernetes")
    typed = {"server": "http://127.0.0.1:1", "token": "canary", "metric": "gpu_util"}
    answer = client_of(admin).post(PAGE, typed)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "https://host:port" in page
    assert "canary" not in page


def test_a_simulated_cluster_says_so_and_asks_for_nothing(cluster: Cluster, client_of: Signed, admin: User) -> None:
    page = client_of(admin).get(PAGE).content.decode()
    assert "This cluster is simulated" in page
    assert 'name="server"' not in page
    assert PAGE not in client_of(admin).get("/clusters/lab/").content.decode()
    assert client_of(admin).post(PAGE, {"server": "https://10.0.0.9", "metric": "gpu_util"}).status_code == 422


def test_it_is_no_affair_of_members(cluster: Cluster, client_of: Signed, bob: User) -> None:
    assert client_of(bob).get(PAGE).status_code == 403
    assert client_of(bob).post(f"{PAGE}remove/").status_code == 403
