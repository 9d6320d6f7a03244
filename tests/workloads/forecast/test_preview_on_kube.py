"""A preview for kube-scheduler counts everything on the cluster, whoever made it, and tells of it what may be told."""

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM, Actor
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.clusters import NodeFactory, NodePoolFactory, ObservedPodFactory, build_cluster
from tests.factories.tenants import (
    GPU,
    DepartmentFactory,
    DepartmentQuotaFactory,
    MembershipFactory,
    ProjectFactory,
    ProjectQuotaFactory,
    UserFactory,
)
from tests.factories.workloads import WorkloadFactory, bare_pod, deployment, pytorch_job, spec_of
from workloads.dictionary.models import Priority
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Kube:
    """A cluster with kube-scheduler as its rows say it is."""

    def __init__(self) -> None:
        self.cluster: Cluster = build_cluster(flavour="kube")
        self.pool: NodePool = NodePoolFactory(cluster=self.cluster, name="h100", is_default=True)
        self.department = DepartmentFactory(cluster=self.cluster)
        DepartmentQuotaFactory(department=self.department, node_pool=self.pool, gpu_deserved=64 * GPU)
        self.team = self.project("llm-team")

    def project(self, name: str) -> Project:
        project: Project = ProjectFactory(department=self.department, name=name)
        ProjectQuotaFactory(project=project, node_pool=self.pool, gpu_deserved=16 * GPU)
        return project

    def node(self, name: str, gpus: int = 8, **more: Any) -> None:
        labels = {self.pool.label_key: self.pool.label_value, **more.pop("labels", {})}
        NodeFactory(cluster=self.cluster, pool=self.pool, name=name, gpu_milli=gpus * 1000, labels=labels, **more)

    def pod(self, name: str, node: str = "", *, gpus: int = 1, priority: int = 0, **more: Any) -> ObservedPod:
        """A pod that Rung did not make, without a class unless it is said."""
        stands: dict[str, Any] = {"phase": "Running", "started_at": NOON} if node else {"phase": "Pending"}
        requested = {"namespace": "elsewhere", "priority_class": "", **stands, **more}
        pod: ObservedPod = ObservedPodFactory(
            cluster=self.cluster, name=name, node_name=node, gpu_milli=gpus * 1000, priority=priority, **requested
        )
        return pod

    def ask(self, gpus: int = 1, priority: str = "low", actor: Actor = SYSTEM, **of_pod: Any) -> Forecast:
        manifest = bare_pod("asked", gpus=gpus)
        manifest["spec"] |= of_pod
        return self.ask_for(manifest, priority, actor)

    def ask_for(self, manifest: dict[str, Any], priority: str = "low", actor: Actor = SYSTEM) -> Forecast:
        spec = spec_of(manifest, namespace=self.team.namespace, priority=priority)
        team = Project.objects.select_related("cluster", "department").get(pk=self.team.pk)
        return forecast(spec=spec, project=team, actor=actor)


@pytest.fixture
def kube() -> Kube:
    return Kube()


def victims(answer: Forecast) -> list[str]:
    return [each.label for each in answer.victims]


def test_even_the_weakest_priority_evicts_a_pod_without_a_class_in_any_namespace(kube: Kube) -> None:
    kube.node("a", 1)
    kube.pod("notebook", "a")
    answer = kube.ask(priority="very-low")
    assert (answer.verdict, victims(answer)) == (Verdict.EVICTS, ["elsewhere/notebook"])
    assert [(each.workload, each.priority, each.value) for each in answer.victims] == [(None, "no class", 0)]


@pytest.mark.parametrize("namespace", ["of another project", "nobody's"])
def test_a_tenant_is_not_told_the_names_of_others_pods(kube: Kube, namespace: str) -> None:
    kube.node("a", 1)
    other = kube.project("vision-team")
    kube.pod("secret-plan", "a", namespace=other.namespace if namespace == "of another project" else "nobodys")
    member = acting(MembershipFactory(project=kube.team).user)
    answer = kube.ask(actor=member)
    assert [(each.label, each.priority, each.project) for each in answer.victims] == [("another tenant's pod", "", "")]
    both = MembershipFactory(project=kube.team).user
    MembershipFactory(project=other, user=both)
    known = namespace == "of another project"
    expected = f"{other.namespace}/secret-plan" if known else "another tenant's pod"
    assert victims(kube.ask(actor=acting(both))) == [expected]
    assert victims(kube.ask(actor=acting(UserFactory(is_superuser=True))))[0].endswith("/secret-plan")


def test_what_the_victim_has_worked_since_its_start_is_at_risk(kube: Kube) -> None:
    kube.node("a", 2)
    kube.pod("notebook", "a", gpus=2)
    (victim,) = kube.ask().victims
    assert victim.gpu_milli == 2000
    assert victim.gpu_hours_at_risk > 1


def test_of_equal_victims_the_younger_goes(kube: Kube) -> None:
    kube.node("a", 2)
    kube.pod("old", "a", started_at=NOON.replace(hour=1))
    kube.pod("young", "a", started_at=NOON)
    assert victims(kube.ask()) == ["elsewhere/young"]


@pytest.mark.parametrize(
    "closed",
    [
        pytest.param({"unschedulable": True}, id="cordoned"),
        pytest.param({"ready": False}, id="not ready"),
        pytest.param({"max_pods": 0}, id="no more pods"),
        pytest.param({"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}, id="tainted"),
        pytest.param({"labels": {"rung.dev/node-pool": "other"}}, id="of another pool by its label"),
    ],
)
def test_a_closed_node_is_no_room(kube: Kube, closed: dict[str, Any]) -> None:
    kube.node("a", 8, **closed)
    assert kube.ask().verdict is Verdict.WAITS


def test_a_tolerated_taint_and_a_selected_label_are_followed(kube: Kube) -> None:
    gpu_taint = {"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}
    kube.node("a", 8, taints=[gpu_taint], labels={"nvidia.com/gpu.product": "H100"})
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert kube.ask().verdict is Verdict.WAITS
    assert kube.ask(tolerations=tolerations).verdict is Verdict.STARTS
    wrong = {"nvidia.com/gpu.product": "A100"}
    assert kube.ask(tolerations=tolerations, nodeSelector=wrong).verdict is Verdict.WAITS


def test_room_is_kept_for_a_nominated_pod_but_not_from_stronger_ones(kube: Kube) -> None:
    kube.node("a", 1)
    kube.pod("going", "a", deletion_at=NOON)
    kube.pod("first", priority=100, nominated_node="a")
    weaker = kube.ask(priority="low")
    assert (weaker.verdict, weaker.reason) == (Verdict.WAITS, "NoRoom")
    stronger = kube.ask(priority="very-high")
    assert (stronger.verdict, stronger.reason, stronger.victims) == (Verdict.WAITS, "Evicting", ())


@pytest.mark.parametrize(
    ("waiting", "verdict"),
    [
        pytest.param({}, Verdict.WAITS, id="a stronger pod takes the room first"),
        pytest.param({"node_selector": {"kind": "cpu"}}, Verdict.STARTS, id="but not one for other nodes"),
        pytest.param({"reason": "SchedulingGated"}, Verdict.STARTS, id="nor one that is held back"),
    ],
)
def test_foreign_pods_that_wait_are_counted_where_they_compete(
    kube: Kube, waiting: dict[str, Any], verdict: Verdict
) -> None:
    kube.node("a", 1)
    kube.pod("ahead", priority=1000, **waiting)
    assert kube.ask().verdict is verdict


def test_a_waiting_pod_of_a_class_that_never_preempts_evicts_nobody(kube: Kube) -> None:
    kube.node("a", 1)
    kube.pod("notebook", "a")
    kube.pod("meek", priority=1000, never_preempts=True)
    assert victims(kube.ask()) == ["elsewhere/notebook"]


@pytest.mark.parametrize(("phase", "verdict"), [("Unknown", Verdict.WAITS), ("Succeeded", Verdict.STARTS)])
def test_a_pod_holds_its_room_until_it_has_ended(kube: Kube, phase: str, verdict: Verdict) -> None:
    kube.node("a", 1)
    kube.pod("lost", "a", priority=1000, phase=phase)
    assert kube.ask().verdict is verdict


def test_what_the_namespace_fills_in_is_counted(kube: Kube) -> None:
    kube.node("a", 1, cpu_milli=99)
    assert kube.ask().verdict is Verdict.WAITS
    kube.node("b", 1, cpu_milli=100, memory_bytes=128 * 2**20)
    assert kube.ask().verdict is Verdict.STARTS


def replicas(count: int, *, gpus: int) -> dict[str, Any]:
    manifest = deployment("serve", gpus=gpus)
    manifest["spec"]["replicas"] = count
    return manifest


def test_of_several_pods_as_many_start_as_have_room_and_the_numbers_are_from_before_the_first(kube: Kube) -> None:
    kube.node("a")
    kube.node("b")
    kube.team.quotas.update(gpu_deserved=64 * GPU)
    answer = kube.ask_for(replicas(3, gpus=8))
    assert (answer.verdict, answer.starting, answer.coming, answer.waiting) == (Verdict.STARTS, 2, 0, 1)
    assert answer.sentence == (
        "Starts 2 of 3 pods now in h100, within quota. 1 pod waits: the workload needs 24 GPUs in h100; 16 GPUs "
        "free, at most 8 on one node, and the scheduler finds no evictions that would free enough for it."
    )
    assert answer.numbers["free"].startswith("16 GPU")
    assert answer.alternatives, "fewer GPUs a pod would start all of them"


def test_an_eviction_that_makes_room_for_some_of_its_pods_says_so(kube: Kube) -> None:
    kube.node("a")
    kube.node("b")
    kube.pod("weak", "a", gpus=8)
    kube.pod("strong", "b", gpus=8, priority=150)
    answer = kube.ask_for(replicas(2, gpus=8))
    assert (answer.verdict, answer.starting, answer.coming, answer.waiting) == (Verdict.EVICTS, 0, 1, 1)
    assert answer.sentence.startswith("Starts 1 of 2 pods in h100 after evicting 1 workload (8 GPUs), ")
    assert ". 1 pod waits: the workload needs 16 GPUs in h100; 0 GPUs free" in answer.sentence


def test_some_start_now_some_after_the_eviction_and_others_not(kube: Kube) -> None:
    for name in ("a", "b", "c"):
        kube.node(name)
    kube.pod("weak", "a", gpus=8)
    kube.pod("strong", "b", gpus=8, priority=150)
    kube.team.quotas.update(gpu_deserved=64 * GPU)
    answer = kube.ask_for(replicas(3, gpus=8))
    assert answer.sentence.startswith("Starts 1 of 3 pods now and 1 in h100 after evicting 1 workload (8 GPUs), ")
    assert ". 1 pod waits: " in answer.sentence


def test_a_kind_that_needs_all_its_pods_waits_where_only_some_get_a_node(kube: Kube) -> None:
    kube.node("a")
    answer = kube.ask_for(pytorch_job(gpus=8, workers=1))
    assert (answer.verdict, answer.starting, answer.waiting) == (Verdict.WAITS, 1, 1)
    assert answer.sentence.startswith(
        "Waits: 1 of 2 pods gets a node in h100 now and holds it. 1 pod waits: the workload needs 16 GPUs in h100; 8 "
    )


def test_a_workload_whose_first_pods_start_in_its_first_pool_is_tried_in_no_other(kube: Kube) -> None:
    kube.node("a")
    other = NodePoolFactory(cluster=kube.cluster, name="a100")
    for name in ("b", "c"):
        labels = {other.label_key: other.label_value}
        NodeFactory(cluster=kube.cluster, pool=other, name=name, gpu_milli=8 * GPU, labels=labels)
    ProjectQuotaFactory(project=kube.team, node_pool=other, gpu_deserved=16 * GPU)
    DepartmentQuotaFactory(department=kube.department, node_pool=other, gpu_deserved=64 * GPU)
    spec = spec_of(replicas(2, gpus=8), namespace=kube.team.namespace, priority="low", node_pools=("h100", "a100"))
    team = Project.objects.select_related("cluster", "department").get(pk=kube.team.pk)
    answer = forecast(spec=spec, project=team, actor=SYSTEM)
    assert (answer.verdict, answer.pool, answer.starting, answer.waiting) == (Verdict.STARTS, "h100", 1, 1)


def between_pods(kube: Kube, name: str, priority: str, **row: Any) -> Workload:
    """One GPU is asked for; its last pod is gone, and its controller makes no new one yet."""
    chosen = Priority.objects.get(name=priority)
    workload: Workload = WorkloadFactory(project=kube.team, name=name, priority=chosen, **row)
    kube.pod(f"{name}-pod", "a", owner_id=str(workload.pk), gone_at=NOON, namespace=kube.team.namespace)
    return workload


def test_a_stronger_job_between_two_pods_is_not_taken_as_first_and_the_doubt_has_its_name(kube: Kube) -> None:
    kube.node("a", 1)
    between_pods(kube, "again", "high")
    between_pods(kube, "weaker", "very-low")
    answer = kube.ask()
    assert answer.verdict is Verdict.STARTS
    [doubt] = [each for each in answer.cautions if "has no pods now" in each]
    assert doubt == (
        "again (higher priority) has no pods now: its controller waits before it retries. If that starts first, "
        "this workload would wait."
    )
    member = MembershipFactory(project=kube.team, user=UserFactory()).user
    assert doubt in kube.ask(actor=acting(member)).cautions


def test_where_it_makes_no_difference_no_doubt_is_named(kube: Kube) -> None:
    kube.node("a", 2)
    between_pods(kube, "again", "high")
    assert not [each for each in kube.ask().cautions if "no pods now" in each]


def test_who_was_refused_by_a_quota_comes_when_its_controller_tries_again(kube: Kube) -> None:
    kube.node("a", 1)
    high = Priority.objects.get(name="high")
    for name in ("one", "two", "three", "four"):
        WorkloadFactory(project=kube.team, name=name, priority=high, phase_reason="OverLimit")
    answer = kube.ask()
    [doubt] = [each for each in answer.cautions if "have no pods now" in each]
    assert (answer.verdict, doubt.count(" and 1 more (higher priorities) ")) == (Verdict.STARTS, 1)


def test_a_stronger_one_whose_pods_are_about_to_come_is_first(kube: Kube) -> None:
    kube.node("a", 1)
    WorkloadFactory(project=kube.team, priority=Priority.objects.get(name="high"))
    assert kube.ask().verdict is Verdict.WAITS


def test_a_stronger_one_that_waits_in_another_pool_and_may_be_tried_here_next_is_named(kube: Kube) -> None:
    kube.node("a", 1)
    high = Priority.objects.get(name="high")
    row = WorkloadFactory(project=kube.team, name="roams", priority=high, pool_name="a100", node_pools=["a100", "h100"])
    WorkloadFactory(project=kube.team, priority=high, pool_name="a100", node_pools=["a100", "other"])
    kube.pod("roams-pod", owner_id=str(row.pk), gpus=1, priority=125, node_selector={"rung.dev/node-pool": "a100"})
    answer = kube.ask()
    assert answer.verdict is Verdict.STARTS
    assert (
        "roams waits in another node pool and may be tried in h100 next. If that starts first, this workload would "
        "wait."
    ) in answer.cautions
    Workload.objects.filter(pk=row.pk).update(allocated_gpu_milli=GPU)
    assert not [each for each in kube.ask().cautions if "may be tried" in each]


def test_while_its_last_pod_is_ending_a_job_is_between_two_pods_already(kube: Kube) -> None:
    kube.node("a", 1)
    workload: Workload = WorkloadFactory(project=kube.team, name="again", priority=Priority.objects.get(name="high"))
    kube.pod("failed", "a", gpus=1, owner_id=str(workload.pk), phase="Failed", namespace=kube.team.namespace)
    kube.pod("ends", "a", gpus=1, owner_id=str(workload.pk), deletion_at=NOON, namespace=kube.team.namespace)
    kube.node("b", 1)
    assert any(each.startswith("again (higher priority) has no pods now") for each in kube.ask().cautions)
