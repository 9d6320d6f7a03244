"""One plain row per submitted thing."""

from django.db import models

from tenants.organisation.models import Project


class Thing(models.Model):
    """A name in a project, and what was sent."""

    name = models.CharField(max_length=253)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    manifest = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name
