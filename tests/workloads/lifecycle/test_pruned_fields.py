"""A cluster whose definition of a kind does not know what makes a gang accepts the object, and the person is told."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from clusters.backends.memory import MemoryGateway, forget_all
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import job, pytorch_job, spec_of
from workloads.lifecycle.services.apply import apply
from workloads.state.models import Workload
from workloads.submission.services import submit

Clients = Callable[[User], Client]


@pytest.fixture
def team(llm_team: Project) -> Project:
    """A project on a cluster in memory that knows gangs."""
    forget_all()
    Cluster.objects.update(flavour="kube-gangs", backend="memory")
    reconcile(Cluster.objects.get(pk=llm_team.cluster_id))
    return Project.objects.get(pk=llm_team.pk)


def old_definition(monkeypatch: pytest.MonkeyPatch, *unknown: str) -> None:
    """PyTorchJobs lose these fields of every pod when they are stored."""
    real = MemoryGateway.create

    def create(self: MemoryGateway, manifest: Manifest) -> Manifest:
        for role in manifest["spec"].get("pytorchReplicaSpecs", {}).values():
            for part in ("spec", "metadata"):
                pruned = {key: value for key, value in role["template"][part].items() if key not in unknown}
                role["template"][part] = pruned
        return real(self, manifest)

    monkeypatch.setattr(MemoryGateway, "create", create)


def applied(team: Project, manifest: dict[str, Any]) -> Workload:
    workload = submit(spec=spec_of(manifest, priority="low", preemptibility="preemptible"), project=team, actor=SYSTEM)
    assert apply(workload.pk)
    workload.refresh_from_db()
    assert (workload.phase, workload.apply_error) == ("Pending", "")
    return workload


def dropped(workload: Workload) -> list[list[str]]:
    return [each.detail["dropped"] for each in workload.timeline.filter(reason="FieldsDropped")]


def test_a_dropped_group_is_told_once_on_the_workloads_page(
    team: Project, monkeypatch: pytest.MonkeyPatch, client_of: Clients, alice: User
) -> None:
    old_definition(monkeypatch, "schedulingGroup")
    workload = applied(team, pytorch_job(workers=1))
    places = [f"/spec/pytorchReplicaSpecs/{role}/template/spec/schedulingGroup" for role in ("Master", "Worker")]
    assert dropped(workload) == [places]
    Workload.objects.update(due_at=workload.created_at)
    apply(workload.pk)
    assert len(dropped(workload)) == 1
    page = client_of(alice).get(f"/workloads/{workload.pk}/").content.decode()
    assert "its pods do not start as a gang" in page


def test_dropped_metadata_is_told_too(team: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    old_definition(monkeypatch, "labels", "annotations")
    (found,) = dropped(applied(team, pytorch_job(workers=1)))
    assert "/spec/pytorchReplicaSpecs/Worker/template/metadata/labels" in found


def test_what_is_held_and_kinds_that_every_server_knows_are_quiet(team: Project) -> None:
    assert dropped(applied(team, pytorch_job("one", workers=1))) == []
    assert dropped(applied(team, pytorch_job("two"))) == []
    assert dropped(applied(team, job("three", gpus=1, pods=2))) == []
