"""Change plans, and the permissions that each one needs."""

import uuid

from django.db import models
from django.db.models.functions import Coalesce

from clusters.inventory.models import Cluster
from tenants.organisation.models import Department, Project


class PlanState(models.TextChoices):
    """Open plans expire; applied and discarded ones are kept as they are."""

    OPEN = "open"
    APPLIED = "applied"
    DISCARDED = "discarded"


class Plan(models.Model):
    """A proposed change with its computed effect and a fingerprint of what it was computed on."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=40, help_text="Name of a registered plan kind: priority, quotas, …")
    title = models.CharField(max_length=254)
    change = models.JSONField(help_text="The change itself, as data.")
    effect = models.JSONField(help_text="What it would do: objects per cluster, workloads affected, warnings.")
    based_on = models.CharField(max_length=64, help_text="Fingerprint of the rows it was computed on.")
    state = models.CharField(max_length=10, choices=PlanState.choices, default=PlanState.OPEN)
    undo = models.JSONField(null=True, blank=True, help_text="Once applied: the inverse change. Null: there is none.")
    outcome = models.JSONField(null=True, blank=True, help_text="Once applied: the facts right after it.")
    rolls_back = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="rollbacks")
    created_by = models.CharField(max_length=254)
    author = models.CharField(max_length=80, blank=True, help_text="Kind and id of the subject that created it.")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    approved_by = models.CharField(max_length=254, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    applied_by = models.CharField(max_length=254, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["-created_at", "-id"], name="workloads_plans_by_time")]

    def __str__(self) -> str:
        return self.title


class PlanScope(models.Model):
    """A permission that a plan needs, and where: the smallest place named; without one, in the whole installation.

    A place that is deleted leaves the whole installation: the plan is then for platform admins only.
    """

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="scopes")
    permission = models.CharField(max_length=40)
    cluster = models.ForeignKey(Cluster, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    department = models.ForeignKey(Department, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    def __str__(self) -> str:
        return f"{self.permission} for {self.plan_id}"


class PlanApproval(models.Model):
    """Plans for this department need the approval of a second admin; without a department: all plans do."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["department__name"]
        constraints = [models.UniqueConstraint(Coalesce("department", 0), name="workloads_plan_approval_once")]

    def __str__(self) -> str:
        return f"Approval of plans for {self.department or 'the whole installation'}"
