"""Records tell which request asked. SQLite makes the table anew for it, without its triggers: they are put back."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from portal.audit import triggers


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    triggers.install(editor, editor.connection.vendor)


def remove(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    triggers.remove(editor, editor.connection.vendor)


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_append_only")]

    operations = [
        migrations.RunPython(remove, install),
        migrations.AddField("auditrecord", "http_method", models.CharField(blank=True, max_length=10)),
        migrations.AddField(
            "auditrecord",
            "url",
            models.CharField(blank=True, help_text="Path of the request, without its query string.", max_length=500),
        ),
        migrations.RunPython(install, remove),
    ]
