"""A cluster connected, reached another way, measured and switched over REST: secrets go in and never come out."""

from typing import Any

import pytest
from django.db import connection

from clusters.backends.memory import MemoryGateway
from clusters.connection.models import ClusterCredential, MetricsSource
from clusters.connection.services import registration
from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.connection import Connection
from clusters.ports.gateway import ClusterUnreachable
from clusters.sync.services import scheduler_switch
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tests.clusters.connection.answering import SERVER, Answering, entered
from tests.clusters.connection.kubeconfigs import TOKEN, ca, kubeconfig, text
from tests.support.rest_clients import Robot

pytestmark = pytest.mark.django_db
PARTS = {"server": SERVER, "ca": ca().pem, "token": TOKEN}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Whatever is connected answers without a network."""
    answering = Answering()
    for service in (registration.register_cluster, registration.change_connection):
        monkeypatch.setitem(service.__kwdefaults__, "opens", answering)
    return answering


@pytest.fixture
def real(answers: Answering) -> Cluster:
    """A cluster that was connected."""
    cluster, _ = registration.register_cluster(name="real", flavour="kube", source=entered(), actor=SYSTEM)
    answers.opened.clear()
    return cluster


@pytest.mark.parametrize("reached", [PARTS, {"kubeconfig": text(kubeconfig()).decode()}], ids=["parts", "kubeconfig"])
def test_a_cluster_is_connected_and_its_secret_is_told_nowhere(
    robot: Robot, answers: Answering, reached: dict[str, Any]
) -> None:
    answer = robot.send("POST", "v1/clusters", {"name": "real", "flavour": "kube", **reached})
    assert answer.status_code == 201, answer.content
    assert (answer.json()["name"], answer.json()["flavour"], answer.json()["simulated"]) == ("real", "kube", False)
    assert answers.opened[0].token == TOKEN
    shown = robot.get(f"v1/clusters/{answer.json()['uuid']}/connection")
    assert (shown.json()["server"], shown.json()["kind"]) == (SERVER, "token")
    kept = str(list(AuditRecord.objects.values())) + answer.content.decode() + shown.content.decode()
    assert TOKEN not in kept


def test_lacking_rights_it_starts_paused(robot: Robot, answers: Answering) -> None:
    answers.forbidden = frozenset({("nodes", "watch")})
    answer = robot.send("POST", "v1/clusters", {"name": "real", **PARTS})
    assert (answer.status_code, answer.json()["status"]["state"]) == (201, "MissingPrerequisites")
    assert Cluster.objects.get(name="real").state == ClusterState.PAUSED


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        ({}, "/kubeconfig", "Send a kubeconfig, or server, ca and token"),
        ({**PARTS, "kubeconfig": "x"}, "/server", "not both"),
        ({**PARTS, "server": "http://x"}, "/server", "https://host:port"),
        ({**PARTS, "ca": "nonsense"}, "/ca", "PEM"),
        ({**PARTS, "token": ""}, "/token", ""),
        ({**PARTS, "tlsServerName": "a b"}, "/tlsServerName", "plain host name"),
        ({**PARTS, "insecure": True}, "/insecure", "RUNG_ALLOW_INSECURE_CLUSTERS"),
        ({**PARTS, "flavour": "slurm"}, "/flavour", "is not a scheduler"),
        ({"kubeconfig": "{"}, "/kubeconfig", ""),
        ({"kubeconfig": text(kubeconfig(cluster={"server": "http://x"})).decode()}, "/kubeconfig", "/server: "),
        ({**PARTS, "tls_server_name": "x"}, "/tls_server_name", "Unknown field"),
    ],
)
def test_what_is_wrong_is_refused_at_its_field_and_nothing_is_kept(
    robot: Robot, answers: Answering, body: dict[str, Any], pointer: str, said: str
) -> None:
    answer = robot.send("POST", "v1/clusters", {"name": "real", **body})
    problem = answer.json().get("errors", [{}])[0]
    assert (answer.status_code // 100, problem.get("pointer")) == (4, pointer), answer.content
    assert said in problem["message"]
    assert not Cluster.objects.filter(name="real").exists()
    assert TOKEN not in answer.content.decode()


def test_a_dry_run_asks_the_cluster_and_keeps_nothing(robot: Robot, answers: Answering) -> None:
    answer = robot.send("POST", "v1/clusters?dryRun=true", {"name": "real", **PARTS})
    assert (answer.status_code, answer.json()["name"]) == (200, "real")
    assert len(answers.opened) == 1
    assert not Cluster.objects.filter(name="real").exists()


def test_a_cluster_is_connected_once(robot: Robot, real: Cluster) -> None:
    answer = robot.send("POST", "v1/clusters", {"name": "again", **PARTS})
    assert (answer.status_code, answer.json()["details"]) == (409, "cluster_known")
    assert not Cluster.objects.filter(name="again").exists()
    assert answer.json()["message"] == f"This cluster is already connected as {real.name}."


def test_the_same_key_connects_it_once(robot: Robot, answers: Answering) -> None:
    body = {"name": "real", **PARTS}
    first, second = (robot.send("POST", "v1/clusters", body, **{"Idempotency-Key": "connect-1"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert len(answers.opened) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [None, ClusterUnreachable("It is silent.")])
@pytest.mark.parametrize("query", ["", "?dryRun=true"])
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "connect-2"}])
def test_no_transaction_is_open_while_a_cluster_is_asked(
    robot: Robot,
    answers: Answering,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    headers: dict[str, str],
    error: ClusterUnreachable | None,
) -> None:
    """A silent cluster would hold it for as long as it is waited for; on SQLite nobody else could write."""
    open_then: list[bool] = []
    answer = Answering.__call__

    def noting(self: Answering, requested: Connection) -> Answering:
        open_then.append(connection.in_atomic_block)
        return answer(self, requested)

    monkeypatch.setattr(Answering, "__call__", noting)
    answers.error = error
    said = robot.send("POST", f"v1/clusters{query}", {"name": "real", **PARTS}, **headers)
    assert open_then == [False]
    assert said.status_code == (422 if error else 200 if query else 201)
    denied = AuditRecord.objects.filter(action="cluster.connect", result="Denied").count()
    assert (denied, Cluster.objects.filter(name="real").count()) == (1 if error else 0, 0 if error or query else 1)


def test_another_credential_is_taken_and_without_one_the_stored_stays(
    robot: Robot, real: Cluster, answers: Answering
) -> None:
    path = f"v1/clusters/{real.pk}/connection"
    assert robot.send("PUT", path, {**PARTS, "token": "other-token"}).status_code == 200
    assert robot.send("PUT", path, {"server": SERVER, "ca": ca().pem}).status_code == 200
    assert [each.token for each in answers.opened] == ["other-token", "other-token"]
    moved = robot.send("PUT", path, {"server": "https://elsewhere.example.org", "ca": ca().pem})
    assert (moved.status_code, moved.json()["errors"][0]["pointer"]) == (422, "/token")
    assert ClusterCredential.objects.get().server == SERVER


def test_another_cluster_is_taken_over_only_when_that_is_said(robot: Robot, real: Cluster, answers: Answering) -> None:
    answers.uid = "uid-2"
    path = f"v1/clusters/{real.pk}/connection"
    assert robot.send("PUT", path, PARTS).json()["details"] == "another_cluster"
    assert robot.send("PUT", path, {**PARTS, "adopt": True}).status_code == 200
    real.refresh_from_db()
    assert real.uid == "uid-2"


def test_a_simulated_cluster_has_no_connection_and_says_so(robot: Robot, cluster: Cluster) -> None:
    for answer in (
        robot.get(f"v1/clusters/{cluster.pk}/connection"),
        robot.send("PUT", f"v1/clusters/{cluster.pk}/connection", PARTS),
    ):
        assert (answer.status_code, answer.json()["details"]) == (409, "no_connection")
    path = f"v1/clusters/{cluster.pk}/metrics-source"
    assert robot.get(path).status_code == 404
    refused = robot.send("PUT", path, {"server": "https://10.0.0.9"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "simulated")
    assert robot.send("DELETE", path).status_code == 204


@pytest.mark.enable_socket
def test_a_prometheus_that_does_not_answer_is_not_kept(robot: Robot, real: Cluster) -> None:
    path = f"v1/clusters/{real.pk}/metrics-source"
    for wrong, pointer in (({"metric": "gpu util"}, "/metric"), ({}, "/server"), ({"ca": "nonsense"}, "/ca")):
        answer = robot.send("PUT", path, {"server": "https://127.0.0.1:1", "token": TOKEN, **wrong})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
        assert TOKEN not in answer.content.decode()
    assert not MetricsSource.objects.exists()


def test_a_scheduler_is_planned_and_then_switched_as_planned(robot: Robot, cluster: Cluster) -> None:
    path = f"v1/clusters/{cluster.pk}"
    plan = robot.send("POST", f"{path}/scheduler-plans", {"flavour": "kueue"}).json()
    assert (plan["before"], plan["after"], plan["possible"]) == ("kai", "kueue", True)
    assert any(kind["kind"] == "ResourceFlavor.kueue.x-k8s.io" for kind in plan["kinds"])
    assert {"code", "before", "after", "explanation"} <= set(plan["guarantees"][0])
    assert Cluster.objects.get().flavour == "kai"
    change = {"flavour": "kueue", "generation": plan["generation"]}
    assert robot.send("PUT", f"{path}/scheduler?dryRun=true", change).status_code == 200
    assert Cluster.objects.get().flavour == "kai"
    assert robot.send("PUT", f"{path}/scheduler", change).status_code == 204
    assert Cluster.objects.get().flavour == "kueue"
    assert AuditRecord.objects.get(action="cluster.switch").actor_name == "platform-robot"


def test_a_plan_that_is_no_longer_true_is_409(robot: Robot, cluster: Cluster) -> None:
    path = f"v1/clusters/{cluster.pk}"
    plan = robot.send("POST", f"{path}/scheduler-plans", {"flavour": "kube"}).json()
    mark_dirty(cluster)
    answer = robot.send("PUT", f"{path}/scheduler", {"flavour": "kube", "generation": plan["generation"]})
    assert (answer.status_code, answer.json()["details"]) == (409, "plan_outdated")
    assert Cluster.objects.get().flavour == "kai"


def test_what_the_cluster_does_not_serve_is_in_the_plan_and_forbids_the_switch(
    robot: Robot, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryGateway, "serves", lambda _self, kind: "volcano" not in kind.group)
    path = f"v1/clusters/{cluster.pk}"
    plan = robot.send("POST", f"{path}/scheduler-plans", {"flavour": "volcano"}).json()
    assert (plan["possible"], "does not serve Queue" in plan["hindered"]) == (False, True)
    answer = robot.send("PUT", f"{path}/scheduler", {"flavour": "volcano", "generation": plan["generation"]})
    assert (answer.status_code, answer.json()["details"]) == (409, "switch_hindered")


@pytest.mark.parametrize("flavour", ["slurm", "kai"])
def test_no_scheduler_or_the_same_is_refused_at_its_field(robot: Robot, cluster: Cluster, flavour: str) -> None:
    path = f"v1/clusters/{cluster.pk}"
    for answer in (
        robot.send("POST", f"{path}/scheduler-plans", {"flavour": flavour}),
        robot.send("PUT", f"{path}/scheduler", {"flavour": flavour, "generation": 1}),
    ):
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/flavour")


def test_a_cluster_that_does_not_answer_cannot_be_planned_for(
    robot: Robot, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ClusterUnreachable("It does not answer.")

    monkeypatch.setattr(scheduler_switch, "hindrances", unreachable)
    path = f"v1/clusters/{cluster.pk}"
    for answer in (
        robot.send("POST", f"{path}/scheduler-plans", {"flavour": "kube"}),
        robot.send("PUT", f"{path}/scheduler", {"flavour": "kube", "generation": 1}),
    ):
        assert answer.status_code == 409
        assert "It does not answer." in answer.json()["message"]
