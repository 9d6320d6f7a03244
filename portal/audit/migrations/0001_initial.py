from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from portal.audit import chain


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    chain.install_triggers(editor, editor.connection.vendor)


def remove(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    chain.remove_triggers(editor, editor.connection.vendor)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="AuditChain",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("length", models.PositiveBigIntegerField(default=0)),
                ("head", models.CharField(blank=True, max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="AuditRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("actor_kind", models.CharField(max_length=20)),
                ("actor_id", models.CharField(blank=True, max_length=64)),
                ("actor_name", models.CharField(max_length=254)),
                ("channel", models.CharField(max_length=16)),
                ("source_ip", models.CharField(blank=True, max_length=45)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("http_method", models.CharField(blank=True, max_length=10)),
                (
                    "url",
                    models.CharField(
                        blank=True, help_text="Path of the request, without its query string.", max_length=500
                    ),
                ),
                ("action", models.CharField(help_text="Dotted verb, such as workload.submit.", max_length=64)),
                (
                    "result",
                    models.CharField(
                        choices=[("Succeeded", "Succeeded"), ("Denied", "Denied"), ("Failed", "Failed")], max_length=16
                    ),
                ),
                ("entity_type", models.CharField(max_length=64)),
                ("entity_id", models.CharField(blank=True, max_length=64)),
                ("entity_name", models.CharField(blank=True, max_length=254)),
                (
                    "project_id",
                    models.CharField(
                        blank=True, help_text="Project the record may be read in; empty: none.", max_length=20
                    ),
                ),
                ("detail", models.JSONField(default=dict)),
                (
                    "sealed_seq",
                    models.PositiveBigIntegerField(
                        blank=True,
                        help_text="Position in the chain; empty until the record is sealed.",
                        null=True,
                        unique=True,
                    ),
                ),
                ("digest", models.CharField(blank=True, max_length=64)),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["-at", "-id"], name="audit_record_newest"),
                    models.Index(fields=["project_id", "-at"], name="audit_record_project"),
                    models.Index(fields=["entity_type", "entity_id"], name="audit_record_entity"),
                    models.Index(condition=models.Q(("sealed_seq", None)), fields=["id"], name="audit_record_unsealed"),
                ],
            },
        ),
        migrations.RunPython(install, remove),
    ]
