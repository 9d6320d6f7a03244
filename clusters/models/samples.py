"""What was measured minute by minute, kept the sparser the older it is, and averages of it."""

from django.db import models

from clusters.models.estate import Cluster


class Sample(models.Model):
    """Figures of one owner at one moment. `kind` and `owner` name it: this app need not know what it is."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="samples")
    kind = models.CharField(max_length=16, help_text="cluster, node-pool, and what the apps above sample.")
    owner = models.CharField(max_length=36, help_text="Its primary key.")
    at = models.DateTimeField(help_text="Start of the minute.")
    grain = models.PositiveSmallIntegerField(default=0, help_text="0: one of many; else first of 10 min, hour, day.")
    figures = models.JSONField(help_text="Node pool, or * for all of them, to names and numbers.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "owner", "at"], name="clusters_sample_once")]
        indexes = [models.Index(fields=["grain", "at"], name="clusters_sample_age")]

    def __str__(self) -> str:
        return f"{self.kind} {self.owner} {self.at:%Y-%m-%d %H:%M}"


class Average(models.Model):
    """Averages of one figure of one owner over all node pools; null where nothing was sampled."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="averages")
    kind = models.CharField(max_length=16)
    owner = models.CharField(max_length=36)
    name = models.CharField(max_length=24)
    day = models.FloatField(null=True, help_text="Over the last 24 hours.")
    week = models.FloatField(null=True, help_text="Over the last 7 days.")
    month = models.FloatField(null=True, help_text="Over the last 30 days.")
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "owner", "name"], name="clusters_average_once")]

    def __str__(self) -> str:
        return f"{self.name} of {self.kind} {self.owner}"
