"""Jobs that a scheduler queues itself: why they wait, and that what evicted a job evicted its pods."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import KUEUE_WORKLOAD, WORKLOAD_KINDS
from clusters.watch.models import ObservedPod
from clusters.watch.rules import sanitize_all
from clusters.watch.services.observations import ObservedChanges, lease_of, store_changes
from clusters.watch.services.watch_buffer import WatchBatch
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload

JOB = next(kind for kind in WORKLOAD_KINDS if kind.key == "Job.batch")
MORE = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a100, {} more needed"
Sees = Callable[..., None]


@pytest.fixture
def cluster(llm_team: Project) -> Cluster:
    Cluster.objects.filter(pk=llm_team.cluster_id).update(flavour="kueue")
    llm_team.cluster.refresh_from_db()
    return llm_team.cluster


@pytest.fixture
def sees(cluster: Cluster) -> Sees:
    """One look at the cluster that found these objects."""
    seen = iter(range(1, 1000))

    def look(*objects: tuple[Kind, Manifest], gone: Collection[Kind] = ()) -> None:
        version, looks = str(next(seen)), {}
        for kind in {kind for kind, _ in objects}:
            found = [
                {**each, "metadata": {**each["metadata"], "resourceVersion": version}}
                for of, each in objects
                if of == kind
            ]
            known = sanitize_all(kind, found)
            looks[kind.key] = (
                WatchBatch(kind, version, gone=known) if kind in gone else WatchBatch(kind, version, known)
            )
        store_changes(cluster, ObservedChanges(lease_of(cluster).versions, looks))

    return look


def job_of(workload: Workload, *, suspended: bool = True) -> tuple[Kind, Manifest]:
    labels = {"app.kubernetes.io/managed-by": "rung", "rung.dev/owner": f"workload.{workload.pk}"}
    metadata = {"name": workload.name, "namespace": workload.project.namespace, "uid": f"job-{workload.name}"}
    said = {"type": "Suspended", "status": str(suspended), "reason": "JobSuspended", "message": "Job suspended"}
    return JOB, {"metadata": {**metadata, "labels": labels}, "status": {"conditions": [said]}}


def said_of(workload: Workload, *conditions: tuple[str, str, str], at: datetime | None = None) -> tuple[Kind, Manifest]:
    """Kueue's own object: (type, status, message)."""
    owner = {"kind": "Job", "name": workload.name, "uid": f"job-{workload.name}", "controller": True}
    metadata = {
        "name": f"job-{workload.name}",
        "namespace": workload.project.namespace,
        "uid": f"kueue-{workload.name}",
    }
    moment = (at or timezone.now()).isoformat()
    said = [
        {"type": one, "status": two, "message": what, "lastTransitionTime": moment} for one, two, what in conditions
    ]
    return KUEUE_WORKLOAD, {"metadata": {**metadata, "ownerReferences": [owner]}, "status": {"conditions": said}}


@pytest.fixture
def workload(cluster: Cluster, llm_team: Project) -> Workload:
    """Handed to the cluster a moment ago."""
    found: Workload = WorkloadFactory(project=llm_team, name="train", phase="Creating", applied_generation=1)
    return found


def standing(workload: Workload) -> tuple[str, str]:
    workload.refresh_from_db()
    return workload.phase, workload.phase_reason


def waits(missing: int) -> tuple[str, str, str]:
    return ("QuotaReserved", "False", MORE.format(missing))


def test_a_queued_job_is_pending_for_the_reason_of_its_queue(workload: Workload, sees: Sees) -> None:
    sees(job_of(workload), said_of(workload, waits(2)))
    assert standing(workload) == ("Pending", "WaitingForQuota")
    assert workload.phase_message == "Waits for quota: 2 CPUs more in a100."


def test_the_queue_may_be_heard_before_the_job_is_seen(workload: Workload, sees: Sees) -> None:
    sees(said_of(workload, waits(2)))
    assert standing(workload) == ("Creating", "")
    sees(job_of(workload))
    assert standing(workload) == ("Pending", "WaitingForQuota")


def test_a_job_that_is_held_back_before_its_queue_has_spoken_is_not_called_suspended(
    workload: Workload, sees: Sees
) -> None:
    sees(job_of(workload))
    assert standing(workload) == ("Creating", "")


def test_other_numbers_are_another_message(workload: Workload, sees: Sees) -> None:
    sees(job_of(workload), said_of(workload, waits(2)))
    sees(said_of(workload, waits(1)))
    sees(job_of(workload))
    workload.refresh_from_db()
    assert workload.phase_message == "Waits for quota: 1 CPU more in a100."


def test_what_was_let_go_waits_for_its_pods_only(workload: Workload, sees: Sees) -> None:
    sees(job_of(workload), said_of(workload, waits(2)))
    sees(said_of(workload, ("QuotaReserved", "True", ""), ("Admitted", "True", "The workload is admitted")))
    ObservedPodFactory(workload=workload, phase="Running")
    sees(job_of(workload, suspended=False))
    assert standing(workload)[0] == "Running"


def test_what_a_foreign_job_waits_for_is_nobodys(workload: Workload, sees: Sees) -> None:
    kind, told = said_of(workload, waits(2))
    told["metadata"]["ownerReferences"][0]["uid"] = "another"
    sees(job_of(workload), (kind, told))
    assert standing(workload) == ("Creating", "")


def test_an_evicted_job_is_a_record_of_each_of_its_pods_that_names_who_gained(
    workload: Workload, sees: Sees, llm_team: Project
) -> None:
    taker: Workload = WorkloadFactory(project=llm_team, name="serve")
    now = timezone.now().replace(microsecond=0)

    def pod(**more: Any) -> ObservedPod:
        made: ObservedPod = ObservedPodFactory(workload=workload, created_at=now - timedelta(hours=1), **more)
        return made

    gone = [pod(deletion_at=now + timedelta(seconds=30)), pod(gone_at=now)]
    pod(gone_at=now - timedelta(minutes=5))  # ended long before
    by = "Preempted to accommodate a workload (UID: x, JobUID: job-serve) due to prioritization in the ClusterQueue"
    sees(job_of(workload), job_of(taker), said_of(workload, waits(2), ("Preempted", "True", by), at=now))
    records = PreemptionRecord.objects.filter(victim=workload)
    assert {record.pod_uid for record in records} == {each.uid for each in gone}
    assert {(record.preemptor, record.cause, record.at) for record in records} == {(taker, "preempt", now)}
    workload.refresh_from_db()
    assert workload.preempted_count == 1


def test_what_is_gone_before_it_is_seen_has_said_its_last_words(
    workload: Workload, llm_team: Project, sees: Sees
) -> None:
    """A pod without a node goes at once, and with it what Kueue wrote of its eviction."""
    taker: Workload = WorkloadFactory(project=llm_team, name="serve")
    now = timezone.now().replace(microsecond=0)
    ObservedPodFactory(workload=workload, created_at=now - timedelta(hours=1), gone_at=now)
    by = "Preempted to accommodate a workload (UID: x, JobUID: job-serve) due to prioritization in the ClusterQueue"
    sees(job_of(workload), job_of(taker))
    sees(said_of(workload, ("Preempted", "True", by), at=now), gone=[KUEUE_WORKLOAD])
    assert PreemptionRecord.objects.get(victim=workload).preemptor == taker
