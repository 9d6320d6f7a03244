from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workloads", "0004_whole_gangs")]

    operations = [
        migrations.AddField(
            model_name="workload",
            name="pool_since",
            field=models.DateTimeField(blank=True, help_text="Since when; null: since it was submitted.", null=True),
        ),
        migrations.AlterField(
            model_name="workload",
            name="pool_name",
            field=models.CharField(blank=True, help_text="Where it runs now, or is tried.", max_length=63),
        ),
    ]
