"""What people ask for over REST while workers and observers move the row, on a real PostgreSQL: it is never refused."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from portal.audit.models import AuditRecord, Result
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import subjects
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Project
from tests.factories.tenants import ProjectQuotaFactory
from tests.factories.workloads import WorkloadFactory
from workloads.dictionary.models import WorkloadType
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.services import move

pytestmark = pytest.mark.postgres

ROUNDS = 30
STOP, RESUME = "workload.stop", "workload.resume"
Call = Callable[[Client, Workload, int], Any]
NEXT = {
    Phase.CREATING: Phase.PENDING,
    Phase.RESUMING: Phase.PENDING,
    Phase.PENDING: Phase.RUNNING,
    Phase.RUNNING: Phase.PENDING,
    Phase.STOPPING: Phase.STOPPED,
}
"""What a worker or an observer does next."""


@pytest.fixture
def project(postgres_db: str) -> Project:
    """A project with quota."""
    found: Project = ProjectQuotaFactory(node_pool__is_default=True).project
    return found


@pytest.fixture
def client(project: Project) -> Client:
    """A platform admin's program."""
    _account, secret = subjects.create_service_account(name="racer", actor=SYSTEM, role=Role.PLATFORM_ADMIN)
    return Client(headers={"Authorization": f"Bearer {exchange('racer', secret).text}"})


@contextmanager
def moving(workload: Workload) -> Iterator[None]:
    """The row moves along its table of phases again and again."""
    ended = Event()

    def run() -> None:
        while not ended.is_set():
            row = Workload.objects.get(pk=workload.pk)
            if following := NEXT.get(Phase(row.phase)):
                move(workload=row, to=following, at=timezone.now())
        connection.close()

    mover = Thread(target=run)
    mover.start()
    try:
        yield
    finally:
        ended.set()
        mover.join()


def running(project: Project) -> Workload:
    """A native training that runs."""
    kind = WorkloadType.objects.get(name="Training")
    made: Workload = WorkloadFactory(project=project, type=kind, phase=Phase.RUNNING)
    return made


def suspend(client: Client, workload: Workload) -> Any:
    return client.post(f"/api/v1/workloads/trainings/{workload.pk}/suspend")


def resume(client: Client, workload: Workload) -> Any:
    return client.post(f"/api/v1/workloads/trainings/{workload.pk}/resume")


def another_priority(client: Client, workload: Workload, number: int) -> Any:
    body = json.dumps({"metadata": {"priority": ("medium", "low")[number % 2]}})
    return client.put(f"/api/v2/workloads/{workload.pk}", body, "application/json")


def refused(answers: Sequence[Any]) -> list[bytes]:
    return [answer.content for answer in answers if answer.status_code != 202]


def test_a_stop_and_a_resume_are_accepted_however_often_the_row_moves(project: Project, client: Client) -> None:
    workload = running(project)
    answers = []
    with moving(workload):
        for _ in range(ROUNDS):
            answers += [suspend(client, workload), resume(client, workload)]
    assert refused(answers) == []
    done = AuditRecord.objects.filter(entity_id=str(workload.pk), result=Result.SUCCEEDED)
    assert list(done.order_by("at", "pk").values_list("action", flat=True)) == [STOP, RESUME] * ROUNDS


def test_another_priority_is_accepted_however_often_others_change_the_same_workload(
    project: Project, client: Client
) -> None:
    workload = running(project)

    def rounds(call: Call) -> list[Any]:
        try:
            return [call(client, workload, number) for number in range(ROUNDS)]
        finally:
            connection.close()

    calls: list[Call] = [another_priority, another_priority, lambda *to: suspend(*to[:2]), lambda *to: resume(*to[:2])]
    with moving(workload), ThreadPoolExecutor(len(calls)) as pool:
        answers = [answer for found in pool.map(rounds, calls) for answer in found]
    assert refused(answers) == []
    assert not AuditRecord.objects.filter(result=Result.DENIED).exists()


def test_two_changes_of_one_inference_are_both_there_afterwards(project: Project, client: Client) -> None:
    """Each names one field and leaves the others as the row has them at that moment."""
    spec = {"image": "docker.io/team/serve:1", "compute": {"gpuDevicesRequest": 0}, "autoscaling": None}
    sent = {"name": "serve", "projectId": str(project.pk), "clusterId": str(project.cluster_id), "spec": spec}
    made = client.post("/api/v1/workloads/inferences", json.dumps(sent), "application/json")
    assert made.status_code == 202, made.content
    path = f"/api/v1/workloads/inferences/{made.json()['workloadId']}"
    suspended = {"ids": [made.json()["workloadId"]], "action": "suspend"}
    assert client.post("/api/v1/workloads/batch", json.dumps(suspended), "application/json").json()["failed"] == []
    Workload.objects.update(phase=Phase.STOPPED)

    def change(field: str, value: str) -> Any:
        try:
            return client.patch(path, json.dumps({"spec": {field: value}}), "application/json")
        finally:
            connection.close()

    for number in range(10):
        with ThreadPoolExecutor(2) as pool:
            named = {"image": f"docker.io/team/serve:{number}", "command": f"serve {number}"}
            answers = list(pool.map(change, named.keys(), named.values()))
        assert refused(answers) == []
        now = client.get(path).json()["spec"]
        assert {field: now[field] for field in named} == named


def test_a_delete_is_accepted_however_often_the_row_moves(project: Project, client: Client) -> None:
    answers = []
    for _ in range(ROUNDS):
        workload = running(project)
        with moving(workload):
            answers.append(client.delete(f"/api/v1/workloads/trainings/{workload.pk}"))
        assert Workload.objects.get(pk=workload.pk).desired_phase == DesiredPhase.DELETED
    assert refused(answers) == []
