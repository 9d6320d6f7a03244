"""Requests for more deserved GPUs of a project in one node pool."""

import uuid
from datetime import UTC, date, datetime, time, timedelta

from django.db import models
from django.db.models import Q

from clusters.inventory.models import NodePool
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project

DAY = timedelta(days=1)


class QuotaRequestState(models.TextChoices):
    """Approved lasts until its date, if it has one; then it is ended and the GPUs are taken back."""

    OPEN = "open"
    APPROVED = "approved"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    ENDED = "ended"


class QuotaRequest(models.Model):
    """Who asks for how many GPUs, what it would change, what was decided. GPUs are in thousandths."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="quota_requests")
    node_pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, related_name="+")
    gpu_milli = models.PositiveBigIntegerField(help_text="Requested on top of the deserved quota.")
    until = models.DateField(null=True, help_text="Last day, UTC; null: for good.")
    reason = models.CharField(max_length=500)
    author_kind = models.CharField(max_length=20)
    author_id = models.CharField(max_length=64)
    author_name = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=QuotaRequestState.choices, default=QuotaRequestState.OPEN)
    impact = models.JSONField(default=dict)
    impact_at = models.DateTimeField()
    base = models.CharField(max_length=32, help_text="Digest of the quotas that the impact was computed on.")
    decided_by = models.CharField(max_length=254, blank=True)
    decided_at = models.DateTimeField(null=True)
    decision_reason = models.CharField(max_length=500, blank=True)
    granted_milli = models.PositiveBigIntegerField(null=True)
    granted_until = models.DateField(null=True)
    ends_at = models.DateTimeField(null=True, help_text="When the GPUs are taken back.")
    ended_at = models.DateTimeField(null=True)
    kept_because = models.CharField(max_length=500, blank=True, help_text="Why the GPUs could not be taken back yet.")
    before = models.JSONField(default=dict, help_text="Quota columns as they were before the approval.")
    generation = models.PositiveBigIntegerField(
        default=0, help_text="The cluster's generation that brought the last change of the quota."
    )

    class Meta:
        ordering = ["-created_at", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "node_pool", "author_kind", "author_id"],
                condition=Q(state="open"),
                name="workloads_quota_request_once",
            )
        ]
        indexes = [
            models.Index(fields=["ends_at"], name="workloads_quota_ends", condition=Q(state="approved")),
            models.Index(fields=["project", "-created_at"], name="workloads_quota_requests"),
            models.Index(fields=["author_id", "-decided_at"], name="workloads_quota_answers"),
        ]

    def __str__(self) -> str:
        return f"{self.project} in {self.node_pool}"

    @property
    def granted_in_part(self) -> bool:
        return self.granted_milli is not None and self.granted_milli != self.gpu_milli

    @property
    def last_day(self) -> date | None:
        """As granted, else as requested; None: no end."""
        return self.until if self.granted_milli is None else self.granted_until

    def is_by(self, actor: Actor) -> bool:
        return (self.author_kind, self.author_id) == (str(actor.kind), actor.id)


def end_of(day: date | None) -> datetime | None:
    """The moment when this day is over, UTC."""
    return None if day is None else datetime.combine(day, time(), tzinfo=UTC) + DAY
