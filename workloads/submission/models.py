"""Idempotency keys of submissions."""

from django.db import models

from tenants.organisation.models import Project
from workloads.state.models import Workload


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
