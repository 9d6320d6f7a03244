"""How long one run may last, and how long its GPUs may do nothing: rules for the workloads of one category."""

from django.db import models
from django.db.models import F, Q

from tenants.models.kept import kept_history
from tenants.models.rules import LONGEST_MINUTES, Rule


class Limit(Rule):
    """After so many minutes a run is stopped, with notice."""

    category = models.CharField(max_length=40, help_text="Build, Train, Deploy or another of the dictionary.")
    minutes = models.PositiveIntegerField(help_text="Minutes from when the clock starts to the end of the run.")
    notice_minutes = models.PositiveIntegerField(default=15, help_text="So long before its end a run is told.")

    class Meta(Rule.Meta):
        abstract = True
        ordering = ["category", "department", "project"]
        constraints = [
            *Rule.Meta.constraints,
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


class TimeLimit(Limit):
    """The clock starts with the run."""

    history = kept_history()

    class Meta(Limit.Meta):
        verbose_name = "time limit"


class IdleLimit(Limit):
    """The clock starts when the last GPU of the run falls idle, and anew after each time one worked."""

    history = kept_history()

    class Meta(Limit.Meta):
        verbose_name = "idle limit"
