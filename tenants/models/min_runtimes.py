"""How long a run is left alone at least: a rule of a department or a project for its preemptible workloads."""

from django.db import models
from django.db.models import Q

from tenants.models.kept import kept_history
from tenants.models.rules import LONGEST_MINUTES, Rule


class MinRuntime(Rule):
    """For so many minutes from its start a preemptible run is neither preempted nor reclaimed, where that is kept."""

    minutes = models.PositiveIntegerField(
        help_text="Minutes from the start of a run; 0 guarantees nothing, whatever its department does."
    )
    history = kept_history()

    class Meta(Rule.Meta):
        ordering = ["department", "project"]
        verbose_name = "min guaranteed runtime"
        constraints = [
            *Rule.Meta.constraints,
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
