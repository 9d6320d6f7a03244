"""KAI's pod groups in a workload's story: why it waits as a whole, and that it waits no more."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.flavours.kai_status import RUNS, STARTED
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.ports.objects import EVENT, KAI_POD_GROUP
from clusters.watch.models import ClusterEvent, ObservedObject, ObservedPod
from clusters.watch.rules import sanitize_all
from clusters.watch.services.observations import Observation, ObservedChanges, lease_of, store_changes
from clusters.watch.services.watch_buffer import WatchBatch
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.workloads.sandbox_lab import fresh
from workloads.forecast.selectors.waiting import why_waiting
from workloads.lifecycle.selectors.activity import alerts_for
from workloads.lifecycle.serializers.workloads import workload_json
from workloads.lifecycle.services.observe import on_observation
from workloads.lifecycle.services.pending_reasons import queued_among
from workloads.state.models import Phase, Workload, WorkloadEvent
from workloads.state.selectors.workloads import entries_of, events_of, timeline

pytestmark = pytest.mark.django_db

JOB = "9c1f7d0a-5a53-4c3f-8a55-1d2f0c5be0a1"
EARLY, LATE = "2026-11-21T06:00:00Z", "2026-11-21T06:01:00Z"
AT_LIMIT = "OverLimit: llm quota has reached the allowable limit of GPUs"
NO_QUEUE = "QueueDoesNotExist: queue 'llm' does not exist"


@pytest.fixture
def gang(llm_team: Project) -> Workload:
    """Handed over to a cluster with KAI, which has made a group of its pods. A pod finds no node."""
    Cluster.objects.filter(pk=llm_team.cluster_id).update(flavour="kai")
    llm_team.cluster.refresh_from_db()
    found: Workload = WorkloadFactory(project=llm_team, name="train", phase="Creating", applied_generation=1)
    named = {"kind": "Job.batch", "uid": JOB, "namespace": llm_team.namespace, "name": "train"}
    ObservedObject.objects.create(cluster=llm_team.cluster, owner_id=found.pk, **named)
    ObservedPodFactory(workload=found, phase="Pending", node_name="", reason="Unschedulable", message="full")
    return found


def see(workload: Workload, *said: str, version: str, started: str = "", of: str = JOB, kind: str = "Job") -> None:
    """One look that found the group so."""
    reasons = [dict(zip(("reason", "message"), text.split(": ", 1), strict=True)) for text in said]
    condition: dict[str, Any] = {"status": "True", "reasons": reasons, "lastTransitionTime": EARLY}
    group: Manifest = {
        "metadata": {
            "name": f"pg-train-{of}",
            "namespace": workload.project.namespace,
            "uid": f"group-of-{of}",
            "resourceVersion": version,
            "labels": {"app.kubernetes.io/managed-by": "rung", "rung.dev/owner": f"workload.{workload.pk}"},
            "annotations": {STARTED: started} if started else {},
            "ownerReferences": [{"kind": kind, "name": "train", "uid": of}],
        },
        "status": {"schedulingConditions": [condition] if said else []},
    }
    cluster = workload.project.cluster
    found = WatchBatch(KAI_POD_GROUP, version, sanitize_all(KAI_POD_GROUP, [group]))
    store_changes(cluster, ObservedChanges(lease_of(cluster).versions, {KAI_POD_GROUP.key: found}))


def test_why_a_gang_waits_is_what_its_group_says_until_it_has_started(gang: Workload) -> None:
    see(gang, AT_LIMIT, version="1")
    held = fresh(gang)
    assert (held.phase, held.phase_reason) == (Phase.PENDING, "OverLimit")
    assert held.phase_message == "Its queue is at its limit: llm quota has reached the allowable limit of GPUs."
    see(gang, NO_QUEUE, version="2")
    assert fresh(gang).phase_reason == "QueueMissing"
    see(gang, AT_LIMIT, version="3", started=LATE)
    [said] = [(each.reason, each.message) for each in events_of(gang) if each.source == "kai-scheduler"]
    assert said == ("Admitted", RUNS)


def test_page_home_timeline_and_rest_say_it_in_the_same_words_with_whose_queue_it_is(gang: Workload) -> None:
    said = (
        "OverLimit: {} quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 4 GPUs allocated and "
        "workload requested 8 GPUs."
    )
    see(gang, said.format(flavour_for("kai").queue_name(gang.project.owner, gang.pool_name)), version="1")
    held, project = fresh(gang), gang.project.name
    words = f"Needs 8 GPUs in {gang.pool_name}; project {project} uses 4 of its limit of 8 GPUs."
    headline = why_waiting(held)
    assert headline is not None
    assert headline.sentence.partition(": ")[2].lower().startswith(words.rstrip(".").lower())
    Workload.objects.update(phase_at=timezone.now() - timedelta(minutes=11))
    assert [need.sentence for need in alerts_for(Workload.objects.all())] == [words]
    assert words in [entry.message for entry in timeline(entries_of(held))]
    assert workload_json(held)["phaseMessage"] == words
    assert "project." not in f"{headline.sentence} {[entry.message for entry in timeline(entries_of(held))]}"


def missing(workload: Workload, *, version: str, at: str) -> None:
    """KAI does not try the group: a pod of it is not there."""
    space = workload.project.namespace
    about = {"apiVersion": KAI_POD_GROUP.api_version, "kind": KAI_POD_GROUP.kind, "name": f"pg-train-{JOB}"}
    event = {
        "metadata": {"name": "not-ready", "namespace": space, "uid": "of-the-event", "resourceVersion": version},
        "involvedObject": about,
        "reason": "NotReady",
        "message": "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated",
        "lastTimestamp": at,
    }
    cluster = workload.project.cluster
    store_changes(
        cluster,
        ObservedChanges(
            lease_of(cluster).versions, {EVENT.key: WatchBatch(EVENT, version, sanitize_all(EVENT, [event]))}
        ),
    )


def test_a_gang_of_which_pods_are_missing_says_so_with_how_many_there_are(gang: Workload) -> None:
    missing(gang, version="1", at=EARLY)
    held = fresh(gang)
    assert (held.phase, held.phase_reason) == (Phase.PENDING, "GangIncomplete")
    assert held.phase_message == "Waits for 2 of its pods; 1 exist now."
    told = [each.detail for each in WorkloadEvent.objects.filter(workload=gang, reason="GangIncomplete")]
    [numbers] = told
    assert numbers.pop("said").endswith("Waiting for 2 pods, currently 1 exist, 0 are gated")
    assert numbers == {"minimum": "2", "existing": "1", "gated": "0"}


def test_that_pods_are_missing_counts_only_until_kai_says_anything_else(gang: Workload) -> None:
    """It never takes it back, and says nothing new where what held the group back before does so again."""
    missing(gang, version="1", at=EARLY)
    see(gang, AT_LIMIT, version="2")
    assert fresh(gang).phase_reason == "OverLimit"
    missing(gang, version="3", at=LATE)
    assert fresh(gang).phase_reason == "OverLimit"
    see(gang, version="4", started=LATE)
    assert queued_among(gang.project.cluster, {str(gang.pk)}) == {}


def test_a_pod_that_waited_by_itself_and_has_gone_holds_nobody_back(gang: Workload) -> None:
    """Each pod of a Deployment is a group of its own."""
    pod = ObservedPodFactory(workload=gang, phase="Pending", node_name="", reason="", message="")
    see(gang, AT_LIMIT, version="1", of=pod.uid, kind="Pod")
    assert fresh(gang).phase_reason == "OverLimit"
    pod.gone_at = timezone.now()
    pod.save()
    on_observation(gang.project.cluster, Observation(pod.gone_at, pods=(pod,)))
    assert fresh(gang).phase_reason == "Unschedulable"


def test_a_group_of_nobody_here_is_not_told(gang: Workload) -> None:
    see(gang, AT_LIMIT, version="1", of="of-another")
    assert not ClusterEvent.objects.filter(owner_id=str(gang.pk)).exists()
    assert fresh(gang).phase == "Creating"


def test_a_waiting_pod_says_the_same_while_only_another_pod_of_the_workload_changes(gang: Workload) -> None:
    said = (
        "OverLimit: {} quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 4 GPUs allocated and "
        "workload requested 8 GPUs."
    )
    text = said.format(flavour_for("kai").queue_name(gang.project.owner, gang.pool_name))
    ObservedPod.objects.filter(owner_id=str(gang.pk)).update(reason="OverLimit", message=text)
    other = ObservedPodFactory(workload=gang, name="other", phase="Succeeded")
    on_observation(gang.project.cluster, Observation(timezone.now(), pods=(other,)))
    project = gang.project.name
    assert fresh(gang).phase_message == (
        f"Needs 8 GPUs in {gang.pool_name}; project {project} uses 4 of its limit of 8 GPUs."
    )
