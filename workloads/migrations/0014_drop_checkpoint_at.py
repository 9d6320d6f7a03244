from django.db import migrations


class Migration(migrations.Migration):
    """It was never written: when a workload last saved is read from what it declares (`workloads.checkpoints`)."""

    dependencies = [("workloads", "0013_claims")]

    operations = [migrations.RemoveField(model_name="workload", name="checkpoint_at")]
