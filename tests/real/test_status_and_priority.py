"""Phases of real objects, and what stop, resume and another priority do to each kind on a real API server."""

from collections.abc import Callable

import pytest

from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import POD, kind_of
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import bare_pod, deployment, job, pytorch_job
from tests.real.product import Product, fresh, quick
from workloads.lifecycle.services.actions import change_priority, resume, stop
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import object_name

pytestmark = pytest.mark.lab
LOW = {"priority": "low", "preemptibility": "preemptible"}


def stateful_set(name: str = "serve", *, gpus: int = 1) -> Manifest:
    body = deployment(name, gpus=gpus)
    return {**body, "kind": "StatefulSet", "spec": {**body["spec"], "serviceName": name}}


def replica_set(name: str = "serve", *, gpus: int = 1) -> Manifest:
    return {**deployment(name, gpus=gpus), "kind": "ReplicaSet"}


def cron_job(name: str = "nightly", *, gpus: int = 1) -> Manifest:
    template = {"spec": {**job(gpus=gpus)["spec"], "backoffLimit": 0}}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


MAKERS: dict[str, Callable[..., Manifest]] = {
    "Pod": bare_pod,
    "Job": job,
    "Deployment": deployment,
    "StatefulSet": stateful_set,
    "ReplicaSet": replica_set,
}
every_kind = pytest.mark.parametrize("kind", list(MAKERS))


@pytest.fixture
def project(product: Product) -> Project:
    """A project that deserves 8 GPUs."""
    project = product.project("vision", deserved=8)
    product.reconcile()
    return project


def running(product: Product, project: Project, kind: str) -> Workload:
    workload = product.submit(project, quick(MAKERS[kind]("train")), **LOW)
    return product.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)


def end_pods(product: Product, workload: Workload, phase: str) -> None:
    """What a kubelet says of pods whose containers have ended."""
    state = {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1, "reason": phase}}
    for pod in product.pods_of(workload):
        status = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        ref = ObjectRef(POD, pod["metadata"]["name"], workload.project.namespace)
        product.admin.patch_status(ref, {"phase": phase, "containerStatuses": [status]})


@every_kind
def test_a_real_object_runs(product: Product, project: Project, kind: str) -> None:
    workload = running(product, project, kind)
    assert (workload.allocated_gpu_milli, workload.running_pods, workload.pool_name) == (1000, 1, "lab")


@pytest.mark.parametrize("kind", ["Pod", "Job"])
@pytest.mark.parametrize(("said", "phase"), [("Succeeded", Phase.COMPLETED), ("Failed", Phase.FAILED)])
def test_a_real_object_ends(product: Product, project: Project, kind: str, said: str, phase: str) -> None:
    manifest = quick(MAKERS[kind]("train"))
    if kind == "Job":
        manifest["spec"]["backoffLimit"] = 0
    workload = product.submit(project, manifest, **LOW)
    product.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)
    end_pods(product, workload, said)
    ended = product.until(workload, lambda row: row.phase == phase)
    assert ended.completed_at is not None
    assert ended.allocated_gpu_milli == 0


def test_what_fits_on_no_node_waits_with_the_nodes_counted(product: Product, project: Project) -> None:
    workload = product.submit(project, job(gpus=16), **LOW)
    waits = product.until(workload, lambda row: row.phase_reason == "Unschedulable")
    assert waits.phase == Phase.PENDING
    assert "4 have too few free GPUs" in waits.phase_message
    entry = waits.timeline.filter(reason="Unschedulable").first()
    assert entry is not None
    assert (entry.detail["nodes"], entry.detail["fitting"]) == ("4", "0")


@every_kind
def test_stop_frees_the_gpus_and_resume_takes_them_again(product: Product, project: Project, kind: str) -> None:
    workload = running(product, project, kind)
    stop(workload=workload, actor=SYSTEM)
    stopped = product.until(workload, lambda row: row.phase == Phase.STOPPED, work=True)
    assert product.pods_of(workload) == []
    assert (product.object_of(workload) is None) is (kind != "Job")
    resume(workload=stopped, actor=SYSTEM)
    product.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)


@every_kind
def test_another_priority_never_ends_a_running_pod(product: Product, project: Project, kind: str) -> None:
    workload = running(product, project, kind)
    before = {pod["metadata"]["uid"] for pod in product.pods_of(workload)}
    change_priority(workload=workload, priority="medium", actor=SYSTEM)
    product.apply(workload)
    product.look()
    after = fresh(workload)
    assert (after.phase, after.apply_error) == (Phase.RUNNING, "")
    assert {pod["metadata"]["uid"] for pod in product.pods_of(workload)} == before
    assert any(warning["code"] == "new_pods_only" for warning in after.warnings)


@every_kind
def test_stopped_and_resumed_it_has_the_new_priority(product: Product, project: Project, kind: str) -> None:
    workload = running(product, project, kind)
    change_priority(workload=workload, priority="medium", actor=SYSTEM)
    product.apply(workload)
    stop(workload=fresh(workload), actor=SYSTEM)
    product.until(workload, lambda row: row.phase == Phase.STOPPED, work=True)
    resume(workload=fresh(workload), actor=SYSTEM)
    product.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)
    (pod,) = product.pods_of(workload)
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("medium", 80)


@pytest.mark.parametrize("kind", ["Pod", "Job", "Deployment"])
def test_a_waiting_one_is_recreated_with_the_new_priority(product: Product, project: Project, kind: str) -> None:
    workload = product.submit(project, quick(MAKERS[kind]("train", gpus=16)), **LOW)
    product.until(workload, lambda row: row.phase_reason == "Unschedulable", work=True)
    change_priority(workload=fresh(workload), priority="medium", actor=SYSTEM)

    def renewed(_row: Workload) -> bool:
        return [pod["spec"]["priority"] for pod in product.pods_of(workload)] == [80]

    product.until(workload, renewed, work=True)


def test_a_suspended_job_takes_another_priority_though_its_template_never_changes(
    product: Product, project: Project
) -> None:
    workload = running(product, project, "Job")
    stop(workload=workload, actor=SYSTEM)
    product.until(workload, lambda row: row.phase == Phase.STOPPED, work=True)
    change_priority(workload=fresh(workload), priority="medium", actor=SYSTEM)
    product.apply(workload)
    held = product.object_of(workload)
    assert held is not None
    assert held["spec"]["suspend"] is True
    assert held["spec"]["template"]["spec"]["priorityClassName"] == "medium"


def test_a_schedule_says_so_between_runs_and_its_next_run_has_the_new_priority(
    product: Product, project: Project
) -> None:
    manifest = cron_job()
    manifest["spec"]["schedule"] = "0 3 1 1 *"
    workload = product.submit(project, manifest, **LOW)
    waits = product.until(workload, lambda row: row.phase_reason == "BetweenRuns")
    assert "0 3 1 1 *" in waits.phase_message
    change_priority(workload=waits, priority="medium", actor=SYSTEM)
    product.apply(workload)
    held = product.object_of(workload)
    assert held is not None
    assert held["spec"]["jobTemplate"]["spec"]["template"]["spec"]["priorityClassName"] == "medium"
    stop(workload=fresh(workload), actor=SYSTEM)
    product.until(workload, lambda row: row.phase == Phase.STOPPED, work=True)
    assert product.object_of(workload) is None


def test_a_run_of_a_schedule_that_a_quota_refuses_is_told(product: Product) -> None:
    project = product.project("vision", deserved=2, limit=4)
    product.reconcile()
    first = product.submit(project, quick(job("first", gpus=3)), **LOW)
    product.until(first, lambda row: row.phase == Phase.RUNNING)
    manifest = cron_job(gpus=2)
    manifest["spec"]["schedule"] = "0 3 1 1 *"
    workload = product.submit(project, manifest, **LOW)
    product.admin.create(run_of(product, workload))
    waits = product.until(workload, lambda row: row.phase_reason == "OverLimit")
    assert "3 GPUs of the project limit of 4 GPUs in all pools are in use" in waits.phase_message


def run_of(product: Product, workload: Workload) -> Manifest:
    """The Job its controller would make when the time has come."""
    owner = product.object_of(workload)
    assert owner is not None
    template = owner["spec"]["jobTemplate"]
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": owner["metadata"]["name"], "controller": True}
    metadata = {**template["metadata"], "name": f"{owner['metadata']['name']}-1"}
    metadata |= {"namespace": workload.project.namespace}
    metadata["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}


def test_a_job_that_is_deleted_by_hand_is_brought_back(product: Product, project: Project) -> None:
    workload = running(product, project, "Job")
    ref = ObjectRef(kind_of(workload.spec["manifest"]), object_name(workload), project.namespace)
    path = product.admin.path(ref.kind, ref.namespace, ref.name)
    product.admin.call("DELETE", path, {"propagationPolicy": "Background"})
    product.until(workload, lambda row: row.timeline.filter(reason="Recreated").exists())
    product.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)


def test_a_replaced_replica_set_is_no_loss_of_its_deployment(product: Product, project: Project) -> None:
    workload = running(product, project, "Deployment")
    ref = ObjectRef(kind_of(workload.spec["manifest"]), object_name(workload), project.namespace)
    before = {pod["metadata"]["uid"] for pod in product.pods_of(workload)}
    product.admin.patch(ref, {"spec": {"revisionHistoryLimit": 0, "template": {"metadata": {"labels": {"x": "y"}}}}})

    def rolled(_row: Workload) -> bool:
        now = {pod["metadata"]["uid"] for pod in product.pods_of(workload)}
        return len(now) == 1 and now != before

    product.until(workload, rolled)
    assert not fresh(workload).timeline.filter(reason="Recreated").exists()


def test_a_kind_the_cluster_does_not_serve_is_refused_at_submission(product: Product, project: Project) -> None:
    product.cluster.refresh_from_db()
    assert "kubeflow.org/v1 PyTorchJob" in product.cluster.served_kinds
    served = [each for each in product.cluster.served_kinds if "PyTorchJob" not in each]
    type(product.cluster).objects.filter(pk=product.cluster.pk).update(served_kinds=served)
    with pytest.raises(ValidationFailed) as refusal:
        product.submit(Project.objects.get(pk=project.pk), pytorch_job(), **LOW)
    assert refusal.value.code == "kind_not_served"
