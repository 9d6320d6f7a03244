"""Records of evictions: who was evicted, by whom, why, and the cost. They outlive pods and their events."""

from django.db import models

from clusters.inventory.models import Cluster
from workloads.state.models import Workload


class PreemptionCause(models.TextChoices):
    """Preempt: in one queue, by priority. Reclaim: across queues, by quota. Unknown: the scheduler gave no cause."""

    PREEMPT = "preempt"
    RECLAIM = "reclaim"
    UNKNOWN = "unknown"


class PreemptionRecord(models.Model):
    """One eviction: victim, preemptor, cause, and what it cost. Exactly one per (cluster, pod uid, moment).

    A gang that was evicted whole is one preemption: its first pod's record, and those of its other pods behind it.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    pod_uid = models.CharField(max_length=64)
    pod_name = models.CharField(max_length=253)
    at = models.DateTimeField(help_text="Transition of DisruptionTarget: when the scheduler decided.")
    victim = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="preemptions")
    first = models.ForeignKey(
        "self",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="others",
        help_text="Its gang was evicted whole: the preemption that this pod is part of. Empty: it is one by itself.",
    )
    preemptor = models.ForeignKey(Workload, on_delete=models.SET_NULL, null=True, blank=True, related_name="evictions")
    preemptor_uid = models.CharField(
        max_length=64, blank=True, help_text="Its pod's uid, as the scheduler said it; resolved once that pod is seen."
    )
    preemptor_name = models.CharField(max_length=253, blank=True)
    preemptor_priority = models.CharField(max_length=63, blank=True)
    preemptor_value = models.IntegerField(null=True, blank=True)
    preemptor_project = models.CharField(max_length=63, blank=True)
    cause = models.CharField(max_length=10, choices=PreemptionCause.choices)
    message = models.TextField(blank=True, help_text="The scheduler's own words.")
    node_name = models.CharField(max_length=253, blank=True)
    grace_seconds = models.PositiveIntegerField(default=30)
    gone_at = models.DateTimeField(null=True, blank=True)
    grace_used_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="From SIGTERM until its containers had ended; unknown until it is gone."
    )
    gpu_milli = models.PositiveBigIntegerField(default=0)
    ran_seconds = models.PositiveBigIntegerField(default=0)
    started_over_quota = models.BooleanField(null=True, help_text="Of the run that it ended, as the workload had it.")
    checkpoint_at = models.DateTimeField(null=True, blank=True)
    lost_gpu_seconds = models.PositiveBigIntegerField(
        default=0, help_text="GPU-seconds since start or last checkpoint."
    )

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [models.UniqueConstraint(fields=["cluster", "pod_uid", "at"], name="workloads_preemption_once")]
        indexes = [
            models.Index(fields=["cluster", "at"], name="workloads_preemption_newest"),
            models.Index(fields=["-at", "-id"], name="workloads_preemption_list"),
            models.Index(
                fields=["cluster", "preemptor_uid"],
                name="workloads_preemption_unnamed",
                condition=models.Q(preemptor=None, preemptor_name="") & ~models.Q(preemptor_uid=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pod_name} by {self.preemptor_name or 'unknown'}"

    @property
    def head(self) -> int:
        """The key of the preemption that it is or belongs to."""
        return self.first_id or self.pk
