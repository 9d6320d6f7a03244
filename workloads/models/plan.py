"""A what-if of an admin change: what it would do, then apply or discard. Refused if anything moved in between."""

import uuid

from django.db import models


class PlanState(models.TextChoices):
    """Where a plan stands."""

    OPEN = "open"
    APPLIED = "applied"
    DISCARDED = "discarded"


class Plan(models.Model):
    """A proposed change with its computed effect and a fingerprint of what it was computed on."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=40, help_text="priority, type, preset.")
    title = models.CharField(max_length=254)
    change = models.JSONField(help_text="The change itself, as data.")
    effect = models.JSONField(help_text="What it would do: objects per cluster, workloads affected, warnings.")
    based_on = models.CharField(max_length=64, help_text="Fingerprint of the rows it was computed on.")
    state = models.CharField(max_length=10, choices=PlanState.choices, default=PlanState.OPEN)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    applied_by = models.CharField(max_length=254, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.title
