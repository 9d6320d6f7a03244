"""Ready means that work is done, not that processes exist."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.inventory.models import Cluster
from portal.kit.messaging import heartbeats
from portal.kit.models import Heartbeat
from tenants.access.models import User
from tests.factories.clusters import ClusterFactory

EVERYBODY = [
    "beat",
    "observer",
    "worker:sync",
    "worker:workloads",
    "worker:notify",
    "worker:maintenance",
    "worker:periodic",
]

pytestmark = pytest.mark.django_db


TOKEN = "only-for-these-tests"


@pytest.fixture
def client(settings: Settings) -> Client:
    """Somebody who may read the names of clusters."""
    settings.RUNG_METRICS_TOKEN = TOKEN
    return Client(headers={"Authorization": f"Bearer {TOKEN}"})


def missing(client: Client) -> list[str]:
    answer = client.get("/readyz")
    found: list[str] = answer.json()["missing"]
    assert answer.status_code == (503 if found else 200)
    return found


@pytest.fixture
def at_work() -> None:
    User.objects.create_superuser("admin")
    for name in EVERYBODY:
        heartbeats.beat(name)


def test_a_process_that_answers_is_alive(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "up"}


def test_an_empty_installation_names_everything_it_waits_for(client: Client) -> None:
    assert sorted(missing(client)) == sorted(EVERYBODY)


@pytest.mark.usefixtures("at_work")
def test_everybody_at_work_is_ready(client: Client) -> None:
    assert missing(client) == []


@pytest.mark.usefixtures("at_work")
def test_an_old_sign_of_life_is_none(client: Client) -> None:
    Heartbeat.objects.filter(name="beat").update(at=timezone.now() - timedelta(seconds=31))
    assert missing(client) == ["beat"]


@pytest.mark.usefixtures("at_work")
def test_a_cluster_that_was_never_synced_keeps_it_waiting(client: Client) -> None:
    ClusterFactory(name="new", synced_at=None)
    assert missing(client) == ["cluster:new"]
    Cluster.objects.update(synced_at=timezone.now())
    assert missing(client) == []


@pytest.mark.usefixtures("at_work")
def test_a_cluster_that_cannot_be_reached_degrades_the_portal_and_does_not_take_it_away(client: Client) -> None:
    ClusterFactory(name="good", synced_at=timezone.now(), observed_at=timezone.now())
    ClusterFactory(name="new", synced_at=None, failures=1)
    ClusterFactory(name="old", synced_at=timezone.now(), observed_at=timezone.now() - timedelta(seconds=90), failures=3)
    ClusterFactory(name="shut", synced_at=timezone.now(), observed_at=timezone.now(), breaker_reason="Unauthorized")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json()["missing"]) == (200, "degraded", [])
    assert answer.json()["degraded"] == {
        "cluster:new": "the last 1 sync runs failed",
        "cluster:old": "the last 3 sync runs failed; not observed for 90 s",
        "cluster:shut": "does not accept work: Unauthorized",
    }
    assert client.get("/login/").status_code == 200
    Cluster.objects.update(breaker_reason="", failures=0, synced_at=timezone.now(), observed_at=timezone.now())
    assert client.get("/readyz").json() == {"status": "ready", "missing": [], "degraded": {}}


@pytest.mark.usefixtures("at_work")
def test_the_same_is_told_in_numbers(client: Client) -> None:
    ClusterFactory(name="good", synced_at=timezone.now(), observed_at=timezone.now())
    ClusterFactory(name="bad", synced_at=None, failures=4, breaker_reason="Unauthorized")
    ClusterFactory(name="away", state="paused", failures=9)
    said = dict(line.rsplit(" ", 1) for line in client.get("/metrics").content.decode().splitlines() if line[0] != "#")
    assert said['rung_cluster_ok{cluster="good"}'] == "1"
    assert said['rung_cluster_ok{cluster="bad"}'] == "0"
    assert said['rung_cluster_failed_runs{cluster="bad"}'] == "4"
    assert said['rung_cluster_takes_work{cluster="bad"}'] == "0"
    assert said['rung_cluster_takes_work{cluster="good"}'] == "1"
    assert said["rung_workloads_failed_to_apply"] == "0"
    assert 0 <= float(said['rung_cluster_observation_age_seconds{cluster="good"}']) < 30
    assert 0 <= float(said['rung_process_silence_seconds{process="beat"}']) < 30
    assert (said["rung_database_up"], said["rung_admin_exists"]) == ("1", "1")
    assert not [name for name in said if "away" in name]
    assert 'rung_cluster_observation_age_seconds{cluster="bad"}' not in said


@pytest.mark.usefixtures("at_work", "client")
@pytest.mark.parametrize("sent", [None, "Bearer wrong", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer \u00e9"])
def test_without_the_token_no_cluster_is_named(sent: str | None) -> None:
    anybody = Client(headers={"Authorization": sent} if sent else {})
    ClusterFactory(name="secret-lab", synced_at=None, failures=2, breaker_reason="Unauthorized at 10.1.2.3")
    degraded = anybody.get("/readyz")
    assert (degraded.status_code, degraded.json()["degraded"]) == (200, {"clusters": "1 in trouble"})
    ClusterFactory(name="secret-lab-2", synced_at=None)
    waiting = anybody.get("/readyz")
    assert (waiting.status_code, waiting.json()["missing"]) == (503, ["clusters"])
    metrics = anybody.get("/metrics")
    assert "\nrung_workloads_failed_to_apply 0\n" in metrics.content.decode()
    for answer in (degraded, waiting, metrics):
        assert b"secret-lab" not in answer.content
        assert b"10.1.2.3" not in answer.content


@pytest.mark.usefixtures("at_work")
def test_an_installation_without_a_token_names_clusters_to_nobody(settings: Settings) -> None:
    settings.RUNG_METRICS_TOKEN = ""
    ClusterFactory(name="secret-lab", synced_at=None)
    for sent in ("Bearer ", "Bearer", ""):
        assert missing(Client(headers={"Authorization": sent})) == ["clusters"]


@pytest.mark.usefixtures("at_work")
def test_a_paused_cluster_is_not_waited_for(client: Client) -> None:
    ClusterFactory(name="away", synced_at=None, state="paused")
    assert missing(client) == []


@pytest.mark.usefixtures("at_work")
def test_a_portal_without_an_admin_serves_and_says_how_to_make_one(client: Client) -> None:
    User.objects.update(is_active=False)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json()["missing"]) == (200, "degraded", [])
    assert "manage.py createsuperuser" in answer.json()["degraded"]["admin"]
    assert "\nrung_admin_exists 0\n" in client.get("/metrics").content.decode()


def test_health_reads_no_session(client: Client, django_assert_num_queries: Any) -> None:
    client.force_login(User.objects.create_user("alice"))
    with django_assert_num_queries(0):
        assert client.get("/healthz").status_code == 200


def test_containers_ask_by_exit_code() -> None:
    with pytest.raises(CommandError, match="beat"):
        call_command("fresh", "beat")
    heartbeats.beat("beat")
    call_command("fresh", "beat")
