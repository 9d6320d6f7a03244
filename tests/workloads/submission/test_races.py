"""Many submits at the same moment. On a real PostgreSQL, since only there they truly race."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from portal.audit.models import AuditRecord
from portal.kit.errors import RungError
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.tenants import ProjectQuotaFactory
from tests.factories.workloads import job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.lifecycle.services.apply import apply
from workloads.lifecycle.services.apply_queue import drain
from workloads.state.models import IdempotencyKey, Phase, Workload, WorkloadEvent
from workloads.submission.services import submit

pytestmark = pytest.mark.postgres


def at_once(calls: list[Callable[[], object]], *, threads: int) -> list[str]:
    """Run the calls together; the answer of each as text, or the code of its refusal."""
    start = Barrier(threads)

    def run(call: Callable[[], object]) -> str:
        try:
            start.wait()
            return str(call())
        except RungError as error:
            return error.code
        finally:
            connection.close()

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, calls))


@pytest.fixture
def project(postgres_db: str) -> Project:
    """A project that deserves 8 GPUs."""
    found: Project = ProjectQuotaFactory(node_pool__is_default=True).project
    found.department.quotas.create(node_pool=found.quotas.get().node_pool, gpu_deserved=16_000)
    return found


def submitting(project: Project, name: str, *, key: str | None = None, gpus: int = 1) -> Callable[[], object]:
    """A call that submits a plain Job."""
    spec = spec_of(job(name, gpus=gpus), namespace=project.namespace)
    return lambda: submit(spec=spec, project=project, actor=SYSTEM, key=key).pk


def test_f20_the_same_key_fifty_times_at_once_makes_one_workload(project: Project) -> None:
    answers = at_once([submitting(project, "train", key="k1") for _ in range(50)], threads=50)
    assert len(set(answers)) == 1
    assert Workload.objects.count() == IdempotencyKey.objects.count() == 1
    assert WorkloadEvent.objects.count() == 2  # that it was submitted, and its first phase
    assert [row.result for row in AuditRecord.objects.all()] == ["Succeeded"]


def test_f20_the_same_key_with_two_payloads_at_once_takes_one_of_them(project: Project) -> None:
    calls = [submitting(project, f"train-{number % 2}", key="k1") for number in range(10)]
    answers = at_once(calls, threads=10)
    assert answers.count("idempotency_mismatch") == 5
    assert len(set(answers)) == 2
    assert Workload.objects.count() == 1


def test_one_name_at_once_without_a_key_is_given_to_one(project: Project) -> None:
    answers = at_once([submitting(project, "train") for _ in range(8)], threads=8)
    assert answers.count("name_taken") == 7
    assert Workload.objects.count() == 1


def test_a_due_row_is_claimed_by_one_worker(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    made = submit(spec=spec_of(job(gpus=1), namespace=project.namespace), project=project, actor=SYSTEM)
    looked = at_once([lambda: apply(made.pk), lambda: apply(made.pk), drain, drain], threads=4)
    assert sorted(looked) in (["0", "0", "False", "True"], ["0", "1", "False", "False"])


def test_t39_two_submits_for_the_last_gpus_are_both_taken_and_one_runs(postgres_db: str) -> None:
    lab = Lab("kai")
    team = lab.project("llm-team", deserved=8)
    at_once([submitting(team, name, gpus=8) for name in ("one", "two")], threads=2)
    lab.settle(4)
    phases = sorted(fresh(workload).phase for workload in Workload.objects.all())
    assert phases == [Phase.PENDING, Phase.RUNNING]
    waiting = Workload.objects.get(phase=Phase.PENDING)
    assert waiting.phase_reason == "NonPreemptibleOverQuota"
