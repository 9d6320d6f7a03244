"""Quotas per node pool. Units: GPU thousandths, CPU millicores, memory bytes. A null limit is unlimited."""

from django.db import models
from django.db.models import F, Q

from clusters.models import NodePool
from scheduling.resources import Limit
from tenants.models.kept import kept_history
from tenants.models.organisation import Department, Project


class Rank(models.TextChoices):
    """Order of queues for the surplus (formerly "project priority"). The order of declaration is the order of rank."""

    VERY_LOW = "very-low"
    LOW = "low"
    MEDIUM_LOW = "medium-low"
    MEDIUM = "medium"
    MEDIUM_HIGH = "medium-high"
    HIGH = "high"
    VERY_HIGH = "very-high"


def limit_covers_deserved(name: str) -> list[models.CheckConstraint]:
    """`limit >= deserved` where limited, for the three resources."""
    return [
        models.CheckConstraint(
            condition=Q(**{f"{dim}_limit__isnull": True}) | Q(**{f"{dim}_limit__gte": F(f"{dim}_deserved")}),
            name=f"{name}_{dim}_limit_covers",
            violation_error_message="The limit may not be below the deserved quota.",
        )
        for dim in ("gpu", "cpu", "memory")
    ]


class Quota(models.Model):
    """Deserved, limit, over-quota weight and rank of one queue.

    Null deserved CPU or memory: not counted, never short.
    """

    node_pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="+")
    gpu_deserved = models.PositiveBigIntegerField("GPUs deserved", default=0, help_text="Thousandths of a GPU.")
    gpu_limit = models.PositiveBigIntegerField("GPU limit", null=True, blank=True)
    cpu_deserved = models.PositiveBigIntegerField("CPU deserved", null=True, blank=True, help_text="Millicores.")
    cpu_limit = models.PositiveBigIntegerField("CPU limit", null=True, blank=True)
    memory_deserved = models.PositiveBigIntegerField(null=True, blank=True, help_text="Bytes.")
    memory_limit = models.PositiveBigIntegerField(null=True, blank=True)
    over_quota_weight = models.PositiveIntegerField("over-quota weight", default=2)
    rank = models.CharField(max_length=12, choices=Rank.choices, default=Rank.MEDIUM_LOW)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    @property
    def deserved(self) -> Limit:
        """Guaranteed amounts; None in a dimension: not counted, never short."""
        return Limit(self.gpu_deserved, self.cpu_deserved, self.memory_deserved)

    @property
    def limit(self) -> Limit:
        """Hard caps; None is unlimited."""
        return Limit(self.gpu_limit, self.cpu_limit, self.memory_limit)


class DepartmentQuota(Quota):
    """The parent queue of a department in one node pool."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="quotas")
    history = kept_history(excluded_fields=["updated_at"])

    class Meta:
        ordering = ["department", "node_pool"]
        verbose_name = "department quota"
        constraints = [
            models.UniqueConstraint(fields=["department", "node_pool"], name="tenants_department_pool_once"),
            *limit_covers_deserved("tenants_department"),
        ]

    def __str__(self) -> str:
        return f"{self.department} in {self.node_pool}"


class ProjectQuota(Quota):
    """The leaf queue of a project in one node pool."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="quotas")
    history = kept_history(excluded_fields=["updated_at"])

    class Meta:
        ordering = ["project", "node_pool"]
        verbose_name = "project quota"
        constraints = [
            models.UniqueConstraint(fields=["project", "node_pool"], name="tenants_project_pool_once"),
            *limit_covers_deserved("tenants_project"),
        ]

    def __str__(self) -> str:
        return f"{self.project} in {self.node_pool}"


class PriorityCap(models.Model):
    """At most this many GPUs of one priority in a project: the scoped quotas of the kube flavour."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="priority_caps")
    priority = models.CharField(max_length=63, help_text="Name of a dictionary entry.")
    gpu_limit = models.PositiveBigIntegerField("GPU limit", help_text="Thousandths of a GPU.")
    history = kept_history(excluded_fields=["updated_at"])

    class Meta:
        ordering = ["project", "priority"]
        verbose_name = "GPU cap of a priority"
        verbose_name_plural = "GPU caps of priorities"
        constraints = [models.UniqueConstraint(fields=["project", "priority"], name="tenants_cap_once")]

    def __str__(self) -> str:
        return f"{self.project} {self.priority}"
