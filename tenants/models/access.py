"""People, service accounts and what they may do where."""

import uuid

from django.contrib.auth.models import AbstractUser
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils.crypto import salted_hmac

from tenants.models.organisation import Department, Project

ACCOUNT_NAME = RegexValidator(
    r"^[a-z][-_a-z0-9]*[a-z0-9]\Z", "Start with a letter; then lower-case letters, digits, dashes and underscores."
)

SESSION_SALT = "tenants.models.access.User.session"


class User(AbstractUser):
    """A person who signs in."""

    created_by = models.CharField(max_length=254, blank=True, editable=False)
    session_stamp = models.CharField(max_length=32, blank=True, editable=False)
    """Part of what every session is bound to: another one ends them all."""

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        """Django's, which ends sessions with a changed password, and the stamp."""
        bound = f"{self.password}{self.session_stamp}"
        return salted_hmac(SESSION_SALT, bound, secret=secret, algorithm="sha256").hexdigest()


class ServiceAccount(models.Model):
    """A program that works for the installation. The secret is shown once and kept only as a hash."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True, validators=[ACCOUNT_NAME])
    client_id = models.CharField("client id", max_length=80, unique=True)
    secret_hash = models.CharField(max_length=128)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    last_login = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)

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


SCOPES: dict[str, Q] = {
    "project": Q(project__isnull=False),
    "department": Q(department__isnull=False),
    "installation": Q(project__isnull=True, department__isnull=True),
}
"""What a membership may reach, and the rows that reach just that."""


def one_membership_per_subject_and_scope() -> list[models.UniqueConstraint]:
    """A subject has one role in one scope. Nulls are never equal in SQL, hence a constraint for every pair."""
    return [
        models.UniqueConstraint(
            fields=[subject] if scope == "installation" else [subject, scope],
            condition=condition & Q(**{f"{subject}__isnull": False}),
            name=f"tenants_{short}_once_per_{scope}",
            violation_error_message="There is a membership for this subject and scope already; change its role.",
            violation_error_code="unique",
        )
        for subject, short in (("user", "user"), ("service_account", "account"))
        for scope, condition in SCOPES.items()
    ]


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
                condition=Q(user__isnull=True, service_account__isnull=False)
                | Q(user__isnull=False, service_account__isnull=True),
                name="tenants_membership_one_subject",
                violation_error_message="Name either a user or a service account.",
            ),
            models.CheckConstraint(
                condition=Q(department__isnull=True) | Q(project__isnull=True),
                name="tenants_membership_one_scope",
                violation_error_message="Name a project or a department, not both.",
            ),
            models.CheckConstraint(
                condition=~Q(role="platform-admin") | SCOPES["installation"],
                name="tenants_platform_admin_everywhere",
                violation_error_message="A platform admin's role has no scope.",
            ),
            models.CheckConstraint(
                condition=~Q(role="department-admin") | SCOPES["department"],
                name="tenants_department_admin_in_one",
                violation_error_message="A department admin's role needs a department.",
            ),
            *one_membership_per_subject_and_scope(),
        ]

    def __str__(self) -> str:
        return f"{self.subject} as {self.get_role_display()} in {self.scope}"

    @property
    def subject(self) -> str:
        """Name of the user or service account."""
        return str(self.user or self.service_account)

    @property
    def scope(self) -> str:
        """Name of the project or department; without either, the whole installation."""
        return str(self.project or self.department or "the whole installation")
