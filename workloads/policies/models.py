"""Rows that belong to one scope (installation, cluster, department, project), policies among them."""

import uuid
from typing import Final

from django.db import models
from django.db.models import Q

from clusters.inventory.models import Cluster
from tenants.organisation.models import Department, Project
from workloads.policies.rules.documents import named_in
from workloads.policies.rules.merge import PolicyKind, Scope, ScopeRef

PLACED: Final = ("cluster", "department", "project")
Owner = Cluster | Department | Project | None
"""Whose a row is; None is the installation."""


class ScopedModel(models.Model):
    """A named row of one scope, and who keeps it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=10, choices=[(str(each), str(each)) for each in Scope])
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    department = models.ForeignKey(Department, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField()
    updated_by = models.CharField(max_length=254)
    updated_at = models.DateTimeField()

    class Meta:
        abstract = True
        constraints = [
            models.CheckConstraint(
                condition=Q(scope="tenant", cluster=None, department=None, project=None)
                | Q(scope="cluster", cluster__isnull=False, department=None, project=None)
                | Q(scope="department", cluster=None, department__isnull=False, project=None)
                | Q(scope="project", cluster=None, department=None, project__isnull=False),
                name="%(app_label)s_%(class)s_one_place",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def owner(self) -> Owner:
        return self.project or self.department or self.cluster

    @property
    def place(self) -> ScopeRef:
        """The scope as a value, with its id and name as text."""
        owner = self.owner
        return ScopeRef(Scope(self.scope), str(owner.pk), owner.name) if owner else ScopeRef()


def once_per_scope(*fields: str) -> list[models.UniqueConstraint]:
    """These fields together stand once in the installation, and once in each cluster, department and project."""
    prefix = "%(app_label)s_%(class)s_once"
    return [
        models.UniqueConstraint(fields=fields, condition=Q(scope="tenant"), name=f"{prefix}_tenant"),
        *(
            models.UniqueConstraint(fields=[*fields, each], condition=Q(scope=each), name=f"{prefix}_{each}")
            for each in PLACED
        ),
    ]


class Policy(ScopedModel):
    """Defaults and rules in Run:ai's shape. One per kind and scope; those of wider scopes hold beside it."""

    kind = models.CharField(max_length=24, choices=[(str(each), str(each)) for each in PolicyKind])
    document = models.JSONField(default=dict, help_text="{defaults, rules} as they were accepted.")

    class Meta(ScopedModel.Meta):
        ordering = ["kind", "scope", "name"]
        verbose_name_plural = "policies"
        constraints = [*ScopedModel.Meta.constraints, *once_per_scope("kind")]

    @property
    def priorities(self) -> set[str]:
        """Every priority that its document names."""
        return named_in(self.document)
