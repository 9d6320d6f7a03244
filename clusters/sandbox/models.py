"""The sandbox's own store: what etcd is to a real cluster. Only the sandbox backend and its tick touch these rows."""

import uuid
from datetime import datetime, timedelta

from django.db import models

from clusters.inventory.models import Cluster


class SandboxClock(models.Model):
    """One sandbox: how fast its run times and grace periods pass, and its resourceVersion counter."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="sandbox_clock")
    speed = models.PositiveIntegerField(default=1)
    speed_since = models.DateTimeField(null=True, blank=True, help_text="Before it time passed as it really does.")
    version = models.PositiveBigIntegerField(default=1)
    ticked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.speed}x"

    def passed(self, start: datetime, end: datetime) -> float:
        """Seconds of the sandbox's time between two real moments."""
        turn = self.speed_since or start
        before = max((min(end, turn) - start).total_seconds(), 0)
        return before + max((end - max(start, turn)).total_seconds(), 0) * self.speed

    def moment(self, start: datetime, seconds: float) -> datetime:
        """The real moment at which that much of the sandbox's time has passed since `start`."""
        turn = max(self.speed_since or start, start)
        before = (turn - start).total_seconds()
        if seconds <= before:
            return start + timedelta(seconds=seconds)
        return turn + timedelta(seconds=(seconds - before) / self.speed)


class SandboxObject(models.Model):
    """One object of the simulated API server, as the manifest a real one would return."""

    uid = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="sandbox_objects")
    kind = models.CharField(max_length=128, help_text="Kind.group, such as Job.batch; the core group is empty: Pod.")
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    managed = models.BooleanField(default=False, help_text="Carries our managed-by label.")
    manifest = models.JSONField()
    version = models.PositiveBigIntegerField(help_text="resourceVersion of the last write.")
    created_version = models.PositiveBigIntegerField(default=0, help_text="resourceVersion of the first write.")
    deleted = models.BooleanField(default=False, help_text="A tombstone, so that a watch sees the deletion.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "namespace", "name"],
                condition=models.Q(deleted=False),
                name="clusters_sandbox_object_once",
            )
        ]
        indexes = [models.Index(fields=["cluster", "kind", "version"], name="clusters_sandbox_changes")]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
