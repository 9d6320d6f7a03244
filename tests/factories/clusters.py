"""Minimal valid rows of the cluster mechanism. Clusters are reached in memory unless a test says otherwise."""

import uuid
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.sync.models import SyncRun
from clusters.watch.models import ObservedPod


class ClusterFactory(DjangoModelFactory[Cluster]):
    """An active KAI cluster that was never synced."""

    class Meta:
        model = Cluster

    name = factory.Sequence(lambda n: f"cluster-{n}")
    flavour = "kai"
    backend = "memory"


class NodePoolFactory(DjangoModelFactory[NodePool]):
    """A pool made by Rung's own label."""

    class Meta:
        model = NodePool

    cluster = factory.SubFactory(ClusterFactory)
    name = factory.Sequence(lambda n: f"pool-{n}")
    label_value = factory.SelfAttribute("name")


class NodeFactory(DjangoModelFactory[Node]):
    """A ready node of eight GPUs, seen just now."""

    class Meta:
        model = Node

    cluster = factory.SubFactory(ClusterFactory)
    uid = factory.LazyFunction(lambda: str(uuid.uuid4()))
    name = factory.Sequence(lambda n: f"node-{n}")
    gpu_milli = 8000
    cpu_milli = 96_000
    memory_bytes = 2**40
    observed_at = factory.LazyFunction(timezone.now)


class ObservedPodFactory(DjangoModelFactory[ObservedPod]):
    """A running one-GPU pod of class low."""

    class Meta:
        model = ObservedPod

    cluster = factory.SubFactory(ClusterFactory)
    uid = factory.LazyFunction(lambda: str(uuid.uuid4()))
    namespace = "runai-team"
    name = factory.Sequence(lambda n: f"pod-{n}")
    phase = "Running"
    priority_class = "low"
    priority = 40
    gpu_milli = 1000
    created_at = factory.LazyFunction(timezone.now)
    observed_at = factory.LazyFunction(timezone.now)


class SyncRunFactory(DjangoModelFactory[SyncRun]):
    """A live run whose worker has just shown life."""

    class Meta:
        model = SyncRun

    cluster = factory.SubFactory(ClusterFactory)
    started_at = factory.LazyFunction(timezone.now)
    heartbeat_at = factory.LazyFunction(timezone.now)


def build_cluster(**fields: Any) -> Cluster:
    """A stored cluster, typed."""
    cluster: Cluster = ClusterFactory.create(**fields)
    return cluster
