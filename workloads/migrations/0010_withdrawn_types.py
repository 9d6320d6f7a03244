from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workloads", "0009_templates")]

    operations = [
        migrations.AddField(
            "workloadtype",
            "withdrawn_at",
            models.DateTimeField(
                blank=True, help_text="Withdrawn: neither listed nor submitted; what there is goes on.", null=True
            ),
        ),
    ]
