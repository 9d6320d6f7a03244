import uuid

import django.core.validators
import django.db.models.deletion
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
                ("config", models.JSONField(default=dict, help_text="All but the password, in Run:ai's keys.")),
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
                    models.BigIntegerField(default=0, help_text="Events up to this one tell nobody: it was off."),
                ),
                ("read_to", models.BigIntegerField(default=0)),
                (
                    "read",
                    models.JSONField(
                        default=list, help_text="Numbers of the latest events that were read: none is read twice."
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Plan",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("kind", models.CharField(help_text="priority, type, preset.", max_length=40)),
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
                ("created_by", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("applied_by", models.CharField(blank=True, max_length=254)),
                ("applied_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-created_at"],
            },
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
                        blank=True, help_text="Preset it came from; Run:ai for the seven levels.", max_length=40
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
                    "told",
                    models.JSONField(
                        default=dict, help_text="Keys of the projects and departments that the file tells of."
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
            },
        ),
        migrations.CreateModel(
            name="Workload",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=253)),
                ("spec", models.JSONField(help_text="WorkloadSpec.as_json(): rebuilt from the allowlist.")),
                ("raw", models.JSONField(default=dict, help_text="What was sent, for its own people to read.")),
                ("category", models.CharField(blank=True, max_length=40)),
                (
                    "priority_value",
                    models.IntegerField(help_text="The value when it was last applied; its pods carry this integer."),
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
            ],
            options={
                "ordering": ["-created_at", "-id"],
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
                    "workload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="timeline", to="workloads.workload"
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
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
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="workloads.workloadevent"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
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
        migrations.AddField(
            model_name="workload",
            name="type",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="workloads", to="workloads.workloadtype"
            ),
        ),
        migrations.AddConstraint(
            model_name="asset",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("cluster", None), ("department", None), ("project", None), ("scope", "tenant")),
                    models.Q(("cluster__isnull", False), ("department", None), ("project", None), ("scope", "cluster")),
                    models.Q(
                        ("cluster", None), ("department__isnull", False), ("project", None), ("scope", "department")
                    ),
                    models.Q(("cluster", None), ("department", None), ("project__isnull", False), ("scope", "project")),
                    _connector="OR",
                ),
                name="workloads_asset_one_place",
            ),
        ),
        migrations.AddConstraint(
            model_name="asset",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "tenant")), fields=("kind", "name"), name="workloads_asset_once_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="asset",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "cluster")),
                fields=("kind", "name", "cluster"),
                name="workloads_asset_once_cluster",
            ),
        ),
        migrations.AddConstraint(
            model_name="asset",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "department")),
                fields=("kind", "name", "department"),
                name="workloads_asset_once_department",
            ),
        ),
        migrations.AddConstraint(
            model_name="asset",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "project")),
                fields=("kind", "name", "project"),
                name="workloads_asset_once_project",
            ),
        ),
        migrations.AddConstraint(
            model_name="policy",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("cluster", None), ("department", None), ("project", None), ("scope", "tenant")),
                    models.Q(("cluster__isnull", False), ("department", None), ("project", None), ("scope", "cluster")),
                    models.Q(
                        ("cluster", None), ("department__isnull", False), ("project", None), ("scope", "department")
                    ),
                    models.Q(("cluster", None), ("department", None), ("project__isnull", False), ("scope", "project")),
                    _connector="OR",
                ),
                name="workloads_policy_one_place",
            ),
        ),
        migrations.AddConstraint(
            model_name="policy",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "tenant")), fields=("kind",), name="workloads_policy_once_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="policy",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "cluster")),
                fields=("kind", "cluster"),
                name="workloads_policy_once_cluster",
            ),
        ),
        migrations.AddConstraint(
            model_name="policy",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "department")),
                fields=("kind", "department"),
                name="workloads_policy_once_department",
            ),
        ),
        migrations.AddConstraint(
            model_name="policy",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "project")),
                fields=("kind", "project"),
                name="workloads_policy_once_project",
            ),
        ),
        migrations.AddConstraint(
            model_name="priority",
            constraint=models.CheckConstraint(
                condition=models.Q(("value__gte", -2147483648), ("value__lte", 1000000000)),
                name="workloads_priority_value_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="priority",
            constraint=models.CheckConstraint(
                condition=models.Q(("name__startswith", "system-"), _negated=True), name="workloads_priority_not_system"
            ),
        ),
        migrations.AddConstraint(
            model_name="priority",
            constraint=models.UniqueConstraint(
                condition=models.Q(("alias_of__isnull", True), ("retired_at__isnull", True)),
                fields=("value",),
                name="workloads_priority_value_once",
            ),
        ),
        migrations.AddIndex(
            model_name="subscription",
            index=models.Index(fields=["subject_kind", "subject_id"], name="workloads_subscriber"),
        ),
        migrations.AddIndex(
            model_name="preemptionrecord",
            index=models.Index(
                condition=models.Q(
                    ("preemptor", None), ("preemptor_name", ""), models.Q(("preemptor_uid", ""), _negated=True)
                ),
                fields=["cluster", "preemptor_uid"],
                name="workloads_preemption_unnamed",
            ),
        ),
        migrations.AddConstraint(
            model_name="preemptionrecord",
            constraint=models.UniqueConstraint(fields=("cluster", "pod_uid", "at"), name="workloads_preemption_once"),
        ),
        migrations.AddConstraint(
            model_name="idempotencykey",
            constraint=models.UniqueConstraint(fields=("project", "subject", "key"), name="workloads_key_once"),
        ),
        migrations.AddIndex(
            model_name="workloadevent",
            index=models.Index(fields=["workload", "-at", "-id"], name="workloads_timeline"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "waiting")), fields=["due_at"], name="workloads_delivery_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(fields=("event", "channel", "address"), name="workloads_told_once"),
        ),
        migrations.AddConstraint(
            model_name="workloadtemplate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("cluster", None), ("department", None), ("project", None), ("scope", "tenant")),
                    models.Q(("cluster__isnull", False), ("department", None), ("project", None), ("scope", "cluster")),
                    models.Q(
                        ("cluster", None), ("department__isnull", False), ("project", None), ("scope", "department")
                    ),
                    models.Q(("cluster", None), ("department", None), ("project__isnull", False), ("scope", "project")),
                    _connector="OR",
                ),
                name="workloads_workloadtemplate_one_place",
            ),
        ),
        migrations.AddConstraint(
            model_name="workloadtemplate",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "tenant")),
                fields=("kind", "name"),
                name="workloads_workloadtemplate_once_tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="workloadtemplate",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "cluster")),
                fields=("kind", "name", "cluster"),
                name="workloads_workloadtemplate_once_cluster",
            ),
        ),
        migrations.AddConstraint(
            model_name="workloadtemplate",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "department")),
                fields=("kind", "name", "department"),
                name="workloads_workloadtemplate_once_department",
            ),
        ),
        migrations.AddConstraint(
            model_name="workloadtemplate",
            constraint=models.UniqueConstraint(
                condition=models.Q(("scope", "project")),
                fields=("kind", "name", "project"),
                name="workloads_workloadtemplate_once_project",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["-created_at", "-id"],
                name="workloads_live_newest",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["phase", "-created_at", "-id"],
                name="workloads_live_phase",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["project", "-created_at", "-id"],
                name="workloads_live_project",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["project", "phase", "-created_at", "-id"],
                name="workloads_live_project_phase",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["submitted_by_kind", "submitted_by_id", "-created_at", "-id"],
                name="workloads_live_own",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)), fields=["name", "id"], name="workloads_live_name"
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["-priority_value", "-id"],
                name="workloads_live_priority",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["-gpu_milli", "-id"],
                name="workloads_live_gpus",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["-phase_at", "-id"],
                name="workloads_live_changed",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)),
                fields=["-created_at", "-id"],
                name="workloads_deleted_newest",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("apply_error__gt", ""), ("deleted_at__isnull", True), ("phase", "Failed")),
                fields=["-created_at", "-id"],
                name="workloads_failed_to_apply",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["project", "due_at"],
                name="workloads_due_in_project",
            ),
        ),
        migrations.AddIndex(
            model_name="workload",
            index=models.Index(
                condition=models.Q(
                    ("deleted_at__isnull", True),
                    ("phase__in", ["Running", "Updating", "Degraded"]),
                    ("started_at__isnull", False),
                ),
                fields=["category", "started_at"],
                name="workloads_runs_by_start",
            ),
        ),
        migrations.AddConstraint(
            model_name="workload",
            constraint=models.UniqueConstraint(
                condition=models.Q(("deleted_at__isnull", True)), fields=("project", "name"), name="workloads_name_once"
            ),
        ),
    ]
