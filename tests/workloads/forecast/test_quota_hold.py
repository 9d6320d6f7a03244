"""On kube-scheduler non-preemptible work stays inside the deserved quota of its node pool: Rung holds back the rest."""

from typing import Any

import pytest
from django.utils import timezone

from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, ProjectQuotaFactory
from tests.factories.workloads import deployment, job, pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from tests.workloads.submission.test_races import at_once
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.actions import resume, stop
from workloads.lifecycle.services.apply import apply
from workloads.lifecycle.services.changes import WorkloadChange, change
from workloads.state.models import Phase, Workload

SAYS = (
    "Rung defers it: it needs 2 GPU in h100 and is non-preemptible; of the 4 GPU that project llm-team deserves "
    "there, workloads that run or are older (1) need 4 GPU"
)


class World:
    """A pool of 16 GPUs where the project deserves 4, and another pool where it deserves 8."""

    def __init__(self, flavour: str = "kube") -> None:
        self.lab = Lab(flavour, nodes=2)
        self.team = self.lab.project("llm-team", deserved=4)
        self.other = NodePoolFactory(cluster=self.lab.cluster, name="a100")
        ProjectQuotaFactory(project=self.team, node_pool=self.other, gpu_deserved=8 * GPU)

    def submit(self, name: str, *, gpus: int, priority: str = "high", **requested: Any) -> Workload:
        return self.lab.submit(self.project, name, gpus=gpus, priority=priority, **requested)

    def ask(self, *, gpus: int, **requested: str) -> Forecast:
        spec = spec_of(pytorch_job("asked", gpus=gpus), namespace=self.team.namespace, priority="high", **requested)
        return forecast(spec=spec, project=self.project, actor=SYSTEM)

    @property
    def project(self) -> Project:
        return Project.objects.select_related("cluster", "department").get(pk=self.team.pk)

    def turns(self, number: int = 2) -> None:
        """Whatever is due later is due now, that often."""
        for _ in range(number):
            Workload.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
            self.lab.settle(2, seconds=31)


@pytest.fixture
def world() -> World:
    return World()


def state(workload: Workload) -> tuple[str, str]:
    now = fresh(workload)
    return now.phase, now.phase_reason


def serving(replicas: int) -> dict[str, Any]:
    """A Deployment of pods of two GPUs."""
    manifest = deployment("serve", gpus=2)
    manifest["metadata"]["annotations"] = {"rung.dev/run-seconds": "86400"}
    manifest["spec"]["replicas"] = replicas
    return manifest


HELD = (Phase.PENDING, "HeldForQuota")
pytestmark = pytest.mark.django_db


def test_what_exceeds_the_pools_deserved_quota_waits_as_predicted_until_it_has_room(world: World) -> None:
    first = world.submit("first", gpus=4)
    world.turns()
    predicted = world.ask(gpus=2)
    second = world.submit("second", gpus=2)
    world.turns()
    assert (predicted.verdict, predicted.reason, predicted.sentence) == (
        Verdict.WAITS,
        "HeldForQuota",
        f"Waits: {SAYS}.",
    )
    assert (state(first)[0], state(second)) == (Phase.RUNNING, HELD)
    assert fresh(second).phase_message == f"{SAYS}."
    stop(workload=fresh(first), actor=SYSTEM)
    world.turns(3)
    assert (state(first)[0], state(second)[0]) == (Phase.STOPPED, Phase.RUNNING)


def test_more_deserved_quota_lets_it_go(world: World) -> None:
    world.submit("first", gpus=4)
    second = world.submit("second", gpus=2)
    world.turns()
    ProjectQuota.objects.filter(node_pool=world.lab.pool).update(gpu_deserved=6 * GPU)
    world.turns()
    assert state(second)[0] == Phase.RUNNING


def test_what_is_resumed_waits_for_what_runs_meanwhile(world: World) -> None:
    first = world.submit("first", gpus=4)
    second = world.submit("second", gpus=2)
    world.turns()
    stop(workload=fresh(first), actor=SYSTEM)
    world.turns(3)
    resume(workload=fresh(first), actor=SYSTEM)
    world.turns(3)
    assert (state(first), state(second)[0]) == (HELD, Phase.RUNNING)


def test_preemptible_work_is_offered_instead_and_goes_over_quota(world: World) -> None:
    world.submit("first", gpus=4)
    world.turns()
    offered = world.ask(gpus=2).alternatives
    assert {"preemptibility": "preemptible"} in [{"preemptibility": each.preemptibility} for each in offered]
    assert not any(each.gpus_per_pod for each in offered)
    free = world.submit("free", gpus=2, preemptibility="preemptible")
    world.turns()
    assert state(free)[0] == Phase.RUNNING


def test_a_class_that_the_clusters_quota_does_not_count_is_held_in_a_single_pool_too(world: World) -> None:
    ProjectQuota.objects.filter(node_pool=world.other).delete()
    low = {"priority": "low", "preemptibility": "non-preemptible"}
    first, second = (world.submit(name, gpus=4, **low) for name in ("first", "second"))
    world.turns()
    assert (state(first)[0], state(second)) == (Phase.RUNNING, HELD)


def test_where_the_clusters_own_quota_counts_it_rung_holds_nothing(world: World) -> None:
    ProjectQuota.objects.filter(node_pool=world.other).delete()
    world.submit("first", gpus=4)
    second = world.submit("second", gpus=2)
    world.turns()
    assert state(second)[1] != "HeldForQuota"


def test_kai_counts_it_itself() -> None:
    world = World("kai")
    world.submit("first", gpus=4)
    world.turns()
    second = world.submit("second", gpus=2)
    world.turns()
    assert state(second) == (Phase.PENDING, "NonPreemptibleOverQuota")


class Siblings(World):
    """Two projects of a department that deserves 6 GPUs in the pool, 4 each."""

    def __init__(self, flavour: str = "kube") -> None:
        super().__init__(flavour)
        self.sibling = self.lab.project("vision", deserved=4)
        DepartmentQuota.objects.update(gpu_deserved=6 * GPU)

    def beside(self, name: str, *, gpus: int) -> Workload:
        return self.lab.submit(self.sibling, name, gpus=gpus, priority="high")


def test_what_exceeds_the_departments_deserved_quota_waits_as_predicted_until_it_has_room() -> None:
    world = Siblings()
    first = world.beside("first", gpus=4)
    world.turns()
    predicted = world.ask(gpus=4)
    second = world.submit("second", gpus=4)
    third = world.submit("third", gpus=2)
    world.turns()
    said = (
        "Rung defers it: it needs 4 GPU in h100 and is non-preemptible; of the 6 GPU that department research "
        "deserves there, workloads that run or are older (1) need 4 GPU"
    )
    assert (predicted.reason, predicted.sentence) == ("HeldForQuota", f"Waits: {said}.")
    assert (state(first)[0], state(second), fresh(second).phase_message) == (Phase.RUNNING, HELD, f"{said}.")
    assert state(third) == HELD, "the older one of its project comes first"
    stop(workload=fresh(first), actor=SYSTEM)
    world.turns(3)
    assert (state(first)[0], state(second)[0]) == (Phase.STOPPED, Phase.RUNNING)


def test_what_its_own_project_holds_back_keeps_no_sibling_waiting() -> None:
    world = Siblings()
    world.beside("first", gpus=4)
    world.beside("second", gpus=4)
    world.turns()
    mine = world.submit("mine", gpus=2)
    world.turns()
    assert state(mine)[0] == Phase.RUNNING


def test_kai_counts_the_department_itself() -> None:
    world = Siblings("kai")
    world.beside("first", gpus=4)
    world.turns()
    second = world.submit("second", gpus=4)
    world.turns()
    assert state(second) == (Phase.PENDING, "NonPreemptibleOverQuota")


def test_growing_over_the_deserved_quota_is_refused(world: World) -> None:
    world.submit("first", gpus=2)
    row = world.submit("serve", gpus=2, manifest=serving(1))
    world.turns()
    larger = spec_of(serving(2), namespace=world.team.namespace, priority="high")
    with pytest.raises(ValidationFailed, match="With this size, it needs 4 GPU in h100"):
        change(workload=fresh(row), wanted=WorkloadChange(spec=larger), actor=SYSTEM)


@pytest.mark.postgres
def test_two_workers_at_once_hand_over_one_of_two(postgres_db: str) -> None:
    world = World()
    rows = [world.submit(name, gpus=4, manifest=job(name, gpus=4)) for name in ("one", "two")]
    world.lab.settle(0)
    at_once([lambda row=row: apply(row.pk) for row in rows], threads=2)  # type: ignore[misc]  # bound per row
    assert sorted(state(row)[1] for row in rows) == ["", "HeldForQuota"]
