"""What the hourly pruning takes away, and what it leaves because somebody still needs it."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.watch.models import ClusterEvent, ObservedPod
from clusters.watch.services import observations
from clusters.watch.services.observations import prune
from clusters.watch.tasks import prune as prune_task
from portal.kit.models import Period
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.state.models import Phase, Workload

LONG_AGO = timedelta(days=8)


@pytest.fixture
def ended(llm_team: Project) -> Workload:
    """A workload that has completed."""
    found: Workload = WorkloadFactory(project=llm_team, phase=Phase.COMPLETED)
    return found


def pod_of(workload: Workload, *, gone: timedelta | None = LONG_AGO, **fields: Any) -> ObservedPod:
    found: ObservedPod = ObservedPodFactory(
        workload=workload, gone_at=gone and timezone.now() - gone, phase="Succeeded", **fields
    )
    return found


def record_of(pod: ObservedPod, victim: Workload, **fields: Any) -> PreemptionRecord:
    known = {"cause": PreemptionCause.PREEMPT, "gone_at": pod.gone_at, "preemptor_name": "serve"}
    return PreemptionRecord.objects.create(
        cluster=pod.cluster, pod_uid=pod.uid, pod_name=pod.name, at=timezone.now(), victim=victim, **{**known, **fields}
    )


def event(workload: Workload, uid: str, *, age: timedelta, owner: str | None = None) -> ClusterEvent:
    return ClusterEvent.objects.create(
        cluster=workload.project.cluster, uid=uid, namespace="n", kind="Pod", name="p", reason="Started",
        owner_id=str(workload.pk) if owner is None else owner, at=timezone.now() - age,
    )  # fmt: skip


def test_pods_gone_for_more_than_a_week_go(ended: Workload) -> None:
    pod_of(ended)
    kept = [pod_of(ended, gone=timedelta(days=6)), pod_of(ended, gone=None)]
    assert prune()[0] == 1
    assert set(ObservedPod.objects.all()) == set(kept)


def test_pods_of_work_that_has_not_ended_stay(llm_team: Project) -> None:
    pod_of(WorkloadFactory(project=llm_team, phase=Phase.RUNNING))
    assert prune()[0] == 0


def test_a_victim_stays_until_its_record_is_complete(ended: Workload) -> None:
    pod = pod_of(ended)
    record = record_of(pod, ended, gone_at=None)
    assert prune()[0] == 0
    PreemptionRecord.objects.filter(pk=record.pk).update(gone_at=pod.gone_at)
    assert prune()[0] == 1
    assert PreemptionRecord.objects.exists()


def test_a_preemptor_stays_until_it_has_a_name(ended: Workload) -> None:
    taker, victim = pod_of(ended), pod_of(ended, gone=None)
    record = record_of(victim, ended, preemptor_name="", preemptor_uid=taker.uid)
    assert prune()[0] == 0
    PreemptionRecord.objects.filter(pk=record.pk).update(preemptor_name="serve")
    assert prune()[0] == 1


def test_events_go_after_a_month_and_those_without_an_object_after_an_hour(ended: Workload) -> None:
    event(ended, "old", age=timedelta(days=31))
    event(ended, "nobody's", age=timedelta(hours=2), owner="")
    event(ended, "kept", age=timedelta(days=29))
    event(ended, "waits", age=timedelta(minutes=5), owner="")
    assert prune()[1] == 2
    assert set(ClusterEvent.objects.values_list("uid", flat=True)) == {"kept", "waits"}


def test_more_than_a_chunk_goes_around_what_stays(
    ended: Workload, llm_team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "CHUNK", 2)
    running = WorkloadFactory(project=llm_team, phase=Phase.RUNNING)
    for number in range(7):
        pod_of(running if number % 3 == 0 else ended)
    assert prune()[0] == 4
    assert ObservedPod.objects.count() == 3


def test_it_happens_once_an_hour_however_often_it_is_asked_for(
    ended: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: moment)  # no new hour begins meanwhile
    pod_of(ended)
    prune_task()
    pod_of(ended)
    prune_task()
    assert ObservedPod.objects.count() == 1
    assert Period.objects.filter(job="clusters.prune").count() == 1
