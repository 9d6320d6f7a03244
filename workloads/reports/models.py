"""Usage reports: the request for a period of time, and the file once it is made."""

import uuid

from django.db import models

from workloads.state.models import DeferredRequest


class ReportStatus(models.TextChoices):
    """Status of a report, in Run:ai's words."""

    PENDING = "Pending"
    PROCESSING = "Processing"
    READY = "Ready"
    FAILED = "Failed"


class ReportGroup(models.TextChoices):
    """What a line of a report is of. The words are Run:ai's."""

    NODE_POOL = "Nodepool", "node pool"
    PROJECT = "Project", "project"
    DEPARTMENT = "Department", "department"
    CLUSTER = "Cluster", "cluster"


class Report(DeferredRequest):
    """One report. Its file never changes once it is there."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True)
    start = models.DateTimeField()
    end = models.DateTimeField()
    group_by = models.CharField(max_length=10, choices=ReportGroup.choices, blank=True)
    filter_by = models.JSONField(default=list, help_text="projectName==, departmentName==, clusterId==.")
    status = models.CharField(max_length=10, choices=ReportStatus.choices, default=ReportStatus.PENDING)
    status_at = models.DateTimeField()
    message = models.CharField(max_length=300, blank=True, help_text="Measurement coverage, or why there is no file.")
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, help_text="When a worker may take it; null: nothing is left to do.")
    attempts = models.PositiveIntegerField(default=0)
    covered = models.JSONField(default=dict, help_text="Keys of the projects and departments that the file covers.")
    content = models.TextField(blank=True, help_text="The file.")

    class Meta:
        ordering = ["-created_at", "id"]
        indexes = [
            models.Index(fields=["subject_kind", "subject_id", "created_at"], name="workloads_reporter"),
            models.Index(fields=["due_at"], name="workloads_report_due", condition=models.Q(due_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return self.name
