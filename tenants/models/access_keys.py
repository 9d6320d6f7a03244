"""Keys with which a person's own programs ask in their name."""

import uuid

from django.db import models
from django.db.models import Q

from tenants.models.access import ACCOUNT_NAME, User
from tenants.models.organisation import Department, Project


class AccessKey(models.Model):
    """A key of a person: never more than what its owner may do, and less where it only reads, is bound to a project or
    department, or runs out. The secret is shown once and kept only as a hash; a revoked key is gone.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="access_keys")
    name = models.CharField(max_length=63, validators=[ACCOUNT_NAME])
    client_id = models.CharField("client id", max_length=80, unique=True)
    secret_hash = models.CharField(max_length=128)
    read_only = models.BooleanField(default=False)
    # Together with what it is bound to, a key goes: without its bound it would reach further than it was given for.
    department = models.ForeignKey(
        Department, on_delete=models.CASCADE, null=True, blank=True, related_name="access_keys"
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="access_keys")
    created_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_login = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"],
                name="tenants_accesskey_name_once",
                violation_error_message="You have a key of this name already.",
                violation_error_code="unique",
            ),
            models.CheckConstraint(
                condition=Q(department__isnull=True) | Q(project__isnull=True),
                name="tenants_accesskey_one_scope",
                violation_error_message="Name a project or a department, not both.",
            ),
        ]

    def __str__(self) -> str:
        return self.name
