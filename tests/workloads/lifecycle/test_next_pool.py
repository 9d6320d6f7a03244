"""A workload of several pools: the next one has its turn where the first does not let it start."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import NodePool
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, DepartmentQuotaFactory, ProjectQuotaFactory
from tests.factories.workloads import pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.relocation import try_next_pools
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
BOTH = ("h100", "a100")


class Pools(Lab):
    """One node of 8 GPUs in each of the pools h100 and a100."""

    def __init__(self, flavour: str) -> None:
        super().__init__(flavour)
        self.second: NodePool = NodePoolFactory(cluster=self.cluster, name="a100")
        DepartmentQuotaFactory(department=self.department, node_pool=self.second, gpu_deserved=64 * GPU)
        self.node("other", **{"rung.dev/node-pool": "a100"})

    def team(self, name: str = "llm-team", *, second: int = 8, **quota: Any) -> Project:
        project = self.project(name, **quota)
        ProjectQuotaFactory(project=project, node_pool=self.second, gpu_deserved=second * GPU)
        return project

    def waits(self, workload: Workload, seconds: int) -> None:
        """So long it has waited already."""
        since = timezone.now() - timedelta(seconds=seconds)
        Workload.objects.filter(pk=workload.pk).update(phase_at=since)


@pytest.fixture(params=["kube", "kai"])
def lab(request: pytest.FixtureRequest) -> Pools:
    return Pools(request.param)


def nodes_of(workload: Workload) -> list[str]:
    rows = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None)
    return sorted(rows.values_list("node_name", flat=True))


def full(lab: Pools, team: Project, pool: str) -> Workload:
    """Nothing of low priority finds room in this pool any more."""
    workload = lab.submit(team, f"fills-{pool}", gpus=8, node_pools=(pool,))
    lab.settle()
    assert fresh(workload).phase == Phase.RUNNING
    return workload


def test_the_next_pool_takes_it_after_a_while_as_foretold(lab: Pools) -> None:
    team = lab.team(deserved=16)
    full(lab, team, "h100")
    spec = spec_of(pytorch_job("asked", gpus=8), namespace=team.namespace, node_pools=BOTH)
    foretold = forecast(spec=spec, project=team, actor=SYSTEM)
    workload = lab.submit(team, "second", gpus=8, node_pools=BOTH)
    lab.settle()
    lab.waits(workload, 20)
    assert try_next_pools() == 0
    lab.waits(workload, 40)
    assert try_next_pools() == 1
    assert try_next_pools() == 0
    lab.settle(rounds=2)
    Workload.objects.filter(due_at__isnull=False).update(due_at=timezone.now())  # once what waited in h100 has gone
    lab.settle(rounds=4)
    assert (foretold.verdict, foretold.pool) == (Verdict.STARTS, "a100")
    assert foretold.sentence.startswith("Starts after 30 s in a100, ")
    assert "In its first choice, it needs 8 GPUs in h100; 0 GPUs free, at most 0 on one node, and" in foretold.sentence
    assert foretold.sentence.endswith(". Rung tries a100 after 30 s.")
    assert (fresh(workload).phase, fresh(workload).pool_name, nodes_of(workload)) == (Phase.RUNNING, "a100", ["other"])
    [event] = workload.timeline.filter(reason="NextPool")
    assert (event.detail["from"], event.detail["to"]) == ("h100", "a100")
    assert "8 GPUs" in event.message
    assert "it starts there now" in event.message


def test_it_stays_where_it_is_while_no_other_pool_lets_it_start(lab: Pools) -> None:
    team = lab.team(deserved=16)
    full(lab, team, "h100")
    full(lab, team, "a100")
    workload = lab.submit(team, "third", gpus=8, node_pools=BOTH)
    lab.settle()
    lab.waits(workload, 3600)
    assert try_next_pools() == 0
    assert (fresh(workload).pool_name, workload.timeline.filter(reason="NextPool").count()) == ("h100", 0)


def test_room_in_a_pool_it_prefers_takes_it_back_there(lab: Pools) -> None:
    team = lab.team(deserved=16)
    first, second = full(lab, team, "h100"), full(lab, team, "a100")
    workload = lab.submit(team, "third", gpus=8, node_pools=("a100", "h100"))
    lab.settle()
    Workload.objects.filter(pk=workload.pk).update(node_pools=list(BOTH))
    Workload.objects.filter(pk=first.pk).update(desired_phase="Deleted", generation=9, due_at=timezone.now())
    lab.settle(rounds=4, seconds=40)
    lab.waits(workload, 40)
    assert try_next_pools() == 1
    assert (fresh(workload).pool_name, fresh(second).phase) == ("h100", Phase.RUNNING)


def test_two_that_wait_do_not_both_go_for_the_same_room(lab: Pools) -> None:
    team = lab.team(deserved=16)
    full(lab, team, "h100")
    waiting = [lab.submit(team, f"waits-{number}", gpus=8, node_pools=BOTH) for number in range(2)]
    lab.settle()
    for workload in waiting:
        lab.waits(workload, 40)
    assert try_next_pools() == 1
    assert sorted(fresh(each).pool_name for each in waiting) == ["a100", "h100"]


def test_a_pool_whose_quota_could_never_hold_it_is_passed_over() -> None:
    lab = Pools("kai")
    team = lab.team(deserved=8, second=0)
    lab.submit(team, "fills", gpus=8, node_pools=("h100",), preemptibility="non-preemptible")
    lab.settle()
    asked = {"node_pools": BOTH, "preemptibility": "non-preemptible"}
    workload = lab.submit(team, "second", gpus=8, **asked)
    lab.settle()
    lab.waits(workload, 3600)
    assert try_next_pools() == 0


def test_who_is_about_to_start_is_left_alone(lab: Pools) -> None:
    """It evicts in its first pool: its victims take longer to end than it is patient."""
    team = lab.team(deserved=16)
    full(lab, team, "h100")
    workload = lab.submit(team, "strong", gpus=8, node_pools=BOTH, priority="high", preemptibility="preemptible")
    lab.settle(rounds=1)
    lab.waits(workload, 40)
    assert try_next_pools() == 0


def test_one_pool_is_no_choice(lab: Pools) -> None:
    team = lab.team(deserved=16)
    full(lab, team, "h100")
    workload = lab.submit(team, "second", gpus=8, node_pools=("h100",))
    lab.settle()
    lab.waits(workload, 3600)
    assert try_next_pools() == 0
