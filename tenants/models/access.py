"""People, service accounts and what they may do where."""

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q

from tenants.models.organisation import Department, Project


class User(AbstractUser):
    """A person who signs in."""


class ServiceAccount(models.Model):
    """A program that works for the installation. The secret is shown once and kept only as a hash."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=63, unique=True)
    client_id = models.CharField(max_length=80, unique=True)
    secret_hash = models.CharField(max_length=128)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    last_login = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """Roles, weakest first. What each may do is the table in `tenants.permissions`."""

    VIEWER = "viewer"
    MEMBER = "member"
    OWNER = "owner", "project admin"
    DEPARTMENT_ADMIN = "department-admin"
    PLATFORM_ADMIN = "platform-admin"


class Membership(models.Model):
    """A subject's role in a project, in a department, or (both empty) in the whole installation."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships")
    service_account = models.ForeignKey(
        ServiceAccount, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships"
    )
    role = models.CharField(max_length=20, choices=Role.choices, default=Role.MEMBER)
    department = models.ForeignKey(
        Department, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships"
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=True) ^ Q(service_account__isnull=True), name="tenants_membership_one_subject"
            ),
            models.CheckConstraint(
                condition=Q(department__isnull=True) | Q(project__isnull=True), name="tenants_membership_one_scope"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user or self.service_account} as {self.role}"
