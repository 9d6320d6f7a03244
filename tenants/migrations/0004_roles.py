"""Roles become rows; groups may hold them, and clusters may be their scope."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

PREDEFINED = (
    ("viewer", "Viewer", "Sees departments, projects and their workloads."),
    ("member", "L1 researcher", "Submits workloads, and changes, stops and deletes their own."),
    ("owner", "Project administrator", "Manages everybody's workloads and who is in a project."),
    ("department-admin", "Department administrator", "Manages projects of a department, their quotas and members."),
    ("platform-admin", "System administrator", "May do everything, everywhere."),
)


def fill(apps: Apps, _editor: BaseDatabaseSchemaEditor) -> None:
    """The roles that come with Rung, weakest first."""
    role = apps.get_model("tenants", "AccessRole")
    role.objects.bulk_create(
        role(key=key, name=name, description=description, custom=False, created_by="rung")
        for key, name, description in PREDEFINED
    )


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("clusters", "0007_former_flavours"),
        ("tenants", "0003_access_keys"),
    ]

    operations = [
        migrations.CreateModel(
            name="AccessRole",
            fields=[
                ("id", models.AutoField(primary_key=True, serialize=False)),
                ("key", models.CharField(editable=False, max_length=40, unique=True)),
                (
                    "name",
                    models.CharField(
                        error_messages={"unique": "There is a role of this name already."}, max_length=100, unique=True
                    ),
                ),
                ("description", models.TextField(blank=True, max_length=2000)),
                ("custom", models.BooleanField(default=True, editable=False)),
                (
                    "enabled",
                    models.BooleanField(
                        default=True, help_text="Without this, the role allows nothing wherever it is held."
                    ),
                ),
                ("permission_sets", models.JSONField(default=list, help_text="Ids; of custom roles only.")),
                ("created_by", models.CharField(blank=True, editable=False, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "verbose_name": "role",
                "ordering": ["id"],
            },
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="tenants_membership_one_subject",
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="tenants_membership_one_scope",
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="tenants_platform_admin_everywhere",
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="tenants_department_admin_in_one",
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="tenants_user_once_per_installation",
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="tenants_account_once_per_installation",
        ),
        migrations.AddField(
            model_name="membership",
            name="cluster",
            field=models.ForeignKey(
                blank=True,
                help_text="Reaches its departments and projects.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="memberships",
                to="clusters.cluster",
            ),
        ),
        migrations.AddField(
            model_name="membership",
            name="created_by",
            field=models.CharField(blank=True, editable=False, max_length=254),
        ),
        migrations.AddField(
            model_name="membership",
            name="group",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="memberships",
                to="auth.group",
            ),
        ),
        migrations.AddField(
            model_name="membership",
            name="updated_at",
            field=models.DateTimeField(auto_now=True),
        ),
        migrations.AddConstraint(
            model_name="accessrole",
            constraint=models.CheckConstraint(
                condition=models.Q(("custom", True), ("enabled", True), _connector="OR"),
                name="tenants_predefined_roles_enabled",
                violation_error_message="A role that comes with Rung cannot be disabled.",
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="membership",
            name="role",
            field=models.ForeignKey(
                db_column="role",
                default="member",
                on_delete=django.db.models.deletion.PROTECT,
                related_name="memberships",
                to="tenants.accessrole",
                to_field="key",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("group__isnull", True), ("service_account__isnull", True), ("user__isnull", False)),
                    models.Q(("group__isnull", True), ("service_account__isnull", False), ("user__isnull", True)),
                    models.Q(("group__isnull", False), ("service_account__isnull", True), ("user__isnull", True)),
                    _connector="OR",
                ),
                name="tenants_membership_one_subject",
                violation_error_message="Name either a user, a service account or a group.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("cluster__isnull", True), ("department__isnull", True), ("project__isnull", False)),
                    models.Q(("cluster__isnull", True), ("department__isnull", False), ("project__isnull", True)),
                    models.Q(("cluster__isnull", False), ("department__isnull", True), ("project__isnull", True)),
                    models.Q(("cluster__isnull", True), ("department__isnull", True), ("project__isnull", True)),
                    _connector="OR",
                ),
                name="tenants_membership_one_scope",
                violation_error_message="Name a project, a department or a cluster, and no other.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("role", "platform-admin"), _negated=True),
                    models.Q(("cluster__isnull", True), ("department__isnull", True), ("project__isnull", True)),
                    _connector="OR",
                ),
                name="tenants_platform_admin_everywhere",
                violation_error_message="A platform admin's role has no scope.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("role", "department-admin"), _negated=True),
                    ("department__isnull", False),
                    ("cluster__isnull", False),
                    _connector="OR",
                ),
                name="tenants_department_admin_in_one",
                violation_error_message="A department admin's role needs a department, or a cluster with departments.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("cluster__isnull", False), ("user__isnull", False)),
                fields=("user", "cluster"),
                name="tenants_user_once_per_cluster",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("cluster__isnull", True),
                    ("department__isnull", True),
                    ("project__isnull", True),
                    ("user__isnull", False),
                ),
                fields=("user",),
                name="tenants_user_once_per_installation",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("cluster__isnull", False), ("service_account__isnull", False)),
                fields=("service_account", "cluster"),
                name="tenants_account_once_per_cluster",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("cluster__isnull", True),
                    ("department__isnull", True),
                    ("project__isnull", True),
                    ("service_account__isnull", False),
                ),
                fields=("service_account",),
                name="tenants_account_once_per_installation",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("project__isnull", False), ("group__isnull", False)),
                fields=("group", "project"),
                name="tenants_group_once_per_project",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("department__isnull", False), ("group__isnull", False)),
                fields=("group", "department"),
                name="tenants_group_once_per_department",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(("cluster__isnull", False), ("group__isnull", False)),
                fields=("group", "cluster"),
                name="tenants_group_once_per_cluster",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("cluster__isnull", True),
                    ("department__isnull", True),
                    ("project__isnull", True),
                    ("group__isnull", False),
                ),
                fields=("group",),
                name="tenants_group_once_per_installation",
                violation_error_code="unique",
                violation_error_message="There is a membership for this subject and scope already; change its role.",
            ),
        ),
    ]
