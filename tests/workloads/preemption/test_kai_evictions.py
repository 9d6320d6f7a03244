"""Evictions on KAI of which its event is late, lost or names nobody: never a run that ends without a reason."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.flavours.kai_status import EVICTED, UNEXPLAINED
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import EVENT, KAI_POD_GROUP, POD, WORKLOAD_KINDS
from clusters.watch.rules import sanitize_all
from clusters.watch.services.observations import ObservedChanges, lease_of, store_changes
from clusters.watch.services.watch_buffer import WatchBatch
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from tests.workloads.sandbox_lab import fresh
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timelines
from workloads.state.models import Workload, WorkloadEvent

pytestmark = pytest.mark.django_db

JOB = next(kind for kind in WORKLOAD_KINDS if kind.key == "Job.batch")
UID = "9c1f7d0a-5a53-4c3f-8a55-1d2f0c5be0a1"
STARTED = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
DECIDED = STARTED + timedelta(minutes=30)
GRACE = timedelta(seconds=30)
MOVED = "Pod {}/train-0 was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


class Watched:
    """A training of one pod that runs on a cluster with KAI, and what is seen of it there."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        Cluster.objects.filter(pk=project.cluster_id).update(flavour="kai")
        self.cluster = Cluster.objects.get(pk=project.cluster_id)
        self.project = project
        self.version = 0
        self.workload: Workload = WorkloadFactory(
            project=project, name="train", phase="Creating", applied_generation=1, generation=1
        )
        self.sees((JOB, self._named("train", UID)), (POD, self.pod(status=self._runs())))

    def sees(self, *objects: tuple[Kind, Manifest]) -> None:
        """One look that found these new or changed."""
        self.version += 1
        found: dict[str, list[Manifest]] = {}
        for kind, manifest in objects:
            versioned = {**manifest["metadata"], "resourceVersion": str(self.version)}
            found.setdefault(kind.key, []).append({**manifest, "metadata": versioned})
        kinds = {kind.key: kind for kind, _ in objects}
        looks = {
            key: WatchBatch(kinds[key], str(self.version), sanitize_all(kinds[key], each))
            for key, each in found.items()
        }
        store_changes(self.cluster, ObservedChanges(lease_of(self.cluster).versions, looks))

    def _named(self, name: str, uid: str, **more: Any) -> Manifest:
        labels = {"app.kubernetes.io/managed-by": "rung", "rung.dev/owner": f"workload.{self.workload.pk}"}
        return {"metadata": {"name": name, "namespace": self.project.namespace, "uid": uid, "labels": labels, **more}}

    def _runs(self) -> dict[str, Any]:
        return {"phase": "Running", "startTime": text(STARTED)}

    def pod(self, uid: str = "pod-0", *, status: dict[str, Any] | None = None, **metadata: Any) -> Manifest:
        """As the cluster has it, on its node."""
        limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
        owner = {"kind": "Job", "name": "train", "uid": UID, "controller": True}
        created = text(STARTED - timedelta(seconds=5))
        found = self._named("train-0", uid, creationTimestamp=created, ownerReferences=[owner], **metadata)
        return {**found, "spec": {"nodeName": "node-1", "containers": [limits]}, "status": status or self._runs()}

    def deleted(self, *conditions: dict[str, str], at: datetime = DECIDED) -> tuple[Kind, Manifest]:
        """The pod, once somebody has deleted it."""
        ends = {"deletionTimestamp": text(at + GRACE), "deletionGracePeriodSeconds": 30}
        return POD, self.pod(status={**self._runs(), "conditions": list(conditions)}, **ends)

    def group(self, *, evicted: datetime | None = None) -> tuple[Kind, Manifest]:
        """KAI's own object for the training."""
        annotations = {EVICTED: text(evicted)} if evicted else {}
        owners = [{"kind": "Job", "name": "train", "uid": UID}]
        named = self._named(f"pg-train-{UID}", "of-the-group", annotations=annotations, ownerReferences=owners)
        return KAI_POD_GROUP, {**named, "status": {"schedulingConditions": []}}

    def event(self, words: str) -> tuple[Kind, Manifest]:
        """What KAI's scheduler says of its group."""
        about = {"apiVersion": KAI_POD_GROUP.api_version, "kind": KAI_POD_GROUP.kind, "name": f"pg-train-{UID}"}
        metadata = {"name": "evict", "namespace": self.project.namespace, "uid": "of-the-event"}
        more = {"reason": "Evict", "message": words, "count": 1, "lastTimestamp": text(DECIDED)}
        return EVENT, {"metadata": metadata, "involvedObject": about, **more}

    @property
    def standing(self) -> tuple[str, str]:
        found = fresh(self.workload)
        return found.phase, found.phase_reason


@pytest.fixture
def watched(llm_team: Project, monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched(llm_team, monkeypatch)
    assert found.standing[0] == "Running"
    return found


def test_an_eviction_whose_event_is_lost_is_recorded_by_its_moment(watched: Watched, as_alice: Actor) -> None:
    watched.sees(watched.deleted(), watched.group(evicted=DECIDED))
    record = PreemptionRecord.objects.get()
    assert (record.at, record.cause, record.preemptor, record.message) == (DECIDED, "unknown", None, UNEXPLAINED)
    assert (record.ran_seconds, record.lost_gpu_seconds) == (1800, 8 * 1800)
    assert watched.standing == ("Pending", "Evicted")
    (story,) = eviction_timelines(fresh(watched.workload), as_alice)
    assert "by the scheduler (preemptor unknown)" in story.sentence


def parts(watched: Watched) -> list[Callable[[], None]]:
    """The pod's deletion, what the group keeps, and the event; which comes first is chance."""
    words = f"Pod {watched.project.namespace}/train-0 was preempted by higher priority workload other/serve"
    return [
        lambda: watched.sees(watched.deleted()),
        lambda: watched.sees(watched.group(evicted=DECIDED)),
        lambda: watched.sees(watched.event(words)),
    ]


@pytest.mark.parametrize("order", ["012", "021", "102", "120", "201", "210"])
def test_a_late_event_completes_the_one_record(watched: Watched, order: str) -> None:
    for part in order:
        parts(watched)[int(part)]()
    record = PreemptionRecord.objects.get()
    assert (record.cause, record.preemptor_name) == ("preempt", "other/serve")
    assert "higher priority" in record.message
    assert watched.standing == ("Pending", "Preempted")
    (told,) = WorkloadEvent.objects.filter(type="preemption")
    assert told.message.startswith("Preempted by another project")


@pytest.mark.parametrize("order", ["012", "021", "102", "120", "201", "210", "together"])
def test_a_move_is_recorded_as_one_though_it_names_nobody(watched: Watched, order: str, as_alice: Actor) -> None:
    found = [watched.deleted(), watched.group(evicted=DECIDED), watched.event(MOVED.format(watched.project.namespace))]
    if order == "together":
        watched.sees(*found)
    else:
        for part in order:
            watched.sees(found[int(part)])
    (story,) = eviction_timelines(fresh(watched.workload), as_alice)
    assert story.sentence.startswith("Moved 06:30 UTC by the scheduler")
    assert watched.standing == ("Pending", "Moved")


def test_the_condition_that_kai_may_be_told_to_write_is_enough(watched: Watched) -> None:
    """Its scheduler was started with --update-pod-eviction-condition."""
    said = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    said |= {"message": MOVED.format(watched.project.namespace), "lastTransitionTime": text(DECIDED)}
    watched.sees(watched.deleted(said))
    assert PreemptionRecord.objects.count() == 1
    assert watched.standing == ("Pending", "Moved")


def test_a_pod_that_is_deleted_later_than_the_eviction_was_not_evicted(watched: Watched) -> None:
    """Of a group some pods are evicted, and others deleted by hand."""
    watched.sees(watched.group(evicted=DECIDED))
    watched.sees(watched.deleted(at=DECIDED + timedelta(minutes=5)))
    assert not PreemptionRecord.objects.exists()
    assert watched.standing == ("Pending", "PodDeleted")
    assert "train-0 was deleted at 06:35:00 UTC" in fresh(watched.workload).phase_message


def test_a_drain_is_the_reason_where_it_was_one(watched: Watched) -> None:
    said = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Drained."}
    watched.sees(watched.deleted({**said, "lastTransitionTime": text(DECIDED)}))
    assert not PreemptionRecord.objects.exists()
    assert watched.standing == ("Pending", "EvictionByEvictionAPI")


def test_why_it_waits_next_replaces_why_it_stopped(watched: Watched) -> None:
    watched.sees(watched.deleted(), watched.group(evicted=DECIDED))
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    new = watched.pod("pod-1", status={"phase": "Pending", "conditions": [said]})
    watched.sees((POD, {**new, "spec": {**new["spec"], "nodeName": ""}}))
    assert watched.standing == ("Pending", "Unschedulable")


def test_a_pod_that_could_not_be_bound_says_so(watched: Watched) -> None:
    """Its group keeps the condition that there was no room until it has started."""
    later = text(DECIDED + timedelta(seconds=5))
    failed = {"type": "PodBound", "status": "False", "reason": "BindingError", "lastTransitionTime": later}
    failed |= {"message": "Failed to bind pod a/train-0 to node node-1: no device"}
    waited = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    reasons = [{"reason": "PodSchedulingErrors", "message": "no nodes with enough resources were found"}]
    condition = {"status": "True", "reasons": reasons, "lastTransitionTime": text(DECIDED)}
    kind, group = watched.group(evicted=DECIDED)
    held = (kind, {**group, "status": {"schedulingConditions": [condition]}})
    new = watched.pod("pod-1", status={"phase": "Pending", "conditions": [waited]})
    new["spec"]["nodeName"] = ""
    watched.sees(watched.deleted(), held, (POD, new))
    assert watched.standing == ("Pending", "Unschedulable")
    conditions = [{**waited, "lastTransitionTime": text(DECIDED)}, failed]
    told = {"reason": "BindingError", "message": failed["message"], "lastTimestamp": later}
    about = {"kind": "Pod", "name": "train-0", "namespace": watched.project.namespace, "uid": "pod-1"}
    metadata = {"name": "bind", "namespace": watched.project.namespace, "uid": "of-the-bind"}
    event = {"metadata": metadata, "involvedObject": about, **told}
    watched.sees((POD, {**new, "status": {"phase": "Pending", "conditions": conditions}}), (EVENT, event))
    assert watched.standing == ("Pending", "BindingError")
    assert fresh(watched.workload).phase_message.startswith("The scheduler could not bind it to its node: ")
