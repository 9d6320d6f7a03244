"""The priority dictionary, categories, and workload types with their defaults."""

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

LOWEST_VALUE = -2147483648
HIGHEST_VALUE = 1000000000


class PreemptionPolicy(models.TextChoices):
    """What a PriorityClass may do to others. `Never`: evicts none; its own pods may still be evicted."""

    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
    NEVER = "Never"


class Priority(models.Model):
    """A dictionary entry. Its name and value become a PriorityClass on every cluster."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    value = models.IntegerField(validators=[MinValueValidator(LOWEST_VALUE), MaxValueValidator(HIGHEST_VALUE)])
    preemption_policy = models.CharField(
        max_length=20, choices=PreemptionPolicy.choices, default=PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    )
    description = models.CharField(max_length=500, blank=True)
    alias_of = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="aliases")
    source = models.CharField(
        max_length=40, blank=True, help_text="Preset it came from; Run:ai for the seven built-in ones."
    )
    retired_at = models.DateTimeField(null=True, blank=True, help_text="Retired: still synced and shown, not offered.")
    generation = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["value", "name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(value__gte=LOWEST_VALUE, value__lte=HIGHEST_VALUE), name="workloads_priority_value_range"
            ),
            models.CheckConstraint(condition=~Q(name__startswith="system-"), name="workloads_priority_not_system"),
            models.UniqueConstraint(
                fields=["value"],
                condition=Q(alias_of__isnull=True, retired_at__isnull=True),
                name="workloads_priority_value_once",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Category(models.Model):
    """Build, Train or Deploy, with the defaults its types started from."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=40, unique=True)
    description = models.CharField(max_length=300, blank=True)
    priority = models.ForeignKey(Priority, on_delete=models.PROTECT, related_name="+")
    preemptibility = models.CharField(max_length=30)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "categories"

    def __str__(self) -> str:
        return self.name


class WorkloadType(models.Model):
    """A kind of job with its default priority and preemptibility. Changing them never touches existing workloads."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True, help_text="A Kubernetes Kind, or a Run:ai native type.")
    title = models.CharField(max_length=80, help_text="As people say it: Distributed training.")
    group = models.CharField(max_length=100, help_text="API group; core for the core group; run.ai for native types.")
    native = models.BooleanField(default=False)
    fixed = models.BooleanField(default=False, help_text="Priority and preemptibility cannot be chosen (NVCF).")
    category = models.ForeignKey(Category, on_delete=models.PROTECT, null=True, blank=True, related_name="types")
    priority = models.ForeignKey(Priority, on_delete=models.PROTECT, null=True, blank=True, related_name="types")
    preemptibility = models.CharField(max_length=30, blank=True, help_text="Empty: the type has no default.")
    withdrawn_at = models.DateTimeField(
        null=True, blank=True, help_text="Withdrawn: neither listed nor submitted; what there is goes on."
    )
    updated_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
