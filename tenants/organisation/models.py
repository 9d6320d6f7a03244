"""Departments and projects. A project is a namespace and one leaf queue per node pool."""

from django.core.validators import RegexValidator
from django.db import models

from clusters.inventory.models import Cluster
from portal.kit.models import change_history

DNS_LABEL = RegexValidator(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z", "Use lower-case letters, digits and inner dashes.")

GENERATION_HELP = "Increases with every change of its desired state."


class OrgUnit(models.Model):
    """What departments and projects have in common."""

    name = models.CharField(max_length=50, validators=[DNS_LABEL])
    description = models.TextField(blank=True)
    generation = models.PositiveBigIntegerField(default=1, help_text=GENERATION_HELP)
    created_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def owner(self) -> str:
        """Value of the owner label on its objects."""
        return self.owner_of(self.pk)

    @classmethod
    def owner_of(cls, pk: int) -> str:
        """The same for the row with this key."""
        return f"{cls._meta.model_name}.{pk}"


class Department(OrgUnit):
    """Parent of projects; its quotas bound theirs."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="departments")
    enforce_deserved = models.BooleanField(
        "limit projects to the department quota",
        default=False,
        help_text="The deserved quotas of the projects cannot exceed the department's.",
    )
    history = change_history(excluded_fields=["generation", "updated_at"])

    class Meta(OrgUnit.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "name"],
                name="tenants_department_name_once",
                violation_error_message="This cluster already has a department with this name.",
                violation_error_code="unique",
            )
        ]


class Project(OrgUnit):
    """What a tenant works in."""

    department = models.ForeignKey(Department, on_delete=models.PROTECT, related_name="projects")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=50, unique=True, validators=[DNS_LABEL])
    namespace = models.CharField(
        max_length=63, validators=[DNS_LABEL], help_text="Empty: “runai-” and the name.", blank=True
    )
    default_node_pools = models.JSONField(default=list, blank=True, help_text="Names, in order of preference.")
    history = change_history(excluded_fields=["generation", "updated_at"])

    class Meta(OrgUnit.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "namespace"],
                name="tenants_project_namespace_once",
                violation_error_message="Another project in this cluster uses this namespace.",
                violation_error_code="unique",
            )
        ]
