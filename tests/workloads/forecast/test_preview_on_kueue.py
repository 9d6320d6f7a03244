"""A preview for Kueue counts quotas and not nodes: what is admitted, what that takes, and what it says of the rest."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import ClusterEvent, ObservedPod
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Department, Project
from tests.factories.clusters import NodeFactory, NodePoolFactory, ObservedPodFactory, build_cluster
from tests.factories.tenants import GPU, DepartmentFactory, DepartmentQuotaFactory, ProjectFactory, ProjectQuotaFactory
from tests.factories.workloads import WorkloadFactory, deployment, job, pytorch_job, spec_of
from workloads.dictionary.models import Priority, WorkloadType
from workloads.forecast.rules.forecast import BIT_BY_BIT, Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.uncertainties import AGAIN, MORE, OTHERS_FIRST
from workloads.forecast.selectors.waiting import why_waiting
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Kueue:
    """A cluster with Kueue and the pool h100 as its rows say it is: no nodes at all."""

    def __init__(self) -> None:
        now = datetime.now(tz=UTC)
        self.cluster: Cluster = build_cluster(flavour="kueue", observed_at=now)
        self.pool: NodePool = NodePoolFactory(cluster=self.cluster, name="h100", is_default=True)
        self.research = self.department("research", deserved=12)
        self.team = self.project("llm-team", self.research, deserved=8)

    def department(self, name: str, *, deserved: int) -> Department:
        found: Department = DepartmentFactory(cluster=self.cluster, name=name)
        DepartmentQuotaFactory(department=found, node_pool=self.pool, gpu_deserved=deserved * GPU)
        return found

    def project(self, name: str, department: Department, *, deserved: int) -> Project:
        found: Project = ProjectFactory(department=department, name=name)
        ProjectQuotaFactory(project=found, node_pool=self.pool, gpu_deserved=deserved * GPU)
        return found

    def runs(self, project: Project, name: str, *, gpus: int, priority: int = 40, minute: int = 0) -> Workload:
        """A workload that was admitted: its pod exists, and has no node yet."""
        row: Workload = WorkloadFactory(project=project, name=name, gpu_milli=gpus * GPU, phase="Running")
        self.pod(project.namespace, gpus=gpus, priority=priority, owner=str(row.pk), minute=minute)
        return row

    def pod(self, namespace: str, *, gpus: int, priority: int = 40, owner: str = "", minute: int = 0) -> None:
        ObservedPodFactory(
            cluster=self.cluster,
            namespace=namespace,
            owner_id=owner,
            pool_name="h100",
            gpu_milli=gpus * GPU,
            priority=priority,
            phase="Pending",
            node_name="",
            created_at=NOON + timedelta(minutes=minute),
        )

    def says(self, reason: str, about: Workload, uid: str, *, kind: str = "Pod", minute: int = 0) -> None:
        """What its Workload for a pod or a Job says, as it was last seen."""
        ClusterEvent.objects.create(
            cluster=self.cluster,
            uid=f"{uid}.queue",
            owner_id=str(about.pk),
            kind=kind,
            object_uid=uid,
            reason=reason,
            at=NOON + timedelta(minutes=minute),
        )

    def node(self, name: str, *, held: int, priority: int = 40) -> None:
        """Of 8 GPUs, some held by somebody else's pod."""
        NodeFactory(cluster=self.cluster, pool=self.pool, name=name, gpu_milli=8 * GPU)
        ObservedPodFactory(
            cluster=self.cluster,
            namespace="elsewhere",
            pool_name="h100",
            gpu_milli=held * GPU,
            priority=priority,
            node_name=name,
        )

    def serve(self, name: str, *, gpus: int, replicas: int) -> dict[str, Any]:
        manifest = deployment(name, gpus=gpus)
        manifest["spec"]["replicas"] = replicas
        return manifest

    def ask(self, *, gpus: int, pods: int = 1, priority: str = "low", near: str = "") -> Forecast:
        manifest = job("asked", gpus=gpus, pods=pods)
        manifest["metadata"]["annotations"] = {"rung.dev/topology-key": near} if near else {}
        return self.ask_for(manifest, priority=priority)

    def ask_for(self, manifest: dict[str, Any], *, priority: str = "low") -> Forecast:
        spec = spec_of(manifest, namespace=self.team.namespace, priority=priority, preemptibility="preemptible")
        team = Project.objects.select_related("cluster", "department").get(pk=self.team.pk)
        return forecast(spec=spec, project=team, actor=SYSTEM)


@pytest.fixture
def kueue() -> Kueue:
    return Kueue()


def victims(answer: Forecast) -> list[tuple[str, int]]:
    return [(each.label, each.gpu_milli // GPU) for each in answer.victims]


def test_quota_is_enough_to_start_and_what_it_borrows_is_said(kueue: Kueue) -> None:
    within = kueue.ask(gpus=4, pods=2)
    assert (within.verdict, within.over_quota, within.alternatives) == (Verdict.STARTS, False, ())
    borrowing = kueue.ask(gpus=4, pods=3)
    assert (borrowing.verdict, borrowing.over_quota) == (Verdict.STARTS, True)


def test_what_was_admitted_counts_before_it_has_a_node(kueue: Kueue) -> None:
    kueue.runs(kueue.team, "first", gpus=8, priority=80)
    answer = kueue.ask(gpus=6)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "WaitingForQuota")
    assert answer.numbers["queue"] == "project llm-team"
    assert (
        "project llm-team has 4 GPUs of quota free, and the scheduler finds no evictions that would free enough for it"
        in answer.sentence
    )


def test_pods_outside_its_queues_count_for_nothing(kueue: Kueue) -> None:
    kueue.pod(kueue.team.namespace, gpus=12)
    kueue.pod("elsewhere", gpus=12)
    assert kueue.ask(gpus=12).verdict is Verdict.STARTS


def test_free_quota_in_pieces_too_small_for_a_pod_is_no_start(kueue: Kueue) -> None:
    """Eight GPUs are free, four on each of two nodes."""
    kueue.node("one", held=4)
    kueue.node("two", held=4)
    assert kueue.ask(gpus=4, pods=2).verdict is Verdict.STARTS
    answer = kueue.ask(gpus=8)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NoRoom")
    assert answer.sentence == (
        "Admitted immediately: its quota is free. Its pod may find no node: each needs 8 GPUs on one node of "
        "h100; 8 GPUs free, at most 4 GPUs on one node."
    )
    assert any("keeps its quota while it waits" in each for each in answer.cautions)
    pair = kueue.ask(gpus=4, pods=3)
    assert (pair.verdict, pair.starting, pair.waiting) == (Verdict.WAITS, 2, 1)
    assert "1 of its 3 pods may find no node" in pair.sentence


def test_room_that_pods_are_about_to_leave_is_no_start_now(kueue: Kueue) -> None:
    """Kueue lets it go at once, though what it evicted for another still has its grace period."""
    kueue.node("one", held=8)
    ObservedPod.objects.update(deletion_at=NOON)
    answer = kueue.ask(gpus=4)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "Evicting")
    assert answer.sentence == (
        "Admitted immediately: its quota is free. It has its place in h100 and starts when terminating pods there "
        "have stopped."
    )


@pytest.mark.parametrize(
    ("priority", "gpus", "verdict"),
    [
        pytest.param(125, 4, Verdict.WAITS, id="a stronger one takes the room first"),
        pytest.param(125, 8, Verdict.STARTS, id="a stronger one does not fit"),
        pytest.param(25, 4, Verdict.STARTS, id="a weaker one comes later"),
    ],
)
def test_what_was_admitted_and_waits_for_a_node_takes_its_place_in_turn(
    kueue: Kueue, priority: int, gpus: int, verdict: Verdict
) -> None:
    kueue.node("one", held=4)
    sister = kueue.project("sister", kueue.research, deserved=8)
    kueue.runs(sister, "first", gpus=gpus, priority=priority)
    assert kueue.ask(gpus=4).verdict is verdict


def test_where_kueue_knows_the_nodes_it_admits_nothing_that_has_no_place_on_them(kueue: Kueue) -> None:
    kueue.node("one", held=4)
    NodePool.objects.update(topology_levels=["example.com/rack"])
    Node.objects.update(labels={"example.com/rack": "r1"})
    answer = kueue.ask(gpus=8)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NoRoom")
    assert answer.sentence == (
        "Waits: it needs 8 GPUs in h100; 4 GPUs free, at most 4 on one node, and the scheduler finds no "
        "evictions that would free enough for it."
    )
    assert not any("keeps its quota" in each for each in answer.cautions)
    assert kueue.ask(gpus=4).nodes == ("one",)
    Node.objects.update(labels={})
    assert kueue.ask(gpus=4).reason == "NoRoom", "a node that lacks the label of a level takes nothing"


@pytest.mark.parametrize(
    ("levels", "workers", "said"),
    [
        pytest.param([], 1, "h100 has no topology levels; an admin can add them", id="no topology"),
        pytest.param(["x/block"], 1, "example.com/rack is not a topology level of node pool h100", id="no such level"),
        pytest.param(["example.com/rack"], 2, "", id="a leader and its workers"),
    ],
)
def test_a_domain_is_refused_where_no_topology_of_the_pool_has_it(
    kueue: Kueue, levels: list[str], workers: int, said: str
) -> None:
    NodeFactory(cluster=kueue.cluster, pool=kueue.pool, name="one", labels={"example.com/rack": "r1"})
    NodePool.objects.update(topology_levels=levels)
    manifest = pytorch_job("near", gpus=1, workers=workers)
    manifest["metadata"]["annotations"] = {"rung.dev/topology-key": "example.com/rack"}
    team = Project.objects.select_related("cluster", "department").get(pk=kueue.team.pk)
    spec = spec_of(manifest, namespace=team.namespace, priority="low", preemptibility="preemptible")
    if not said:
        assert forecast(spec=spec, project=team, actor=SYSTEM).verdict is not Verdict.REFUSED
        return
    with pytest.raises(ValidationFailed) as refusal:
        forecast(spec=spec, project=team, actor=SYSTEM)
    assert (refusal.value.code, refusal.value.problems[0].allowed) == ("topology_not_a_level", tuple(levels))
    assert said in str(refusal.value)


def test_a_gang_of_one_domain_waits_with_what_the_emptiest_domain_has(kueue: Kueue) -> None:
    for number, held in enumerate((4, 4, 4, 8)):
        kueue.node(f"n{number}", held=held)
        Node.objects.filter(name=f"n{number}").update(labels={"example.com/rack": f"r{number // 2}"})
    NodePool.objects.update(topology_levels=["example.com/rack"])
    assert kueue.ask(gpus=4, pods=2, near="example.com/rack").verdict is Verdict.STARTS
    assert kueue.ask(gpus=4, pods=3).verdict is Verdict.STARTS
    answer = kueue.ask(gpus=4, pods=3, near="example.com/rack")
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NoDomain")
    assert answer.sentence == (
        "Waits: it needs 12 GPUs in h100 on nodes with the same example.com/rack; 12 GPUs free, at most 8 GPUs in "
        "one domain (r0), and nothing is evicted for it."
    )
    assert answer.numbers["domain"] == "r0"
    assert answer.numbers["largest_domain"].startswith("8 GPU,")


def test_who_has_quota_and_no_domain_takes_one_from_weaker_work_of_its_project(kueue: Kueue) -> None:
    for number in range(2):
        kueue.node(f"n{number}", held=4)
    Node.objects.update(labels={"example.com/rack": "r0"})
    NodePool.objects.update(topology_levels=["example.com/rack"])
    weak = kueue.runs(kueue.team, "weak", gpus=4, priority=25)
    ObservedPod.objects.filter(owner_id=str(weak.pk)).update(node_name="n0")
    answer = kueue.ask(gpus=4, pods=2, near="example.com/rack")
    assert (answer.verdict, victims(answer)) == (Verdict.EVICTS, [("weak", 4)])
    assert kueue.ask(gpus=4, pods=2, near="example.com/rack", priority="very-low").reason == "NoDomain"


def test_what_evicts_by_quota_is_warned_where_the_victims_leave_no_node_free(kueue: Kueue) -> None:
    kueue.node("one", held=8)
    kueue.runs(kueue.team, "weak", gpus=8, priority=25)
    sister = kueue.project("sister", kueue.research, deserved=4)
    kueue.runs(sister, "hers", gpus=4)
    answer = kueue.ask(gpus=8, priority="low")
    assert (answer.verdict, victims(answer)) == (Verdict.EVICTS, [("weak", 8)])
    assert answer.sentence.startswith("Admitted in h100 after evicting 1 workload (8 GPUs), ")
    assert "at risk. Its pod may find no node: each needs 8 GPUs" in answer.sentence
    assert (answer.starting, answer.coming, answer.waiting) == (0, 0, 1)


def test_the_pods_of_a_deployment_are_admitted_one_by_one(kueue: Kueue) -> None:
    kueue.runs(kueue.team, "first", gpus=4, priority=80)
    answer = kueue.ask_for(kueue.serve("asked", gpus=4, replicas=3))
    assert (answer.verdict, answer.starting, answer.waiting) == (Verdict.STARTS, 2, 1)
    assert answer.sentence == (
        "Starts 2 of 3 pods now in h100, over quota: it may be evicted when others reclaim their share. 1 pod "
        "waits: the workload needs 12 GPUs in h100; project llm-team has 8 GPUs of quota free, and the scheduler "
        "finds no evictions that would free enough for it."
    )


def test_the_simulated_kueue_takes_a_deployment_whole_and_is_predicted_so(kueue: Kueue) -> None:
    kueue.runs(kueue.team, "first", gpus=4, priority=80)
    Cluster.objects.update(backend="sandbox")
    answer = kueue.ask_for(kueue.serve("asked", gpus=4, replicas=3))
    assert (answer.verdict, answer.starting, answer.waiting) == (Verdict.WAITS, 0, 3)


def test_pods_of_a_deployment_that_wait_in_its_queue_stand_there_each_for_itself(kueue: Kueue) -> None:
    serve = kueue.runs(kueue.team, "serve", gpus=8, priority=80)
    Workload.objects.filter(pk=serve.pk).update(type=WorkloadType.objects.get(name="Deployment"))
    kueue.pod(kueue.team.namespace, gpus=2, priority=80, owner=str(serve.pk), minute=1)
    ObservedPod.objects.filter(gpu_milli=2 * GPU).update(reason="SchedulingGated")
    assert kueue.ask(gpus=4, priority="low").verdict is Verdict.WAITS, "the pod before it takes 2 of the 4"
    assert kueue.ask(gpus=2, priority="low").verdict is Verdict.STARTS
    stronger = kueue.ask(gpus=4, priority="high")
    assert (stronger.verdict, victims(stronger)) == (Verdict.STARTS, [])


def test_a_pod_that_kueue_queues_no_more_is_before_nobody(kueue: Kueue) -> None:
    serve = kueue.runs(kueue.team, "serve", gpus=8, priority=80)
    Workload.objects.filter(pk=serve.pk).update(type=WorkloadType.objects.get(name="Deployment"))
    kueue.pod(kueue.team.namespace, gpus=2, priority=80, owner=str(serve.pk), minute=1)
    ObservedPod.objects.filter(gpu_milli=2 * GPU).update(reason="SchedulingGated")
    assert kueue.ask(gpus=4, priority="low").verdict is Verdict.WAITS
    kueue.says("LeftOut", serve, ObservedPod.objects.get(gpu_milli=2 * GPU).uid)
    assert kueue.ask(gpus=4, priority="low").verdict is Verdict.STARTS
    Workload.objects.filter(pk=serve.pk).update(phase="Pending", phase_reason="LeftOut")
    ObservedPod.objects.exclude(gpu_milli=2 * GPU).delete()
    assert kueue.ask(gpus=12, priority="low").verdict is Verdict.STARTS, "it is not counted as one without pods either"


def test_of_equals_the_one_that_was_let_in_last_goes_not_the_one_that_found_a_node_last(kueue: Kueue) -> None:
    for name, entry, start in (("early", 1, 9), ("late", 2, 3)):
        row = kueue.runs(kueue.team, name, gpus=6, priority=25)
        pod = ObservedPod.objects.get(owner_id=str(row.pk))
        ObservedPod.objects.filter(pk=pod.pk).update(node_name="one", started_at=NOON + timedelta(minutes=start))
        kueue.says("Admitted", row, f"job-{name}", kind="Job", minute=entry)
    assert victims(kueue.ask(gpus=2, priority="high")) == [("late", 6)]


def test_admitted_pods_that_wait_for_a_node_may_take_what_the_evicted_leave(kueue: Kueue) -> None:
    kueue.node("one", held=0)
    sister = kueue.project("sister", kueue.research, deserved=4)
    weak = kueue.runs(sister, "weak", gpus=8, priority=25)
    ObservedPod.objects.filter(owner_id=str(weak.pk)).update(node_name="one")
    assert BIT_BY_BIT not in kueue.ask(gpus=8).cautions
    kueue.runs(sister, "small", gpus=4, priority=25)
    answer = kueue.ask(gpus=8)
    assert (answer.verdict, answer.coming, BIT_BY_BIT in answer.cautions) == (Verdict.RECLAIMS, 1, True)


def test_who_counts_on_room_that_others_are_yet_to_make_is_told(kueue: Kueue) -> None:
    sister = kueue.project("sister", kueue.research, deserved=4)
    kueue.runs(sister, "lent", gpus=12, priority=25)
    high = Priority.objects.get(name="high")
    WorkloadFactory(
        project=kueue.team, name="strong", priority=high, gpu_milli=4 * GPU, spec=spec_of(job(gpus=4)).as_json()
    )
    answer = kueue.ask(gpus=4, priority="low")
    assert (answer.verdict, answer.reason, answer.coming) == (Verdict.WAITS, "Evicting", 1)
    assert OTHERS_FIRST in answer.cautions


def test_kueue_may_evict_more_once_one_of_the_evicted_has_left(kueue: Kueue) -> None:
    kueue.research.quotas.update(gpu_deserved=16 * GPU)
    kueue.runs(kueue.project("sister", kueue.research, deserved=4), "lent", gpus=5, priority=150)
    for name, gpus, priority in (("small", 2, 25), ("one", 4, 40), ("two", 4, 40)):
        kueue.runs(kueue.team, name, gpus=gpus, priority=priority)
    answer = kueue.ask(gpus=8, priority="high")
    assert sorted(victims(answer)) == [("one", 4), ("two", 4)]
    assert MORE.format(title="Kueue", count=1) in answer.cautions
    assert not any("decides again" in each for each in kueue.ask(gpus=3, priority="high").cautions)


def test_who_is_let_in_by_a_larger_victim_may_go_at_once_for_who_waits(kueue: Kueue) -> None:
    kueue.research.quotas.update(gpu_deserved=16 * GPU)
    sister = kueue.project("sister", kueue.research, deserved=8)
    kueue.runs(sister, "lent", gpus=4, priority=80)
    kueue.runs(sister, "own", gpus=6, priority=125)
    kueue.runs(kueue.team, "weak", gpus=4, priority=25)
    kueue.runs(kueue.team, "strong", gpus=1, priority=150)
    high = Priority.objects.get(name="high")
    WorkloadFactory(
        project=kueue.team, name="large", priority=high, gpu_milli=8 * GPU, spec=spec_of(job(gpus=8)).as_json()
    )
    answer = kueue.ask(gpus=2)
    assert victims(answer) == [("lent", 4)]
    assert AGAIN.format(names="large") in answer.cautions


def test_other_departments_lend_and_give_back(kueue: Kueue) -> None:
    borrower = kueue.project("borrower", kueue.department("vision", deserved=4), deserved=4)
    kueue.runs(borrower, "lent", gpus=10, priority=125)
    answer = kueue.ask(gpus=8, priority="very-low")
    assert (answer.verdict, victims(answer)) == (Verdict.RECLAIMS, [("lent", 10)])


def test_a_workload_that_takes_from_its_own_queue_and_from_others_says_how_many(kueue: Kueue) -> None:
    borrower = kueue.project("borrower", kueue.department("vision", deserved=4), deserved=4)
    kueue.runs(borrower, "lent", gpus=10, priority=125)
    kueue.runs(kueue.team, "weak", gpus=6, priority=25)
    answer = kueue.ask(gpus=8, priority="low")
    assert (answer.verdict, victims(answer)) == (Verdict.EVICTS, [("lent", 10), ("weak", 6)])
    assert answer.sentence.startswith("Starts in h100 after evicting 2 workloads (16 GPUs)")


def test_a_request_above_what_the_project_deserves_is_warned_that_it_evicts_nobody(kueue: Kueue) -> None:
    sister = kueue.project("sister", kueue.research, deserved=4)
    kueue.runs(sister, "small", gpus=4, priority=25)
    kueue.runs(kueue.team, "weak", gpus=8, priority=25)
    answer = kueue.ask(gpus=12, priority="high")
    assert answer.verdict is Verdict.WAITS
    assert "requests above the 8 GPUs that it deserves never evict others" in answer.sentence


def test_who_waits_is_told_what_its_quota_lacks(kueue: Kueue) -> None:
    kueue.runs(kueue.team, "first", gpus=12, priority=80)
    waiting = WorkloadFactory(project=kueue.team, priority_value=40)
    told = why_waiting(Workload.objects.select_related("project__cluster", "priority", "type").get(pk=waiting.pk))
    assert told is not None
    assert (told.source, told.reason) == ("model", "WaitingForQuota")
    assert "project llm-team has 0 GPUs of quota free" in told.sentence
