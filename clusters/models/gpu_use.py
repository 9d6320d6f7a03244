"""How busy the GPUs of a cluster's pods are, as its Prometheus says, and where that is asked."""

from django.core.validators import RegexValidator
from django.db import models

from clusters.models.estate import Cluster
from clusters.models.observed import ObservedPod

METRIC = "DCGM_FI_DEV_GPU_UTIL"
METRIC_NAME = RegexValidator(r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,127}\Z", "Letters, digits, underscores and colons.")


class MetricsSource(models.Model):
    """The Prometheus of a cluster. Only `clusters.credentials` opens the seal of its token; nothing shows it."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="metrics_source")
    server = models.CharField(max_length=500)
    ca = models.TextField(blank=True, help_text="PEM; empty: the authorities of the system.")
    metric = models.CharField(max_length=128, default=METRIC, validators=[METRIC_NAME])
    sealed = models.TextField(blank=True, editable=False, help_text="Its token; empty: it asks for none.")
    key_id = models.CharField(max_length=16, blank=True, editable=False, help_text="Which key sealed it.")
    changed_at = models.DateTimeField(auto_now=True)
    read_at = models.DateTimeField(null=True, blank=True, help_text="When it last answered.")
    pods = models.PositiveIntegerField(default=0, help_text="For how many of our pods it knew GPUs then.")
    error = models.CharField(max_length=500, blank=True, help_text="Why it could not be read; empty: it could.")

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.server}"

    @property
    def bound_to(self) -> tuple[str, ...]:
        """Where the token may be sent: a change of it needs the token again."""
        return ("metrics", str(self.cluster_id), self.server)


class GpuUse(models.Model):
    """The busiest GPU of a pod when it was last measured, and since when all of them do nothing."""

    pod = models.OneToOneField(ObservedPod, on_delete=models.CASCADE, primary_key=True, related_name="gpu_use")
    percent = models.PositiveSmallIntegerField()
    idle_since = models.DateTimeField(null=True, blank=True)
    measured_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.percent} % at {self.measured_at:%H:%M:%S}"
