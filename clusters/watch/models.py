"""Observed pods, objects and events, observer leases, and usage samples."""

from datetime import datetime
from typing import Final, Self

from django.db import models

from clusters.inventory.models import Cluster

LIVE_PHASES: Final = ("Pending", "Running")
"""Phases of pods that have not ended."""


class ObservedPodQuerySet(models.QuerySet["ObservedPod"]):
    """Pods by what they do to a cluster."""

    def live(self) -> Self:
        """Neither ended nor gone."""
        return self.filter(gone_at__isnull=True, phase__in=LIVE_PHASES)

    def holding(self) -> Self:
        """Live and bound to a node: what they ask for is taken."""
        return self.live().exclude(node_name="")


class ObservedPod(models.Model):
    """A pod as it was last observed; kept with `gone_at` after it has left the cluster."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pods")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    owner_id = models.CharField(max_length=64, blank=True, help_text="Value of our owner label: the workload's id.")
    node_name = models.CharField(max_length=253, blank=True)
    pool_name = models.CharField(max_length=63, blank=True)
    phase = models.CharField(max_length=20)
    reason = models.CharField(max_length=100, blank=True, help_text="Why it waits or ended, in the scheduler's word.")
    message = models.TextField(blank=True)
    priority_class = models.CharField(max_length=253, blank=True)
    priority = models.IntegerField(
        default=0, help_text="The integer copied at admission; may differ from its class today."
    )
    preemptible = models.BooleanField(default=True)
    never_preempts = models.BooleanField(default=False, help_text="Its preemptionPolicy is Never.")
    nominated_node = models.CharField(
        max_length=253, blank=True, help_text="Where room is made for it while it waits: nominatedNodeName."
    )
    node_selector = models.JSONField(default=dict, blank=True, help_text="While it waits: labels it wants of its node.")
    tolerations = models.JSONField(default=list, blank=True, help_text="While it waits: taints it bears.")
    queue = models.CharField(max_length=253, blank=True)
    pod_group = models.CharField(max_length=253, blank=True, help_text="KAI's group of the pods it belongs to.")
    device = models.CharField(max_length=64, blank=True, help_text="The shared GPU of its node that it has a part of.")
    role = models.CharField(max_length=63, blank=True)
    gpu_milli = models.PositiveBigIntegerField(default=0)
    cpu_milli = models.PositiveBigIntegerField(default=0)
    memory_bytes = models.PositiveBigIntegerField(default=0)
    more_requests = models.JSONField(
        default=dict, blank=True, help_text="Ephemeral storage in bytes, devices but whole GPUs, claims of devices."
    )
    grace_seconds = models.PositiveIntegerField(default=30)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    deletion_at = models.DateTimeField(null=True, blank=True, help_text="deletionTimestamp: when its grace ends.")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When its last container ended, by its node.")
    disrupted_at = models.DateTimeField(null=True, blank=True, help_text="Transition of DisruptionTarget.")
    disruption_reason = models.CharField(max_length=64, blank=True)
    disruption_message = models.TextField(blank=True)
    gone_at = models.DateTimeField(null=True, blank=True)
    resource_version = models.CharField(max_length=32, blank=True)
    observed_at = models.DateTimeField()

    objects = ObservedPodQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="clusters_pod_uid_once")]
        indexes = [
            models.Index(fields=["owner_id"], name="clusters_pod_owner"),
            models.Index(fields=["cluster", "gone_at", "node_name"], name="clusters_pod_live"),
            models.Index(fields=["namespace", "name"], name="clusters_pod_name", condition=models.Q(gone_at=None)),
            models.Index(
                fields=["-created_at", "-id"],
                name="clusters_pod_newest",
                condition=models.Q(gone_at=None) & ~models.Q(owner_id=""),
            ),
            models.Index(fields=["cluster", "observed_at"], name="clusters_pod_observed"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def over_at(self) -> datetime | None:
        """When its containers ended, else when it had gone. A live pod restarts a container that has ended."""
        return self.gone_at if self.phase in LIVE_PHASES else self.ended_at or self.gone_at


class ClusterEvent(models.Model):
    """A Kubernetes event about one of our objects, kept after the API server has forgotten it.

    Without an owner it is about an object that was not seen yet: the owner follows with the object, or it is dropped.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="events")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    owner_id = models.CharField(max_length=64, blank=True)
    kind = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    object_uid = models.CharField(max_length=64, blank=True)
    type = models.CharField(max_length=16, default="Normal")
    reason = models.CharField(max_length=128)
    message = models.TextField(blank=True)
    source = models.CharField(max_length=128, blank=True)
    count = models.PositiveIntegerField(default=1, help_text="How often it has happened so far.")
    resource_version = models.CharField(max_length=32, blank=True)
    at = models.DateTimeField(help_text="When it happened last.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="clusters_event_uid_once")]
        indexes = [
            models.Index(fields=["owner_id", "-at"], name="clusters_event_owner"),
            models.Index(fields=["at"], name="clusters_event_at"),
            models.Index(
                fields=["cluster", "object_uid"], name="clusters_event_unowned", condition=models.Q(owner_id="")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reason} {self.name}"


class ObservedObject(models.Model):
    """One of our own objects as it was last seen: whose it is, and a fingerprint of what it says."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="objects_seen")
    kind = models.CharField(max_length=128, help_text="Kind.group, such as Job.batch.")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    owner_id = models.CharField(max_length=64, blank=True, help_text="The workload's id, for a workload's object.")
    generation = models.PositiveBigIntegerField(default=0, help_text="Our annotation on it.")
    applied_hash = models.CharField(max_length=64, blank=True, help_text="Our annotation on it.")
    fingerprint = models.CharField(max_length=64, blank=True, help_text="Of what it says now, without status.")
    agreed = models.CharField(max_length=64, blank=True, help_text="Of what it said after our last write.")
    answered = models.BooleanField(default=False, db_default=False, help_text="Its controller has written a status.")
    scheduling = models.JSONField(
        default=dict, help_text="Of a workload's object: queue, priority, scheduler, suspend by pointer."
    )
    created_at = models.DateTimeField(null=True, blank=True, help_text="Its creationTimestamp.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="clusters_object_uid_once")]
        indexes = [
            models.Index(fields=["cluster", "kind"], name="clusters_object_kind"),
            models.Index(fields=["owner_id"], name="clusters_object_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ObserverSeat(models.Model):
    """An observer that lives. Those with a fresh seat share the clusters out evenly."""

    holder = models.CharField(max_length=100, primary_key=True)
    seen_at = models.DateTimeField(help_text="By the database's clock.")

    def __str__(self) -> str:
        return self.holder


class ObserverLease(models.Model):
    """The observer of a cluster, until the end of its lease. An optimization: correctness comes from fencing."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="observer_lease")
    holder = models.CharField(max_length=100)
    expires_at = models.DateTimeField()
    versions = models.JSONField(default=dict, help_text="Last resourceVersion seen per kind.")

    def __str__(self) -> str:
        return f"{self.cluster_id} by {self.holder}"


class Sample(models.Model):
    """Figures of one owner at one moment. `kind` and `owner` name it: this app need not know what it is."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="samples", db_index=False)
    kind = models.CharField(max_length=16, help_text="cluster, node-pool, and what the apps above sample.")
    owner = models.CharField(max_length=36, help_text="Its primary key.")
    at = models.DateTimeField(help_text="Start of the minute.")
    grain = models.PositiveSmallIntegerField(default=0, help_text="0: one of many; else first of 10 min, hour, day.")
    figures = models.JSONField(help_text="Node pool, or * for all of them, to names and numbers.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "owner", "at"], name="clusters_sample_once")]
        indexes = [models.Index(fields=["cluster", "grain", "at"], name="clusters_sample_age")]

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


class GpuUse(models.Model):
    """The busiest GPU of a pod when it was last measured, and since when all of them do nothing."""

    pod = models.OneToOneField(ObservedPod, on_delete=models.CASCADE, primary_key=True, related_name="gpu_use")
    percent = models.PositiveSmallIntegerField()
    idle_since = models.DateTimeField(null=True, blank=True)
    measured_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.percent} % at {self.measured_at:%H:%M:%S}"
