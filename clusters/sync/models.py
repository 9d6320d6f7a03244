"""Sync runs with their outcomes, drift and adoptions, and the former schedulers of a cluster."""

from django.db import models

from clusters.inventory.models import Cluster


class SyncState(models.TextChoices):
    """The state of a sync run."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"


class SyncRun(models.Model):
    """One recorded reconcile. One live run per cluster is a unique constraint, not a convention."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="sync_runs")
    state = models.CharField(max_length=10, choices=SyncState.choices, default=SyncState.RUNNING)
    trigger = models.CharField(max_length=20, default="sweep", help_text="sweep, wake-up, manual, dry-run.")
    dry_run = models.BooleanField(default=False)
    scope = models.TextField(blank=True, help_text="Owners it was about, one a line; empty: everything.")
    generation = models.PositiveBigIntegerField(default=0)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    listed = models.PositiveIntegerField(default=0)
    written = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    error_code = models.CharField(max_length=64, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"], condition=models.Q(state="running", dry_run=False), name="clusters_sync_one_live"
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.started_at:%Y-%m-%d %H:%M:%S} {self.state}"


class SyncOutcome(models.Model):
    """What happened to one object in one run. Objects that were already right have no row."""

    run = models.ForeignKey(SyncRun, on_delete=models.CASCADE, related_name="outcomes")
    action = models.CharField(max_length=10, help_text="create, update, replace, delete, conflict.")
    kind = models.CharField(max_length=128)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    owner = models.CharField(max_length=100, blank=True, help_text="Whose object it is: the value of our label.")
    ok = models.BooleanField()
    code = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    changes = models.JSONField(default=list, help_text="Changed fields: [path, observed, desired].")

    def __str__(self) -> str:
        return f"{self.action} {self.kind} {self.name}"


class DriftKind(models.TextChoices):
    """How observed and desired differ."""

    MISSING = "missing"
    CHANGED = "changed"
    EXTRA = "extra"
    CONFLICT = "conflict"
    STALE = "stale"


class Drift(models.Model):
    """One difference found at the last look. `stale`: a pod whose integer differs from its class."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drifts")
    category = models.CharField(max_length=10, choices=DriftKind.choices)
    kind = models.CharField(max_length=128)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    owner = models.CharField(max_length=100, blank=True, help_text="Whose object it is: the value of our label.")
    message = models.TextField(blank=True)
    changes = models.JSONField(default=list)
    object_uid = models.CharField(max_length=64, blank=True, help_text="Of the foreign object that is in the way.")
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["category", "kind", "namespace", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "category", "kind", "namespace", "name"], name="clusters_drift_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.category} {self.kind} {self.name}"


class Adoption(models.Model):
    """An admin's word that one foreign object, known by its uid, may become Rung's. Gone once it has."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="adoptions")
    kind = models.CharField(max_length=128)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="clusters_adoption_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class FormerFlavour(models.Model):
    """A scheduler that an admin has replaced. Its objects are deleted once no workload depends on them."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="former_flavours")
    flavour = models.CharField(max_length=20)
    left_at = models.DateTimeField()
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When nothing of it was found any more.")

    class Meta:
        ordering = ["left_at", "id"]
        constraints = [models.UniqueConstraint(fields=["cluster", "flavour"], name="clusters_former_once")]

    def __str__(self) -> str:
        return f"{self.flavour} until {self.left_at:%Y-%m-%d %H:%M}"


class OrphanedObject(models.Model):
    """A workload whose objects were made for a former scheduler. Removed once they are recreated or have ended."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="left_behind")
    flavour = models.CharField(max_length=20, help_text="The scheduler it was made for.")
    workload_id = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "workload_id"], name="clusters_left_behind_once")]

    def __str__(self) -> str:
        return f"{self.workload_id} for {self.flavour}"
