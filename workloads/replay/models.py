"""Replays: what is to be replayed under which proposal, how far it is, and what came of it."""

import uuid

from django.db import models

from clusters.inventory.models import Cluster
from workloads.state.models import DeferredRequest


class ReplayStatus(models.TextChoices):
    """How far a replay is."""

    PENDING = "Pending"
    RUNNING = "Running"
    READY = "Ready"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class Replay(DeferredRequest):
    """One replay. What it is asked for and its result never change once they are there."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    request = models.JSONField(help_text="Scheduler, period of the record, proposal; as REST has them.")
    trace = models.JSONField(default=list, help_text="Rows of an uploaded trace; empty: the cluster's own record.")
    status = models.CharField(max_length=10, choices=ReplayStatus.choices, default=ReplayStatus.PENDING)
    status_at = models.DateTimeField()
    message = models.CharField(max_length=300, blank=True, help_text="Why there is no result.")
    done = models.PositiveIntegerField(default=0, help_text="Submissions that have ended in the model, of both runs.")
    total = models.PositiveIntegerField(default=0, help_text="Submissions of both runs; 0: not read yet.")
    result = models.JSONField(null=True, help_text="Figures before and after, plots, and what they rest on.")
    content = models.TextField(blank=True, help_text="The rows of all submissions as CSV.")
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, help_text="When a worker may take it; null: nothing is left to do.")
    attempts = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-created_at", "id"]
        indexes = [
            models.Index(fields=["due_at"], name="workloads_replay_due", condition=models.Q(due_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def percent(self) -> int:
        """Of the submissions of both runs."""
        return 100 * self.done // self.total if self.total else 0
