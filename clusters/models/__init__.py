"""Rows of the cluster mechanism, split by topic."""

from clusters.models.credentials import ClusterCredential, CredentialKind
from clusters.models.estate import Cluster, ClusterState, Node, NodePool, Placement
from clusters.models.former import FormerFlavour, LeftBehind
from clusters.models.gpu_use import GpuUse, MetricsSource
from clusters.models.observed import ClusterEvent, ObservedObject, ObservedPod, ObserverLease, ObserverSeat
from clusters.models.samples import Average, Sample
from clusters.models.sandbox import SandboxClock, SandboxObject
from clusters.models.sync import Adoption, Drift, DriftKind, SyncOutcome, SyncRun, SyncState, Touch
from clusters.models.worker_slot import WorkerSlot

__all__ = [
    "Adoption",
    "Average",
    "Cluster",
    "ClusterCredential",
    "ClusterEvent",
    "ClusterState",
    "CredentialKind",
    "Drift",
    "DriftKind",
    "FormerFlavour",
    "GpuUse",
    "LeftBehind",
    "MetricsSource",
    "Node",
    "NodePool",
    "ObservedObject",
    "ObservedPod",
    "ObserverLease",
    "ObserverSeat",
    "Placement",
    "Sample",
    "SandboxClock",
    "SandboxObject",
    "SyncOutcome",
    "SyncRun",
    "SyncState",
    "Touch",
    "WorkerSlot",
]
