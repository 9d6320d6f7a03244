"""An eviction on a plain cluster is told in parts, in any order, more than once: one record comes of it, and all."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from clusters.watch.models import ClusterEvent, ObservedPod
from clusters.watch.services.observations import Observation
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.lifecycle.services.observe import on_observation
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timelines
from workloads.state.models import Workload, WorkloadEvent

DECIDED = datetime(2026, 11, 21, 6, 30, tzinfo=UTC)
GRACE = 30
TAKER = "0f0e0d0c-1111-4222-8333-444455556666"


class Eviction:
    """A training's pod that a plain scheduler ends for an inference's pod, told part by part."""

    def __init__(self, project: Project) -> None:
        self.cluster = project.cluster
        self.cluster.flavour = "kube"
        self.cluster.save()
        self.victim: Workload = WorkloadFactory(project=project, name="train")
        self.taker: Workload = WorkloadFactory(project=project, name="serve")
        self.pod: ObservedPod = ObservedPodFactory(
            workload=self.victim, gpu_milli=8000, grace_seconds=GRACE, started_at=DECIDED - timedelta(hours=1)
        )

    def look(self, pods: list[ObservedPod], events: list[ClusterEvent] | None = None) -> None:
        """What one look found."""
        found = Observation(at=DECIDED + timedelta(minutes=1), pods=tuple(pods), events=tuple(events or ()))
        on_observation(self.cluster, found)

    def _now(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self.pod, name, value)
        self.pod.save()
        self.look([self.pod])

    def marked(self) -> None:
        """The condition, with the deletion that follows at once. It names nobody."""
        words = "default-scheduler: preempting to accommodate a higher priority pod"
        self._now(
            disrupted_at=DECIDED,
            disruption_reason="PreemptionByScheduler",
            disruption_message=words,
            deletion_at=DECIDED + timedelta(seconds=GRACE),
        )

    def gone(self) -> None:
        """The end, six seconds after SIGTERM."""
        end = DECIDED + timedelta(seconds=6)
        self._now(gone_at=end + timedelta(seconds=1), ended_at=end, deletion_at=DECIDED + timedelta(seconds=GRACE))

    def told(self) -> None:
        """The scheduler's event about the victim."""
        event, _ = ClusterEvent.objects.get_or_create(
            cluster=self.cluster,
            uid="event",
            defaults={
                "namespace": self.pod.namespace,
                "owner_id": self.pod.owner_id,
                "kind": "Pod",
                "name": self.pod.name,
                "object_uid": self.pod.uid,
                "reason": "Preempted",
                "message": f"Preempted by pod {TAKER} on node {self.pod.node_name}",
                "at": DECIDED + timedelta(milliseconds=300),
            },
        )
        self.look([], [event])

    def seen(self) -> None:
        """The preemptor's pod."""
        taking, _ = ObservedPod.objects.get_or_create(
            cluster=self.cluster,
            uid=TAKER,
            defaults={
                "owner_id": str(self.taker.pk),
                "namespace": self.pod.namespace,
                "name": "serve-0",
                "phase": "Pending",
                "created_at": DECIDED,
                "observed_at": DECIDED,
            },
        )
        self.look([taking])


@pytest.fixture
def eviction(llm_team: Project) -> Eviction:
    """Nothing of it is known yet."""
    return Eviction(llm_team)


PARTS: tuple[Callable[[Eviction], None], ...] = (Eviction.marked, Eviction.gone, Eviction.told, Eviction.seen)


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize(
    "order", list(permutations(PARTS)), ids=lambda order: "-".join(part.__name__ for part in order)
)
def test_one_record_holds_everything_whatever_comes_first(
    order: tuple[Callable[[Eviction], None], ...], twice: bool, eviction: Eviction
) -> None:
    for part in (*order, *(order if twice else ())):
        part(eviction)
    record = PreemptionRecord.objects.get()
    assert (record.victim, record.preemptor, record.preemptor_name) == (eviction.victim, eviction.taker, "serve")
    assert (record.cause, record.at, record.node_name) == ("preempt", DECIDED, eviction.pod.node_name)
    assert (record.grace_seconds, record.grace_used_seconds) == (GRACE, 6)
    assert (record.ran_seconds, record.lost_gpu_seconds) == (3600, 8 * 3600)
    told = WorkloadEvent.objects.get(workload=eviction.victim, type="preemption")
    assert told.message.startswith("Preempted by serve (")
    assert Workload.objects.get(pk=eviction.victim.pk).preempted_count == 1


def test_the_record_tells_it_after_pods_and_events_are_gone(eviction: Eviction, as_alice: Actor) -> None:
    for part in PARTS:
        part(eviction)
    ObservedPod.objects.all().delete()
    ClusterEvent.objects.all().delete()
    (story,) = eviction_timelines(eviction.victim, as_alice)
    assert "by serve (" in story.sentence
    assert "8.0 GPU-hours lost" in story.sentence
    words = " ".join(step.words for step in story.steps)
    assert "SIGTERM sent to" in words
    assert "after 6 s (grace period 30 s)" in words


def test_the_steps_are_in_one_order_by_the_clusters_clocks(eviction: Eviction, as_alice: Actor) -> None:
    """Rung's clock is 40 s behind: the requeue that it noted seems to come before the eviction itself."""
    for part in PARTS:
        part(eviction)
    for phase in ("Pending", "Running"):
        at = DECIDED - timedelta(seconds=34)
        WorkloadEvent.objects.create(workload=eviction.victim, at=at, type="phase", phase=phase)
    again = {"created_at": DECIDED + timedelta(seconds=1), "started_at": DECIDED + timedelta(minutes=9)}
    ObservedPodFactory(workload=eviction.victim, name="train-again", **again)
    Workload.objects.filter(pk=eviction.taker.pk).update(started_at=DECIDED + timedelta(seconds=8))
    (story,) = eviction_timelines(eviction.victim, as_alice)
    found = [((step.at - DECIDED).total_seconds(), step.words.split()[0]) for step in story.steps]
    assert found == [(0, "Chosen"), (0, "SIGTERM"), (0, "Requeued."), (6, "Stopped"), (8, "Started:"), (540, "Running")]


def test_an_event_that_comes_after_the_deletion_moves_no_step(eviction: Eviction, as_alice: Actor) -> None:
    for part in (Eviction.told, Eviction.gone, Eviction.seen):
        part(eviction)
    PreemptionRecord.objects.update(at=DECIDED + timedelta(seconds=5))
    (story,) = eviction_timelines(eviction.victim, as_alice)
    assert [step.at for step in story.steps[:3]] == [DECIDED, DECIDED, DECIDED + timedelta(seconds=6)]
    assert "after 6 s (grace period 30 s)" in story.steps[2].words


def test_a_small_loss_is_told_in_minutes(eviction: Eviction, as_alice: Actor) -> None:
    eviction.victim.spec["annotations"] = {"rung.dev/checkpoint-interval": "3590s"}
    eviction.victim.save()
    for part in PARTS:
        part(eviction)
    (story,) = eviction_timelines(eviction.victim, as_alice)
    assert "Last checkpoint 10 s earlier: about 1.3 GPU-minutes lost" in story.sentence
    assert "about 1.3 GPU-minutes lost" in WorkloadEvent.objects.get(type="preemption").message


def test_a_deletion_without_a_word_of_the_scheduler_is_no_eviction(eviction: Eviction) -> None:
    eviction.gone()
    assert not PreemptionRecord.objects.exists()


def test_a_pod_recreated_under_the_same_name_is_evicted_on_its_own(eviction: Eviction) -> None:
    for part in PARTS:
        part(eviction)
    name = eviction.pod.name
    ClusterEvent.objects.all().delete()
    eviction.pod = ObservedPodFactory(workload=eviction.victim, name=name, started_at=DECIDED)
    eviction.marked()
    assert sorted(PreemptionRecord.objects.values_list("pod_name", flat=True)) == [name, name]
    assert PreemptionRecord.objects.values("pod_uid").distinct().count() == 2


def test_a_preemptor_outside_is_named_by_its_pod(eviction: Eviction) -> None:
    eviction.marked()
    ObservedPodFactory(workload=eviction.taker, uid=TAKER, namespace="kube-system", name="dns-0", owner_id="")
    eviction.told()
    record = PreemptionRecord.objects.get()
    assert (record.preemptor, record.preemptor_name) == (None, "kube-system/dns-0")


def test_the_word_preempting_is_the_kubelets_and_no_schedulers(eviction: Eviction) -> None:
    """A kubelet admits critical pods under that reason; only `Preempted` is written by a scheduler."""
    eviction.gone()
    ClusterEvent.objects.create(
        cluster=eviction.cluster,
        uid="kubelet",
        namespace=eviction.pod.namespace,
        owner_id=eviction.pod.owner_id,
        kind="Pod",
        name=eviction.pod.name,
        object_uid=eviction.pod.uid,
        reason="Preempting",
        message="Preempted in order to admit critical pod",
        at=DECIDED,
    )
    eviction.look([eviction.pod])
    assert not PreemptionRecord.objects.exists()
