"""Plays the story: every act through the real services, then the simulated cluster decides and time passes."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.sandbox.services.simulation import set_speed, tick
from clusters.sync.services.reconcile import reconcile
from clusters.watch.services.informers import observe_cluster
from portal.demo.organisation import ACTOR, actor_named, found_organisation
from portal.demo.passage import pass_time
from portal.demo.story import STORY, Job, StoryAct
from tenants.organisation.models import Project
from workloads.intake import Explicit, FormFields
from workloads.intake.services import read_fields, read_manifest
from workloads.lifecycle.services import actions
from workloads.lifecycle.services.apply_queue import drain
from workloads.state.models import Workload
from workloads.submission.services import submit

IMAGES: Final = {
    "Inference": "nvcr.io/nvidia/tritonserver:25.08-py3",
    "Workspace": "quay.io/jupyter/pytorch-notebook:cuda12-2025-09-01",
}
TRAINING_IMAGE: Final = "nvcr.io/nvidia/pytorch:25.08-py3"
MOST_ROUNDS: Final = 12
GRACE: Final = timedelta(seconds=45)
STEPS: Final = (timedelta(minutes=4), timedelta(minutes=26))
Say = Callable[[str], object]


@transaction.atomic
def load(password: str, speed: int, say: Say) -> None:
    """The whole demo or nothing of it.

    1. the organisation and its cluster, synced
    2. act by act: submit, stop, delete; let the cluster settle; move what happened into the past
    3. from here on the cluster's run times and grace periods pass `speed` times faster
    """
    cluster = found_organisation(password)
    settle(cluster)
    for number, act in enumerate(STORY, start=1):
        perform(act)
        settle(cluster)
        let_pass(cluster, act.hours)
        say(f"demo: step {number} of {len(STORY)}, {Workload.objects.count()} workloads")
    set_speed(cluster=cluster, speed=speed, actor=ACTOR)


def let_pass(cluster: Cluster, hours: float) -> None:
    """The hours until the next act, in steps short enough that what ends in between ends about when it should."""
    left = timedelta(hours=hours)
    for step in (*STEPS, *[timedelta(hours=1)] * int(hours + 1)):
        if left > timedelta():
            pass_time(min(step, left))
            run_once(cluster)
        left -= step
    settle(cluster)


def perform(act: StoryAct) -> None:
    """Everything people did in one act, oldest first."""
    for name in act.stops:
        actions.stop(workload=_named(name), actor=ACTOR)
    for name in act.resumes:
        actions.resume(workload=_named(name), actor=ACTOR)
    for name in act.deletes:
        actions.delete(workload=_named(name), actor=ACTOR)
    for job in act.submits:
        _submit(job)


def settle(cluster: Cluster) -> None:
    """Rounds of worker, scheduler and observer until nothing moves; grace periods pass on the way."""
    for _ in range(MOST_ROUNDS):
        before = _snapshot()
        cluster.refresh_from_db()
        reconcile(cluster)
        run_once(cluster)
        run_once(cluster)
        pass_time(GRACE)
        if _snapshot() == before:
            return


def run_once(cluster: Cluster) -> None:
    """One round of worker, scheduler and observer."""
    drain()
    tick(cluster, now=timezone.now())
    observe_cluster(cluster)


def _snapshot() -> list[tuple[object, ...]]:
    return list(Workload.objects.order_by("pk").values_list("pk", "phase", "running_pods", "allocated_gpu_milli"))


def _named(name: str) -> Workload:
    return Workload.objects.select_related("project__cluster", "type", "priority").get(name=name)


def _submit(job: Job) -> Workload:
    project = Project.objects.select_related("cluster", "department").get(name=job.project)
    actor = actor_named(job.by)
    if job.type == "Job":
        explicit = Explicit(priority=job.priority or None)
        spec = read_manifest(manifest=_manifest(job), project=project, actor=actor, explicit=explicit)
    else:
        spec = read_fields(fields=_fields(job), project=project, actor=actor)
    return submit(spec=spec, project=project, actor=actor)


def _manifest(job: Job) -> dict[str, Any]:
    """A plain Job, as a user would write it by hand."""
    notes = {"rung.dev/run-seconds": str(int((job.hours or 1) * 3600)), "rung.dev/exit-code": str(int(job.fails))}
    container = {"name": "main", "image": TRAINING_IMAGE, "resources": {"limits": {"nvidia.com/gpu": job.gpus}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": job.name, "annotations": notes}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "template": template},
    }


def _fields(job: Job) -> FormFields:
    return FormFields(
        type=job.type,
        name=job.name,
        image=IMAGES.get(job.type, TRAINING_IMAGE),
        command="" if job.type in IMAGES else "python -m train",
        gpus=str(job.gpus),
        cpu=str(4 * job.gpus),
        memory=f"{32 * job.gpus}Gi",
        workers=job.workers,
        node_pools=(job.pool,),
        run_seconds=int(job.hours * 3600) if job.hours else None,
        checkpoint_interval=f"{job.checkpoint_minutes}m" if job.checkpoint_minutes else "",
        priority=job.priority or None,
        preemptibility=job.preemptibility or None,
    )
