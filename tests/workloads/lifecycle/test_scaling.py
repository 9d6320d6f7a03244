"""Replicas of what serves, changed on a cluster: running pods stay as they are, more come or some go."""

from dataclasses import replace

import pytest

from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import kind_of
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.watch.models import ObservedPod
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tests.factories.workloads import deployment, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.lifecycle.services.actions import resume, stop
from workloads.lifecycle.services.changes import WorkloadChange, change
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import object_name

OTHER = "registry.example/team/serve:2"


def pods_of(workload: Workload) -> dict[str, str]:
    """Uid by name of the pods that are there."""
    rows = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at__isnull=True, deletion_at__isnull=True)
    return dict(rows.values_list("name", "uid"))


def scaled(workload: Workload, replicas: int, *, image: str = "") -> Workload:
    """The same with another number of pods, and perhaps another image."""
    manifest = deployment("serve")
    manifest["metadata"]["annotations"] = {"rung.dev/run-seconds": "86400"}
    manifest["spec"]["replicas"] = replicas
    if image:
        manifest["spec"]["template"]["spec"]["containers"][0]["image"] = image
    spec = replace(spec_of(manifest, namespace=workload.project.namespace), type_name=workload.type.name)
    return change(workload=fresh(workload), wanted=WorkloadChange(spec), actor=SYSTEM)


def test_more_replicas_join_the_running_ones_and_fewer_leave_some_of_them(db: None) -> None:
    lab = Lab()
    team = lab.project("llm-team")
    made = lab.submit(team, "serve", manifest=deployment("serve"))
    lab.settle(4)
    first = pods_of(made)
    assert (fresh(made).phase, len(first)) == (Phase.RUNNING, 1)
    scaled(made, 3)
    lab.settle(5)
    grown = pods_of(made)
    assert len(grown) == 3
    assert first.items() <= grown.items()
    assert (fresh(made).phase, fresh(made).allocated_gpu_milli) == (Phase.RUNNING, 3000)
    scaled(made, 2)
    lab.settle(5)
    assert len(pods_of(made)) == 2
    assert pods_of(made).items() <= grown.items()


def test_another_image_waits_for_a_suspended_one_and_runs_when_it_is_resumed(db: None) -> None:
    lab = Lab()
    made = lab.submit(lab.project("llm-team"), "serve", manifest=deployment("serve"))
    lab.settle(4)
    with pytest.raises(ValidationFailed) as refusal:
        scaled(made, 1, image=OTHER)
    assert refusal.value.code == "pods_run"
    stop(workload=fresh(made), actor=SYSTEM)
    lab.settle(5, seconds=20)
    assert fresh(made).phase == Phase.STOPPED
    scaled(made, 1, image=OTHER)
    resume(workload=fresh(made), actor=SYSTEM)
    lab.settle(6)
    assert fresh(made).phase == Phase.RUNNING
    kind = kind_of(fresh(made).spec["manifest"])
    applied = SandboxGateway(lab.cluster).get(ObjectRef(kind, object_name(made), made.project.namespace))
    assert applied is not None
    assert applied["spec"]["template"]["spec"]["containers"][0]["image"] == OTHER
