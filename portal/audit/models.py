"""The audit trail: one row per state change, sign-in or refusal, linked into hash chains."""

from django.db import models


class Result(models.TextChoices):
    """How the action ended."""

    SUCCEEDED = "Succeeded"
    DENIED = "Denied"
    FAILED = "Failed"


class AuditChain(models.Model):
    """The head of one chain. Several chains, picked by request, so that submits seldom wait for each other."""

    number = models.PositiveSmallIntegerField(primary_key=True)
    length = models.PositiveBigIntegerField(default=0)
    head = models.CharField(max_length=64, default="")

    def __str__(self) -> str:
        return f"chain {self.number}, {self.length} records"


class AuditRecord(models.Model):
    """Who did what to which thing, through which door, with what result. Never updated, never deleted."""

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
    chain = models.PositiveSmallIntegerField()
    position = models.PositiveBigIntegerField()
    previous = models.CharField(max_length=64, blank=True)
    digest = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain", "position"], name="audit_record_position_once")]
        indexes = [
            models.Index(fields=["-at", "-id"], name="audit_record_newest"),
            models.Index(fields=["project_id", "-at"], name="audit_record_project"),
            models.Index(fields=["entity_type", "entity_id"], name="audit_record_entity"),
        ]
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.entity_name} {self.result}"
