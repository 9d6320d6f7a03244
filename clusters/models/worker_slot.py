"""How many workers one cluster may hold at a time: the bulkhead between clusters."""

from django.db import models

from clusters.models.estate import Cluster


class WorkerSlot(models.Model):
    """One of a cluster's places for a worker; free when it has no holder or its lease has expired."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="worker_slots")
    number = models.PositiveSmallIntegerField()
    holder = models.CharField(max_length=36, blank=True, help_text="Random id of the task that has it.")
    expires_at = models.DateTimeField(help_text="By the database's clock.")
    serving = models.PositiveBigIntegerField(default=0, help_text="Project that it works for now; 0: none.")
    cursor = models.PositiveBigIntegerField(
        default=0, help_text="Project that was served last: the next turn begins behind it."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "number"], name="clusters_worker_slot_once")]

    def __str__(self) -> str:
        return f"slot {self.number} of {self.cluster_id}"
