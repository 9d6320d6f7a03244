from django.db import migrations, models
from django.db.models.deletion import CASCADE


class Migration(migrations.Migration):
    dependencies = [("workloads", "0003_preemption_facts")]

    operations = [
        migrations.AddField(
            model_name="preemptionrecord",
            name="first",
            field=models.ForeignKey(
                blank=True,
                help_text=(
                    "Its gang was evicted whole: the preemption that this pod is part of. Empty: it is one by itself."
                ),
                null=True,
                on_delete=CASCADE,
                related_name="others",
                to="workloads.preemptionrecord",
            ),
        ),
    ]
