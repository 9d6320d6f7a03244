import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workloads", "0007_notifications"),
    ]

    operations = [
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
                        blank=True, help_text="How much was measured, or why there is no file.", max_length=300
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
    ]
