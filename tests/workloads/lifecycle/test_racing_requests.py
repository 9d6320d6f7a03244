"""Requests that race over REST, on a real PostgreSQL: one key sent many times, and a submission pulled three ways.

Every race is run with twenty seeds: the order in which the requests are let go is the seed's.
"""

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import subjects
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Project
from tests.factories.tenants import ProjectQuotaFactory
from workloads.lifecycle.services.apply import apply
from workloads.state.models import DesiredPhase, EventType, IdempotencyKey, Phase, Workload, WorkloadEvent
from workloads.state.rules import TRANSITIONS

pytestmark = pytest.mark.postgres

SEEDS = range(20)
Call = Callable[[Client], Any]


@pytest.fixture
def project(postgres_db: str) -> Project:
    """A project that deserves 8 GPUs."""
    found: Project = ProjectQuotaFactory(node_pool__is_default=True).project
    found.department.quotas.create(node_pool=found.quotas.get().node_pool, gpu_deserved=16_000)
    return found


@pytest.fixture
def token(project: Project) -> str:
    """Of a platform admin's service account."""
    _account, secret = subjects.create_service_account(name="racer", actor=SYSTEM, role=Role.PLATFORM_ADMIN)
    return exchange("racer", secret).text


def at_once(token: str, calls: Sequence[Call], seed: int) -> list[Any]:
    """Let all of them go together, in the order of the seed; the answers in the order they were given."""
    order = list(range(len(calls)))
    random.Random(seed).shuffle(order)
    start = Barrier(len(calls))

    def run(number: int) -> tuple[int, Any]:
        client = Client(headers={"Authorization": f"Bearer {token}"})
        start.wait()
        try:
            return number, calls[number](client)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [answer for _number, answer in sorted(pool.map(run, order), key=lambda pair: pair[0])]


def body(project: Project, name: str = "train") -> dict[str, Any]:
    spec = {"image": "docker.io/team/train:1", "compute": {"gpuDevicesRequest": 1}}
    return {"name": name, "projectId": str(project.pk), "clusterId": str(project.cluster_id), "spec": spec}


def submitting(sent: dict[str, Any], key: str) -> Call:
    """A submission with this key."""
    return lambda client: client.post(
        "/api/v1/workloads/trainings", json.dumps(sent), "application/json", headers={"Idempotency-Key": key}
    )


def ids(answers: Sequence[Any]) -> set[str]:
    return {answer.json()["workloadId"] for answer in answers if answer.status_code == 202}


def test_f20_one_key_fifty_times_at_once_makes_one_workload(project: Project, token: str) -> None:
    answers = at_once(token, [submitting(body(project), "once")] * 50, seed=0)
    assert {answer.status_code for answer in answers} == {202}
    assert len(ids(answers)) == 1
    assert Workload.objects.count() == IdempotencyKey.objects.count() == 1
    assert WorkloadEvent.objects.count() == 2  # that it was submitted, and its first phase
    assert AuditRecord.objects.filter(action="workload.submit").count() == 1


def test_f20_one_key_with_two_payloads_takes_one_of_them_every_time(project: Project, token: str) -> None:
    for seed in SEEDS:
        calls = [submitting(body(project, f"train-{seed}-{number % 2}"), f"key-{seed}") for number in range(4)]
        answers = at_once(token, calls, seed)
        assert sorted(answer.status_code for answer in answers) == [202] * 2 + [422] * 2, seed
        assert len(ids(answers)) == 1, seed
        assert Workload.objects.filter(name__startswith=f"train-{seed}-").count() == 1, seed


def test_f20_one_key_in_two_projects_is_two_keys(project: Project, token: str) -> None:
    quota = ProjectQuotaFactory(project__department=project.department, node_pool=project.quotas.get().node_pool)
    for seed in SEEDS:
        calls = [
            submitting(body(where, f"train-{seed}"), f"key-{seed}") for where in (project, quota.project) for _ in "ab"
        ]
        answers = at_once(token, calls, seed)
        assert {answer.status_code for answer in answers} == {202}, seed
        assert len(ids(answers)) == 2, seed


def test_f20_a_retry_while_the_first_try_is_still_under_way_and_after_it_makes_nothing_twice(
    project: Project, token: str
) -> None:
    """A client that gave up waiting sends again: during the first try, and once more when that has ended."""
    for seed in SEEDS:
        call = submitting(body(project, f"train-{seed}"), f"key-{seed}")
        during = at_once(token, [call, call], seed)
        (after,) = at_once(token, [call], seed)
        assert len(ids([*during, after])) == 1, seed
        assert Workload.objects.filter(name=f"train-{seed}").count() == 1, seed


def told(workload_id: UUID) -> list[str]:
    """The phases of its timeline, in order."""
    rows = WorkloadEvent.objects.filter(workload=workload_id, type=EventType.PHASE).order_by("at", "pk")
    return list(rows.values_list("phase", flat=True))


def test_f21_submit_cancel_and_priority_change_leave_one_story_however_they_meet(project: Project, token: str) -> None:
    for seed in SEEDS:
        first = at_once(token, [submitting(body(project, f"train-{seed}"), f"key-{seed}")], seed)
        found = UUID(next(iter(ids(first))))
        put = json.dumps({"metadata": {"priority": "medium"}})
        calls: list[Call] = [
            submitting(body(project, f"train-{seed}"), f"key-{seed}"),
            lambda client, at=found: client.delete(f"/api/v1/workloads/trainings/{at}"),
            lambda client, at=found: client.post(f"/api/v1/workloads/trainings/{at}/suspend"),
            lambda client, at=found, sent=put: client.put(f"/api/v2/workloads/{at}", sent, "application/json"),
            lambda _client, at=found: apply(at),
        ]
        again, deleted, suspended, changed, _applied = at_once(token, calls, seed)
        row = Workload.objects.select_related("priority").get(pk=found)
        assert ids([again]) == {str(found)}, seed
        assert deleted.status_code == 202, seed
        for each in (suspended, changed):  # refused only where the delete came first
            assert each.status_code == 202 or "is being deleted" in each.json()["message"], (seed, each.content)
        accepted = {
            name
            for name, answer in (("delete", deleted), ("suspend", suspended), ("change", changed))
            if answer.status_code == 202
        }
        done = {"workload.delete": "delete", "workload.stop": "suspend", "workload.change_priority": "change"}
        recorded = AuditRecord.objects.filter(entity_id=str(found), result="Succeeded", action__in=done)
        assert {done[each.action] for each in recorded} == accepted, seed
        assert recorded.count() == len(accepted), seed
        assert (row.priority.name == "medium") == ("change" in accepted), seed
        assert (row.desired_phase == DesiredPhase.DELETED) == ("delete" in accepted), seed
        phases = told(found)
        assert phases[0] == Phase.CREATING
        assert all(after in TRANSITIONS[before] for before, after in pairwise(phases)), (
            seed,
            phases,
        )
        assert row.phase == phases[-1], seed
