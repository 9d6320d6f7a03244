"""Schedulers that a cluster had before its present one, and the workloads that were made for them."""

from django.db import models

from clusters.models.estate import Cluster


class FormerFlavour(models.Model):
    """A scheduler that an admin has replaced. Its objects go once nothing stands on them any more."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="former_flavours")
    flavour = models.CharField(max_length=20)
    left_at = models.DateTimeField()
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When nothing of it was found any more.")

    class Meta:
        ordering = ["left_at", "id"]
        constraints = [models.UniqueConstraint(fields=["cluster", "flavour"], name="clusters_former_once")]

    def __str__(self) -> str:
        return f"{self.flavour} until {self.left_at:%Y-%m-%d %H:%M}"


class LeftBehind(models.Model):
    """A workload whose objects were made for a former scheduler. Gone once they are made anew, or have ended."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="left_behind")
    flavour = models.CharField(max_length=20, help_text="The scheduler it was made for.")
    workload_id = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "workload_id"], name="clusters_left_behind_once")]

    def __str__(self) -> str:
        return f"{self.workload_id} for {self.flavour}"
