"""A workload of several pools: the next one has its turn where the first does not let it start."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tenants.quotas.models import TimeLimit
from tests.factories.cast import acting
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, DepartmentQuotaFactory, ProjectQuotaFactory, UserFactory
from tests.factories.workloads import pytorch_job, spec_of
from tests.support.rest_clients import Robot
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.estimates import ExpectedMove
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.start_estimate import expected_move, start_estimate
from workloads.forecast.services.start_estimates import shown_estimate
from workloads.lifecycle.services.relocation import try_next_pools
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
BOTH = ("h100", "a100")


@pytest.fixture
def admin() -> User:
    found: User = UserFactory(is_superuser=True)
    return found


class Pools(Lab):
    """One node of 8 GPUs in each of the pools h100 and a100."""

    def __init__(self, flavour: str, *, name: str = "lab") -> None:
        super().__init__(flavour, name=name)
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


def test_the_next_pool_takes_it_after_a_while_as_previewed(lab: Pools) -> None:
    team = lab.team(deserved=16)
    full(lab, team, "h100")
    spec = spec_of(pytorch_job("asked", gpus=8), namespace=team.namespace, node_pools=BOTH)
    previewed = forecast(spec=spec, project=team, actor=SYSTEM)
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
    assert (previewed.verdict, previewed.pool) == (Verdict.STARTS, "a100")
    assert previewed.sentence.startswith("Starts after 30 s in a100, ")
    assert "In its first choice, it needs 8 GPUs in h100; 0 GPUs free, at most 0 on one node, and" in previewed.sentence
    assert previewed.sentence.endswith(". Rung tries a100 after 30 s.")
    assert (fresh(workload).phase, fresh(workload).pool_name, nodes_of(workload)) == (Phase.RUNNING, "a100", ["other"])
    [event] = workload.timeline.filter(reason="NextPool")
    assert (event.detail["from"], event.detail["to"]) == ("h100", "a100")
    assert "8 GPUs" in event.message
    assert "it starts there now" in event.message


def card_of(client: Client, workload: Workload) -> str:
    return " ".join(client.get(f"/workloads/{workload.pk}/waiting/").content.decode().split())


def waiting_in_h100(lab: Pools, **requested: Any) -> Workload:
    """It has waited 10 s behind a workload whose time limit is known, so that there would be an estimate of h100."""
    team = lab.team(deserved=16)
    TimeLimit.objects.create(project=team, category=full(lab, team, "h100").category, minutes=135, notice_minutes=5)
    workload = lab.submit(team, "second", gpus=8, node_pools=BOTH, **requested)
    lab.settle()
    lab.waits(workload, 10)
    assert fresh(workload).phase == Phase.PENDING
    return fresh(workload)


def test_the_next_pool_stands_in_for_an_estimate_and_an_alternative(
    lab: Pools, admin: User, client_of: Clients
) -> None:
    """Those would be of the first pool alone, and "Use node pool a100" would delete the workload for it."""
    workload = waiting_in_h100(lab)
    found = shown_estimate(workload)
    assert found is not None
    assert (found.code, found.is_known) == ("next_pool", False)
    assert start_estimate(workload, seconds=10).is_known, "of h100 alone there is one"
    card = card_of(client_of(admin), workload)
    assert "No estimate: Rung tries a100 before it would start in h100." in card
    assert re.search(r"Rung tries a100 in 1\d s: by the model, it starts there now\.", card)
    ways = waiting_alternatives(workload=workload, actor=acting(admin))
    assert not [each for each in ways if each.pool]
    said = Robot("robot", role=Role.PLATFORM_ADMIN).get(f"v1/workloads/{workload.pk}/waiting").json()
    assert (said["startEstimate"]["median"], said["startEstimate"]["code"]) == (None, "next_pool")
    assert (said["nextPool"]["nodePool"], said["nextPool"]["nodePools"]) == ("a100", ["a100"])
    assert 0 < said["nextPool"]["inSeconds"] <= 20
    assert said["nextPool"]["sentence"].startswith("Rung tries a100 in ")


def test_an_estimate_of_one_pool_says_that_the_others_are_tried(lab: Pools, admin: User, client_of: Clients) -> None:
    """None of its other pools lets it start now."""
    workload = waiting_in_h100(lab)
    full(lab, workload.project, "a100")
    card = card_of(client_of(admin), fresh(workload))
    assert "Starts within 2 h" in card
    assert "Rung also tries a100 and moves it when it can start there. The estimate is of h100 alone." in card


def test_what_evicts_in_its_pool_has_its_estimate_and_no_next_pool(lab: Pools) -> None:
    workload = waiting_in_h100(lab, priority="high", preemptibility="preemptible")
    found = shown_estimate(workload)
    assert found is not None
    assert found.is_known
    assert found.move is None, "a node is promised to it, so Rung leaves it there"


def test_a_pool_that_lets_it_start_gets_more_time_and_its_estimate() -> None:
    now = timezone.now()
    move = ExpectedMove(
        "h100", ("a100",), now, "a100", "it starts there now", now + timedelta(seconds=290), starts_here=True
    )
    assert move.sentence == (
        "Rung tries a100 in 4 min, unless it starts in h100 before: by the model, it starts there now."
    )
    assert not move.comes_before(now + timedelta(minutes=1))
    assert move.comes_before(now + timedelta(minutes=5))
    assert not move.comes_before(None), "why there is no estimate of h100 is worth more"
    late = replace(move, at=now - timedelta(seconds=3), starts_here=False)
    assert late.sentence == "Rung tries a100 at its next check: by the model, it starts there now."
    assert late.comes_before(None)


def test_a_pool_that_rung_does_not_try_is_an_alternative(lab: Pools, admin: User) -> None:
    """Its cluster was not observed lately enough to move anything."""
    workload = waiting_in_h100(lab)
    Cluster.objects.update(observed_at=timezone.now() - timedelta(minutes=3))
    ways = waiting_alternatives(workload=fresh(workload), actor=acting(admin))
    assert [each.pool for each in ways if each.pool] == ["a100"]
    assert expected_move(fresh(workload)) is None


def test_a_move_takes_back_what_was_said_of_the_pool_that_it_leaves(lab: Pools) -> None:
    team = lab.team(deserved=16)
    full(lab, team, "h100")
    workload = lab.submit(team, "second", gpus=8, node_pools=BOTH)
    lab.settle()
    assert fresh(workload).phase_reason == "Unschedulable"
    lab.waits(workload, 40)
    assert try_next_pools() == 1
    said = ("NextPool", "Moved from h100 to a100: it starts there now.")
    lab.look()  # its pod in h100 is still there
    assert (fresh(workload).phase_reason, fresh(workload).phase_message) == said
    lab.settle(rounds=1)
    assert (fresh(workload).phase_reason, fresh(workload).phase_message) == said


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
    requested = {"node_pools": BOTH, "preemptibility": "non-preemptible"}
    workload = lab.submit(team, "second", gpus=8, **requested)
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
