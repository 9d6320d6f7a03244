import uuid

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.comparison
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("clusters", "0001_initial"),
        ("tenants", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="NotificationChannel",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63, unique=True)),
                ("type", models.CharField(default="email", max_length=10)),
                (
                    "config",
                    models.JSONField(
                        default=dict, help_text="All but the secret: Run:ai's keys of mail, `url` of a webhook."
                    ),
                ),
                ("sealed", models.TextField(blank=True)),
                ("key_id", models.CharField(blank=True, max_length=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="NotificationState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("email", models.BooleanField(default=False)),
                (
                    "since_event",
                    models.BigIntegerField(
                        default=0, help_text="No mail is sent of events up to this one: it was off."
                    ),
                ),
                ("read_to", models.BigIntegerField(default=0, help_text="Position of the last entry that was read.")),
            ],
        ),
        migrations.CreateModel(
            name="Asset",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("tenant", "tenant"),
                            ("cluster", "cluster"),
                            ("department", "department"),
                            ("project", "project"),
                        ],
                        max_length=10,
                    ),
                ),
                ("created_by", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField()),
                ("updated_by", models.CharField(max_length=254)),
                ("updated_at", models.DateTimeField()),
                ("description", models.CharField(blank=True, max_length=250)),
                ("spec", models.JSONField(default=dict, help_text="As it was accepted, in Run:ai's fields.")),
                ("created_by_kind", models.CharField(max_length=20)),
                ("created_by_id", models.CharField(max_length=64)),
                (
                    "kind",
                    models.CharField(
                        choices=[("compute", "compute resource"), ("environment", "environment")], max_length=12
                    ),
                ),
                (
                    "supports",
                    models.JSONField(default=dict, help_text="Kinds of workloads it is meant for; empty: all."),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "ordering": ["kind", "name", "id"],
                "abstract": False,
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cluster", None), ("department", None), ("project", None), ("scope", "tenant")),
                            models.Q(
                                ("cluster__isnull", False),
                                ("department", None),
                                ("project", None),
                                ("scope", "cluster"),
                            ),
                            models.Q(
                                ("cluster", None),
                                ("department__isnull", False),
                                ("project", None),
                                ("scope", "department"),
                            ),
                            models.Q(
                                ("cluster", None),
                                ("department", None),
                                ("project__isnull", False),
                                ("scope", "project"),
                            ),
                            _connector="OR",
                        ),
                        name="workloads_asset_one_place",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "tenant")),
                        fields=("kind", "name"),
                        name="workloads_asset_once_tenant",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "cluster")),
                        fields=("kind", "name", "cluster"),
                        name="workloads_asset_once_cluster",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "department")),
                        fields=("kind", "name", "department"),
                        name="workloads_asset_once_department",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "project")),
                        fields=("kind", "name", "project"),
                        name="workloads_asset_once_project",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ForecastCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "question",
                    models.CharField(
                        choices=[("verdict", "Verdict"), ("start", "Start")],
                        db_default="verdict",
                        default="verdict",
                        max_length=8,
                    ),
                ),
                ("flavour", models.CharField(max_length=40)),
                ("week", models.DateField(help_text="Its Monday, UTC.")),
                (
                    "result",
                    models.CharField(help_text="ForecastResult, of start estimates StartResult.", max_length=12),
                ),
                ("why", models.CharField(blank=True, max_length=24)),
                ("count", models.PositiveIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="forecast_counts",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "question", "flavour", "week", "result", "why"),
                        name="workloads_forecast_count_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Policy",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("tenant", "tenant"),
                            ("cluster", "cluster"),
                            ("department", "department"),
                            ("project", "project"),
                        ],
                        max_length=10,
                    ),
                ),
                ("created_by", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField()),
                ("updated_by", models.CharField(max_length=254)),
                ("updated_at", models.DateTimeField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("workspace", "workspace"),
                            ("training", "training"),
                            ("distributed", "distributed"),
                            ("inference", "inference"),
                            ("distributedInference", "distributedInference"),
                            ("nimService", "nimService"),
                        ],
                        max_length=24,
                    ),
                ),
                ("document", models.JSONField(default=dict, help_text="{defaults, rules} as they were accepted.")),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "policies",
                "ordering": ["kind", "scope", "name"],
                "abstract": False,
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cluster", None), ("department", None), ("project", None), ("scope", "tenant")),
                            models.Q(
                                ("cluster__isnull", False),
                                ("department", None),
                                ("project", None),
                                ("scope", "cluster"),
                            ),
                            models.Q(
                                ("cluster", None),
                                ("department__isnull", False),
                                ("project", None),
                                ("scope", "department"),
                            ),
                            models.Q(
                                ("cluster", None),
                                ("department", None),
                                ("project__isnull", False),
                                ("scope", "project"),
                            ),
                            _connector="OR",
                        ),
                        name="workloads_policy_one_place",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "tenant")), fields=("kind",), name="workloads_policy_once_tenant"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "cluster")),
                        fields=("kind", "cluster"),
                        name="workloads_policy_once_cluster",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "department")),
                        fields=("kind", "department"),
                        name="workloads_policy_once_department",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "project")),
                        fields=("kind", "project"),
                        name="workloads_policy_once_project",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Priority",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63, unique=True)),
                (
                    "value",
                    models.IntegerField(
                        validators=[
                            django.core.validators.MinValueValidator(-2147483648),
                            django.core.validators.MaxValueValidator(1000000000),
                        ]
                    ),
                ),
                (
                    "preemption_policy",
                    models.CharField(
                        choices=[("PreemptLowerPriority", "Preempt Lower Priority"), ("Never", "Never")],
                        default="PreemptLowerPriority",
                        max_length=20,
                    ),
                ),
                ("description", models.CharField(blank=True, max_length=500)),
                (
                    "source",
                    models.CharField(
                        blank=True, help_text="Preset it came from; Run:ai for the seven built-in ones.", max_length=40
                    ),
                ),
                (
                    "retired_at",
                    models.DateTimeField(
                        blank=True, help_text="Retired: still synced and shown, not offered.", null=True
                    ),
                ),
                ("generation", models.PositiveIntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "alias_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="aliases",
                        to="workloads.priority",
                    ),
                ),
            ],
            options={
                "ordering": ["value", "name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("value__gte", -2147483648), ("value__lte", 1000000000)),
                        name="workloads_priority_value_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name__startswith", "system-"), _negated=True),
                        name="workloads_priority_not_system",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("alias_of__isnull", True), ("retired_at__isnull", True)),
                        fields=("value",),
                        name="workloads_priority_value_once",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Category",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=40, unique=True)),
                ("description", models.CharField(blank=True, max_length=300)),
                ("preemptibility", models.CharField(max_length=30)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "priority",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="workloads.priority"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "categories",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Report",
            fields=[
                ("subject_kind", models.CharField(max_length=20)),
                ("subject_id", models.CharField(max_length=64)),
                ("subject_name", models.CharField(max_length=254)),
                (
                    "project_id",
                    models.BigIntegerField(help_text="Its access key was bound to this project.", null=True),
                ),
                ("department_id", models.BigIntegerField(null=True)),
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                ("description", models.CharField(blank=True, max_length=500)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                (
                    "group_by",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("Nodepool", "node pool"),
                            ("Project", "project"),
                            ("Department", "department"),
                            ("Cluster", "cluster"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "filter_by",
                    models.JSONField(default=list, help_text="projectName==, departmentName==, clusterId==."),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("Pending", "Pending"),
                            ("Processing", "Processing"),
                            ("Ready", "Ready"),
                            ("Failed", "Failed"),
                        ],
                        default="Pending",
                        max_length=10,
                    ),
                ),
                ("status_at", models.DateTimeField()),
                (
                    "message",
                    models.CharField(
                        blank=True, help_text="Measurement coverage, or why there is no file.", max_length=300
                    ),
                ),
                ("created_at", models.DateTimeField()),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When a worker may take it; null: nothing is left to do.", null=True
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                (
                    "covered",
                    models.JSONField(
                        default=dict, help_text="Keys of the projects and departments that the file covers."
                    ),
                ),
                ("content", models.TextField(blank=True, help_text="The file.")),
            ],
            options={
                "ordering": ["-created_at", "id"],
                "indexes": [
                    models.Index(fields=["subject_kind", "subject_id", "created_at"], name="workloads_reporter"),
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="workloads_report_due"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                ("subject_kind", models.CharField(max_length=20)),
                ("subject_id", models.CharField(max_length=64)),
                ("subject_name", models.CharField(max_length=254)),
                (
                    "project_id",
                    models.BigIntegerField(help_text="Its access key was bound to this project.", null=True),
                ),
                ("department_id", models.BigIntegerField(null=True)),
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("events", models.JSONField(default=list, help_text="[{category, types}].")),
                ("since_event", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("channels", models.ManyToManyField(related_name="subscriptions", to="workloads.notificationchannel")),
            ],
            options={
                "ordering": ["created_at", "id"],
                "indexes": [models.Index(fields=["subject_kind", "subject_id"], name="workloads_subscriber")],
            },
        ),
        migrations.CreateModel(
            name="FeedState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("last", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("type", models.CharField(max_length=40)),
                ("subject_kind", models.CharField(blank=True, max_length=20)),
                ("subject_id", models.CharField(blank=True, max_length=64)),
                ("permission", models.CharField(blank=True, max_length=40)),
                ("title", models.CharField(max_length=200)),
                ("text", models.TextField()),
                ("path", models.CharField(help_text="Of its page.", max_length=200)),
                ("at", models.DateTimeField()),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WorkloadTemplate",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("tenant", "tenant"),
                            ("cluster", "cluster"),
                            ("department", "department"),
                            ("project", "project"),
                        ],
                        max_length=10,
                    ),
                ),
                ("created_by", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField()),
                ("updated_by", models.CharField(max_length=254)),
                ("updated_at", models.DateTimeField()),
                ("description", models.CharField(blank=True, max_length=250)),
                ("spec", models.JSONField(default=dict, help_text="As it was accepted, in Run:ai's fields.")),
                ("created_by_kind", models.CharField(max_length=20)),
                ("created_by_id", models.CharField(max_length=64)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("workspaces", "workspace"),
                            ("trainings", "training"),
                            ("distributed", "distributed training"),
                            ("inferences", "inference"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "master",
                    models.JSONField(
                        blank=True, help_text="`spec` of the leading pod of a distributed training.", null=True
                    ),
                ),
                (
                    "master_same",
                    models.BooleanField(blank=True, help_text="Run:ai's masterSpecSameAsWorker.", null=True),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "compute",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="+",
                        to="workloads.asset",
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "environment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="+",
                        to="workloads.asset",
                    ),
                ),
                (
                    "master_compute",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="+",
                        to="workloads.asset",
                    ),
                ),
                (
                    "master_environment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="+",
                        to="workloads.asset",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "ordering": ["kind", "name", "id"],
                "abstract": False,
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cluster", None), ("department", None), ("project", None), ("scope", "tenant")),
                            models.Q(
                                ("cluster__isnull", False),
                                ("department", None),
                                ("project", None),
                                ("scope", "cluster"),
                            ),
                            models.Q(
                                ("cluster", None),
                                ("department__isnull", False),
                                ("project", None),
                                ("scope", "department"),
                            ),
                            models.Q(
                                ("cluster", None),
                                ("department", None),
                                ("project__isnull", False),
                                ("scope", "project"),
                            ),
                            _connector="OR",
                        ),
                        name="workloads_workloadtemplate_one_place",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "tenant")),
                        fields=("kind", "name"),
                        name="workloads_workloadtemplate_once_tenant",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "cluster")),
                        fields=("kind", "name", "cluster"),
                        name="workloads_workloadtemplate_once_cluster",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "department")),
                        fields=("kind", "name", "department"),
                        name="workloads_workloadtemplate_once_department",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("scope", "project")),
                        fields=("kind", "name", "project"),
                        name="workloads_workloadtemplate_once_project",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkloadType",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        help_text="A Kubernetes Kind, or a Run:ai native type.", max_length=63, unique=True
                    ),
                ),
                ("title", models.CharField(help_text="As people say it: Distributed training.", max_length=80)),
                (
                    "group",
                    models.CharField(
                        help_text="API group; core for the core group; run.ai for native types.", max_length=100
                    ),
                ),
                ("native", models.BooleanField(default=False)),
                (
                    "fixed",
                    models.BooleanField(
                        default=False, help_text="Priority and preemptibility cannot be chosen (NVCF)."
                    ),
                ),
                (
                    "preemptibility",
                    models.CharField(blank=True, help_text="Empty: the type has no default.", max_length=30),
                ),
                (
                    "withdrawn_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Withdrawn: neither listed nor submitted; what there is goes on.",
                        null=True,
                    ),
                ),
                ("updated_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "category",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="types",
                        to="workloads.category",
                    ),
                ),
                (
                    "priority",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="types",
                        to="workloads.priority",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Workload",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=253)),
                ("spec", models.JSONField(help_text="WorkloadSpec.as_json(): rebuilt from the allowlist.")),
                ("raw", models.JSONField(default=dict, help_text="What was sent, for its own people to read.")),
                (
                    "category",
                    models.CharField(
                        blank=True, help_text="Of its type at submission: limits go by it.", max_length=40
                    ),
                ),
                (
                    "classification",
                    models.CharField(
                        blank=True,
                        help_text="Category that was asked for, else that of its type; nothing goes by it.",
                        max_length=40,
                    ),
                ),
                (
                    "priority_value",
                    models.IntegerField(help_text="The value that its scheduler counts: of its class or of its pods."),
                ),
                ("priority_source", models.CharField(max_length=12)),
                ("preemptibility", models.CharField(max_length=30)),
                ("preemptibility_source", models.CharField(max_length=12)),
                (
                    "discarded",
                    models.JSONField(default=list, help_text="Values that lost: field, source, value, because."),
                ),
                ("warnings", models.JSONField(default=list)),
                ("node_pools", models.JSONField(default=list, help_text="Names, in order of preference.")),
                ("gpu_milli", models.PositiveBigIntegerField(default=0, help_text="Requested by all pods together.")),
                ("cpu_milli", models.PositiveBigIntegerField(default=0)),
                ("memory_bytes", models.PositiveBigIntegerField(default=0)),
                ("pod_count", models.PositiveIntegerField(default=1)),
                (
                    "desired_phase",
                    models.CharField(
                        choices=[("Running", "Running"), ("Stopped", "Stopped"), ("Deleted", "Deleted")],
                        default="Running",
                        max_length=10,
                    ),
                ),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("Creating", "Creating"),
                            ("Initializing", "Initializing"),
                            ("Resuming", "Resuming"),
                            ("Pending", "Pending"),
                            ("Deleting", "Deleting"),
                            ("Running", "Running"),
                            ("Updating", "Updating"),
                            ("Stopped", "Stopped"),
                            ("Stopping", "Stopping"),
                            ("Degraded", "Degraded"),
                            ("Failed", "Failed"),
                            ("Completed", "Completed"),
                            ("Terminating", "Terminating"),
                            ("Unknown", "Unknown"),
                        ],
                        default="Creating",
                        max_length=14,
                    ),
                ),
                (
                    "phase_reason",
                    models.CharField(
                        blank=True, help_text="NonPreemptibleOverQuota, OverLimit, NoRoom …", max_length=64
                    ),
                ),
                ("phase_message", models.TextField(blank=True)),
                ("phase_at", models.DateTimeField()),
                ("pool_name", models.CharField(blank=True, help_text="Where it runs now, or is tried.", max_length=63)),
                (
                    "pool_since",
                    models.DateTimeField(blank=True, help_text="Since when; null: since it was submitted.", null=True),
                ),
                ("allocated_gpu_milli", models.PositiveBigIntegerField(default=0)),
                ("running_pods", models.PositiveIntegerField(default=0)),
                ("submitted_by", models.CharField(max_length=254)),
                ("submitted_by_kind", models.CharField(max_length=20)),
                ("submitted_by_id", models.CharField(blank=True, max_length=64)),
                ("channel", models.CharField(max_length=16)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("started_at", models.DateTimeField(blank=True, help_text="Start of the current run.", null=True)),
                (
                    "started_over_quota",
                    models.BooleanField(
                        help_text="Did its project hold more GPUs than deserved when the run started? Of preemptible work.",
                        null=True,
                    ),
                ),
                ("completed_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "pending_seconds",
                    models.PositiveBigIntegerField(default=0, help_text="Total up to the current phase."),
                ),
                ("running_seconds", models.PositiveBigIntegerField(default=0)),
                ("preempted_count", models.PositiveIntegerField(default=0)),
                ("generation", models.PositiveBigIntegerField(default=1)),
                ("applied_generation", models.PositiveBigIntegerField(default=0)),
                (
                    "applied_scheduling",
                    models.JSONField(
                        default=dict, help_text="What its own object was last written with: `scheduling_fields`."
                    ),
                ),
                (
                    "min_runtime_minutes",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Minutes that its pods carry as their min guaranteed runtime; 0: they carry none.",
                    ),
                ),
                (
                    "due_at",
                    models.DateTimeField(
                        blank=True, help_text="When the sweep looks at it next; null: nothing to do.", null=True
                    ),
                ),
                (
                    "claimed_until",
                    models.DateTimeField(
                        blank=True,
                        help_text="Until when one worker has it, by the database's clock; null: no worker has.",
                        null=True,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                (
                    "refusals",
                    models.PositiveSmallIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Tries in a row in which the API server refused this very object.",
                    ),
                ),
                ("apply_error", models.TextField(blank=True)),
                (
                    "priority",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="workloads", to="workloads.priority"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="workloads", to="tenants.project"
                    ),
                ),
                (
                    "type",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="workloads",
                        to="workloads.workloadtype",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["-created_at", "-id"],
                        name="workloads_live_newest",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["phase", "-created_at", "-id"],
                        name="workloads_live_phase",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["project", "-created_at", "-id"],
                        name="workloads_live_project",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["project", "phase", "-created_at", "-id"],
                        name="workloads_live_project_phase",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["submitted_by_kind", "submitted_by_id", "-created_at", "-id"],
                        name="workloads_live_own",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["pool_name", "-created_at", "-id"],
                        name="workloads_live_pool",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["name", "id"],
                        name="workloads_live_name",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["-priority_value", "-id"],
                        name="workloads_live_priority",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["-gpu_milli", "-id"],
                        name="workloads_live_gpus",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=["-phase_at", "-id"],
                        name="workloads_live_changed",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", False)),
                        fields=["-created_at", "-id"],
                        name="workloads_deleted_newest",
                    ),
                    models.Index(
                        condition=models.Q(("apply_error__gt", ""), ("deleted_at__isnull", True), ("phase", "Failed")),
                        fields=["-created_at", "-id"],
                        name="workloads_failed_to_apply",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", True), ("preempted_count__gt", 0)),
                        fields=["-created_at", "-id"],
                        name="workloads_evicted",
                    ),
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["project", "due_at"],
                        name="workloads_due_in_project",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("deleted_at__isnull", True),
                            ("phase__in", ["Running", "Updating", "Degraded"]),
                            ("started_at__isnull", False),
                        ),
                        fields=["category", "started_at"],
                        name="workloads_runs_by_start",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=("project", "name"),
                        name="workloads_name_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredForecast",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("subject", models.CharField(help_text="Kind and id of the actor.", max_length=90)),
                (
                    "fingerprint",
                    models.CharField(
                        help_text="Of the request without its name, and what it resolved to.", max_length=64
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "data_at",
                    models.DateTimeField(help_text="When the cluster had been observed; null: never.", null=True),
                ),
                ("flavour", models.CharField(max_length=40)),
                ("pool_name", models.CharField(max_length=63)),
                ("verdict", models.CharField(max_length=10)),
                ("starts", models.BooleanField(help_text="It was to start, at once or after evictions.")),
                (
                    "victims",
                    models.JSONField(default=list, help_text="Workload ids, and uids of other pods as pod:UID."),
                ),
                ("doubts", models.JSONField(default=list, help_text="Codes, see DoubtCode.")),
                ("digests", models.JSONField(default=dict, help_text="Of nodes and quotas, as the snapshot had them.")),
                (
                    "input",
                    models.BinaryField(
                        help_text="The question to the model: JSON of a Scenario, compressed.", null=True
                    ),
                ),
                (
                    "changed",
                    models.JSONField(
                        default=dict, help_text="What was first seen to differ from the snapshot, and when."
                    ),
                ),
                (
                    "result",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("held", "Held"),
                            ("overtaken", "Overtaken"),
                            ("doubted", "Doubted"),
                            ("unexplained", "Unexplained"),
                            ("not_judged", "Not Judged"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "why",
                    models.CharField(
                        blank=True, help_text="Doubt, what overtook it, or why it is not judged.", max_length=24
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(blank=True, help_text="When it started within the horizon.", null=True),
                ),
                (
                    "evicted",
                    models.JSONField(default=list, help_text="As victims: who was evicted for it within the horizon."),
                ),
                ("evicted_pods", models.JSONField(default=list, help_text="Uids.")),
                ("judged_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="forecasts", to="clusters.cluster"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.project"
                    ),
                ),
                (
                    "overtaken_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="workloads.workload",
                    ),
                ),
                (
                    "workload",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="forecast",
                        to="workloads.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["cluster", "-at", "-id"], name="workloads_forecast_newest"),
                    models.Index(condition=models.Q(("result", "")), fields=["at"], name="workloads_forecast_open"),
                ],
            },
        ),
        migrations.CreateModel(
            name="PreemptionRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pod_uid", models.CharField(max_length=64)),
                ("pod_name", models.CharField(max_length=253)),
                ("at", models.DateTimeField(help_text="Transition of DisruptionTarget: when the scheduler decided.")),
                (
                    "preemptor_uid",
                    models.CharField(
                        blank=True,
                        help_text="Its pod's uid, as the scheduler said it; resolved once that pod is seen.",
                        max_length=64,
                    ),
                ),
                ("preemptor_name", models.CharField(blank=True, max_length=253)),
                ("preemptor_priority", models.CharField(blank=True, max_length=63)),
                ("preemptor_value", models.IntegerField(blank=True, null=True)),
                ("preemptor_project", models.CharField(blank=True, max_length=63)),
                (
                    "cause",
                    models.CharField(
                        choices=[("preempt", "Preempt"), ("reclaim", "Reclaim"), ("unknown", "Unknown")], max_length=10
                    ),
                ),
                ("message", models.TextField(blank=True, help_text="The scheduler's own words.")),
                ("node_name", models.CharField(blank=True, max_length=253)),
                ("grace_seconds", models.PositiveIntegerField(default=30)),
                ("gone_at", models.DateTimeField(blank=True, null=True)),
                (
                    "grace_used_seconds",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="From SIGTERM until its containers had ended; unknown until it is gone.",
                        null=True,
                    ),
                ),
                ("gpu_milli", models.PositiveBigIntegerField(default=0)),
                ("ran_seconds", models.PositiveBigIntegerField(default=0)),
                (
                    "started_over_quota",
                    models.BooleanField(help_text="Of the run that it ended, as the workload had it.", null=True),
                ),
                ("checkpoint_at", models.DateTimeField(blank=True, null=True)),
                (
                    "lost_gpu_seconds",
                    models.PositiveBigIntegerField(default=0, help_text="GPU-seconds since start or last checkpoint."),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "first",
                    models.ForeignKey(
                        blank=True,
                        help_text="Its gang was evicted whole: the preemption that this pod is part of. Empty: it is one by itself.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="others",
                        to="workloads.preemptionrecord",
                    ),
                ),
                (
                    "preemptor",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="evictions",
                        to="workloads.workload",
                    ),
                ),
                (
                    "victim",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="preemptions", to="workloads.workload"
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("preemptor", None), ("preemptor_name", ""), models.Q(("preemptor_uid", ""), _negated=True)
                        ),
                        fields=["cluster", "preemptor_uid"],
                        name="workloads_preemption_unnamed",
                    ),
                    models.Index(fields=["cluster", "at"], name="workloads_preemption_newest"),
                    models.Index(fields=["-at", "-id"], name="workloads_preemption_list"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "pod_uid", "at"), name="workloads_preemption_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("subject", models.CharField(help_text="Kind and id of the actor.", max_length=90)),
                ("key", models.CharField(max_length=200)),
                ("fingerprint", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField()),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.project"
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="workloads.workload"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "subject", "key"), name="workloads_key_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkloadEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "type",
                    models.CharField(
                        choices=[
                            ("phase", "Phase"),
                            ("action", "Action"),
                            ("scheduling", "Scheduling"),
                            ("preemption", "Preemption"),
                            ("sync", "Sync"),
                        ],
                        max_length=12,
                    ),
                ),
                ("phase", models.CharField(blank=True, max_length=14)),
                ("reason", models.CharField(blank=True, max_length=128)),
                ("message", models.TextField(blank=True)),
                ("actor", models.CharField(blank=True, max_length=254)),
                ("detail", models.JSONField(default=dict)),
                (
                    "position",
                    models.BigIntegerField(help_text="Its place in the change feed; null: none yet.", null=True),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="timeline", to="workloads.workload"
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["workload", "-at", "-id"], name="workloads_timeline"),
                    models.Index(
                        condition=models.Q(("position__isnull", True)), fields=["id"], name="workloads_not_in_feed"
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("position",), name="workloads_feed_position")],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=254)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("sent", "Sent"),
                            ("failed", "Failed"),
                            ("dropped", "Dropped"),
                        ],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("due_at", models.DateTimeField()),
                ("done_at", models.DateTimeField(null=True)),
                ("trouble", models.CharField(blank=True, help_text="Why it has not arrived.", max_length=300)),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="workloads.notificationchannel",
                    ),
                ),
                (
                    "subscription",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="deliveries",
                        to="workloads.subscription",
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="workloads.workloadevent",
                    ),
                ),
                (
                    "notice",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="workloads.notice"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "waiting")), fields=["due_at"], name="workloads_delivery_due"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("event", "channel", "address"), name="workloads_delivery_once"),
                    models.UniqueConstraint(fields=("notice", "channel", "address"), name="workloads_notice_once"),
                    models.CheckConstraint(
                        condition=models.Q(("event__isnull", True), ("notice__isnull", True), _connector="XOR"),
                        name="workloads_delivery_one_subject",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Plan",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(help_text="Name of a registered plan kind: priority, quotas, …", max_length=40),
                ),
                ("title", models.CharField(max_length=254)),
                ("change", models.JSONField(help_text="The change itself, as data.")),
                (
                    "effect",
                    models.JSONField(help_text="What it would do: objects per cluster, workloads affected, warnings."),
                ),
                ("based_on", models.CharField(help_text="Fingerprint of the rows it was computed on.", max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("applied", "Applied"), ("discarded", "Discarded")],
                        default="open",
                        max_length=10,
                    ),
                ),
                (
                    "undo",
                    models.JSONField(
                        blank=True, help_text="Once applied: the inverse change. Null: there is none.", null=True
                    ),
                ),
                (
                    "outcome",
                    models.JSONField(blank=True, help_text="Once applied: the facts right after it.", null=True),
                ),
                ("created_by", models.CharField(max_length=254)),
                (
                    "author",
                    models.CharField(
                        blank=True, help_text="Kind and id of the subject that created it.", max_length=80
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("approved_by", models.CharField(blank=True, max_length=254)),
                ("approved_at", models.DateTimeField(blank=True, null=True)),
                ("applied_by", models.CharField(blank=True, max_length=254)),
                ("applied_at", models.DateTimeField(blank=True, null=True)),
                (
                    "rolls_back",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="rollbacks",
                        to="workloads.plan",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "indexes": [models.Index(fields=["-created_at", "-id"], name="workloads_plans_by_time")],
            },
        ),
        migrations.CreateModel(
            name="PlanApproval",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("created_by", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField()),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
            ],
            options={
                "ordering": ["department__name"],
                "constraints": [
                    models.UniqueConstraint(
                        django.db.models.functions.comparison.Coalesce("department", 0),
                        name="workloads_plan_approval_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PlanScope",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("permission", models.CharField(max_length=40)),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="tenants.department",
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="scopes", to="workloads.plan"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="StoredStartEstimate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("waits_since", models.DateTimeField()),
                ("at", models.DateTimeField()),
                ("flavour", models.CharField(max_length=40)),
                ("median_at", models.DateTimeField()),
                ("p90_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                (
                    "result",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("by_median", "By Median"),
                            ("by_p90", "By P90"),
                            ("late", "Late"),
                            ("not_judged", "Not Judged"),
                        ],
                        max_length=12,
                    ),
                ),
                ("judged_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="start_estimates",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="start_estimates",
                        to="workloads.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(condition=models.Q(("result", "")), fields=["at"], name="workloads_estimate_open")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("workload", "waits_since"), name="workloads_estimate_once_a_wait")
                ],
            },
        ),
        migrations.CreateModel(
            name="DetectorRun",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="detector_run",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("checked_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Finding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(help_text="A value of FindingKind.", max_length=24)),
                (
                    "key",
                    models.CharField(help_text="What it is about: a workload, a pool, an eviction.", max_length=140),
                ),
                ("pool_name", models.CharField(blank=True, max_length=63)),
                ("evidence", models.JSONField(default=list, help_text="Sentences that name workloads as {0}, {1}.")),
                ("advice", models.TextField()),
                (
                    "named",
                    models.JSONField(default=list, help_text="The workloads by number: id, name, id of the project."),
                ),
                ("gpu_seconds", models.PositiveBigIntegerField(default=0, help_text="What it has cost so far.")),
                (
                    "first_seen",
                    models.DateTimeField(help_text="When it began, as far as the facts show, else when it was found."),
                ),
                ("last_seen", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="findings", to="clusters.cluster"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        help_text="Null: of the whole cluster.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="findings",
                        to="workloads.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["-last_seen", "-id"],
                "indexes": [
                    models.Index(fields=["cluster", "kind", "key"], name="workloads_finding_key"),
                    models.Index(fields=["-last_seen", "-id"], name="workloads_finding_newest"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("cluster", "kind", "key"),
                        name="workloads_finding_open_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaRequest",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("gpu_milli", models.PositiveBigIntegerField(help_text="Requested on top of the deserved quota.")),
                ("until", models.DateField(help_text="Last day, UTC; null: for good.", null=True)),
                ("reason", models.CharField(max_length=500)),
                ("author_kind", models.CharField(max_length=20)),
                ("author_id", models.CharField(max_length=64)),
                ("author_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("approved", "Approved"),
                            ("declined", "Declined"),
                            ("withdrawn", "Withdrawn"),
                            ("ended", "Ended"),
                        ],
                        default="open",
                        max_length=10,
                    ),
                ),
                ("impact", models.JSONField(default=dict)),
                ("impact_at", models.DateTimeField()),
                (
                    "base",
                    models.CharField(help_text="Digest of the quotas that the impact was computed on.", max_length=32),
                ),
                ("decided_by", models.CharField(blank=True, max_length=254)),
                ("decided_at", models.DateTimeField(null=True)),
                ("decision_reason", models.CharField(blank=True, max_length=500)),
                ("granted_milli", models.PositiveBigIntegerField(null=True)),
                ("granted_until", models.DateField(null=True)),
                ("ends_at", models.DateTimeField(help_text="When the GPUs are taken back.", null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "kept_because",
                    models.CharField(blank=True, help_text="Why the GPUs could not be taken back yet.", max_length=500),
                ),
                ("before", models.JSONField(default=dict, help_text="Quota columns as they were before the approval.")),
                (
                    "generation",
                    models.PositiveBigIntegerField(
                        default=0, help_text="The cluster's generation that brought the last change of the quota."
                    ),
                ),
                (
                    "node_pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.nodepool"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="quota_requests", to="tenants.project"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "approved")), fields=["ends_at"], name="workloads_quota_ends"
                    ),
                    models.Index(fields=["project", "-created_at"], name="workloads_quota_requests"),
                    models.Index(fields=["author_id", "-decided_at"], name="workloads_quota_answers"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "open")),
                        fields=("project", "node_pool", "author_kind", "author_id"),
                        name="workloads_quota_request_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Replay",
            fields=[
                ("subject_kind", models.CharField(max_length=20)),
                ("subject_id", models.CharField(max_length=64)),
                ("subject_name", models.CharField(max_length=254)),
                (
                    "project_id",
                    models.BigIntegerField(help_text="Its access key was bound to this project.", null=True),
                ),
                ("department_id", models.BigIntegerField(null=True)),
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                ("request", models.JSONField(help_text="Scheduler, period of the record, proposal; as REST has them.")),
                (
                    "trace",
                    models.JSONField(
                        default=list, help_text="Rows of an uploaded trace; empty: the cluster's own record."
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("Pending", "Pending"),
                            ("Running", "Running"),
                            ("Ready", "Ready"),
                            ("Failed", "Failed"),
                            ("Cancelled", "Cancelled"),
                        ],
                        default="Pending",
                        max_length=10,
                    ),
                ),
                ("status_at", models.DateTimeField()),
                ("message", models.CharField(blank=True, help_text="Why there is no result.", max_length=300)),
                (
                    "done",
                    models.PositiveIntegerField(
                        default=0, help_text="Submissions that have ended in the model, of both runs."
                    ),
                ),
                (
                    "total",
                    models.PositiveIntegerField(default=0, help_text="Submissions of both runs; 0: not read yet."),
                ),
                (
                    "result",
                    models.JSONField(help_text="Figures before and after, plots, and what they rest on.", null=True),
                ),
                ("content", models.TextField(blank=True, help_text="The rows of all submissions as CSV.")),
                ("created_at", models.DateTimeField()),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When a worker may take it; null: nothing is left to do.", null=True
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="workloads_replay_due"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ComputedStarts",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pool_name", models.CharField(max_length=63)),
                ("requested_at", models.DateTimeField()),
                ("claimed_until", models.DateTimeField(blank=True, help_text="A worker computes them.", null=True)),
                (
                    "computed_at",
                    models.DateTimeField(blank=True, help_text="When that began; null: not yet.", null=True),
                ),
                (
                    "data_at",
                    models.DateTimeField(blank=True, help_text="When the cluster had been observed.", null=True),
                ),
                (
                    "starts",
                    models.JSONField(default=dict, help_text="Workload id to generation, median, p90, code and why."),
                ),
                ("basis", models.JSONField(default=dict, help_text="EstimateBasis.as_json().")),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="computed_starts",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "computed starts",
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "pool_name"), name="workloads_starts_once_a_pool")
                ],
            },
        ),
    ]
