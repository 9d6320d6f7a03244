"""Departments and projects. A project is a namespace and one leaf queue per node pool."""

from django.core.validators import RegexValidator
from django.db import models

from clusters.inventory.models import Cluster
from portal.kit.db.history import change_history

DNS_LABEL = RegexValidator(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z", "Use lower-case letters, digits and inner dashes.")

GENERATION_HELP = "Grows with every change of what its clusters should hold: the fence against late writers."


class Department(models.Model):
    """Parent of projects; its quotas bound theirs."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="departments")
    name = models.CharField(max_length=50, validators=[DNS_LABEL])
    description = models.TextField(blank=True)
    enforce_deserved = models.BooleanField(
        "limit projects from exceeding department quota",
        default=False,
        help_text="If set, the projects' deserved quotas may not add up to more than the department's.",
    )
    generation = models.PositiveBigIntegerField(default=1, help_text=GENERATION_HELP)
    created_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    history = change_history(excluded_fields=["generation", "updated_at"])

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "name"],
                name="tenants_department_name_once",
                violation_error_message="This cluster has a department of that name already.",
                violation_error_code="unique",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def owner(self) -> str:
        """Value of the owner label on its objects."""
        return self.owner_of(self.pk)

    @staticmethod
    def owner_of(pk: int) -> str:
        """The same for the row with this key."""
        return f"department.{pk}"


class Project(models.Model):
    """What a tenant works in."""

    department = models.ForeignKey(Department, on_delete=models.PROTECT, related_name="projects")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=50, unique=True, validators=[DNS_LABEL])
    namespace = models.CharField(
        max_length=63, validators=[DNS_LABEL], help_text="Empty: “runai-” and the name.", blank=True
    )
    description = models.TextField(blank=True)
    default_node_pools = models.JSONField(default=list, blank=True, help_text="Names, in order of preference.")
    generation = models.PositiveBigIntegerField(default=1, help_text=GENERATION_HELP)
    created_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    history = change_history(excluded_fields=["generation", "updated_at"])

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "namespace"],
                name="tenants_project_namespace_once",
                violation_error_message="Another project of this cluster has that namespace.",
                violation_error_code="unique",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def owner(self) -> str:
        """Value of the owner label on its objects."""
        return self.owner_of(self.pk)

    @staticmethod
    def owner_of(pk: int) -> str:
        """The same for the row with this key."""
        return f"project.{pk}"
