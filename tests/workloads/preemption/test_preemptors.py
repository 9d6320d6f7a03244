"""Who gained by an eviction, as far as the scheduler's words allow, and when a record is not one."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.ports.flavour import PodStatusReason
from clusters.watch.models import ObservedPod
from clusters.watch.services.observations import Observation
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.lifecycle.services.observe import on_observation
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timelines
from workloads.preemption.services import record_evictions
from workloads.state.models import Workload
from workloads.state.selectors.workloads import object_name


def evicted(workload: Workload, **more: Any) -> ObservedPod:
    """A pod that had run for an hour when the scheduler ended it."""
    now = timezone.now()
    marks = {
        "started_at": now - timedelta(hours=1),
        "disrupted_at": now,
        "disruption_reason": "PreemptionByScheduler",
        "deletion_at": now,
    }
    pod: ObservedPod = ObservedPodFactory(workload=workload, **{**marks, **more})
    return pod


def recorded(pod: ObservedPod, victim: Workload, reading: PodStatusReason) -> PreemptionRecord:
    """The record of one look at the pod."""
    readings: Mapping[str, PodStatusReason] = {pod.uid: reading}
    record_evictions(victim.project.cluster, [pod], {str(victim.pk): victim}, readings)
    return PreemptionRecord.objects.get(pod_uid=pod.uid)


@pytest.fixture
def victim(llm_team: Project) -> Workload:
    """Somebody's training."""
    found: Workload = WorkloadFactory(project=llm_team)
    return found


def test_the_taker_is_found_by_the_uid_of_its_pod(victim: Workload) -> None:
    taker = WorkloadFactory(project=victim.project, name="big")
    pod = ObservedPodFactory(workload=taker, phase="Pending", node_name="")
    record = recorded(
        evicted(victim), victim, PodStatusReason("Preempted", "", preemptor=f"uid:{pod.uid}", cause="preempt")
    )
    assert (record.preemptor, record.preemptor_name, record.cause) == (taker, "big", "preempt")


@pytest.mark.parametrize("named", ["pod", "object"])
def test_the_taker_is_found_by_namespace_and_name(named: str, victim: Workload, vision_team: Project) -> None:
    taker = WorkloadFactory(project=vision_team, name="big")
    name = object_name(taker) if named == "object" else ObservedPodFactory(workload=taker).name
    record = recorded(
        evicted(victim), victim, PodStatusReason("Reclaimed", "", preemptor=f"{vision_team.namespace}/{name}")
    )
    assert (record.preemptor, record.cause, record.preemptor_project) == (taker, "reclaim", "vision-team")


def test_the_same_queue_is_preempt_where_the_scheduler_does_not_say(victim: Workload) -> None:
    taker = WorkloadFactory(project=victim.project)
    said = PodStatusReason("Evicted", "", preemptor=f"{victim.project.namespace}/{object_name(taker)}")
    assert recorded(evicted(victim), victim, said).cause == "preempt"


@pytest.mark.parametrize("said", ["", "uid:00000000-0000-0000-0000-000000000000", "elsewhere/unknown"])
def test_an_unknown_taker_stays_unknown(said: str, victim: Workload) -> None:
    record = recorded(evicted(victim), victim, PodStatusReason("Evicted", "", preemptor=said))
    assert (record.preemptor, record.cause) == (None, "unknown")
    assert record.lost_gpu_seconds == 3600


def test_a_checkpoint_shortens_the_loss(victim: Workload) -> None:
    victim.spec["annotations"] = {"rung.dev/checkpoint-interval": "50m"}
    record = recorded(evicted(victim), victim, PodStatusReason())
    assert (record.ran_seconds, record.lost_gpu_seconds) == (3600, 600)


def test_what_never_started_loses_nothing(victim: Workload) -> None:
    record = recorded(evicted(victim, started_at=None), victim, PodStatusReason())
    assert (record.ran_seconds, record.lost_gpu_seconds) == (0, 0)


def test_a_drain_is_no_preemption(victim: Workload) -> None:
    pod = evicted(victim, disruption_reason="EvictionByEvictionAPI")
    record_evictions(victim.project.cluster, [pod], {str(victim.pk): victim}, {})
    assert not PreemptionRecord.objects.exists()


def test_the_record_outlives_pod_and_notes_when_it_went(victim: Workload) -> None:
    pod = evicted(victim)
    recorded(pod, victim, PodStatusReason())
    pod.gone_at = timezone.now()
    recorded(pod, victim, PodStatusReason())
    pod.delete()
    record = PreemptionRecord.objects.get()
    assert record.gone_at is not None
    assert Workload.objects.get(pk=victim.pk).preempted_count == 1


def test_evictions_seconds_apart_are_counted_as_its_page_lists_them(victim: Workload, as_alice: Actor) -> None:
    now = timezone.now()
    for seconds in (40, 20, 0):
        at = now - timedelta(seconds=seconds)
        recorded(evicted(victim, disrupted_at=at, deletion_at=at), victim, PodStatusReason())
    assert Workload.objects.get(pk=victim.pk).preempted_count == len(eviction_timelines(victim, as_alice)) == 3


def test_pods_of_nobody_are_none_of_ours(victim: Workload) -> None:
    pods = [evicted(victim, owner_id=owner) for owner in ("", "x" * 36, "not-an-id")]
    on_observation(victim.project.cluster, Observation(at=timezone.now(), pods=tuple(pods)))
    assert not PreemptionRecord.objects.exists()
