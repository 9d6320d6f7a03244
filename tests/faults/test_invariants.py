"""Every check can fail."""

import json
import time
from math import inf

import pytest
from django.db.models import F
from django.utils import timezone

from clusters.flavours.kube import GPU
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import MANAGED_BY, RESOURCE_QUOTA, owned
from tests.factories.workloads import job
from tests.faults.grants import Ledger, Sample
from tests.faults.invariants import (
    each_workload_is_there_once,
    grants_are_as_wanted,
    nothing_is_stuck,
    nothing_is_there_without_a_row,
    nothing_was_granted_beyond,
    sampled,
    stays_converged,
    writes_are_fenced,
)
from tests.faults.rig import LOW, Rig
from tests.support.faults import Exchange
from tests.support.processes import eventually
from workloads.state.models import Phase, Workload


def write(method: str, generation: int, owner: str = "project.1") -> Exchange:
    """An effective write of one object."""
    metadata = owned("one", owner=owner, generation=generation, namespace="a")
    body = json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}).encode()
    return Exchange(method, "/apis/batch/v1/namespaces/a/jobs", "", {}, body, upstream=201, answered=201)


def test_i4_a_lower_generation_after_a_higher_one_is_found() -> None:
    writes_are_fenced([write("POST", 1), write("PUT", 3), write("PUT", 3)])
    with pytest.raises(AssertionError, match="fell from generation 3 to 2"):
        writes_are_fenced([write("POST", 1), write("PUT", 3), write("PUT", 2)])


def test_i4_a_second_create_of_a_workload_is_found() -> None:
    with pytest.raises(AssertionError, match="I4"):
        writes_are_fenced([write("POST", 1, owner="workload.1"), write("POST", 1, owner="workload.1")])


def sample(gpus: int, *, namespace: str = "a", name: str = "rung-deserved") -> Sample:
    """A quota as it is now."""
    now = time.monotonic()
    return Sample(namespace, name, gpus, now, now)


def test_i5_more_than_the_old_and_the_new_grant_is_found() -> None:
    ledger = Ledger()
    ledger.note("a", {"rung-deserved": 8, "rung-limit": 9})
    assert ledger.most(sample(0)) == 8
    ledger.note("a", {"rung-deserved": 2})
    assert ledger.most(sample(0)) == 8
    assert ledger.most(sample(0, name="rung-limit")) == inf
    ledger.rest()
    ledger.note("a", {"rung-deserved": 5})
    assert ledger.most(sample(0)) == 5
    assert ledger.most(sample(0, namespace="nobody's")) == 0


@pytest.mark.parametrize("name", ["rung-deserved", "rung-limit", "rung-cap-low"])
def test_i5_a_quota_that_somebody_raised_is_found(unchecked: Rig, name: str) -> None:
    rig = unchecked
    namespace = rig.projects(1)[0].namespace
    rig.reconcile()
    raised = rig.admin.must(ObjectRef(RESOURCE_QUOTA, name, namespace))
    with sampled(rig) as samples:
        eventually(lambda: samples)
        rig.admin.patch(rig.admin.ref(raised), {"spec": {"hard": {GPU: "100"}}})
        eventually(lambda: any(each.gpus == 100 for each in samples))
    rig.settle()
    with pytest.raises(AssertionError, match=f"I5.*{name}"):
        nothing_was_granted_beyond(rig, samples)


def test_i1_i3_a_workload_without_an_object_and_an_object_without_a_row_are_found(unchecked: Rig) -> None:
    rig = unchecked
    project = rig.grant(rig.project("train"), 4)
    rig.reconcile()
    workload = rig.submit(project, job(), **LOW)
    rig.until(workload, lambda row: row.phase == Phase.RUNNING)
    each_workload_is_there_once(rig)
    nothing_is_there_without_a_row(rig)
    found = rig.object_of(workload)
    assert found is not None
    rig.admin.delete(ref := rig.admin.ref(found), grace=0)
    rig.admin.wait_gone(ref)
    with pytest.raises(AssertionError, match="runs nowhere"):
        nothing_is_there_without_a_row(rig)
    Workload.objects.filter(pk=workload.pk).update(phase=Phase.PENDING)
    with pytest.raises(AssertionError, match="I1"):
        each_workload_is_there_once(rig)
    Workload.objects.filter(pk=workload.pk).delete()
    foreign = {"name": f"left-{rig.mark}", "labels": {MANAGED_BY: "rung"}}
    namespace = rig.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": foreign})
    with pytest.raises(AssertionError, match=f"I3: Namespace left-{rig.mark}"):
        nothing_is_there_without_a_row(rig)
    rig.admin.delete(rig.admin.ref(namespace))


def test_i8_a_cluster_that_keeps_being_written_to_is_found(unchecked: Rig) -> None:
    rig = unchecked
    project = rig.projects(1)[0]
    rig.settle()
    stays_converged(rig)
    rig.grant(project, 8)
    with pytest.raises(AssertionError, match="I8"):
        stays_converged(rig)
    rig.grant(project, 3)
    with pytest.raises(AssertionError, match="I8"):
        grants_are_as_wanted(rig)


def test_i9_what_nobody_will_ever_look_at_again_is_found(unchecked: Rig) -> None:
    rig = unchecked
    project = rig.grant(rig.project("train"), 4)
    rig.reconcile()
    workload = rig.submit(project, job(), **LOW)
    nothing_is_stuck(rig)
    rows = Workload.objects.filter(pk=workload.pk)
    rows.update(due_at=None, generation=F("generation") + 1)
    with pytest.raises(AssertionError, match=f"I9: {workload}"):
        nothing_is_stuck(rig)
    rows.update(due_at=timezone.now())
    Cluster.objects.filter(pk=rig.cluster.pk).update(sync_due_at=None)
    with pytest.raises(AssertionError, match="I9"):
        nothing_is_stuck(rig)
