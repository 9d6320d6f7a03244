"""Pods of workloads as an actor sees them: those of the projects that are theirs to see, gone ones on request."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from clusters.models import ObservedPod
from portal.core.actors import Actor
from tenants.models import Project
from tenants.permissions import visible_projects
from workloads.models import Workload
from workloads.owners import workload_ids

Home = tuple[UUID, str]
"""A cluster's id and a namespace in it: where a project lives."""


def visible_pods(actor: Actor) -> QuerySet[ObservedPod]:
    """Pods of workloads, live and gone, in the namespaces of the actor's projects."""
    homes = visible_projects(actor).filter(cluster=OuterRef("cluster"), namespace=OuterRef("namespace"))
    return ObservedPod.objects.exclude(owner_id="").filter(Exists(homes))


def homes_of(pods: Iterable[ObservedPod]) -> Mapping[Home, Project]:
    """The projects in whose namespaces these pods are, in one query."""
    homes = {(pod.cluster_id, pod.namespace) for pod in pods}
    wanted = Q(pk__in=[])
    for cluster in {cluster for cluster, _ in homes}:
        wanted |= Q(cluster=cluster, namespace__in=[space for at, space in homes if at == cluster])
    return {(project.cluster_id, project.namespace): project for project in Project.objects.filter(wanted)}


def owners_of(pods: Iterable[ObservedPod]) -> Mapping[str, Workload]:
    """Workloads by the owner id on their pods, in one query."""
    ids = workload_ids({pod.owner_id for pod in pods})
    rows = Workload.objects.filter(pk__in=ids).only("name", "node_pools", "spec")
    return {str(row.pk): row for row in rows}
