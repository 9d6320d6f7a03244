"""Lists, pods, events and history through Run:ai's own client, read into its own classes."""

from datetime import timedelta

import pytest
from django.utils import timezone
from runai import models
from runai.exceptions import NotFoundException
from runai.runai_client import RunaiClient

from clusters.watch.models import ClusterEvent
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.runapy.conftest import client_of
from workloads.state.models import EventType, Phase, Workload, WorkloadEvent


@pytest.fixture
def running(llm_team: Project) -> Workload:
    """A workload with a pod, an event and a timeline."""
    workload: Workload = WorkloadFactory.create(project=llm_team, name="finetune", phase=Phase.RUNNING)
    pod = ObservedPodFactory.create(workload=workload, name="finetune-0")
    now = timezone.now()
    ClusterEvent.objects.create(
        cluster=llm_team.cluster,
        uid="event-1",
        namespace=llm_team.namespace,
        owner_id=str(workload.pk),
        kind="Pod",
        name=pod.name,
        object_uid=pod.uid,
        reason="Scheduled",
        message="Successfully assigned runai-llm-team/finetune-0 to node-000",
        at=now,
    )
    told = [(EventType.ACTION, "", "Submitted finetune."), (EventType.PHASE, "Running", "")]
    for number, (kind, phase, message) in enumerate(told):
        WorkloadEvent.objects.create(
            workload=workload, at=now + timedelta(seconds=number), type=kind, phase=phase, message=message
        )
    return workload


def test_lists_and_a_workload_are_read_typed(runai: RunaiClient, running: Workload) -> None:
    listed = runai.workloads.workloads.get_workloads(filter_by=["name==finetune"], limit=1).data
    assert [models.Workload.from_dict(row).name for row in listed["workloads"]] == ["finetune"]
    assert runai.workloads.workloads.count_workloads().data == {"count": 1}
    detailed = models.WorkloadDetailed.from_dict(runai.workloads.workloads.get_workload(str(running.pk)).data)
    assert detailed.phase == "Running"


def test_pods_are_read_typed(runai: RunaiClient, running: Workload) -> None:
    for answer in (runai.workloads.pods.get_workload_pods(str(running.pk)), runai.workloads.pods.list_pods()):
        pods = [models.Pod1.from_dict(row) for row in answer.data["pods"]]
        assert [(pod.name, pod.workload_id, pod.k8s_phase) for pod in pods] == [
            ("finetune-0", str(running.pk), "Running")
        ]
        assert pods[0].containers
    assert runai.workloads.pods.list_pods(filter_by=["nodeName==elsewhere"]).data["pods"] == []


def test_events_and_history_are_read_typed(runai: RunaiClient, running: Workload) -> None:
    said = runai.workloads.events.get_workload_events(str(running.pk)).data
    assert [models.Event2.from_dict(row).reason for row in said["events"]] == ["Scheduled"]
    kept = runai.workloads.events.get_workload_history(str(running.pk)).data
    records = [models.HistoryRecord.from_dict(row) for row in kept["records"]]
    assert [record.meta.type for record in records] == ["PhaseUpdate", "Event"]
    assert records[0].spec.phase_update.phase == "Running"
    assert records[1].spec.event.message == "Submitted finetune."


def test_what_is_not_yours_is_not_there(live_server: object, running: Workload, vision_team: Project) -> None:
    stranger = client_of(live_server, "stranger", Role.MEMBER, project=vision_team)
    assert stranger.workloads.pods.list_pods().data["pods"] == []
    for ask in (
        stranger.workloads.pods.get_workload_pods,
        stranger.workloads.events.get_workload_events,
        stranger.workloads.events.get_workload_history,
    ):
        with pytest.raises(NotFoundException):
            ask(str(running.pk))
