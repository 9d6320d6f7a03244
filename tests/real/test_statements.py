"""Sentences of pages, REST and plans put to a real kube-scheduler: each test is one statement, and what it did."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import pause
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import PRIORITY_CLASS, RESOURCE_QUOTA
from clusters.sync.selectors import comparison_of
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota
from tenants.quotas.selectors.quota_rows import PoolQuota, startable_rows
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, ProjectQuotaFactory
from tests.factories.workloads import job, spec_of
from tests.real.product import Product, fresh, quick
from workloads.dictionary.services.changes import change_priority_entry
from workloads.dictionary.services.plans import plan_priority_change
from workloads.forecast.rules.forecast import Alternative, Forecast, Verdict
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import why_waiting
from workloads.lifecycle.services.actions import change_priority, stop
from workloads.state.models import Phase, Workload
from workloads.submission.services import replace_waiting

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
LOW = {"priority": "low", "preemptibility": "preemptible"}
HIGH = {"priority": "high", "preemptibility": "non-preemptible"}
NODES, GPUS, CPUS = 4, 8, 192


def asking(name: str, *, gpus: int = 1, pods: int = 1, cpu: int = 0) -> Manifest:
    """A Job of pods that end within a second of being asked to; of CPU they ask for what is said."""
    manifest = quick(job(name, gpus=gpus, pods=pods))
    if cpu:
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        container["resources"]["requests"] = {"cpu": str(cpu)}
    return manifest


def current(project: Project) -> Project:
    return Project.objects.select_related("cluster", "department").get(pk=project.pk)


def forecast_of(project: Project, manifest: Manifest, **requested: Any) -> Forecast:
    return forecast(
        spec=spec_of(manifest, namespace=project.namespace, **requested), project=current(project), actor=SYSTEM
    )


def startable(product: Product, project: Project) -> PoolQuota:
    product.look()
    return next(row for row in startable_rows(current(project)) if row.pool == product.pool)


def now(row: PoolQuota) -> int:
    assert row.headroom
    return row.headroom.now // GPU


def runs(product: Product, project: Project, manifest: Manifest, *, pods: int = 1, **requested: Any) -> Workload:
    workload = product.submit(project, manifest, **(requested or LOW))
    return product.until(workload, lambda row: row.running_pods == pods)


def waits(product: Product, project: Project, manifest: Manifest, **requested: Any) -> Workload:
    workload = product.submit(project, manifest, **(requested or LOW))
    return product.until(workload, lambda row: row.phase == Phase.PENDING and row.phase_reason)


@pytest.fixture(autouse=True)
def registries(settings: Settings) -> None:
    """Where the images of these workloads come from: what takes a way out is read once more."""
    settings.RUNG_IMAGE_REGISTRIES = ["registry.example"]


@pytest.fixture
def team(product: Product) -> Project:
    """Deserves every GPU of the four nodes."""
    project = product.project("team", deserved=NODES * GPUS)
    product.reconcile()
    return project


class TestYouCanStart:
    """Point 14: as many start as Home says, and the next one waits."""

    def test_as_many_as_are_free(self, product: Product, team: Project) -> None:
        runs(product, team, asking("full", gpus=GPUS, pods=NODES - 1), pods=NODES - 1)
        row = startable(product, team)
        assert (now(row), "No other GPU in the pool is free." in row.sentence) == (GPUS, True)
        runs(product, team, asking("fills", pods=GPUS), pods=GPUS)
        row = startable(product, team)
        assert row.sentence.startswith("Nothing can start in lab")
        assert waits(product, team, asking("more")).phase_reason == "Unschedulable"

    def test_as_many_as_the_limit_leaves_while_gpus_are_free(self, product: Product) -> None:
        project = product.project("small", deserved=2, limit=3)
        product.reconcile()
        row = startable(product, project)
        assert (now(row), "Project limit over all node pools: 3 GPUs" in row.sentence) == (3, True)
        runs(product, project, asking("fits", pods=3), pods=3)
        assert waits(product, project, asking("more")).phase_reason == "OverLimit"
        assert now(startable(product, project)) == 0

    def test_as_much_cpu_beside_them_as_it_names(self, product: Product, team: Project) -> None:
        runs(product, team, asking("busy", pods=NODES, cpu=CPUS - 42), pods=NODES)
        row = startable(product, team)
        assert now(row) == NODES * (GPUS - 1)
        assert "At most 168 CPUs in total for these pods: no more free on the nodes of these GPUs." in row.sentence
        runs(product, team, asking("fills", pods=NODES, cpu=42), pods=NODES)
        assert "Only pods without CPU requests can start" in startable(product, team).sentence
        assert waits(product, team, asking("more", cpu=1)).phase_reason == "Unschedulable"


class TestNonPreemptibleWork:
    """Point 15: it stays inside the deserved quota of its node pool, at the project and at the department."""

    def test_what_its_project_deserves_elsewhere_lets_none_start_here(self, product: Product) -> None:
        project = product.project("team", deserved=2)
        other = NodePoolFactory(cluster=product.cluster, name="elsewhere")
        ProjectQuotaFactory(project=project, node_pool=other, gpu_deserved=8 * GPU)
        product.reconcile()
        first = runs(product, project, asking("first", gpus=2), **HIGH)
        self._held_until(product, project, first, named="project team-")

    def test_what_its_department_does_not_deserve_waits(self, product: Product) -> None:
        one, two = (product.project(name, deserved=2) for name in ("one", "two"))
        DepartmentQuota.objects.filter(department=product.department).update(gpu_deserved=3 * GPU)
        product.reconcile()
        first = runs(product, one, asking("first", gpus=2), **HIGH)
        self._held_until(product, two, first, named="department department-")

    def _held_until(self, product: Product, project: Project, first: Workload, *, named: str) -> None:
        product.look()
        said = forecast_of(project, asking("second", gpus=2), **HIGH)
        assert (said.verdict, said.reason, named in said.sentence) == (Verdict.WAITS, "HeldForQuota", True)
        second = waits(product, project, asking("second", gpus=2), **HIGH)
        assert (second.phase_reason, product.object_of(second)) == ("HeldForQuota", None)
        stop(workload=fresh(first), actor=SYSTEM)
        product.apply(first)
        product.until(first, lambda row: row.phase == Phase.STOPPED, work=True)
        product.until(second, lambda row: row.phase == Phase.RUNNING, work=True)


def test_a_forecast_of_a_cached_project_is_as_old_as_the_last_look(product: Product, team: Project) -> None:
    """Point 16."""
    Cluster.objects.filter(pk=product.cluster.pk).update(observed_at=timezone.now() - timedelta(minutes=20))
    cached = current(team)
    began = time.monotonic()
    product.look()
    spec = spec_of(asking("asked"), namespace=team.namespace, **LOW)
    age = forecast(spec=spec, project=cached, actor=SYSTEM).snapshot_age
    assert age is not None
    assert age <= time.monotonic() - began


def test_a_wait_for_cpu_names_cpu_and_asking_for_what_it_offers_starts(product: Product, team: Project) -> None:
    """Points 18 and 23: in the preview, on the page, in what the scheduler says, and as the way out."""
    runs(product, team, asking("busy", pods=NODES, cpu=CPUS - 42), pods=NODES)
    product.look()
    said = forecast_of(team, asking("asked", cpu=64), **LOW)
    assert (said.verdict, said.numbers["short"]) == (Verdict.WAITS, "cpu")
    assert "it needs 64 CPUs in lab; 168 CPUs free, at most 42 on one node" in said.sentence
    assert forecast_of(team, asking("asked", cpu=42), **LOW).verdict is Verdict.STARTS
    waiting = waits(product, team, asking("waits", cpu=64))
    assert "Insufficient cpu" in next(iter(product.pods_of(waiting)))["status"]["conditions"][0]["message"]
    headline = why_waiting(waiting)
    assert headline
    assert "needs 64 CPUs in lab; 168 CPUs free" in headline.sentence
    way = next(each for each in ways_out(waiting) if each.cpus_per_pod)
    assert way.words == "Request 40 CPUs per pod instead of 64: it starts now."
    made = replace_waiting(workload=fresh(waiting), way=way, actor=SYSTEM)
    product.apply(waiting)
    product.apply(made)
    product.until(made, lambda row: row.phase == Phase.RUNNING, work=True)


def ways_out(workload: Workload) -> tuple[Alternative, ...]:
    return waiting_alternatives(workload=fresh(workload), actor=SYSTEM)


def test_a_stronger_priority_evicts_whom_the_way_out_names(product: Product, team: Project) -> None:
    """Point 23."""
    victims = [runs(product, team, asking(f"low-{number}", gpus=GPUS)) for number in range(NODES - 1)]
    time.sleep(1.0)  # of pods that started in one second kube-scheduler takes any
    victims.append(runs(product, team, asking("low-last", gpus=GPUS)))
    waiting = waits(product, team, asking("waits", gpus=GPUS))
    product.look()
    way = next(each for each in ways_out(waiting) if each.priority)
    named = [each for each in victims if f"after evicting {each.name} (8 GPUs)" in way.words]
    assert (way.priority, len(named)) == ("medium-low", 1)
    change_priority(workload=fresh(waiting), priority=way.priority, actor=SYSTEM)
    product.until(waiting, lambda row: row.phase == Phase.RUNNING, work=True)
    assert [each for each in victims if fresh(each).preempted_count] == named


def test_a_part_of_a_gpu_is_refused_since_its_pod_would_have_none(product: Product, team: Project) -> None:
    """Point 19: the refusal names the scheduler, and what it prevents is seen on a pod that somebody else makes."""
    manifest = asking("part", gpus=0)
    template = manifest["spec"]["template"]
    template["metadata"] = {"annotations": {"gpu-fraction": "0.5"}}
    with pytest.raises(ValidationFailed, match=r"kube-scheduler on real-\S+ supports whole GPUs only"):
        product.submit(team, manifest, **LOW)
    assert not Workload.objects.exists()
    runs(product, team, asking("full", gpus=GPUS, pods=NODES), pods=NODES)
    runs(product, team, asking("none", gpus=0))


def test_a_plan_names_the_waiting_pod_that_keeps_its_number_and_only_new_ones_evict(
    product: Product, team: Project
) -> None:
    """Point 20: `low` rises above `medium` in the whole cluster; the pod that waits has its old number."""
    busy = runs(product, team, asking("busy", gpus=GPUS, pods=NODES), pods=NODES, priority="medium", **PREEMPTIBLE)
    waiting = waits(product, team, asking("waits", gpus=GPUS))
    plan = plan_priority_change(change={"op": "change", "name": "low", "value": 85}, actor=SYSTEM)
    (scope,) = plan.effect["victims"]["scopes"]
    assert scope["reach"] == "in the whole cluster, in any project, including non-preemptible workloads"
    assert ["low", "medium"] in scope["new"]
    kept = plan.effect["workloads"]["wait_with_old_value"]
    assert [each["name"] for each in kept["examples"]] == ["waits"]
    change_priority_entry(name="low", value=85, actor=SYSTEM)
    try:
        product.reconcile()
        time.sleep(3)
        product.look()
        assert [pod["spec"]["priority"] for pod in product.pods_of(waiting)] == [40]
        assert (fresh(waiting).phase, fresh(busy).preempted_count) == (Phase.PENDING, 0)
        strong = product.submit(team, asking("strong", gpus=GPUS), **LOW)
        product.until(strong, lambda row: row.phase == Phase.RUNNING)
        product.until(busy, lambda row: row.preempted_count == 1)
    finally:
        product.admin.delete(ObjectRef(PRIORITY_CLASS, "low"))  # of a later generation than the next test's


PREEMPTIBLE = {"preemptibility": "preemptible"}


def test_a_paused_cluster_is_not_said_to_hold_what_is_wanted(
    product: Product, team: Project, client: Client, admin: User
) -> None:
    """Point 21: it was so at the last comparison, which has its age; nothing looks any more."""
    client.force_login(admin)
    page = f"/clusters/{product.cluster.name}/"
    said = " ".join(client.get(page).content.decode().split())
    assert "Configuration up to date, compared" in said
    pause(cluster=product.cluster, actor=SYSTEM)
    quota = ObjectRef(RESOURCE_QUOTA, "rung-deserved", team.namespace)
    product.admin.patch(quota, {"spec": {"hard": {"requests.nvidia.com/gpu": "1"}}})
    row = Cluster.objects.get(pk=product.cluster.pk)
    assert (comparison_of(row).state, comparison_of(row).why) == (
        "unknown",
        "The cluster is paused.",
    )
    said = " ".join(client.get(page).content.decode().split())
    assert "Configuration up to date, compared" not in said
    assert "The cluster is paused." in said
