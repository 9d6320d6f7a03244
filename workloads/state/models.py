"""Rows of workloads and of their timelines, and who requested what a worker does later."""

import uuid
from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from portal.kit.security.actors import Actor, ActorKind, Channel, CredentialLimits
from tenants.organisation.models import Project
from workloads.dictionary.models import Priority, WorkloadType

if TYPE_CHECKING:
    from workloads.state.rules import CostAtRisk


class DesiredPhase(models.TextChoices):
    """What its people want of it."""

    RUNNING = "Running"
    STOPPED = "Stopped"
    DELETED = "Deleted"


class Phase(models.TextChoices):
    """Run:ai's phases. There is no "Preempted": an eviction is a record beside the phase."""

    CREATING = "Creating"
    INITIALIZING = "Initializing"
    RESUMING = "Resuming"
    PENDING = "Pending"
    DELETING = "Deleting"
    RUNNING = "Running"
    UPDATING = "Updating"
    STOPPED = "Stopped"
    STOPPING = "Stopping"
    DEGRADED = "Degraded"
    FAILED = "Failed"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"


class WorkloadQuerySet(models.QuerySet["Workload"]):
    """Workloads by what is to be done with them."""

    def due(self) -> Self:
        """Select rows that a worker may claim now: due, and not claimed or claimed by a worker that did not return.

        A deleted row is due again when a late write may have left an object of it behind.
        """
        free = models.Q(claimed_until=None) | models.Q(claimed_until__lt=Now())
        return self.filter(free, due_at__lte=timezone.now())


class Workload(models.Model):
    """A job and its state. Effective priority and preemptibility are stored with their sources."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=253)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="workloads")
    type = models.ForeignKey(WorkloadType, on_delete=models.PROTECT, related_name="workloads")
    spec = models.JSONField(help_text="WorkloadSpec.as_json(): rebuilt from the allowlist.")
    raw = models.JSONField(default=dict, help_text="What was sent, for its own people to read.")
    category = models.CharField(max_length=40, blank=True, help_text="Of its type at submission: limits go by it.")
    classification = models.CharField(
        max_length=40, blank=True, help_text="Category that was asked for, else that of its type; nothing goes by it."
    )
    priority = models.ForeignKey(Priority, on_delete=models.PROTECT, related_name="workloads")
    priority_value = models.IntegerField(help_text="The value that its scheduler counts: of its class or of its pods.")
    priority_source = models.CharField(max_length=12)
    preemptibility = models.CharField(max_length=30)
    preemptibility_source = models.CharField(max_length=12)
    discarded = models.JSONField(default=list, help_text="Values that lost: field, source, value, because.")
    warnings = models.JSONField(default=list)
    node_pools = models.JSONField(default=list, help_text="Names, in order of preference.")
    gpu_milli = models.PositiveBigIntegerField(default=0, help_text="Requested by all pods together.")
    cpu_milli = models.PositiveBigIntegerField(default=0)
    memory_bytes = models.PositiveBigIntegerField(default=0)
    pod_count = models.PositiveIntegerField(default=1)
    desired_phase = models.CharField(max_length=10, choices=DesiredPhase.choices, default=DesiredPhase.RUNNING)
    phase = models.CharField(max_length=14, choices=Phase.choices, default=Phase.CREATING)
    phase_reason = models.CharField(max_length=64, blank=True, help_text="NonPreemptibleOverQuota, OverLimit, NoRoom …")
    phase_message = models.TextField(blank=True)
    phase_at = models.DateTimeField()
    pool_name = models.CharField(max_length=63, blank=True, help_text="Where it runs now, or is tried.")
    pool_since = models.DateTimeField(null=True, blank=True, help_text="Since when; null: since it was submitted.")
    allocated_gpu_milli = models.PositiveBigIntegerField(default=0)
    running_pods = models.PositiveIntegerField(default=0)
    submitted_by = models.CharField(max_length=254)
    submitted_by_kind = models.CharField(max_length=20)
    submitted_by_id = models.CharField(max_length=64, blank=True)
    channel = models.CharField(max_length=16)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField(auto_now=True)
    started_at = models.DateTimeField(null=True, blank=True, help_text="Start of the current run.")
    started_over_quota = models.BooleanField(
        null=True, help_text="Did its project hold more GPUs than deserved when the run started? Of preemptible work."
    )
    completed_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    pending_seconds = models.PositiveBigIntegerField(default=0, help_text="Total up to the current phase.")
    running_seconds = models.PositiveBigIntegerField(default=0)
    preempted_count = models.PositiveIntegerField(default=0)
    generation = models.PositiveBigIntegerField(default=1)
    applied_generation = models.PositiveBigIntegerField(default=0)
    applied_scheduling = models.JSONField(
        default=dict, help_text="What its own object was last written with: `scheduling_fields`."
    )
    min_runtime_minutes = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="Minutes that its pods carry as their min guaranteed runtime; 0: they carry none.",
    )
    due_at = models.DateTimeField(
        null=True, blank=True, help_text="When the sweep looks at it next; null: nothing to do."
    )
    claimed_until = models.DateTimeField(
        null=True, blank=True, help_text="Until when one worker has it, by the database's clock; null: no worker has."
    )
    attempts = models.PositiveIntegerField(default=0)
    refusals = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Tries in a row in which the API server refused this very object."
    )
    apply_error = models.TextField(blank=True)

    replayed = False
    """Not stored: did a submission find it by its idempotency key?"""
    cost_at_risk: "CostAtRisk | None" = None
    """Not stored: what an eviction now would lose, where `with_costs` has set it and it holds GPUs."""

    objects = WorkloadQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        # Lists show live rows, newest first unless sorted otherwise; the deleted are few questions of the API.
        indexes = [
            *(
                models.Index(fields=fields, name=f"workloads_live_{name}", condition=models.Q(deleted_at__isnull=True))
                for name, fields in {
                    "newest": ["-created_at", "-id"],
                    "phase": ["phase", "-created_at", "-id"],
                    "project": ["project", "-created_at", "-id"],
                    "project_phase": ["project", "phase", "-created_at", "-id"],
                    "own": ["submitted_by_kind", "submitted_by_id", "-created_at", "-id"],
                    "pool": ["pool_name", "-created_at", "-id"],
                    "name": ["name", "id"],
                    "priority": ["-priority_value", "-id"],
                    "gpus": ["-gpu_milli", "-id"],
                    "changed": ["-phase_at", "-id"],
                }.items()
            ),
            models.Index(
                fields=["-created_at", "-id"],
                name="workloads_deleted_newest",
                condition=models.Q(deleted_at__isnull=False),
            ),
            models.Index(
                fields=["-created_at", "-id"],
                name="workloads_failed_to_apply",
                condition=models.Q(phase="Failed", apply_error__gt="", deleted_at__isnull=True),
            ),
            models.Index(
                fields=["-created_at", "-id"],
                name="workloads_evicted",
                condition=models.Q(preempted_count__gt=0, deleted_at__isnull=True),
            ),
            models.Index(
                fields=["project", "due_at"],
                name="workloads_due_in_project",
                condition=models.Q(due_at__isnull=False),
            ),
            models.Index(
                fields=["category", "started_at"],
                name="workloads_runs_by_start",
                condition=models.Q(
                    deleted_at__isnull=True,
                    started_at__isnull=False,
                    phase__in=[Phase.RUNNING, Phase.UPDATING, Phase.DEGRADED],
                ),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"],
                condition=models.Q(deleted_at__isnull=True),
                name="workloads_name_once",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def shown_phase(self) -> str:
        """Its phase; Deleted once its objects are gone, for which Run:ai's phases have no word."""
        return str(DesiredPhase.DELETED) if self.deleted_at else self.phase

    @property
    def images(self) -> tuple[str, ...]:
        """The images of its pods, each once."""
        return tuple(dict.fromkeys(image for role in self.spec.get("roles", []) for image in role["images"]))


class DeferredRequest(models.Model):
    """Who asked, and as far as their access key reached."""

    subject_kind = models.CharField(max_length=20)
    subject_id = models.CharField(max_length=64)
    subject_name = models.CharField(max_length=254)
    project_id = models.BigIntegerField(null=True, help_text="Its access key was bound to this project.")
    department_id = models.BigIntegerField(null=True)

    class Meta:
        abstract = True

    def ask(self, actor: Actor) -> None:
        self.subject_kind, self.subject_id, self.subject_name = str(actor.kind), actor.id, actor.name
        self.project_id = actor.limits.project_id if actor.limits else None
        self.department_id = actor.limits.department_id if actor.limits else None

    @property
    def asker(self) -> Actor:
        """Who asked, as a worker acts for them; their permissions are read again."""
        limits = CredentialLimits(project_id=self.project_id, department_id=self.department_id)
        kind = ActorKind(self.subject_kind)
        return Actor(kind, self.subject_id, self.subject_name, Channel.WORKER, limits=limits if limits.bound else None)


class EventType(models.TextChoices):
    """What a timeline entry is about."""

    PHASE = "phase"
    ACTION = "action"
    SCHEDULING = "scheduling"
    PREEMPTION = "preemption"
    SYNC = "sync"


class WorkloadEvent(models.Model):
    """One entry of the timeline, with who did it."""

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="timeline")
    at = models.DateTimeField()
    type = models.CharField(max_length=12, choices=EventType.choices)
    phase = models.CharField(max_length=14, blank=True)
    reason = models.CharField(max_length=128, blank=True)
    message = models.TextField(blank=True)
    actor = models.CharField(max_length=254, blank=True)
    detail = models.JSONField(default=dict)
    position = models.BigIntegerField(null=True, help_text="Its place in the change feed; null: none yet.")

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["workload", "-at", "-id"], name="workloads_timeline"),
            models.Index(fields=["id"], name="workloads_not_in_feed", condition=models.Q(position__isnull=True)),
        ]
        constraints = [models.UniqueConstraint(fields=["position"], name="workloads_feed_position")]

    def __str__(self) -> str:
        return f"{self.type} {self.reason or self.phase}"


class FeedState(models.Model):
    """The last position of the change feed, one row. A writer that assigns positions holds its lock."""

    last = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"up to {self.last}"


class IdempotencyKey(models.Model):
    """A key a client chose for one submit, with a fingerprint of what it sent and the workload it made."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    subject = models.CharField(max_length=90, help_text="Kind and id of the actor.")
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "subject", "key"], name="workloads_key_once")]

    def __str__(self) -> str:
        return self.key
