"""Rows of the cluster mechanism, split by topic."""

from clusters.connection.models import ClusterCredential, CredentialKind, MetricsSource, WorkerSlot
from clusters.inventory.models import Cluster, ClusterState, DirtyOwner, Node, NodePool, Placement
from clusters.sandbox.models import SandboxClock, SandboxObject
from clusters.sync.models import (
    Adoption,
    Drift,
    DriftKind,
    FormerFlavour,
    OrphanedObject,
    SyncOutcome,
    SyncRun,
    SyncState,
)
from clusters.watch.models import (
    Average,
    ClusterEvent,
    GpuUse,
    ObservedObject,
    ObservedPod,
    ObserverLease,
    ObserverSeat,
    Sample,
)

__all__ = [
    "Adoption",
    "Average",
    "Cluster",
    "ClusterCredential",
    "ClusterEvent",
    "ClusterState",
    "CredentialKind",
    "DirtyOwner",
    "Drift",
    "DriftKind",
    "FormerFlavour",
    "GpuUse",
    "MetricsSource",
    "Node",
    "NodePool",
    "ObservedObject",
    "ObservedPod",
    "ObserverLease",
    "ObserverSeat",
    "OrphanedObject",
    "Placement",
    "Sample",
    "SandboxClock",
    "SandboxObject",
    "SyncOutcome",
    "SyncRun",
    "SyncState",
    "WorkerSlot",
]
