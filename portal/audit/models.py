"""The audit trail: one row per state change, sign-in or refusal, sealed afterwards into one hash chain."""

from django.db import models
from django.db.models import Q


class Result(models.TextChoices):
    """How the action ended."""

    SUCCEEDED = "Succeeded"
    DENIED = "Denied"
    FAILED = "Failed"


class AuditChain(models.Model):
    """The head of the chain: the one row that sealing locks."""

    length = models.PositiveBigIntegerField(default=0)
    head = models.CharField(max_length=64, blank=True)

    def __str__(self) -> str:
        return f"{self.length} sealed records"


class AuditRecord(models.Model):
    """Who did what to which object, through which channel, with what result. Append-only: see `triggers`."""

    at = models.DateTimeField()
    actor_kind = models.CharField(max_length=20)
    actor_id = models.CharField(max_length=64, blank=True)
    actor_name = models.CharField(max_length=254)
    channel = models.CharField(max_length=16)
    source_ip = models.CharField(max_length=45, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    http_method = models.CharField(max_length=10, blank=True)
    url = models.CharField(max_length=500, blank=True, help_text="Path of the request, without its query string.")
    action = models.CharField(max_length=64, help_text="Dotted verb, such as workload.submit.")
    result = models.CharField(max_length=16, choices=Result.choices)
    entity_type = models.CharField(max_length=64)
    entity_id = models.CharField(max_length=64, blank=True)
    entity_name = models.CharField(max_length=254, blank=True)
    project_id = models.CharField(
        max_length=20, blank=True, help_text="Project the record may be read in; empty: none."
    )
    detail = models.JSONField(default=dict)
    sealed_seq = models.PositiveBigIntegerField(
        null=True, blank=True, unique=True, help_text="Position in the chain; empty until the record is sealed."
    )
    digest = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["-at", "-id"], name="audit_record_newest"),
            models.Index(fields=["project_id", "-at"], name="audit_record_project"),
            models.Index(fields=["entity_type", "entity_id"], name="audit_record_entity"),
            models.Index(fields=["id"], condition=Q(sealed_seq=None), name="audit_record_unsealed"),
        ]
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.entity_name} {self.result}"
