import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0010_gpu_use"),
        ("tenants", "0005_idle_limits"),
        ("workloads", "0008_reports"),
    ]

    operations = [
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
    ]
