"""Node pools say the levels of their topology themselves; those that an admin had made in a cluster are taken over."""

from typing import Any

from django.db import migrations, models

MARK = "topology "


def take_over(apps: Any, _schema: Any) -> None:
    """A row `topology <pool> <widest key> … <narrowest key>` among the kinds that a cluster serves becomes its pool's."""
    for cluster in apps.get_model("clusters", "Cluster").objects.all():
        lines = [line for line in cluster.served_kinds if line.startswith(MARK)]
        if not lines:
            continue
        levels = {name: keys for _mark, name, *keys in (line.split(" ") for line in lines)}
        for pool in cluster.node_pools.all():
            if found := levels.get(pool.name.lower()):
                pool.topology_levels = found
                pool.save(update_fields=["topology_levels"])
        cluster.served_kinds = [line for line in cluster.served_kinds if line not in lines]
        cluster.save(update_fields=["served_kinds"])


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0010_gpu_use"),
    ]

    operations = [
        migrations.AddField(
            model_name="nodepool",
            name="topology_levels",
            field=models.JSONField(
                blank=True, default=list, help_text="Node labels that make its domains of close nodes, widest first."
            ),
        ),
        migrations.AddField(
            model_name="nodepool",
            name="topology_revision",
            field=models.PositiveIntegerField(
                default=0, help_text="Counts changes of what a scheduler was told and never changes itself."
            ),
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
    ]
