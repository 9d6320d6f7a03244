"""What an admin asks of a cluster over REST: the same services, refusals and records as on its pages."""

from typing import Any

import pytest
from django.utils import timezone

from clusters.connection.services import registration
from clusters.inventory.models import Cluster, ClusterState
from clusters.sync.models import Adoption, Drift, DriftKind, SyncOutcome, SyncRun
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.clusters.connection.answering import Answering, entered
from tests.factories.clusters import ClusterFactory
from tests.support.rest_clients import Robot

pytestmark = pytest.mark.django_db


def path(cluster: Cluster, what: str) -> str:
    return f"v1/clusters/{cluster.pk}/{what}"


def drift(cluster: Cluster, category: DriftKind = DriftKind.CHANGED, **about: Any) -> Drift:
    told = {"kind": "ResourceQuota", "namespace": "ns", "name": "rung-limit", "owner": "project.1", **about}
    return Drift.objects.create(cluster=cluster, category=category, seen_at=timezone.now(), **told)


def test_a_sync_is_asked_for_and_recorded(robot: Robot, cluster: Cluster) -> None:
    Cluster.objects.update(sync_due_at=None)
    answer = robot.send("POST", path(cluster, "syncs"))
    assert (answer.status_code, answer.json()["code"]) == (202, 202)
    cluster.refresh_from_db()
    assert cluster.sync_due_at is not None
    assert AuditRecord.objects.filter(action="cluster.reconcile", actor_name="platform-robot").exists()


@pytest.mark.parametrize("what", ["syncs", "sync-dry-runs"])
def test_a_paused_cluster_is_409_with_its_reason(robot: Robot, cluster: Cluster, what: str) -> None:
    Cluster.objects.update(state=ClusterState.PAUSED, paused_reason="A different cluster responds at this address.")
    answer = robot.send("POST", path(cluster, what))
    assert answer.status_code == 409
    assert "A different cluster responds at this address." in answer.json()["message"]


def test_syncs_are_listed_newest_first_with_what_happened_to_each_object(robot: Robot, cluster: Cluster) -> None:
    now = timezone.now()
    for number in range(3):
        run = SyncRun.objects.create(
            cluster=cluster, state="partial", scope="project.1", started_at=now, heartbeat_at=now, listed=number
        )
        SyncOutcome.objects.create(run=run, action="update", kind="Queue", name="fine", ok=True)
        SyncOutcome.objects.create(run=run, action="create", kind="Queue", name="bad", ok=False, code="invalid")
    page = robot.get(f"{path(cluster, 'syncs')}?limit=2").json()
    assert [each["listed"] for each in page["syncs"]] == [2, 1]
    assert [(each["name"], each["ok"]) for each in page["syncs"][0]["objects"]] == [("bad", False), ("fine", True)]
    assert (page["syncs"][0]["owners"], page["next"]) == (["project.1"], 2)


def test_what_differs_is_listed_and_repaired_by_its_name(robot: Robot, cluster: Cluster) -> None:
    drift(cluster)
    (found,) = robot.get(path(cluster, "differences")).json()["differences"]
    named = {key: found[key] for key in ("kind", "namespace", "name")}
    assert robot.send("POST", path(cluster, "differences/repair"), named).status_code == 202
    assert cluster.touches.filter(owner="project.1").exists()
    assert robot.send("POST", path(cluster, "differences/repair"), {**named, "name": "other"}).status_code == 404


def test_a_foreign_object_is_taken_over_only_as_it_was_shown(robot: Robot, cluster: Cluster) -> None:
    row = drift(cluster, DriftKind.CONFLICT, object_uid="uid-1")
    named = {"kind": row.kind, "namespace": row.namespace, "name": row.name}
    assert robot.send("POST", path(cluster, "differences/repair"), named).json()["details"] == "not_ours"
    assert robot.send("POST", path(cluster, "differences/adopt"), {**named, "uid": "uid-2"}).status_code == 409
    assert not Adoption.objects.exists()
    assert robot.send("POST", path(cluster, "differences/adopt"), {**named, "uid": "uid-1"}).status_code == 202
    assert Adoption.objects.get().uid == "uid-1"


def test_a_cluster_is_paused_with_a_reason_and_worked_with_again(robot: Robot, cluster: Cluster) -> None:
    assert robot.send("POST", path(cluster, "pause"), {"reason": "New racks."}).status_code == 204
    cluster.refresh_from_db()
    assert (cluster.state, cluster.paused_reason) == (ClusterState.PAUSED, "New racks.")
    assert robot.send("POST", path(cluster, "unpause")).status_code == 204
    cluster.refresh_from_db()
    assert (cluster.state, cluster.paused_reason) == (ClusterState.ACTIVE, "")


def test_pod_security_is_one_of_two_words(robot: Robot, cluster: Cluster) -> None:
    assert robot.send("PUT", path(cluster, "pod-security"), {"podSecurity": "baseline"}).status_code == 204
    refused = robot.send("PUT", path(cluster, "pod-security"), {"podSecurity": "privileged"})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/podSecurity"
    cluster.refresh_from_db()
    assert cluster.pod_security == "baseline"


def test_deferring_preemptors_is_switched_once_and_shown(robot: Robot, cluster: Cluster) -> None:
    for _ in range(2):
        assert robot.send("PUT", path(cluster, "defer-preemptors"), {"deferPreemptors": True}).status_code == 204
    assert robot.get(f"v1/clusters/{cluster.pk}").json()["deferPreemptors"] is True
    assert AuditRecord.objects.filter(action="cluster.defer_preemptors").count() == 1
    assert robot.send("PUT", path(cluster, "defer-preemptors"), {}).status_code in {400, 422}


def test_a_dry_run_of_an_action_changes_nothing(robot: Robot, cluster: Cluster) -> None:
    records = AuditRecord.objects.count()
    for what in ("syncs", "pause"):
        assert robot.send("POST", f"{path(cluster, what)}?dryRun=true").status_code == 200
    cluster.refresh_from_db()
    assert (cluster.state, AuditRecord.objects.count()) == (ClusterState.ACTIVE, records)


def test_members_look_and_ask_for_nothing(member: Robot, cluster: Cluster, llm_team: Project) -> None:
    assert member.get(path(cluster, "syncs")).status_code == 200
    for what in ("syncs", "sync-dry-runs", "pause", "unpause", "connection-test"):
        assert member.send("POST", path(cluster, what)).status_code == 403


def test_a_connection_is_tested_without_a_word_of_its_credential(
    robot: Robot, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = Answering(forbidden=frozenset({("nodes", "watch")}))
    monkeypatch.setitem(registration.try_stored.__kwdefaults__, "opens", answering)
    real, _report = registration.register_cluster(
        name="real", flavour="kube", source=entered(), actor=SYSTEM, opens=Answering()
    )
    told = robot.send("POST", path(real, "connection-test"))
    assert told.status_code == 200
    assert (told.json()["works"], told.json()["missing"][0]["verbs"]) == (False, ["watch"])
    assert "token" not in told.content.decode().lower()
    simulated = robot.send("POST", path(cluster, "connection-test"))
    assert (simulated.status_code, simulated.json()["details"]) == (409, "no_connection")


class TestTheListOfClusters:
    def names(self, robot: Robot, query: str = "") -> list[str]:
        return [each["name"] for each in robot.get(f"v1/clusters{query}").json()]

    def test_leaves_out_a_cluster_that_is_being_removed_unless_asked_for(self, robot: Robot, cluster: Cluster) -> None:
        leaving = ClusterFactory(name="leaving")
        other = ClusterFactory(name="paused", state=ClusterState.PAUSED, paused_reason="The network is rebuilt.")
        assert robot.send("DELETE", f"v1/clusters/{leaving.pk}").status_code == 202
        assert self.names(robot) == sorted([cluster.name, other.name])
        found = {each["name"]: each for each in robot.get("v1/clusters?includeRequestedForDelete=true").json()}
        requested = SyncRun.objects.get(cluster=leaving).started_at
        assert found["leaving"]["deleteRequestedAt"] == requested.isoformat().replace("+00:00", "Z")
        assert found["paused"]["deleteRequestedAt"] is None
        assert robot.get(f"v1/clusters/{leaving.pk}").json()["deleteRequestedAt"]

    def test_is_whole_or_the_part_that_is_asked_for(self, robot: Robot, cluster: Cluster) -> None:
        every = sorted([cluster.name, *(ClusterFactory(name=f"more-{number}").name for number in range(60))])
        assert self.names(robot) == every
        assert self.names(robot, "?limit=2") == every[:2]
        assert self.names(robot, "?offset=3&limit=2") == every[3:5]
        assert self.names(robot, "?offset=59") == every[59:]

    @pytest.mark.parametrize(("query", "pointer"), [("?limit=0", "/limit"), ("?offset=-1", "/offset")])
    def test_refuses_a_part_that_is_none(self, robot: Robot, cluster: Cluster, query: str, pointer: str) -> None:
        answer = robot.get(f"v1/clusters{query}")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
