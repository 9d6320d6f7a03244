"""Rung keeps young work where the scheduler does not: who would evict it is not handed over before its time is over."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

import pytest
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import set_defer_preemptors
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Limit
from tenants.organisation.models import Department, Project
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import set_project_quota
from tenants.quotas.services.runtime_rules import remove_min_runtime, set_min_runtime
from tests.factories.tenants import (
    GPU,
    DepartmentFactory,
    DepartmentQuotaFactory,
    ProjectFactory,
    ProjectQuotaFactory,
    UserFactory,
)
from tests.factories.workloads import job, pytorch_job, spec_of
from tests.support.repository import ROOT
from tests.workloads.lifecycle.test_next_pool import BOTH, Pools
from tests.workloads.sandbox_lab import Lab, configure, fresh, made
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors import runtime_rules
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.runtime_rules import protection_of
from workloads.forecast.selectors.waiting import why_waiting
from workloads.lifecycle.services.actions import change_priority, delete, resume, stop
from workloads.lifecycle.services.relocation import try_next_pools
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
WITHOUT_CDP = (ROOT / "lab" / "volcano.conf").read_text(encoding="utf-8").replace("cdp", "nodeorder")
HELD = (Phase.PENDING, "HeldBack")


def strangers(department: Department) -> Project:
    """A team of another department of the same cluster."""
    other = DepartmentFactory(cluster=department.cluster, name="vision")
    pool = department.cluster.node_pools.get(name="h100")
    DepartmentQuotaFactory(department=other, node_pool=pool, gpu_deserved=64 * GPU)
    project: Project = ProjectFactory(department=other, name="vision-team")
    ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=8 * GPU)
    return project


class World:
    """One node, all of it in use by a preemptible run of a project whose runs are left alone for half an hour."""

    def __init__(self, flavour: str, *, lab: Lab | None = None) -> None:
        self.lab = lab or Lab(flavour)
        self.defer(enabled=True)
        if flavour == "volcano":
            configure(self.lab, WITHOUT_CDP)
        self.team = self.lab.project(
            "llm-team", **({"deserved": 8, "limit": 8} if flavour == "kueue" else {"deserved": 16})
        )
        self.strangers = strangers(self.lab.department)
        set_min_runtime(owner=self.team, minutes=30, actor=SYSTEM)
        self.young = self.runs("young")

    def defer(self, *, enabled: bool) -> None:
        """The cluster's option."""
        set_defer_preemptors(cluster=self.lab.cluster, enabled=enabled, actor=SYSTEM)

    def runs(self, name: str, **requested: str) -> Workload:
        workload = self.lab.submit(self.team, name, gpus=8, **requested)
        self.turns(1)
        assert fresh(workload).phase == Phase.RUNNING
        self.began(workload, minutes=1)
        return fresh(workload)

    def strong(self, name: str = "strong", team: Project | None = None) -> Workload:
        """Somebody who would evict the young run, after the workers had several turns."""
        workload = self.lab.submit(team or self.team, name, gpus=8, priority="medium")
        self.turns()
        return workload

    def turns(self, number: int = 2) -> None:
        """Whatever is due later is due now, that often."""
        for _ in range(number):
            Workload.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
            self.lab.settle(2, seconds=31)  # who ends has half a minute

    def began(self, workload: Workload, *, minutes: int) -> None:
        """So long ago."""
        Workload.objects.filter(pk=workload.pk).update(started_at=timezone.now() - timedelta(minutes=minutes))

    @property
    def over(self) -> datetime:
        """When its time is over."""
        started = fresh(self.young).started_at
        assert started
        return started + timedelta(minutes=30)


@pytest.fixture(params=["kube", "kube-gangs", "kueue", "volcano"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


@pytest.fixture
def kube() -> World:
    return World("kube")


def state(workload: Workload) -> tuple[str, str]:
    now = fresh(workload)
    return now.phase, now.phase_reason


def ask(project: Project, *, priority: str = "medium", **requested: tuple[str, ...]) -> Forecast:
    spec = spec_of(pytorch_job("asked", gpus=8), namespace=project.namespace, priority=priority, **requested)
    project = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    return forecast(spec=spec, project=project, actor=SYSTEM)


def test_it_waits_as_predicted_and_evicts_once_the_time_is_over(world: World) -> None:
    predicted = ask(world.team)
    strong = world.strong()
    until = f"{world.over:%Y-%m-%d %H:%M} UTC at the latest"
    sentence = f"Rung defers it until {until}: it would evict 1 workload inside its minimum"
    assert predicted.verdict is Verdict.WAITS
    assert predicted.sentence == f"Waits: {sentence} runtime."
    assert (predicted.reason, predicted.numbers["workloads"]) == ("HeldBack", "1")
    assert predicted.victims == ()
    assert state(strong) == HELD
    assert fresh(strong).phase_message.startswith(sentence)
    assert made(world.lab, strong) is None
    assert fresh(world.young).preempted_count == 0
    world.began(world.young, minutes=31)
    assert ask(world.team).verdict in {Verdict.EVICTS, Verdict.RECLAIMS}
    world.turns()
    assert fresh(world.young).preempted_count == 1
    assert fresh(strong).phase == Phase.RUNNING


def test_without_the_option_nobody_is_held_and_nothing_is_promised(world: World) -> None:
    world.defer(enabled=False)
    predicted = ask(world.team)
    assert predicted.verdict in {Verdict.EVICTS, Verdict.RECLAIMS}
    [said] = ask(world.team, priority="low").assurances
    assert said == "The minimum runtime of project llm-team is not enforced on lab."
    assert protection_of(fresh(world.young)) is None
    world.strong()
    assert fresh(world.young).preempted_count == 1


def test_switched_off_it_lets_go_who_is_held(kube: World) -> None:
    strong = kube.strong()
    assert state(strong) == HELD
    kube.defer(enabled=False)
    kube.turns()
    assert fresh(strong).phase == Phase.RUNNING


def test_the_timeline_tells_of_the_hold_once_and_of_its_end(kube: World) -> None:
    strong = kube.strong()
    kube.turns()
    kube.began(kube.young, minutes=31)
    kube.turns()
    reasons = list(strong.timeline.order_by("at", "pk").values_list("reason", flat=True))
    assert [each for each in reasons if each in {"HeldBack", "HandedOver"}] == ["HeldBack", "HandedOver"]


@pytest.mark.parametrize("world", ["kube", "kube-gangs", "volcano"], indirect=True)
def test_room_without_the_protected_run_ends_the_hold(world: World) -> None:
    strong = world.strong()
    world.lab.node("another")
    world.turns()
    assert fresh(strong).phase == Phase.RUNNING
    assert fresh(world.young).preempted_count == 0


def test_more_quota_ends_the_hold_where_quotas_decide() -> None:
    world = World("kueue")
    strong = world.strong()
    world.lab.node("another")
    more = QuotaValues(deserved=Limit(16 * GPU))
    set_project_quota(project=world.team, node_pool=world.lab.pool, values=more, actor=SYSTEM)
    world.turns()
    assert fresh(strong).phase == Phase.RUNNING
    assert fresh(world.young).preempted_count == 0


def test_who_evicts_no_protected_run_is_handed_over_at_once(world: World) -> None:
    equal = world.lab.submit(world.team, "equal", gpus=8)
    world.turns()
    assert made(world.lab, equal) is not None
    assert state(equal) != HELD


def test_a_run_that_began_after_the_hold_does_not_prolong_it(kube: World) -> None:
    """Else newcomers would hold for ever whoever is stronger than they."""
    strong = kube.strong()
    delete(workload=fresh(kube.young), actor=SYSTEM)
    newcomer = kube.lab.submit(kube.team, "newcomer", gpus=8)
    Workload.objects.filter(pk=strong.pk).update(due_at=timezone.now() + timedelta(hours=1))  # the worker comes late
    kube.lab.settle(4, seconds=31)
    assert fresh(newcomer).phase == Phase.RUNNING
    kube.turns()
    assert fresh(newcomer).preempted_count == 1
    assert fresh(strong).phase == Phase.RUNNING


def test_a_hold_begins_again_after_it_was_stopped_and_resumed(kube: World) -> None:
    kube.lab.node("another")
    kube.lab.look()
    resumed = kube.runs("resumed", priority="medium")
    stop(workload=resumed, actor=SYSTEM)
    kube.turns()
    assert fresh(resumed).phase == Phase.STOPPED
    second = kube.runs("second")
    resume(workload=fresh(resumed), actor=SYSTEM)
    kube.turns()
    assert state(resumed) == HELD
    assert (fresh(second).preempted_count, fresh(kube.young).preempted_count) == (0, 0)
    stop(workload=fresh(second), actor=SYSTEM)
    kube.turns(3)
    assert fresh(resumed).phase == Phase.RUNNING


def test_who_is_held_can_be_stopped_resumed_and_deleted(world: World) -> None:
    strong = world.strong()
    stop(workload=fresh(strong), actor=SYSTEM)
    world.turns()
    assert fresh(strong).phase == Phase.STOPPED
    resume(workload=fresh(strong), actor=SYSTEM)
    world.turns()
    assert state(strong) == HELD
    delete(workload=fresh(strong), actor=SYSTEM)
    world.turns()
    assert fresh(strong).deleted_at is not None
    assert fresh(world.young).preempted_count == 0


def test_a_priority_that_evicts_nobody_ends_the_hold(kube: World) -> None:
    strong = kube.strong()
    change_priority(workload=fresh(strong), priority="low", actor=SYSTEM)
    kube.turns()
    assert made(kube.lab, strong) is not None
    assert state(strong) != HELD


def test_who_waits_in_the_cluster_and_is_recreated_for_a_higher_priority_is_held_too(kube: World) -> None:
    """A pod is never rewritten: between the old object and the new one nobody but Rung has it."""
    equal = kube.lab.submit(kube.team, "equal", manifest=job("equal", gpus=8), priority="low")
    kube.turns()
    assert made(kube.lab, equal) is not None
    change_priority(workload=fresh(equal), priority="medium", actor=SYSTEM)
    kube.turns(4)
    assert state(equal) == HELD
    assert fresh(kube.young).preempted_count == 0


def test_without_a_rule_nobody_is_held(kube: World) -> None:
    remove_min_runtime(rule=kube.team.minruntime_rules.get(), actor=SYSTEM)
    kube.strong()
    assert fresh(kube.young).preempted_count == 1


def test_lifting_the_rule_ends_the_hold(kube: World) -> None:
    strong = kube.strong()
    assert state(strong) == HELD
    remove_min_runtime(rule=kube.team.minruntime_rules.get(), actor=SYSTEM)
    kube.turns()
    assert fresh(strong).phase == Phase.RUNNING


def test_what_needs_no_protection_holds_nobody(kube: World) -> None:
    """On kube-scheduler non-preemptible work is evicted all the same; its rule is another guarantee."""
    Workload.objects.filter(pk=kube.young.pk).update(preemptibility="semi-preemptible")
    assert ask(kube.team).verdict is Verdict.EVICTS


@pytest.mark.parametrize(
    ("minutes", "phase"),
    [
        pytest.param(None, Phase.RUNNING, id="a project's own rule does not make strangers wait"),
        pytest.param(60, Phase.PENDING, id="its department's does"),
    ],
)
def test_another_department_waits_for_the_departments_rule_alone(kube: World, minutes: int | None, phase: str) -> None:
    if minutes:
        set_min_runtime(owner=kube.lab.department, minutes=minutes, actor=SYSTEM)
    strong = kube.strong(team=kube.strangers)
    assert fresh(strong).phase == phase


@pytest.mark.parametrize("seen", [None, timedelta(minutes=10)])
def test_nobody_is_held_on_what_was_seen_long_ago(kube: World, seen: timedelta | None) -> None:
    """The model would judge by a cluster that is no more: then the scheduler's own word counts."""
    strong = kube.lab.submit(kube.team, "strong", gpus=8, priority="medium")
    Cluster.objects.update(observed_at=timezone.now() - seen if seen else None)
    kube.lab.settle(1)
    assert made(kube.lab, strong) is not None


def test_who_is_held_takes_no_room_from_others(kube: World) -> None:
    """Neither does the model count it as one that waits in the cluster."""
    kube.strong()
    kube.lab.node("another")
    kube.lab.look()
    answer = ask(kube.team, priority="low")
    assert answer.verdict is Verdict.STARTS


def test_another_pool_that_lets_it_start_is_predicted_and_taken() -> None:
    pools = Pools("kube")
    world = World("kube", lab=pools)
    ProjectQuotaFactory(project=world.team, node_pool=pools.second, gpu_deserved=8 * GPU)
    world.lab.submit(world.team, "fills", gpus=8, node_pools=("a100",))
    world.turns()
    both = world.lab.submit(world.team, "both", gpus=8, priority="medium", node_pools=BOTH)
    world.turns()
    assert state(both) == HELD
    pools.waits(both, 40)
    assert try_next_pools() == 0
    pools.node("third", **{"rung.dev/node-pool": "a100"})
    pools.look()
    predicted = ask(world.team, node_pools=BOTH)
    assert (predicted.verdict, predicted.pool) == (Verdict.STARTS, "a100")
    assert "Rung defers it until" in predicted.sentence
    assert try_next_pools() == 1
    world.turns()
    assert (fresh(both).phase, fresh(both).pool_name) == (Phase.RUNNING, "a100")
    [event] = both.timeline.filter(reason="NextPool")
    assert event.detail["because"] == "HeldBack"
    assert fresh(world.young).preempted_count == 0


def test_pages_say_who_holds_it_and_until_when(client_of: Callable[..., Client], kube: World) -> None:
    strong = kube.strong()
    headline = why_waiting(fresh(strong))
    assert headline is not None
    assert (headline.source, headline.reason) == ("rung", "HeldBack")
    client = client_of(UserFactory(is_superuser=True))
    text = " ".join(client.get(f"/workloads/{strong.pk}/").content.decode().split())
    assert f"Rung defers it until {kube.over:%Y-%m-%d %H:%M} UTC" in text
    protected = protection_of(fresh(kube.young))
    assert protected is not None
    assert (protected.inside, protected.by_rung) == (kube.over, True)
    text = " ".join(client.get(f"/workloads/{kube.young.pk}/").content.decode().split())
    assert "minimum runtime of project llm-team (if Rung can defer the workloads that would evict it)" in text


def test_who_submits_is_told_how_far_it_holds(world: World) -> None:
    [said] = ask(world.team, priority="low").assurances
    assert said.startswith("After the start it is protected from eviction for 30 min")
    assert said.endswith(", if Rung can defer the workloads that would evict it: minimum runtime of project llm-team.")


def test_it_is_looked_at_again_soon_and_at_the_end_of_the_time_at_the_latest(kube: World) -> None:
    strong = kube.strong()
    assert timedelta(seconds=4) < next_look(strong) <= timedelta(seconds=5)
    kube.began(kube.young, minutes=30)
    Workload.objects.filter(pk=kube.young.pk).update(started_at=fresh(kube.young).started_at + timedelta(seconds=3))
    kube.turns(1)
    assert next_look(strong) <= timedelta(seconds=3)


def next_look(workload: Workload) -> timedelta:
    due = fresh(workload).due_at
    assert due
    return due - timezone.now()


def test_the_more_are_held_the_seldomer_each_is_looked_at(kube: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thousand of them would take all the time that workers have."""
    strong = kube.strong()
    kube.strong("second")
    clock = count(step=2)
    monkeypatch.setattr(runtime_rules, "monotonic", lambda: next(clock))
    kube.turns(1)
    assert timedelta(seconds=15) < next_look(strong) <= timedelta(seconds=16)
