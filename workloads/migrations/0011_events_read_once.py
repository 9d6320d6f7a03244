"""Events are read once: their numbers take the place of a digest; a message outlives the wish that asked for it first."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

OVERLAP = 500


def take_over(apps: Apps, _editor: BaseDatabaseSchemaEditor) -> None:
    """What was read before is not read again."""
    events = apps.get_model("workloads", "WorkloadEvent").objects
    for row in apps.get_model("workloads", "NotificationState").objects.all():
        read = events.filter(pk__gt=row.read_to - OVERLAP, pk__lte=row.read_to)
        row.read = list(read.order_by("pk").values_list("pk", flat=True))
        row.save(update_fields=["read"])


class Migration(migrations.Migration):
    dependencies = [("workloads", "0010_withdrawn_types")]

    operations = [
        migrations.AddField(
            model_name="notificationstate",
            name="read",
            field=models.JSONField(
                default=list, help_text="Numbers of the latest events that were read: none is read twice."
            ),
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
        migrations.RemoveField(model_name="notificationstate", name="last_read"),
        migrations.AlterField(
            model_name="delivery",
            name="subscription",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="deliveries",
                to="workloads.subscription",
            ),
        ),
    ]
