"""What every rule about runs has: one owner, a department or a project. A department's holds in all of its projects."""

from django.db import models
from django.db.models import Q

from tenants.models.organisation import Department, Project

LONGEST_MINUTES = 366 * 24 * 60


class Rule(models.Model):
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
        """Whose rule it is."""
        owner = self.project or self.department
        if owner is None:
            raise ValueError("a rule without an owner")
        return owner

    @property
    def whose(self) -> str:
        """`project llm-team`."""
        return f"{'department' if self.project_id is None else 'project'} {self.owner}"
