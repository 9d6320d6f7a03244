"""What the YAML of a workload says of its cluster is what the cluster was seen to hold."""

from collections.abc import Callable
from copy import deepcopy

import pytest
from django.test import Client

from clusters.sandbox.services.simulation import SandboxGateway
from clusters.sync.models import Drift
from clusters.sync.services.drift import repair
from clusters.sync.services.scheduler_switch import plan_switch, switch_flavour
from clusters.watch.models import ObservedObject
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tests.factories.workloads import job
from tests.workloads.sandbox_lab import Lab, fresh, made
from workloads.lifecycle.selectors.workloads import applied_objects
from workloads.lifecycle.services.actions import change_priority, stop
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db
QUEUE = "kai.scheduler/queue"
POINTER = "/metadata/labels/kai.scheduler~1queue"


@pytest.fixture
def lab() -> Lab:
    return Lab("kube")


@pytest.fixture
def runs(lab: Lab) -> Workload:
    found = lab.submit(lab.project("llm-team"), "runs", manifest=job("runs"), priority="low")
    lab.settle()
    return found


def test_it_is_as_written_or_was_not_seen(runs: Workload) -> None:
    found = applied_objects(fresh(runs))
    assert (found.held, found.former) == ("same", "")
    ObservedObject.objects.filter(owner_id=str(runs.pk)).delete()
    assert applied_objects(fresh(runs)).held == "missing"
    Workload.objects.update(applied_generation=0)
    assert applied_objects(fresh(runs)).held == "unknown", "nothing was sent yet"


def test_a_description_that_waits_for_the_end_of_running_pods_is_another(lab: Lab, runs: Workload) -> None:
    change_priority(workload=fresh(runs), priority="medium", actor=SYSTEM)
    lab.settle()
    assert applied_objects(fresh(runs)).held == "other"


def relabel(lab: Lab, workload: Workload, labels: dict[str, str]) -> None:
    """Somebody with rights of their own edits its object."""
    held = made(lab, workload)
    assert held is not None
    edited = deepcopy(held)
    edited["metadata"]["labels"] |= labels
    SandboxGateway(lab.cluster).update(edited, observed=held)


def test_a_foreign_edit_of_its_queue_is_shown_as_drift_and_repaired(
    client_of: Callable[[User], Client], admin: User
) -> None:
    lab = Lab("kai")
    runs = lab.submit(lab.project("llm-team"), "runs", manifest=job("runs"), priority="low")
    lab.settle()
    queue = applied_objects(fresh(runs)).manifests[-1]["metadata"]["labels"][QUEUE]
    relabel(lab, runs, {QUEUE: "other"})
    lab.look()
    found = applied_objects(fresh(runs))
    assert found.held == "changed"
    assert [(each.path, each.observed, each.desired) for each in found.changes] == [(POINTER, "other", queue)]
    page = client_of(admin).get(f"/workloads/{runs.pk}/?tab=yaml").content.decode()
    assert "Changed in the cluster after Rung wrote it" in page
    assert f"<code>{POINTER}</code>" in page
    lab.settle(1)
    drift = Drift.objects.get(owner=f"workload.{runs.pk}")
    assert (drift.category, drift.kind, drift.changes) == ("changed", "Job.batch", [[POINTER, "other", queue]])
    assert drift.message == f"Differs: {POINTER}. Workload: runs (llm-team)."
    repair(drift=drift, actor=SYSTEM)
    lab.settle()
    lab.settle()
    assert applied_objects(fresh(runs)).held == "same"
    assert not Drift.objects.filter(owner=f"workload.{runs.pk}").exists()


def test_what_a_queue_lets_go_and_an_older_description_are_no_drift(lab: Lab, runs: Workload) -> None:
    change_priority(workload=fresh(runs), priority="medium", actor=SYSTEM)
    lab.settle()
    lab.settle()
    found = applied_objects(fresh(runs))
    assert {each.path: (each.observed, each.desired) for each in found.changes} == {
        "/metadata/labels/priorityClassName": ("low", "medium"),
        "/spec/template/metadata/labels/priorityClassName": ("low", "medium"),
        "/spec/template/spec/priorityClassName": ("low", "medium"),
    }
    assert not Drift.objects.filter(owner=f"workload.{runs.pk}").exists()
    kueue = Lab("kueue", name="queues")
    queued = kueue.submit(kueue.project("vision"), "queued", manifest=job("queued"), priority="low")
    kueue.settle()
    kueue.settle()
    assert fresh(queued).running_pods
    assert applied_objects(fresh(queued)).held == "same"
    assert not Drift.objects.filter(owner=f"workload.{queued.pk}").exists()


def test_after_a_switch_it_is_what_was_made_for_the_former_scheduler_until_it_is_stopped(
    lab: Lab, runs: Workload, client_of: Callable[[User], Client], admin: User
) -> None:
    plan = plan_switch(cluster=lab.cluster, flavour="kueue")
    switch_flavour(cluster=lab.cluster, flavour="kueue", generation=plan.generation, actor=SYSTEM)
    lab.settle()
    found = applied_objects(fresh(runs))
    assert (found.held, found.former) == ("same", "kube-scheduler")
    assert "kueue.x-k8s.io/queue-name" not in found.manifests[-1]["metadata"]["labels"]
    page = client_of(admin).get(f"/workloads/{runs.pk}/?tab=yaml").content.decode()
    assert "Created for kube-scheduler, the cluster's previous scheduler." in page
    assert "The cluster has this version, checked" in page
    stop(workload=fresh(runs), actor=SYSTEM)
    lab.settle()
    assert applied_objects(fresh(runs)).manifests == []
