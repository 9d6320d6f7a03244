"""Quotas per node pool, GPU caps, time limits, idle limits and minimum runtimes."""

from django.db import models
from django.db.models import F, Q

from clusters.inventory.models import NodePool
from portal.kit.models import change_history
from scheduling.model.resources import Limit
from tenants.organisation.models import Department, Project

LONGEST_MINUTES = 366 * 24 * 60


class RuntimeRule(models.Model):
    """A rule of one department or one project."""

    department = models.ForeignKey(
        Department, on_delete=models.CASCADE, null=True, blank=True, related_name="%(class)s_rules"
    )
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, null=True, blank=True, related_name="%(class)s_rules"
    )

    class Meta:
        abstract = True
        constraints = [
            models.CheckConstraint(
                condition=Q(department__isnull=True) ^ Q(project__isnull=True),
                name="tenants_%(class)s_one_owner",
                violation_error_message="Choose a department or a project.",
            ),
        ]

    @property
    def owner(self) -> Department | Project:
        owner = self.project or self.department
        if owner is None:
            raise ValueError("a rule without an owner")
        return owner

    @property
    def whose(self) -> str:
        """`project llm-team`."""
        return f"{'department' if self.project_id is None else 'project'} {self.owner}"


class Rank(models.TextChoices):
    """Order of queues for the surplus (formerly "project priority"). The order of declaration is the order of rank.

    Labels are the values: sentences name a rank as the form does.
    """

    VERY_LOW = "very-low", "very-low"
    LOW = "low", "low"
    MEDIUM_LOW = "medium-low", "medium-low"
    MEDIUM = "medium", "medium"
    MEDIUM_HIGH = "medium-high", "medium-high"
    HIGH = "high", "high"
    VERY_HIGH = "very-high", "very-high"


def limit_covers_deserved(name: str) -> list[models.CheckConstraint]:
    """`limit >= deserved` where limited, for the three resources."""
    return [
        models.CheckConstraint(
            condition=Q(**{f"{dim}_limit__isnull": True}) | Q(**{f"{dim}_limit__gte": F(f"{dim}_deserved")}),
            name=f"{name}_{dim}_limit_covers",
            violation_error_message="The limit cannot be lower than the deserved quota.",
        )
        for dim in ("gpu", "cpu", "memory")
    ]


class Quota(models.Model):
    """Deserved, limit, over-quota weights and rank of one queue.

    Null deserved CPU or memory: not counted, never short. Null weight of CPU or memory: the GPUs' counts.
    """

    node_pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="+")
    gpu_deserved = models.PositiveBigIntegerField("GPUs deserved", default=0, help_text="Thousandths of a GPU.")
    gpu_limit = models.PositiveBigIntegerField("GPU limit", null=True, blank=True)
    cpu_deserved = models.PositiveBigIntegerField("CPU deserved", null=True, blank=True, help_text="Millicores.")
    cpu_limit = models.PositiveBigIntegerField("CPU limit", null=True, blank=True)
    memory_deserved = models.PositiveBigIntegerField(null=True, blank=True, help_text="Bytes.")
    memory_limit = models.PositiveBigIntegerField(null=True, blank=True)
    over_quota_weight = models.FloatField("over-quota weight", default=2, help_text="Share of surplus GPUs.")
    cpu_weight = models.FloatField("over-quota weight of CPU", null=True, blank=True, help_text="Empty: as for GPUs.")
    memory_weight = models.FloatField(
        "over-quota weight of memory", null=True, blank=True, help_text="Empty: as for GPUs."
    )
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

    @property
    def weights_text(self) -> str:
        """The over-quota weights in words: "2", or "2 (CPU 1, memory 0.5)" where they differ."""
        own = (("CPU", self.cpu_weight), ("memory", self.memory_weight))
        others = [f"{name} {weight:.7g}" for name, weight in own if weight not in {None, self.over_quota_weight}]
        return f"{self.over_quota_weight:.7g}" + (f" ({', '.join(others)})" if others else "")


class DepartmentQuota(Quota):
    """The parent queue of a department in one node pool."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="quotas")
    history = change_history(excluded_fields=["updated_at"])

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
    history = change_history(excluded_fields=["updated_at"])

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
    history = change_history(excluded_fields=["updated_at"])

    class Meta:
        ordering = ["project", "priority"]
        verbose_name = "GPU cap of a priority"
        verbose_name_plural = "GPU caps of priorities"
        constraints = [models.UniqueConstraint(fields=["project", "priority"], name="tenants_cap_once")]

    def __str__(self) -> str:
        return f"{self.project} {self.priority}"


class RuntimeLimit(RuntimeRule):
    """After so many minutes a run is stopped, with notice."""

    category = models.CharField(max_length=40, help_text="Build, Train, Deploy or another of the dictionary.")
    minutes = models.PositiveIntegerField(help_text="Minutes until the workload is stopped.")
    notice_minutes = models.PositiveIntegerField(default=15, help_text="Notice given before the workload is stopped.")

    class Meta(RuntimeRule.Meta):
        abstract = True
        ordering = ["category", "department", "project"]
        constraints = [
            *RuntimeRule.Meta.constraints,
            models.CheckConstraint(
                condition=Q(minutes__gte=1) & Q(minutes__lte=LONGEST_MINUTES) & Q(notice_minutes__lt=F("minutes")),
                name="tenants_%(class)s_in_range",
                violation_error_message="The notice must be shorter than the limit, and the limit at most 366 days.",
            ),
            models.UniqueConstraint(fields=["department", "category"], name="tenants_%(class)s_department_once"),
            models.UniqueConstraint(fields=["project", "category"], name="tenants_%(class)s_project_once"),
        ]

    def __str__(self) -> str:
        return f"{self.owner}: {self.category}"


class TimeLimit(RuntimeLimit):
    """The clock starts with the run."""

    history = change_history()

    class Meta(RuntimeLimit.Meta):
        verbose_name = "time limit"


class IdleLimit(RuntimeLimit):
    """The clock starts when the last GPU of the run falls idle, and again after each time one worked."""

    history = change_history()

    class Meta(RuntimeLimit.Meta):
        verbose_name = "idle limit"


class MinRuntime(RuntimeRule):
    """For so many minutes from its start a preemptible run is neither preempted nor reclaimed, where that is kept."""

    minutes = models.PositiveIntegerField(
        help_text="Minutes of protection after the start. 0 means no protection, regardless of the department."
    )
    history = change_history()

    class Meta(RuntimeRule.Meta):
        ordering = ["department", "project"]
        verbose_name = "minimum runtime"
        constraints = [
            *RuntimeRule.Meta.constraints,
            models.CheckConstraint(
                condition=Q(minutes__lte=LONGEST_MINUTES),
                name="tenants_minruntime_in_range",
                violation_error_message="At most 366 days.",
            ),
            models.UniqueConstraint(fields=["department"], name="tenants_minruntime_department_once"),
            models.UniqueConstraint(fields=["project"], name="tenants_minruntime_project_once"),
        ]

    def __str__(self) -> str:
        return f"{self.owner}: {self.minutes} min"
