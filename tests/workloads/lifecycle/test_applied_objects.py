"""What the YAML of a workload says of its cluster is what the cluster was seen to hold."""

from collections.abc import Callable

import pytest
from django.test import Client

from clusters.sync.services.scheduler_switch import plan_switch, switch_flavour
from clusters.watch.models import ObservedObject
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tests.factories.workloads import job
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.lifecycle.selectors import applied_objects
from workloads.lifecycle.services.actions import change_priority, stop
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db


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
    assert "Made for kube-scheduler, which the cluster had before." in page
    assert "The cluster holds this version, seen" in page
    stop(workload=fresh(runs), actor=SYSTEM)
    lab.settle()
    assert applied_objects(fresh(runs)).manifests == []
