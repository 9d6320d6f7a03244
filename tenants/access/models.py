"""Users, service accounts, roles, access rules and access keys."""

import uuid

from django.contrib.auth.models import AbstractUser, Group
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import get_random_string, salted_hmac

from clusters.inventory.models import Cluster
from tenants.access.rules import Permissions, permissions_of_role
from tenants.organisation.models import Department, Project

ACCOUNT_NAME = RegexValidator(
    r"^[a-z][-_a-z0-9]*[a-z0-9]\Z", "Start with a letter; then lower-case letters, digits, dashes and underscores."
)

SESSION_SALT = "tenants.access.models.User.session"


class User(AbstractUser):
    """A person who signs in."""

    created_by = models.CharField(max_length=254, blank=True, editable=False)
    session_stamp = models.CharField(max_length=32, blank=True, editable=False)
    """Part of what every session is bound to: another one ends them all."""
    password_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    """End of a temporary password; empty for one that the person chose."""

    def set_password(self, raw_password: str | None) -> None:
        """Django's. A new password is temporary only if its caller sets an end afterwards."""
        super().set_password(raw_password)
        self.password_expires_at = None

    def check_password(self, raw_password: str | None) -> bool:
        """Django's; False for a temporary password after its end, in the same time as for a wrong one."""
        ends = self.password_expires_at  # Django may store a newer hash of the same password, which is no new end
        correct = super().check_password(raw_password)
        self.password_expires_at = ends
        return correct and (ends is None or timezone.now() < ends)

    def end_sessions(self) -> None:
        """Sign them out of every browser."""
        self.session_stamp = get_random_string(32)
        self.save(update_fields=["session_stamp"])

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
    """Keys and names of the predefined roles, weakest first. `tenants.access.rules` has what each may do."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "L1 researcher"
    OWNER = "owner", "Project administrator"
    DEPARTMENT_ADMIN = "department-admin", "Department administrator"
    PLATFORM_ADMIN = "platform-admin", "System administrator"


class AccessRole(models.Model):
    """A role: one that comes with Rung, named by its key, or a custom one made of permission sets."""

    id = models.AutoField(primary_key=True)
    key = models.CharField(max_length=40, unique=True, editable=False)
    name = models.CharField(
        max_length=100,
        unique=True,
        error_messages={"unique": "A role with this name already exists."},
    )
    description = models.TextField(blank=True, max_length=2000)
    custom = models.BooleanField(default=True, editable=False)
    enabled = models.BooleanField(default=True, help_text="If disabled, the role grants no permissions.")
    permission_sets = models.JSONField(default=list, help_text="Ids; of custom roles only.")
    created_by = models.CharField(max_length=254, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "role"
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(custom=True) | Q(enabled=True),
                name="tenants_predefined_roles_enabled",
                violation_error_message="Built-in roles cannot be disabled.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def permissions(self) -> Permissions:
        """What it allows where it is held, be it enabled or not."""
        return permissions_of_role(self.key, tuple(self.permission_sets))


SCOPES: dict[str, Q] = {
    "project": Q(project__isnull=False),
    "department": Q(department__isnull=False),
    "cluster": Q(cluster__isnull=False),
    "installation": Q(project__isnull=True, department__isnull=True, cluster__isnull=True),
}
"""What a membership may reach, and the rows that reach just that."""
SUBJECTS = {"user": "user", "service_account": "account", "group": "group"}
"""Who may have one, and how constraints call them."""


def each_role_once_per_subject_and_scope() -> list[models.UniqueConstraint]:
    """A subject has a role in a scope once. Nulls are never equal in SQL, hence a constraint for every pair."""
    return [
        models.UniqueConstraint(
            fields=[subject, "role"] if scope == "installation" else [subject, "role", scope],
            condition=condition & Q(**{f"{subject}__isnull": False}),
            name=f"tenants_{short}_role_once_per_{scope}",
            violation_error_message="The subject already has this role in this scope.",
            violation_error_code="unique",
        )
        for subject, short in SUBJECTS.items()
        for scope, condition in SCOPES.items()
    ]


def just_one(*names: str) -> Q:
    """One of the columns is set and the others are not."""
    return Q(*(_only(name, names) for name in names), _connector=Q.OR)


def _only(chosen: str, names: tuple[str, ...]) -> Q:
    return Q(**{f"{name}__isnull": name != chosen for name in names})


class Membership(models.Model):
    """A subject's role in a project, a department, a cluster, or (all empty) in the whole installation.

    Run:ai calls it an access rule. Of several in one place all count; a group's role is that of everybody in it.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships")
    service_account = models.ForeignKey(
        ServiceAccount, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships"
    )
    group = models.ForeignKey(Group, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships")
    role = models.ForeignKey(
        AccessRole,
        on_delete=models.PROTECT,
        to_field="key",
        db_column="role",
        default=Role.MEMBER,
        related_name="memberships",
    )
    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="memberships",
        help_text="Includes its departments and projects.",
    )
    department = models.ForeignKey(
        Department, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships"
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="memberships")
    created_by = models.CharField(max_length=254, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=just_one(*SUBJECTS),
                name="tenants_membership_one_subject",
                violation_error_message="Choose a user, a service account or a group.",
            ),
            models.CheckConstraint(
                condition=just_one("project", "department", "cluster") | SCOPES["installation"],
                name="tenants_membership_one_scope",
                violation_error_message="Choose one project, department or cluster.",
            ),
            models.CheckConstraint(
                condition=~Q(role="platform-admin") | SCOPES["installation"],
                name="tenants_platform_admin_everywhere",
                violation_error_message="The platform admin role has no scope.",
            ),
            models.CheckConstraint(
                condition=~Q(role="department-admin") | SCOPES["department"] | SCOPES["cluster"],
                name="tenants_department_admin_in_one",
                violation_error_message="The department admin role needs a department, or a cluster with departments.",
            ),
            *each_role_once_per_subject_and_scope(),
        ]

    def __str__(self) -> str:
        return f"{self.subject} as {self.role} in {self.scope}"

    @property
    def subject(self) -> str:
        """Name of the user, service account or group."""
        return str(self.user or self.service_account or self.group)

    @property
    def scope(self) -> str:
        """Name of the project, department or cluster; without any, the whole installation."""
        return str(self.project or self.department or self.cluster or "the whole installation")


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
                violation_error_message="You already have a key with this name.",
                violation_error_code="unique",
            ),
            models.CheckConstraint(
                condition=Q(department__isnull=True) | Q(project__isnull=True),
                name="tenants_accesskey_one_scope",
                violation_error_message="Choose a project or a department, not both.",
            ),
        ]

    def __str__(self) -> str:
        return self.name
