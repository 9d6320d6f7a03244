from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def read_again(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Pods of KAI that are known already say their group and device with the next list."""
    rows = apps.get_model("clusters", "ObservedPod").objects.filter(cluster__flavour="kai", gone_at=None)
    rows.update(resource_version="")
    apps.get_model("clusters", "ObserverLease").objects.filter(cluster__flavour="kai").update(versions={})


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0015_work_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="observedpod",
            name="device",
            field=models.CharField(
                blank=True, help_text="The shared GPU of its node that it has a part of.", max_length=64
            ),
        ),
        migrations.AddField(
            model_name="observedpod",
            name="pod_group",
            field=models.CharField(blank=True, help_text="KAI's group of the pods it belongs to.", max_length=253),
        ),
        migrations.RunPython(read_again, migrations.RunPython.noop),
    ]
