"""Volcano's groups in a workload's story: why its gang waits, that it has its room, that it is held outside."""

import pytest

from clusters.flavours.volcano import PHASE_WORDS
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.ports.objects import VOLCANO_POD_GROUP
from clusters.watch.models import ClusterEvent
from clusters.watch.rules import sanitize_all
from clusters.watch.services.observations import ObservedChanges, lease_of, store_changes
from clusters.watch.services.watch_buffer import WatchBatch
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory, pytorch_job
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.lifecycle.services.actions import stop
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import events_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def volcano() -> Lab:
    """One node of 8 GPUs."""
    return Lab("volcano")


@pytest.fixture
def gang(volcano: Lab) -> Workload:
    """Two pods of 4 GPUs, beside a pod that holds 6."""
    team = volcano.project("llm-team", deserved=16)
    volcano.submit(team, "other", gpus=6)
    volcano.settle()
    found = volcano.submit(team, "train", manifest=pytorch_job("train", gpus=4, workers=1))
    volcano.settle()
    return found


def said(workload: Workload) -> list[tuple[str, str]]:
    """What the group said of itself, newest last."""
    return [(each.reason, each.message) for each in reversed(events_of(workload)) if each.kind == "PodGroup"]


def test_why_a_gang_waits_stands_among_its_events_and_that_it_has_its_room(volcano: Lab, gang: Workload) -> None:
    waits, admitted = dict(said(gang))["Unschedulable"], dict(said(gang))["Admitted"]
    assert waits.startswith("2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable")
    assert "admitted it" in admitted
    stop(workload=Workload.objects.get(name="other"), actor=SYSTEM)
    volcano.settle(5, seconds=40)
    assert fresh(gang).phase == Phase.RUNNING
    assert dict(said(gang))["Admitted"] == "Its minimum of pods fits."
    assert len(said(gang)) == 2


def group_of(workload: Workload, phase: str, *, version: str, owner: str = "", **condition: str) -> Manifest:
    """The PodGroup beside a workload."""
    metadata = {"name": workload.name, "namespace": workload.project.namespace, "uid": "the-group"}
    labels = {"app.kubernetes.io/managed-by": "rung", "rung.dev/owner": owner or f"workload.{workload.pk}"}
    said = [{"type": "Unschedulable", "status": "True", **condition}] if condition else []
    return {
        "metadata": {**metadata, "labels": labels, "resourceVersion": version},
        "status": {"phase": phase, "conditions": said},
    }


def see(cluster: Cluster, *groups: Manifest) -> None:
    """One look that found these groups."""
    version = groups[0]["metadata"]["resourceVersion"]
    found = WatchBatch(VOLCANO_POD_GROUP, version, sanitize_all(VOLCANO_POD_GROUP, groups))
    store_changes(cluster, ObservedChanges(lease_of(cluster).versions, {VOLCANO_POD_GROUP.key: found}))


@pytest.fixture
def handed_over(llm_team: Project) -> Workload:
    """To a cluster with Volcano, a moment ago."""
    Cluster.objects.filter(pk=llm_team.cluster_id).update(flavour="volcano")
    llm_team.cluster.refresh_from_db()
    found: Workload = WorkloadFactory(project=llm_team, name="train", phase="Creating", applied_generation=1)
    return found


def test_a_gang_that_is_held_outside_is_queued_until_it_is_let_in(handed_over: Workload) -> None:
    cluster, words = handed_over.project.cluster, "2/2 tasks in gang unschedulable: cluster is overused"
    pod = ObservedPodFactory(
        workload=handed_over, phase="Pending", node_name="", reason="OverLimit", message="did not try to place it"
    )
    see(cluster, group_of(handed_over, "Pending", version="1", message=words))
    held = fresh(handed_over)
    assert (held.phase, held.phase_reason) == (Phase.PENDING, "Queued")
    assert held.phase_message == f"The scheduler holds it in a queue: {PHASE_WORDS['Pending']}"
    see(cluster, group_of(handed_over, "Inqueue", version="2", message=words))
    let_in = fresh(handed_over)
    assert (let_in.phase, let_in.phase_reason) == (Phase.PENDING, pod.reason)
    assert let_in.phase_message == f"Its queue is at its limit: {pod.message}."


def test_a_group_of_nobody_here_is_not_told(handed_over: Workload) -> None:
    see(handed_over.project.cluster, group_of(handed_over, "Pending", version="1", owner="workload.another"))
    assert not ClusterEvent.objects.filter(owner_id=str(handed_over.pk)).exists()
    assert fresh(handed_over).phase == "Creating"
