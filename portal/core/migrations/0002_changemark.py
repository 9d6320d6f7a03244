"""One row of marks; triggers, made after every migration, draw them anew with each change."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from portal.core import mark_triggers


def without_triggers(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Nothing may draw marks once their table is gone."""
    mark_triggers.remove(editor, editor.connection.vendor)


class Migration(migrations.Migration):
    dependencies = [("core", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="ChangeMark",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("access", models.CharField(max_length=36)),
                ("rules", models.CharField(max_length=36)),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, without_triggers),
    ]
