"""A workload that failed to apply is handed to its cluster again; no other is."""

from typing import Any

import pytest

from clusters.backends.memory import forget_all, store_of
from clusters.inventory.models import Cluster
from clusters.sync.services.reconcile import reconcile
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM, Actor
from tenants.organisation.models import Project
from tests.factories.workloads import REFUSAL, WorkloadFactory, job, spec_of
from workloads.lifecycle.services.actions import resume, retry
from workloads.lifecycle.services.apply import apply
from workloads.state.models import DesiredPhase, EventType, Phase, Workload
from workloads.state.rules import PodCounts, next_phase
from workloads.state.selectors.workloads import FAILED_TO_APPLY, failed_to_apply
from workloads.submission.services import submit


def test_a_retry_begins_with_nothing_applied_and_leaves_its_records(llm_team: Project, as_alice: Actor) -> None:
    workload = WorkloadFactory(project=llm_team, failed_to_apply=True, applied_generation=1)
    retry(workload=workload, actor=as_alice)
    row = Workload.objects.get()
    assert (row.phase, row.phase_reason, row.phase_message) == (Phase.CREATING, "", "")
    assert (row.generation, row.applied_generation, row.attempts, row.apply_error) == (2, 0, 0, "")
    assert row.due_at is not None
    assert row.completed_at is None
    entry = row.timeline.get(type=EventType.ACTION)
    assert (entry.reason, entry.actor) == ("Retried", as_alice.name)
    assert AuditRecord.objects.get().action == "workload.retry"
    assert AuditRecord.objects.get().detail["failure"] == {"reason": "cluster_refused", "message": REFUSAL}


def test_a_retried_workload_reaches_its_cluster(llm_team: Project, cluster: Cluster) -> None:
    forget_all()
    reconcile(cluster)
    workload = submit(spec=spec_of(job(gpus=1)), project=llm_team, actor=SYSTEM)
    Workload.objects.update(phase=Phase.FAILED, apply_error=REFUSAL, due_at=None)
    assert apply(workload.pk) is False
    retry(workload=workload, actor=SYSTEM)
    assert apply(workload.pk) is True
    assert "Job.batch" in {kind for kind, _namespace, _name in store_of(str(cluster.pk)).objects}
    assert Workload.objects.get().phase == Phase.PENDING


def test_twice_is_once_also_when_it_runs_by_then(llm_team: Project, as_alice: Actor) -> None:
    workload = WorkloadFactory(project=llm_team, failed_to_apply=True)
    retry(workload=workload, actor=as_alice)
    retry(workload=workload, actor=as_alice)
    Workload.objects.update(phase=Phase.RUNNING)
    retry(workload=workload, actor=as_alice)
    assert Workload.objects.get().generation == 2
    assert AuditRecord.objects.count() == 1


OTHERS: list[Any] = [
    pytest.param({"phase": Phase.FAILED}, id="its pods failed"),
    pytest.param({"phase": Phase.COMPLETED}, id="completed"),
    pytest.param({"phase": Phase.RUNNING}, id="it runs"),
    pytest.param({"phase": Phase.PENDING, "apply_error": "no route to host"}, id="a worker still tries"),
    pytest.param({"failed_to_apply": True, "desired_phase": DesiredPhase.STOPPED}, id="it was stopped"),
]


@pytest.mark.parametrize("row", OTHERS)
def test_nothing_else_is_retried(row: dict[str, Any], llm_team: Project, as_alice: Actor) -> None:
    workload = WorkloadFactory(project=llm_team, **row)
    with pytest.raises(Conflict) as refusal:
        retry(workload=workload, actor=as_alice)
    assert refusal.value.code == "not_retryable"
    assert not failed_to_apply(workload)
    assert not Workload.objects.filter(FAILED_TO_APPLY).exists()


def test_resuming_one_that_failed_to_apply_points_to_the_retry(llm_team: Project, as_alice: Actor) -> None:
    workload = WorkloadFactory(project=llm_team, failed_to_apply=True)
    assert failed_to_apply(workload)
    assert Workload.objects.filter(FAILED_TO_APPLY).get() == workload
    with pytest.raises(Conflict, match="Retry it instead"):
        resume(workload=workload, actor=as_alice)


@pytest.mark.parametrize("standing", [PodCounts(1, running=1), PodCounts(1, waiting=1), PodCounts(1, job="succeeded")])
def test_what_a_cluster_shows_never_leads_out_of_a_failure(standing: PodCounts) -> None:
    assert next_phase("Failed", "Running", standing) == "Failed"
