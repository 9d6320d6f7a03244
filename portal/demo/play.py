"""The demo's story, and how it is played: every act through the real services; then the simulated cluster decides, and
time passes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import models, transaction
from django.db.models import F, Max
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.sandbox.models import SandboxObject
from clusters.sandbox.services.simulation import set_speed, tick
from clusters.sync.services.reconcile import reconcile
from clusters.watch.models import ClusterEvent, ObservedPod
from clusters.watch.services.informers import observe_cluster
from portal.demo.organisation import ACTOR, actor_named, found_organisation
from tenants.organisation.models import Project
from workloads.detectors.services import detect_on
from workloads.intake import Explicit, FormFields
from workloads.intake.services import read_fields, read_manifest
from workloads.lifecycle.services import actions
from workloads.lifecycle.services.apply_queue import drain
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload, WorkloadEvent
from workloads.submission.services import submit

AUTOMATION: Final = "demo-automation"
NON: Final = "non-preemptible"


@dataclass(frozen=True, slots=True)
class Job:
    """One submission. `hours` None: it runs until it is stopped; `fails`: its program ends with exit code 1."""

    name: str
    project: str
    by: str
    type: str
    gpus: int
    hours: float | None = None
    workers: int = 1
    priority: str = ""
    preemptibility: str = ""
    pool: str = "h100"
    checkpoint_minutes: int = 0
    fails: bool = False


@dataclass(frozen=True, slots=True)
class StoryAct:
    """What people did, `hours` before the next act."""

    hours: float
    submits: tuple[Job, ...] = ()
    stops: tuple[str, ...] = ()
    resumes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


STORY: Final = (
    StoryAct(
        9,
        submits=(
            Job("chat-serving", "llm-team", "alice", "Inference", 4),
            Job("tokenizer-notebook", "llm-team", "bob", "Workspace", 1),
            Job("pretrain-warmup", "llm-team", "alice", "Distributed", 8, 8.5, workers=2, checkpoint_minutes=30),
            Job("embedding-sweep", "nlp-lab", AUTOMATION, "Training", 8, 6),
            Job("asr-baseline", "speech", AUTOMATION, "Training", 8, 4),
            Job("detector-v3", "vision-team", "charlie", "Training", 8, 7),
            Job("labeling-notebook", "vision-team", "charlie", "Workspace", 2),
            Job("grasp-policy", "robotics", "charlie", "Training", 4, 5),
            Job("rerank-serving", "nlp-lab", AUTOMATION, "Inference", 2, pool="a100"),
            Job("depth-serving", "vision-team", "charlie", "Inference", 4, pool="a100"),
            Job("sim-to-real", "robotics", "charlie", "Training", 8, 3, pool="a100"),
        ),
    ),
    StoryAct(
        5.7,
        submits=(
            Job("asr-large", "speech", AUTOMATION, "Distributed", 8, 40, workers=4, checkpoint_minutes=45),
            Job("summarizer-ft", "nlp-lab", AUTOMATION, "Training", 8, 5),
            Job("instruct-tune", "llm-team", "bob", "Distributed", 8, 9.5, workers=2, checkpoint_minutes=20),
            Job("reward-model", "llm-team", "alice", "Training", 8, 4),
            Job("pose-estimation", "vision-team", "charlie", "Training", 8, 3, pool="a100"),
            Job("typo-in-entrypoint", "llm-team", "bob", "Job", 1, 0.05, priority="low", fails=True),
            Job("audio-features", "speech", AUTOMATION, "Training", 4, 2, pool="a100"),
            Job("retriever-train", "nlp-lab", AUTOMATION, "Training", 8, 26, pool="a100"),
        ),
        stops=("labeling-notebook",),
    ),
    StoryAct(
        3.2,
        submits=(
            # perception takes back what speech has borrowed
            Job(
                "segmentation-train",
                "vision-team",
                "charlie",
                "Distributed",
                8,
                20,
                workers=2,
                preemptibility=NON,
            ),
            Job("wakeword", "speech", AUTOMATION, "Training", 2, 30, pool="a100"),
            Job("rlhf-rollouts", "llm-team", "alice", "Training", 8, 22),
            Job("data-dedup", "nlp-lab", AUTOMATION, "Job", 4, 1.5, priority="medium", pool="a100"),
            Job("out-of-memory", "robotics", "charlie", "Job", 1, 0.1, priority="medium-low", fails=True),
            Job("old-experiment", "llm-team", "bob", "Training", 1, 9),
        ),
    ),
    StoryAct(
        1.4,
        submits=(
            # inside one queue: a higher priority evicts a lower one
            Job("urgent-eval", "llm-team", "alice", "Training", 8, 30, priority="high"),
            Job("lidar-fusion", "robotics", "charlie", "Training", 8, 12),
            Job("notebook-ablation", "llm-team", "bob", "Workspace", 1, pool="a100"),
            Job("mesh-recon", "vision-team", "charlie", "Training", 8, 16, pool="a100"),
            Job("speaker-id", "speech", AUTOMATION, "Training", 8, 14, pool="a100"),
            Job("grammar-check", "nlp-lab", AUTOMATION, "Training", 4, 1.2, pool="a100"),
        ),
        stops=("old-experiment",),
    ),
    StoryAct(
        0.4,
        submits=(
            Job("planner-serving", "robotics", "charlie", "Inference", 8, workers=1),
            Job("vla-finetune", "robotics", "charlie", "Training", 8, 10, preemptibility=NON),
            Job("moe-pretrain", "nlp-lab", AUTOMATION, "Distributed", 8, 48, workers=8, checkpoint_minutes=30),
            Job("speech-serving", "speech", AUTOMATION, "Inference", 2),
            Job("night-batch", "vision-team", "charlie", "Training", 8, 9, priority="very-low"),
            Job("captioner", "vision-team", "charlie", "Training", 4, 7),
        ),
        deletes=("audio-features",),
    ),
)


# Only rows of the demo's own story. The audit trail is never touched: it says when the demo was loaded.
MOMENTS: Final[Mapping[type[models.Model], tuple[str, ...]]] = {
    ObservedPod: ("created_at", "started_at", "deletion_at", "ended_at", "disrupted_at", "gone_at"),
    ClusterEvent: ("at",),
    Workload: ("phase_at", "created_at", "started_at", "completed_at", "deleted_at", "due_at"),
    WorkloadEvent: ("at",),
    PreemptionRecord: ("at", "gone_at", "checkpoint_at"),
}
_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")


@transaction.atomic
def pass_time(span: timedelta) -> None:
    """Move the whole story back by `span`."""
    for model, fields in MOMENTS.items():
        model._default_manager.update(**{field: F(field) - span for field in fields})
    objects = list(SandboxObject.objects.all())
    for each in objects:
        each.manifest = moved(each.manifest, span)
    SandboxObject.objects.bulk_update(objects, ["manifest"], batch_size=200)


def moved(value: Any, span: timedelta) -> Any:
    """The same JSON with every timestamp `span` earlier."""
    match value:
        case dict():
            return {key: moved(inner, span) for key, inner in value.items()}
        case list():
            return [moved(inner, span) for inner in value]
        case str() if _STAMP.match(value):
            earlier = datetime.fromisoformat(value).astimezone(UTC) - span
            return earlier.isoformat(timespec="microseconds" if "." in value else "seconds").replace("+00:00", "Z")
        case _:
            return value


IMAGES: Final = {
    "Inference": "nvcr.io/nvidia/tritonserver:25.08-py3",
    "Workspace": "quay.io/jupyter/pytorch-notebook:cuda12-2025-09-01",
}
TRAINING_IMAGE: Final = "nvcr.io/nvidia/pytorch:25.08-py3"
MOST_ROUNDS: Final = 12
PAUSE: Final = timedelta(seconds=45)
STEPS: Final = (timedelta(minutes=4), timedelta(minutes=26))
Say = Callable[[str], object]


@transaction.atomic
def load(password: str, speed: int, say: Say) -> None:
    """The whole demo or nothing of it.

    1. the organisation and its cluster, synced
    2. act by act: submit, stop, delete; let the cluster settle; move what happened into the past
    3. the first check of the detectors, which beat would request 15 minutes later
    4. from here on the cluster's run times and grace periods pass `speed` times faster
    """
    cluster = found_organisation(password)
    settle(cluster)
    for number, act in enumerate(STORY, start=1):
        perform(act)
        settle(cluster)
        let_pass(cluster, act.hours)
        say(f"demo: step {number} of {len(STORY)}, {Workload.objects.count()} workloads")
    detect_on(str(cluster.pk))
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
        pass_time(_rest_of_grace() or PAUSE)
        if _snapshot() == before:
            return


def _rest_of_grace() -> timedelta | None:
    """Of the last terminating pod: what the records say of its end is not later than its grace period allows."""
    ends = ObservedPod.objects.live().aggregate(last=Max("deletion_at"))["last"]
    return ends - timezone.now() if ends and ends > timezone.now() else None


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
