"""Findings of the detectors, and when each cluster was checked last."""

from django.db import models
from django.db.models import Q

from clusters.inventory.models import Cluster
from tenants.organisation.models import Project
from workloads.state.models import Workload


class Finding(models.Model):
    """Something that went wrong with scheduling. It is open until a check no longer finds it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="findings")
    kind = models.CharField(max_length=24, help_text="A value of FindingKind.")
    key = models.CharField(max_length=140, help_text="What it is about: a workload, a pool, an eviction.")
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, null=True, related_name="+", help_text="Null: of the whole cluster."
    )
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, null=True, related_name="findings")
    pool_name = models.CharField(max_length=63, blank=True)
    evidence = models.JSONField(default=list, help_text="Sentences that name workloads as {0}, {1}.")
    advice = models.TextField()
    named = models.JSONField(default=list, help_text="The workloads by number: id, name, id of the project.")
    gpu_seconds = models.PositiveBigIntegerField(default=0, help_text="What it has cost so far.")
    first_seen = models.DateTimeField(help_text="When it began, as far as the facts show, else when it was found.")
    last_seen = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-last_seen", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "key"], condition=Q(ended_at=None), name="workloads_finding_open_once"
            )
        ]
        indexes = [
            models.Index(fields=["cluster", "kind", "key"], name="workloads_finding_key"),
            models.Index(fields=["-last_seen", "-id"], name="workloads_finding_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class DetectorRun(models.Model):
    """When the detectors checked a cluster last."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="detector_run")
    checked_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.checked_at:%Y-%m-%d %H:%M:%S}"
