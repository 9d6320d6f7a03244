"""A policy: what a scope presets and demands of workloads of one kind."""

import uuid
from typing import Final

from django.db import models
from django.db.models import Q

from clusters.models import Cluster
from tenants.models import Department, Project
from workloads.policy_rules import Kind, Scope

PLACED: Final = ("cluster", "department", "project")


class Policy(models.Model):
    """Defaults and rules in Run:ai's shape. One per kind and scope; those of wider scopes hold beside it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=24, choices=[(str(each), str(each)) for each in Kind])
    scope = models.CharField(max_length=10, choices=[(str(each), str(each)) for each in Scope])
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    department = models.ForeignKey(Department, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    document = models.JSONField(default=dict, help_text="{defaults, rules} as they were accepted.")
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    updated_by = models.CharField(max_length=254)
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["kind", "scope", "name"]
        verbose_name_plural = "policies"
        constraints = [
            models.CheckConstraint(
                condition=Q(scope="tenant", cluster=None, department=None, project=None)
                | Q(scope="cluster", cluster__isnull=False, department=None, project=None)
                | Q(scope="department", cluster=None, department__isnull=False, project=None)
                | Q(scope="project", cluster=None, department=None, project__isnull=False),
                name="workloads_policy_one_place",
            ),
            models.UniqueConstraint(fields=["kind"], condition=Q(scope="tenant"), name="workloads_policy_once_tenant"),
            *(
                models.UniqueConstraint(
                    fields=["kind", each], condition=Q(scope=each), name=f"workloads_policy_once_{each}"
                )
                for each in PLACED
            ),
        ]

    def __str__(self) -> str:
        return self.name
