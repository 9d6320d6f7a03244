import uuid

import django.contrib.auth.models
import django.contrib.auth.validators
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import simple_history.models
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("clusters", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ServiceAccount",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z][-_a-z0-9]*[a-z0-9]\\Z",
                                "Start with a letter; then lower-case letters, digits, dashes and underscores.",
                            )
                        ],
                    ),
                ),
                ("client_id", models.CharField(max_length=80, unique=True, verbose_name="client id")),
                ("secret_hash", models.CharField(max_length=128)),
                ("enabled", models.BooleanField(default=True)),
                ("created_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("last_login", models.DateTimeField(blank=True, null=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                (
                    "username",
                    models.CharField(
                        error_messages={"unique": "A user with that username already exists."},
                        help_text="Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.",
                        max_length=150,
                        unique=True,
                        validators=[django.contrib.auth.validators.UnicodeUsernameValidator()],
                        verbose_name="username",
                    ),
                ),
                ("first_name", models.CharField(blank=True, max_length=150, verbose_name="first name")),
                ("last_name", models.CharField(blank=True, max_length=150, verbose_name="last name")),
                ("email", models.EmailField(blank=True, max_length=254, verbose_name="email address")),
                (
                    "is_staff",
                    models.BooleanField(
                        default=False,
                        help_text="Designates whether the user can log into this admin site.",
                        verbose_name="staff status",
                    ),
                ),
                (
                    "is_active",
                    models.BooleanField(
                        default=True,
                        help_text="Designates whether this user should be treated as active. Unselect this instead of deleting accounts.",
                        verbose_name="active",
                    ),
                ),
                ("date_joined", models.DateTimeField(default=django.utils.timezone.now, verbose_name="date joined")),
                ("created_by", models.CharField(blank=True, editable=False, max_length=254)),
                ("session_stamp", models.CharField(blank=True, editable=False, max_length=32)),
                ("password_expires_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
            ],
            options={
                "verbose_name": "user",
                "verbose_name_plural": "users",
                "abstract": False,
            },
            managers=[
                ("objects", django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name="AccessRole",
            fields=[
                ("id", models.AutoField(primary_key=True, serialize=False)),
                ("key", models.CharField(editable=False, max_length=40, unique=True)),
                (
                    "name",
                    models.CharField(
                        error_messages={"unique": "A role with this name already exists."}, max_length=100, unique=True
                    ),
                ),
                ("description", models.TextField(blank=True, max_length=2000)),
                ("custom", models.BooleanField(default=True, editable=False)),
                (
                    "enabled",
                    models.BooleanField(default=True, help_text="If disabled, the role grants no permissions."),
                ),
                ("permission_sets", models.JSONField(default=list, help_text="Ids; of custom roles only.")),
                ("created_by", models.CharField(blank=True, editable=False, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "verbose_name": "role",
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("custom", True), ("enabled", True), _connector="OR"),
                        name="tenants_predefined_roles_enabled",
                        violation_error_message="Built-in roles cannot be disabled.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Department",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=50,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?\\Z", "Use lower-case letters, digits and inner dashes."
                            )
                        ],
                    ),
                ),
                ("description", models.TextField(blank=True)),
                (
                    "enforce_deserved",
                    models.BooleanField(
                        default=False,
                        help_text="The deserved quotas of the projects cannot exceed the department's.",
                        verbose_name="limit projects to the department quota",
                    ),
                ),
                (
                    "generation",
                    models.PositiveBigIntegerField(
                        default=1, help_text="Increases with every change of its desired state."
                    ),
                ),
                ("created_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="departments", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "name"),
                        name="tenants_department_name_once",
                        violation_error_code="unique",
                        violation_error_message="This cluster already has a department with this name.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DepartmentQuota",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "gpu_deserved",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Thousandths of a GPU.", verbose_name="GPUs deserved"
                    ),
                ),
                ("gpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="GPU limit")),
                (
                    "cpu_deserved",
                    models.PositiveBigIntegerField(
                        blank=True, help_text="Millicores.", null=True, verbose_name="CPU deserved"
                    ),
                ),
                ("cpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="CPU limit")),
                ("memory_deserved", models.PositiveBigIntegerField(blank=True, help_text="Bytes.", null=True)),
                ("memory_limit", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "over_quota_weight",
                    models.FloatField(default=2, help_text="Share of surplus GPUs.", verbose_name="over-quota weight"),
                ),
                (
                    "cpu_weight",
                    models.FloatField(
                        blank=True, help_text="Empty: as for GPUs.", null=True, verbose_name="over-quota weight of CPU"
                    ),
                ),
                (
                    "memory_weight",
                    models.FloatField(
                        blank=True,
                        help_text="Empty: as for GPUs.",
                        null=True,
                        verbose_name="over-quota weight of memory",
                    ),
                ),
                (
                    "rank",
                    models.CharField(
                        choices=[
                            ("very-low", "very-low"),
                            ("low", "low"),
                            ("medium-low", "medium-low"),
                            ("medium", "medium"),
                            ("medium-high", "medium-high"),
                            ("high", "high"),
                            ("very-high", "very-high"),
                        ],
                        default="medium-low",
                        max_length=12,
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "department",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="quotas", to="tenants.department"
                    ),
                ),
                (
                    "node_pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.nodepool"
                    ),
                ),
            ],
            options={
                "verbose_name": "department quota",
                "ordering": ["department", "node_pool"],
                "constraints": [
                    models.UniqueConstraint(fields=("department", "node_pool"), name="tenants_department_pool_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("gpu_limit__isnull", True), ("gpu_limit__gte", models.F("gpu_deserved")), _connector="OR"
                        ),
                        name="tenants_department_gpu_limit_covers",
                        violation_error_message="The limit cannot be lower than the deserved quota.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cpu_limit__isnull", True), ("cpu_limit__gte", models.F("cpu_deserved")), _connector="OR"
                        ),
                        name="tenants_department_cpu_limit_covers",
                        violation_error_message="The limit cannot be lower than the deserved quota.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("memory_limit__isnull", True),
                            ("memory_limit__gte", models.F("memory_deserved")),
                            _connector="OR",
                        ),
                        name="tenants_department_memory_limit_covers",
                        violation_error_message="The limit cannot be lower than the deserved quota.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="HistoricalDepartment",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=50,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?\\Z", "Use lower-case letters, digits and inner dashes."
                            )
                        ],
                    ),
                ),
                ("description", models.TextField(blank=True)),
                (
                    "enforce_deserved",
                    models.BooleanField(
                        default=False,
                        help_text="The deserved quotas of the projects cannot exceed the department's.",
                        verbose_name="limit projects to the department quota",
                    ),
                ),
                ("created_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(blank=True, editable=False)),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "historical department",
                "verbose_name_plural": "historical departments",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="HistoricalDepartmentQuota",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                (
                    "gpu_deserved",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Thousandths of a GPU.", verbose_name="GPUs deserved"
                    ),
                ),
                ("gpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="GPU limit")),
                (
                    "cpu_deserved",
                    models.PositiveBigIntegerField(
                        blank=True, help_text="Millicores.", null=True, verbose_name="CPU deserved"
                    ),
                ),
                ("cpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="CPU limit")),
                ("memory_deserved", models.PositiveBigIntegerField(blank=True, help_text="Bytes.", null=True)),
                ("memory_limit", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "over_quota_weight",
                    models.FloatField(default=2, help_text="Share of surplus GPUs.", verbose_name="over-quota weight"),
                ),
                (
                    "cpu_weight",
                    models.FloatField(
                        blank=True, help_text="Empty: as for GPUs.", null=True, verbose_name="over-quota weight of CPU"
                    ),
                ),
                (
                    "memory_weight",
                    models.FloatField(
                        blank=True,
                        help_text="Empty: as for GPUs.",
                        null=True,
                        verbose_name="over-quota weight of memory",
                    ),
                ),
                (
                    "rank",
                    models.CharField(
                        choices=[
                            ("very-low", "very-low"),
                            ("low", "low"),
                            ("medium-low", "medium-low"),
                            ("medium", "medium"),
                            ("medium-high", "medium-high"),
                            ("high", "high"),
                            ("very-high", "very-high"),
                        ],
                        default="medium-low",
                        max_length=12,
                    ),
                ),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "node_pool",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.nodepool",
                    ),
                ),
            ],
            options={
                "verbose_name": "historical department quota",
                "verbose_name_plural": "historical department quotas",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="HistoricalProject",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        db_index=True,
                        max_length=50,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?\\Z", "Use lower-case letters, digits and inner dashes."
                            )
                        ],
                    ),
                ),
                (
                    "namespace",
                    models.CharField(
                        blank=True,
                        help_text="Empty: “runai-” and the name.",
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?\\Z", "Use lower-case letters, digits and inner dashes."
                            )
                        ],
                    ),
                ),
                ("description", models.TextField(blank=True)),
                (
                    "default_node_pools",
                    models.JSONField(blank=True, default=list, help_text="Names, in order of preference."),
                ),
                ("created_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(blank=True, editable=False)),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "historical project",
                "verbose_name_plural": "historical projects",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=50,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?\\Z", "Use lower-case letters, digits and inner dashes."
                            )
                        ],
                    ),
                ),
                (
                    "namespace",
                    models.CharField(
                        blank=True,
                        help_text="Empty: “runai-” and the name.",
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?\\Z", "Use lower-case letters, digits and inner dashes."
                            )
                        ],
                    ),
                ),
                ("description", models.TextField(blank=True)),
                (
                    "default_node_pools",
                    models.JSONField(blank=True, default=list, help_text="Names, in order of preference."),
                ),
                (
                    "generation",
                    models.PositiveBigIntegerField(
                        default=1, help_text="Increases with every change of its desired state."
                    ),
                ),
                ("created_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="projects", to="clusters.cluster"
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="projects", to="tenants.department"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "namespace"),
                        name="tenants_project_namespace_once",
                        violation_error_code="unique",
                        violation_error_message="Another project in this cluster uses this namespace.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PriorityCap",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("priority", models.CharField(help_text="Name of a dictionary entry.", max_length=63)),
                (
                    "gpu_limit",
                    models.PositiveBigIntegerField(help_text="Thousandths of a GPU.", verbose_name="GPU limit"),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="priority_caps", to="tenants.project"
                    ),
                ),
            ],
            options={
                "verbose_name": "GPU cap of a priority",
                "verbose_name_plural": "GPU caps of priorities",
                "ordering": ["project", "priority"],
                "constraints": [models.UniqueConstraint(fields=("project", "priority"), name="tenants_cap_once")],
            },
        ),
        migrations.CreateModel(
            name="MinRuntime",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "minutes",
                    models.PositiveIntegerField(
                        help_text="Minutes of protection after the start. 0 means no protection, regardless of the department."
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)s_rules",
                        to="tenants.department",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)s_rules",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "minimum runtime",
                "ordering": ["department", "project"],
                "abstract": False,
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("department__isnull", True), ("project__isnull", True), _connector="XOR"),
                        name="tenants_minruntime_one_owner",
                        violation_error_message="Choose a department or a project.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("minutes__lte", 527040)),
                        name="tenants_minruntime_in_range",
                        violation_error_message="At most 366 days.",
                    ),
                    models.UniqueConstraint(fields=("department",), name="tenants_minruntime_department_once"),
                    models.UniqueConstraint(fields=("project",), name="tenants_minruntime_project_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdleLimit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "category",
                    models.CharField(help_text="Build, Train, Deploy or another of the dictionary.", max_length=40),
                ),
                ("minutes", models.PositiveIntegerField(help_text="Minutes until the workload is stopped.")),
                (
                    "notice_minutes",
                    models.PositiveIntegerField(default=15, help_text="Notice given before the workload is stopped."),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)s_rules",
                        to="tenants.department",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)s_rules",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "idle limit",
                "ordering": ["category", "department", "project"],
                "abstract": False,
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("department__isnull", True), ("project__isnull", True), _connector="XOR"),
                        name="tenants_idlelimit_one_owner",
                        violation_error_message="Choose a department or a project.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("minutes__gte", 1), ("minutes__lte", 527040), ("notice_minutes__lt", models.F("minutes"))
                        ),
                        name="tenants_idlelimit_in_range",
                        violation_error_message="The notice must be shorter than the limit, and the limit at most 366 days.",
                    ),
                    models.UniqueConstraint(
                        fields=("department", "category"), name="tenants_idlelimit_department_once"
                    ),
                    models.UniqueConstraint(fields=("project", "category"), name="tenants_idlelimit_project_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="HistoricalTimeLimit",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                (
                    "category",
                    models.CharField(help_text="Build, Train, Deploy or another of the dictionary.", max_length=40),
                ),
                ("minutes", models.PositiveIntegerField(help_text="Minutes until the workload is stopped.")),
                (
                    "notice_minutes",
                    models.PositiveIntegerField(default=15, help_text="Notice given before the workload is stopped."),
                ),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "historical time limit",
                "verbose_name_plural": "historical time limits",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="HistoricalProjectQuota",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                (
                    "gpu_deserved",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Thousandths of a GPU.", verbose_name="GPUs deserved"
                    ),
                ),
                ("gpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="GPU limit")),
                (
                    "cpu_deserved",
                    models.PositiveBigIntegerField(
                        blank=True, help_text="Millicores.", null=True, verbose_name="CPU deserved"
                    ),
                ),
                ("cpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="CPU limit")),
                ("memory_deserved", models.PositiveBigIntegerField(blank=True, help_text="Bytes.", null=True)),
                ("memory_limit", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "over_quota_weight",
                    models.FloatField(default=2, help_text="Share of surplus GPUs.", verbose_name="over-quota weight"),
                ),
                (
                    "cpu_weight",
                    models.FloatField(
                        blank=True, help_text="Empty: as for GPUs.", null=True, verbose_name="over-quota weight of CPU"
                    ),
                ),
                (
                    "memory_weight",
                    models.FloatField(
                        blank=True,
                        help_text="Empty: as for GPUs.",
                        null=True,
                        verbose_name="over-quota weight of memory",
                    ),
                ),
                (
                    "rank",
                    models.CharField(
                        choices=[
                            ("very-low", "very-low"),
                            ("low", "low"),
                            ("medium-low", "medium-low"),
                            ("medium", "medium"),
                            ("medium-high", "medium-high"),
                            ("high", "high"),
                            ("very-high", "very-high"),
                        ],
                        default="medium-low",
                        max_length=12,
                    ),
                ),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "node_pool",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="clusters.nodepool",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "historical project quota",
                "verbose_name_plural": "historical project quotas",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="HistoricalPriorityCap",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                ("priority", models.CharField(help_text="Name of a dictionary entry.", max_length=63)),
                (
                    "gpu_limit",
                    models.PositiveBigIntegerField(help_text="Thousandths of a GPU.", verbose_name="GPU limit"),
                ),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "historical GPU cap of a priority",
                "verbose_name_plural": "historical GPU caps of priorities",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="HistoricalMinRuntime",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                (
                    "minutes",
                    models.PositiveIntegerField(
                        help_text="Minutes of protection after the start. 0 means no protection, regardless of the department."
                    ),
                ),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "historical minimum runtime",
                "verbose_name_plural": "historical minimum runtimes",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="HistoricalIdleLimit",
            fields=[
                ("id", models.BigIntegerField(auto_created=True, blank=True, db_index=True, verbose_name="ID")),
                (
                    "category",
                    models.CharField(help_text="Build, Train, Deploy or another of the dictionary.", max_length=40),
                ),
                ("minutes", models.PositiveIntegerField(help_text="Minutes until the workload is stopped.")),
                (
                    "notice_minutes",
                    models.PositiveIntegerField(default=15, help_text="Notice given before the workload is stopped."),
                ),
                ("history_change_reason", models.TextField(null=True)),
                ("history_id", models.AutoField(primary_key=True, serialize=False)),
                ("history_date", models.DateTimeField(db_index=True)),
                (
                    "history_type",
                    models.CharField(choices=[("+", "Created"), ("~", "Changed"), ("-", "Deleted")], max_length=1),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "history_user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "historical idle limit",
                "verbose_name_plural": "historical idle limits",
                "ordering": ("-history_date", "-history_id"),
                "get_latest_by": ("history_date", "history_id"),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.CreateModel(
            name="AccessKey",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z][-_a-z0-9]*[a-z0-9]\\Z",
                                "Start with a letter; then lower-case letters, digits, dashes and underscores.",
                            )
                        ],
                    ),
                ),
                ("client_id", models.CharField(max_length=80, unique=True, verbose_name="client id")),
                ("secret_hash", models.CharField(max_length=128)),
                ("read_only", models.BooleanField(default=False)),
                ("created_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("last_login", models.DateTimeField(blank=True, null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="access_keys",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="access_keys",
                        to="tenants.department",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="access_keys",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "ordering": ["name", "id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("owner", "name"),
                        name="tenants_accesskey_name_once",
                        violation_error_code="unique",
                        violation_error_message="You already have a key with this name.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("department__isnull", True), ("project__isnull", True), _connector="OR"),
                        name="tenants_accesskey_one_scope",
                        violation_error_message="Choose a project or a department, not both.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ProjectQuota",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "gpu_deserved",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Thousandths of a GPU.", verbose_name="GPUs deserved"
                    ),
                ),
                ("gpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="GPU limit")),
                (
                    "cpu_deserved",
                    models.PositiveBigIntegerField(
                        blank=True, help_text="Millicores.", null=True, verbose_name="CPU deserved"
                    ),
                ),
                ("cpu_limit", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="CPU limit")),
                ("memory_deserved", models.PositiveBigIntegerField(blank=True, help_text="Bytes.", null=True)),
                ("memory_limit", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "over_quota_weight",
                    models.FloatField(default=2, help_text="Share of surplus GPUs.", verbose_name="over-quota weight"),
                ),
                (
                    "cpu_weight",
                    models.FloatField(
                        blank=True, help_text="Empty: as for GPUs.", null=True, verbose_name="over-quota weight of CPU"
                    ),
                ),
                (
                    "memory_weight",
                    models.FloatField(
                        blank=True,
                        help_text="Empty: as for GPUs.",
                        null=True,
                        verbose_name="over-quota weight of memory",
                    ),
                ),
                (
                    "rank",
                    models.CharField(
                        choices=[
                            ("very-low", "very-low"),
                            ("low", "low"),
                            ("medium-low", "medium-low"),
                            ("medium", "medium"),
                            ("medium-high", "medium-high"),
                            ("high", "high"),
                            ("very-high", "very-high"),
                        ],
                        default="medium-low",
                        max_length=12,
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "node_pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.nodepool"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="quotas", to="tenants.project"
                    ),
                ),
            ],
            options={
                "verbose_name": "project quota",
                "ordering": ["project", "node_pool"],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "node_pool"), name="tenants_project_pool_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("gpu_limit__isnull", True), ("gpu_limit__gte", models.F("gpu_deserved")), _connector="OR"
                        ),
                        name="tenants_project_gpu_limit_covers",
                        violation_error_message="The limit cannot be lower than the deserved quota.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cpu_limit__isnull", True), ("cpu_limit__gte", models.F("cpu_deserved")), _connector="OR"
                        ),
                        name="tenants_project_cpu_limit_covers",
                        violation_error_message="The limit cannot be lower than the deserved quota.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("memory_limit__isnull", True),
                            ("memory_limit__gte", models.F("memory_deserved")),
                            _connector="OR",
                        ),
                        name="tenants_project_memory_limit_covers",
                        violation_error_message="The limit cannot be lower than the deserved quota.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("created_by", models.CharField(blank=True, editable=False, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        help_text="Includes its departments and projects.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="tenants.department",
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="auth.group",
                    ),
                ),
                (
                    "role",
                    models.ForeignKey(
                        db_column="role",
                        default="member",
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to="tenants.accessrole",
                        to_field="key",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="tenants.project",
                    ),
                ),
                (
                    "service_account",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="tenants.serviceaccount",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("group__isnull", True), ("service_account__isnull", True), ("user__isnull", False)
                            ),
                            models.Q(
                                ("group__isnull", True), ("service_account__isnull", False), ("user__isnull", True)
                            ),
                            models.Q(
                                ("group__isnull", False), ("service_account__isnull", True), ("user__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="tenants_membership_one_subject",
                        violation_error_message="Choose a user, a service account or a group.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("cluster__isnull", True), ("department__isnull", True), ("project__isnull", False)
                            ),
                            models.Q(
                                ("cluster__isnull", True), ("department__isnull", False), ("project__isnull", True)
                            ),
                            models.Q(
                                ("cluster__isnull", False), ("department__isnull", True), ("project__isnull", True)
                            ),
                            models.Q(
                                ("cluster__isnull", True), ("department__isnull", True), ("project__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="tenants_membership_one_scope",
                        violation_error_message="Choose one project, department or cluster.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("role", "platform-admin"), _negated=True),
                            models.Q(
                                ("cluster__isnull", True), ("department__isnull", True), ("project__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="tenants_platform_admin_everywhere",
                        violation_error_message="The platform admin role has no scope.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("role", "department-admin"), _negated=True),
                            ("department__isnull", False),
                            ("cluster__isnull", False),
                            _connector="OR",
                        ),
                        name="tenants_department_admin_in_one",
                        violation_error_message="The department admin role needs a department, or a cluster with departments.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("project__isnull", False), ("user__isnull", False)),
                        fields=("user", "role", "project"),
                        name="tenants_user_role_once_per_project",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("department__isnull", False), ("user__isnull", False)),
                        fields=("user", "role", "department"),
                        name="tenants_user_role_once_per_department",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", False), ("user__isnull", False)),
                        fields=("user", "role", "cluster"),
                        name="tenants_user_role_once_per_cluster",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("cluster__isnull", True),
                            ("department__isnull", True),
                            ("project__isnull", True),
                            ("user__isnull", False),
                        ),
                        fields=("user", "role"),
                        name="tenants_user_role_once_per_installation",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("project__isnull", False), ("service_account__isnull", False)),
                        fields=("service_account", "role", "project"),
                        name="tenants_account_role_once_per_project",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("department__isnull", False), ("service_account__isnull", False)),
                        fields=("service_account", "role", "department"),
                        name="tenants_account_role_once_per_department",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", False), ("service_account__isnull", False)),
                        fields=("service_account", "role", "cluster"),
                        name="tenants_account_role_once_per_cluster",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("cluster__isnull", True),
                            ("department__isnull", True),
                            ("project__isnull", True),
                            ("service_account__isnull", False),
                        ),
                        fields=("service_account", "role"),
                        name="tenants_account_role_once_per_installation",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("project__isnull", False), ("group__isnull", False)),
                        fields=("group", "role", "project"),
                        name="tenants_group_role_once_per_project",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("department__isnull", False), ("group__isnull", False)),
                        fields=("group", "role", "department"),
                        name="tenants_group_role_once_per_department",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", False), ("group__isnull", False)),
                        fields=("group", "role", "cluster"),
                        name="tenants_group_role_once_per_cluster",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("cluster__isnull", True),
                            ("department__isnull", True),
                            ("project__isnull", True),
                            ("group__isnull", False),
                        ),
                        fields=("group", "role"),
                        name="tenants_group_role_once_per_installation",
                        violation_error_code="unique",
                        violation_error_message="The subject already has this role in this scope.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TimeLimit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "category",
                    models.CharField(help_text="Build, Train, Deploy or another of the dictionary.", max_length=40),
                ),
                ("minutes", models.PositiveIntegerField(help_text="Minutes until the workload is stopped.")),
                (
                    "notice_minutes",
                    models.PositiveIntegerField(default=15, help_text="Notice given before the workload is stopped."),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)s_rules",
                        to="tenants.department",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)s_rules",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "time limit",
                "ordering": ["category", "department", "project"],
                "abstract": False,
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("department__isnull", True), ("project__isnull", True), _connector="XOR"),
                        name="tenants_timelimit_one_owner",
                        violation_error_message="Choose a department or a project.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("minutes__gte", 1), ("minutes__lte", 527040), ("notice_minutes__lt", models.F("minutes"))
                        ),
                        name="tenants_timelimit_in_range",
                        violation_error_message="The notice must be shorter than the limit, and the limit at most 366 days.",
                    ),
                    models.UniqueConstraint(
                        fields=("department", "category"), name="tenants_timelimit_department_once"
                    ),
                    models.UniqueConstraint(fields=("project", "category"), name="tenants_timelimit_project_once"),
                ],
            },
        ),
    ]
