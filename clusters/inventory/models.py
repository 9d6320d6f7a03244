"""Clusters, node pools and nodes, and the owners whose objects may differ from the database."""

import uuid
from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import Q


class ClusterState(models.TextChoices):
    """Whether Rung works with the cluster."""

    ACTIVE = "active"
    PAUSED = "paused"


class Placement(models.TextChoices):
    """Where the next pod of a pool goes: fill nodes up, or keep them even."""

    BINPACK = "binpack"
    SPREAD = "spread"


class PodSecurity(models.TextChoices):
    """What pods in project namespaces must satisfy."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"


class ClusterQuerySet(models.QuerySet["Cluster"]):
    """Clusters by what is to be done with them."""

    def due(self, now: datetime) -> Self:
        """Active, and its reconcile is due or was never planned."""
        return self.filter(Q(sync_due_at=None) | Q(sync_due_at__lte=now), state=ClusterState.ACTIVE)

    def claim_due(self, cluster: "Cluster", now: datetime, until: datetime) -> bool:
        """Move the due time on; True for the one of several sweeps that still found it due."""
        return bool(self.due(now).filter(pk=cluster.pk).update(sync_due_at=until))


class Cluster(models.Model):
    """One Kubernetes cluster and the scheduler flavour it runs."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=63, unique=True)
    flavour = models.CharField(max_length=20, help_text="Name of a scheduler flavour: kube, kai.")
    backend = models.CharField(
        max_length=20, default="sandbox", help_text="How the cluster is reached: kubernetes, sandbox, memory."
    )
    state = models.CharField(max_length=10, choices=ClusterState.choices, default=ClusterState.ACTIVE)
    paused_reason = models.TextField(blank=True)
    breaker_reason = models.TextField(blank=True, help_text="Why no work is sent to it for now; empty: work is sent.")
    breaker_since = models.DateTimeField(null=True, blank=True)
    breaker_retry_at = models.DateTimeField(null=True, blank=True, help_text="When one workload is tried again.")
    breaker_failures = models.PositiveIntegerField(default=0, help_text="Tries in a row that the cluster failed.")
    uid = models.CharField(
        max_length=64, blank=True, help_text="uid of the kube-system namespace: the cluster's identity."
    )
    version = models.CharField(max_length=40, blank=True)
    pod_security = models.CharField(
        max_length=10,
        choices=PodSecurity.choices,
        default=PodSecurity.RESTRICTED,
        help_text="Pod Security level of project namespaces; baseline lets images start as root.",
    )
    defer_preemptors = models.BooleanField(
        default=False, help_text="Rung defers who would evict a run inside its minimum runtime."
    )
    served_kinds = models.JSONField(
        default=list, blank=True, help_text="Kinds of workload it serves, as observed last; empty: not observed yet."
    )
    silent_kinds = models.JSONField(
        default=dict,
        blank=True,
        help_text="Kinds of workload of which no controller answered, each with since when; as Kind.group.",
    )
    configured = models.JSONField(
        default=dict,
        blank=True,
        help_text="What its scheduler's configuration says, as read last; empty: it has none, or it could not be read.",
    )
    generation = models.PositiveBigIntegerField(default=1, help_text="Grows with every change of desired state.")
    synced_generation = models.PositiveBigIntegerField(default=0)
    sync_due_at = models.DateTimeField(
        null=True, blank=True, help_text="When the next reconcile is due; the sweep claims it."
    )
    resync_due_at = models.DateTimeField(
        null=True, blank=True, help_text="Until then a run may look at what has changed only."
    )
    failures = models.PositiveSmallIntegerField(default=0, help_text="Runs in a row that did not succeed.")
    synced_at = models.DateTimeField(null=True, blank=True)
    observed_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ClusterQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["uid"], condition=Q(backend="kubernetes") & ~Q(uid=""), name="clusters_one_writer_per_cluster"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_simulated(self) -> bool:
        """True for the sandbox: every page that shows its numbers must say so."""
        return self.backend != "kubernetes"


class NodePool(models.Model):
    """Labelled nodes that are scheduled apart. No eviction crosses pools."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="node_pools")
    name = models.SlugField(max_length=63)
    label_key = models.CharField(max_length=317, default="rung.dev/node-pool")
    label_value = models.CharField(max_length=63)
    is_default = models.BooleanField(default=False)
    gpu_placement = models.CharField(max_length=10, choices=Placement.choices, default=Placement.BINPACK)
    topology_levels = models.JSONField(
        default=list, blank=True, help_text="Node labels that make its domains of close nodes, widest first."
    )
    topology_revision = models.PositiveIntegerField(
        default=0, help_text="Counts changes of settings that a scheduler gets and never changes itself."
    )
    created_by = models.CharField(max_length=254, blank=True)
    updated_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["cluster", "-is_default", "name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="clusters_pool_name_once"),
            models.UniqueConstraint(fields=["cluster", "label_key", "label_value"], name="clusters_pool_label_once"),
            models.UniqueConstraint(
                fields=["cluster"], condition=models.Q(is_default=True), name="clusters_pool_one_default"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Node(models.Model):
    """A node as it was last observed."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    pool = models.ForeignKey(NodePool, on_delete=models.SET_NULL, null=True, blank=True, related_name="nodes")
    uid = models.CharField(max_length=64)
    name = models.CharField(max_length=253)
    labels = models.JSONField(default=dict)
    gpu_type = models.CharField(max_length=100, blank=True)
    gpu_milli = models.PositiveBigIntegerField(default=0, help_text="Allocatable GPUs in thousandths.")
    cpu_milli = models.PositiveBigIntegerField(default=0, help_text="Allocatable CPU in millicores.")
    memory_bytes = models.PositiveBigIntegerField(default=0)
    max_pods = models.PositiveIntegerField(null=True, blank=True, help_text="Allocatable pods; empty: not said.")
    more_amounts = models.JSONField(
        default=dict, blank=True, help_text="Allocatable ephemeral storage in bytes, and devices but whole GPUs."
    )
    taints = models.JSONField(default=list, blank=True, help_text="What keeps pods away: key, value, effect.")
    ready = models.BooleanField(default=True)
    unschedulable = models.BooleanField(default=False)
    resource_version = models.CharField(max_length=32, blank=True)
    joined_at = models.DateTimeField(null=True, blank=True, help_text="Its creationTimestamp.")
    observed_at = models.DateTimeField()

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="clusters_node_name_once")]
        indexes = [models.Index(fields=["name", "id"], name="clusters_node_by_name")]  # lists over all clusters

    def __str__(self) -> str:
        return self.name


class DirtyOwner(models.Model):
    """From this generation on an owner's objects may differ from the database. The empty owner: everything.

    A new mark gets a later generation, and then `only` counts no more: all of the owner's may differ.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="touches")
    owner = models.CharField(max_length=100, blank=True)
    generation = models.PositiveBigIntegerField()
    only = models.TextField(
        blank=True, db_default="", help_text="Objects that alone were touched, one a line; empty: any of the owner's."
    )
    only_at = models.PositiveBigIntegerField(db_default=0, help_text="The generation of which that is said.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "owner"], name="clusters_touch_once")]

    def __str__(self) -> str:
        return f"{self.owner or 'everything'} at {self.generation}"
