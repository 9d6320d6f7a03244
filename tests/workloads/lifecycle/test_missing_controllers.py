"""A kind that the API server takes and no controller answers: named where people look, until one answers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import POD, WORKLOAD_KINDS, kind_of_workload
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.workload_kinds import KINDS
from clusters.watch.models import ClusterEvent
from clusters.watch.rules import sanitize_all
from clusters.watch.services.observations import ObservedChanges, lease_of, store_changes
from clusters.watch.services.watch_buffer import WatchBatch
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory, pytorch_job, spec_of
from tests.workloads.sandbox_lab import fresh
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.snapshot import snapshot_of
from workloads.forecast.selectors.waiting import queue_position, why_waiting
from workloads.lifecycle.selectors.activity import alerts_for
from workloads.lifecycle.services.observe import check_controllers
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db

TRAINING = next(kind for kind in WORKLOAD_KINDS if kind.key == "PyTorchJob.kubeflow.org")
JOB = next(kind for kind in WORKLOAD_KINDS if kind.key == "Job.batch")
CREATED = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
SOON, LATE = CREATED + timedelta(seconds=50), CREATED + timedelta(seconds=70)
ANSWER = {"conditions": [{"type": "Created", "status": "True"}]}


class Handed:
    """A training that its cluster took."""

    def __init__(self, project: Project, kind: Kind = TRAINING) -> None:
        self.cluster, self.project, self.kind, self.version = project.cluster, project, kind, 0
        self.workload: Workload = WorkloadFactory(
            project=project,
            phase="Pending",
            phase_message="Queued in the cluster.",
            generation=1,
            applied_generation=1,
        )

    def sees(self, kind: Kind, **parts: Any) -> None:
        """One look that found this of it."""
        self.version += 1
        labels = {"app.kubernetes.io/managed-by": "rung", "rung.dev/owner": f"workload.{self.workload.pk}"}
        metadata = {"name": "train", "namespace": self.project.namespace, "labels": labels}
        metadata |= {"uid": f"{kind.kind}-{self.workload.pk}"[:64], "resourceVersion": str(self.version)}
        found: Manifest = {"metadata": {**metadata, "creationTimestamp": "2026-11-21T06:00:00Z"}, **parts}
        versions = lease_of(self.cluster).versions
        version = str(int(versions.get(kind.key) or 0) + 1)
        found["metadata"]["resourceVersion"] = version
        store_changes(
            self.cluster, ObservedChanges(versions, {kind.key: WatchBatch(kind, version, sanitize_all(kind, [found]))})
        )

    def check(self, now: datetime) -> str:
        """Its reason after the cluster was observed and checked then."""
        Cluster.objects.filter(pk=self.cluster.pk).update(observed_at=now)
        check_controllers(now)
        self.cluster.refresh_from_db()
        return str(fresh(self.workload).phase_reason)


@pytest.fixture
def handed(llm_team: Project) -> Handed:
    found = Handed(llm_team)
    found.sees(TRAINING)
    return found


def ask(project: Project) -> Forecast:
    project = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    spec = spec_of(pytorch_job("asked", gpus=1), namespace=project.namespace)
    return forecast(spec=spec, project=project, actor=SYSTEM)


def test_what_nothing_answers_within_a_minute_says_so_everywhere(handed: Handed, client: Client, admin: User) -> None:
    assert handed.check(SOON) == ""
    assert handed.check(LATE) == "NoController"
    said = f"No controller for PyTorchJob seems to run in {handed.cluster.name}"
    assert said in fresh(handed.workload).phase_message
    headline = why_waiting(fresh(handed.workload))
    assert headline is not None
    assert (headline.reason, said in headline.sentence) == ("NoController", True)
    assert queue_position(fresh(handed.workload)) is None
    (need,) = alerts_for(Workload.objects.all())
    assert (need.why, said in need.sentence) == ("unanswered", True)
    answer = ask(handed.project)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NoController")
    assert answer.sentence.startswith(f"Waits: no controller for PyTorchJob seems to run in {handed.cluster.name},")
    client.force_login(admin)
    page = " ".join(client.get(f"/clusters/{handed.cluster.name}/").content.decode().split())
    assert "No controller for PyTorchJob seems to run here" in page


@pytest.mark.parametrize("by", ["a status", "a pod"])
def test_an_answer_takes_it_back(handed: Handed, by: str) -> None:
    handed.check(LATE)
    if by == "a status":
        handed.sees(TRAINING, status=ANSWER)
        assert handed.check(LATE) == "HandedOver"
    else:
        waiting = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]
        handed.sees(POD, status={"phase": "Pending", "conditions": waiting})
        assert handed.check(LATE) == "Unschedulable"
    assert handed.cluster.silent_kinds == {}
    assert ask(handed.project).reason != "NoController"


def test_it_is_remembered_after_the_workload_has_gone(handed: Handed) -> None:
    """Else the next one would be promised a start again."""
    handed.check(LATE)
    Workload.objects.update(deleted_at=timezone.now(), phase="Deleting")
    handed.check(LATE)
    assert list(handed.cluster.silent_kinds) == ["PyTorchJob.kubeflow.org"]


def test_what_was_answered_before_it_waits_for_room_is_left_alone(handed: Handed) -> None:
    handed.sees(TRAINING, status=ANSWER)
    handed.sees(TRAINING)
    assert (handed.check(LATE), handed.cluster.silent_kinds) == ("", {})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"phase_reason": "ExceededQuota"}, id="its pods are rejected"),
        pytest.param({"desired_phase": "Stopped"}, id="it is to stop"),
        pytest.param({"phase": "Running"}, id="it runs"),
    ],
)
def test_who_has_another_reason_is_not_named(handed: Handed, changes: dict[str, str]) -> None:
    Workload.objects.filter(pk=handed.workload.pk).update(**changes)
    assert handed.check(LATE) == changes.get("phase_reason", "")
    assert handed.cluster.silent_kinds == {}


@pytest.mark.parametrize(("last", "named"), [("Queued", False), ("Admitted", True)])
def test_what_its_scheduler_holds_in_a_queue_is_named_only_once_it_was_let_go(
    handed: Handed, last: str, named: bool
) -> None:
    """What kept it waiting in the queue is still its reason then."""
    Workload.objects.filter(pk=handed.workload.pk).update(phase_reason="WaitingForQuota", phase_message="full")
    uid = f"PyTorchJob-{handed.workload.pk}"
    ClusterEvent.objects.create(
        cluster=handed.cluster, uid="turn", owner_id=str(handed.workload.pk), object_uid=uid, reason=last, at=SOON
    )
    assert (handed.check(LATE) == "NoController") is named


def test_kinds_that_every_cluster_has_a_controller_for_are_not_named(llm_team: Project) -> None:
    handed = Handed(llm_team, JOB)
    handed.sees(JOB)
    assert handed.check(LATE) == ""


@pytest.mark.parametrize(
    "kind", [each for each in KINDS if not each.core], ids=lambda kind: f"{kind.group} {kind.kind}"
)
def test_every_kind_that_needs_an_operator_is_named_where_none_answers(llm_team: Project, kind: WorkloadKind) -> None:
    """Whatever manifest names it: a kind that is in none of these lists is refused before it reaches a cluster."""
    handed = Handed(llm_team, kind_of_workload(kind))
    handed.sees(handed.kind)
    assert handed.check(LATE) == "NoController"
    assert list(handed.cluster.silent_kinds) == [handed.kind.key]


def test_nothing_is_concluded_of_a_cluster_that_nobody_observes(handed: Handed) -> None:
    Cluster.objects.update(observed_at=LATE - timedelta(minutes=5))
    check_controllers(LATE)
    assert fresh(handed.workload).phase_reason == ""


def test_what_never_gets_pods_takes_no_room_in_a_forecast(handed: Handed) -> None:
    def groups() -> set[str]:
        handed.cluster.refresh_from_db()
        return {workload_of(each.name) for each in snapshot_of(handed.cluster)[0].groups}

    assert str(handed.workload.pk) in groups()
    handed.check(LATE)
    assert str(handed.workload.pk) not in groups()
