"""A gang that is evicted whole is one preemption with all its pods, whoever of them is seen first."""

from datetime import timedelta
from itertools import count

import pytest
from django.utils import timezone

from clusters.ports.objects import GANG_POD_GROUP
from clusters.watch.models import ClusterEvent, ObservedObject, ObservedPod
from clusters.watch.services.observations import Observation
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.lifecycle.services.observe import on_observation
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timelines
from workloads.state.models import Workload, WorkloadEvent

GROUP = "0f0e0d0c-1111-4222-8333-444455556666"
NOW = timezone.now().replace(microsecond=0)
_numbers = count()


class Gang:
    """A training of three pods on three nodes, which the scheduler ends for another gang."""

    def __init__(self, project: Project) -> None:
        self.cluster = project.cluster
        self.cluster.flavour = "kube-gangs"
        self.cluster.save()
        self.victim = _gang(project, "train", 3)
        self.taker = _gang(project, "big", 4)
        self.pods: list[ObservedPod] = [
            ObservedPodFactory(
                workload=self.victim, gpu_milli=2000, node_name=f"node-{number}", started_at=NOW - timedelta(hours=1)
            )
            for number in range(3)
        ]

    def look(self, pods: list[ObservedPod], events: list[ClusterEvent] | None = None) -> None:
        """What one look found."""
        on_observation(self.cluster, Observation(at=timezone.now(), pods=tuple(pods), events=tuple(events or ())))

    def marked(self, *pods: ObservedPod, by: str = "podgroup") -> None:
        """The condition on these pods; the scheduler marks one after the other."""
        for number, pod in enumerate(pods):
            pod.disrupted_at = pod.deletion_at = NOW + timedelta(seconds=number)
            pod.disruption_reason = "PreemptionByScheduler"
            pod.disruption_message = f"default-scheduler: preempting to accommodate a higher priority {by}"
            pod.save()
        self.look(list(pods))

    def told(self, *pods: ObservedPod) -> None:
        """The events that name the group."""
        events = [
            ClusterEvent.objects.create(
                cluster=self.cluster,
                uid=f"event-{next(_numbers)}",
                namespace=pod.namespace,
                owner_id=pod.owner_id,
                kind="Pod",
                name=pod.name,
                object_uid=pod.uid,
                reason="Preempted",
                message=f"Preempted by podgroup {GROUP} on node {pod.node_name}",
                at=NOW,
            )
            for pod in pods
        ]
        self.look([], events)

    def grouped(self) -> None:
        """The gang's group is seen, and then anything else."""
        ObservedObject.objects.create(
            cluster=self.cluster,
            kind=GANG_POD_GROUP.key,
            uid=GROUP,
            namespace=self.taker.project.namespace,
            name="big-1",
            owner_id=str(self.taker.pk),
        )
        self.look([])


def _gang(project: Project, name: str, pods: int) -> Workload:
    workload: Workload = WorkloadFactory(project=project, name=name, pod_count=pods)
    workload.spec["min_member"] = pods
    workload.save()
    return workload


@pytest.fixture
def gang(llm_team: Project) -> Gang:
    """Nothing has happened to it yet."""
    return Gang(llm_team)


def preemptions() -> list[PreemptionRecord]:
    return list(PreemptionRecord.objects.filter(first=None))


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_one_preemption_holds_every_pod_however_many_looks_it_takes(looks: int, gang: Gang, as_alice: Actor) -> None:
    gang.grouped()
    first, *rest = gang.pods
    for seen in {1: [gang.pods], 2: [[first], rest], 3: [[each] for each in gang.pods]}[looks]:
        gang.marked(*seen)
        gang.told(*seen)
    [preemption] = preemptions()
    assert preemption.others.count() == 2
    assert {each.preemptor for each in (preemption, *preemption.others.all())} == {gang.taker}
    told = WorkloadEvent.objects.get(workload=gang.victim, type="preemption")
    assert sorted(told.detail["records"]) == sorted(PreemptionRecord.objects.values_list("pk", flat=True))
    assert "6 GPUs on 3 nodes" in told.message
    assert Workload.objects.get(pk=gang.victim.pk).preempted_count == 1
    [story] = eviction_timelines(gang.victim, as_alice)
    assert "by big (" in story.sentence
    assert "6 GPUs in 3 pods" in story.sentence


def test_who_gained_is_known_once_the_group_is_seen(gang: Gang) -> None:
    gang.marked(*gang.pods)
    gang.told(*gang.pods)
    assert {each.preemptor for each in PreemptionRecord.objects.all()} == {None}
    gang.grouped()
    assert {each.preemptor_name for each in PreemptionRecord.objects.all()} == {"big"}
    assert "by big (" in WorkloadEvent.objects.get(workload=gang.victim, type="preemption").message


def test_a_single_pod_that_breaks_a_gang_takes_one_pod(gang: Gang) -> None:
    gang.marked(gang.pods[0], by="pod")
    gang.marked(gang.pods[1], by="pod")
    assert len(preemptions()) == 2


def test_the_same_gang_evicted_again_is_another_preemption(gang: Gang) -> None:
    gang.marked(*gang.pods)
    PreemptionRecord.objects.update(at=NOW - timedelta(minutes=10))
    again = ObservedPodFactory(workload=gang.victim, started_at=NOW)
    gang.marked(again)
    assert len(preemptions()) == 2


def test_a_strangers_group_stays_a_uid(gang: Gang) -> None:
    gang.marked(*gang.pods)
    gang.told(*gang.pods)
    ObservedObject.objects.create(cluster=gang.cluster, kind=GANG_POD_GROUP.key, uid=GROUP, namespace="x", name="x")
    gang.look([])
    assert {(each.preemptor, each.preemptor_uid) for each in preemptions()} == {(None, GROUP)}
