"""How long one run may last: a rule of a department or a project for the workloads of one category."""

from django.db import models
from django.db.models import F, Q

from tenants.models.kept import kept_history
from tenants.models.rules import LONGEST_MINUTES, Rule


class TimeLimit(Rule):
    """After so many minutes a run is stopped, with notice."""

    category = models.CharField(max_length=40, help_text="Build, Train, Deploy or another of the dictionary.")
    minutes = models.PositiveIntegerField(help_text="Minutes from the start of a run to its end.")
    notice_minutes = models.PositiveIntegerField(default=15, help_text="So long before its end a run is told.")
    history = kept_history()

    class Meta(Rule.Meta):
        ordering = ["category", "department", "project"]
        verbose_name = "time limit"
        constraints = [
            *Rule.Meta.constraints,
            models.CheckConstraint(
                condition=Q(minutes__gte=1) & Q(minutes__lte=LONGEST_MINUTES) & Q(notice_minutes__lt=F("minutes")),
                name="tenants_timelimit_in_range",
                violation_error_message="The notice must be shorter than the limit, and the limit at most 366 days.",
            ),
            models.UniqueConstraint(fields=["department", "category"], name="tenants_timelimit_department_once"),
            models.UniqueConstraint(fields=["project", "category"], name="tenants_timelimit_project_once"),
        ]

    def __str__(self) -> str:
        return f"{self.owner}: {self.category}"
