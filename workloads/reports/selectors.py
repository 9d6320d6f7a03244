"""Reports of a subject, the scopes that a report covers, and their samples."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from django.db.models import Model, QuerySet

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import Sample
from clusters.watch.selectors import ALL, CLUSTER, NODE_POOL, RESOLUTIONS, SampleOwner, resolution_for
from portal.kit.security.actors import Actor
from tenants.access.selectors import visible_departments, visible_projects
from tenants.organisation.models import Department, Project
from tenants.usage.selectors import DEPARTMENT, PROJECT
from workloads.reports.models import Report, ReportGroup
from workloads.reports.rules import (
    CLUSTER_ID,
    DEPARTMENT_NAME,
    PROJECT_NAME,
    ReportLine,
    ReportPlace,
    Stretch,
    Total,
    named_places,
    total_of,
)

MOST_SAMPLES: Final = 300_000
"""Samples that one report reads at most, as far as a coarser grain can serve it."""
TOGETHER: Final = 100
"""Places that are read in one query."""
NOTHING: Final = Total()


def reports_of(actor: Actor) -> QuerySet[Report]:
    """The subject's own, without their files. By a key that is bound to one place: those asked for by such a key."""
    rows = Report.objects.filter(subject_kind=str(actor.kind), subject_id=actor.id).defer("content")
    if actor.limits and actor.limits.bound:
        rows = rows.filter(project_id=actor.limits.project_id, department_id=actor.limits.department_id)
    return rows


def stretch_of(report: Report, places: Sequence[ReportPlace], *, now: datetime) -> Stretch:
    """Its time, read as finely as so many places allow."""
    grain = resolution_for(len(places), report.end - report.start, most=MOST_SAMPLES)
    return Stretch(report.start, report.end, now, grain)


def places_of(*, group_by: str, filter_by: Sequence[str], actor: Actor) -> list[ReportPlace]:
    """What the actor may see of what was asked for, one after the other: the smallest that group or filter names.

    Clusters and node pools are everybody's to look at, as their metrics are; projects and departments are not.
    """
    named = named_places(filter_by)
    split = group_by == ReportGroup.NODE_POOL
    if group_by == ReportGroup.PROJECT or PROJECT_NAME in named:
        return _projects(named, actor, _pools(named) if split else {})
    if group_by == ReportGroup.DEPARTMENT or DEPARTMENT_NAME in named:
        return _departments(named, actor, _pools(named) if split else {})
    return _node_pools(named) if split else _clusters(named)


def lines_of(places: Sequence[ReportPlace], stretch: Stretch) -> Iterator[ReportLine]:
    """In the order of the places. One query for each hundred."""
    for first in range(0, len(places), TOGETHER):
        part = places[first : first + TOGETHER]
        totals = dict(_totals(part, stretch))
        for place in part:
            yield from _lines(place, totals.get(place.owner.id, NOTHING), stretch)


def keys_of_places(places: Sequence[ReportPlace]) -> dict[str, list[str]]:
    """Keys of the projects and departments among them: who may not see those any more does not get the file."""
    kinds = {kind: [each.owner.id for each in places if each.owner.kind == kind] for kind in (PROJECT, DEPARTMENT)}
    return {kind: keys for kind, keys in kinds.items() if keys}


def may_read(report: Report, actor: Actor) -> bool:
    """Does the actor still see whatever of it is still there?"""
    seen = {PROJECT: visible_projects(actor), DEPARTMENT: visible_departments(actor)}
    models: Mapping[str, type[Model]] = {PROJECT: Project, DEPARTMENT: Department}
    return not any(
        models[kind]._default_manager.filter(pk__in=keys).exclude(pk__in=seen[kind].values("pk")).exists()
        for kind, keys in report.covered.items()
    )


def _totals(places: Sequence[ReportPlace], stretch: Stretch) -> Iterator[tuple[str, Total]]:
    kind = places[0].owner.kind
    rows = Sample.objects.filter(
        kind=kind,
        owner__in=[place.owner.id for place in places],
        grain__gte=stretch.grain,
        at__gte=stretch.start - RESOLUTIONS[-1].every,
        at__lt=min(stretch.end, stretch.now),
    )
    found = rows.order_by("owner", "at").values_list("owner", "at", "figures").iterator(chunk_size=2000)
    for owner, samples in groupby(found, key=itemgetter(0)):
        points = [(at, figures) for _owner, at, figures in samples]
        yield owner, total_of(points, stretch, has_queues=kind in {PROJECT, DEPARTMENT})


def _lines(place: ReportPlace, total: Total, stretch: Stretch) -> Iterator[ReportLine]:
    if not place.pools:
        yield ReportLine(place, ALL, total, stretch)
        return
    for pool in sorted({*place.pools, *total.sums} - {ALL}):
        yield ReportLine(place, pool, total, stretch)


def _projects(named: Mapping[str, str], actor: Actor, pools: Mapping[Any, tuple[str, ...]]) -> list[ReportPlace]:
    rows = visible_projects(actor).filter(
        **_where(named, {PROJECT_NAME: "name", DEPARTMENT_NAME: "department__name", CLUSTER_ID: "cluster"})
    )
    found = rows.order_by("cluster__name", "department__name", "name").values_list(
        "pk", "name", "department__name", "cluster__name", "cluster"
    )
    return [
        ReportPlace(SampleOwner(PROJECT, str(pk)), cluster, department, name, pools=pools.get(key, ()))
        for pk, name, department, cluster, key in found
    ]


def _departments(named: Mapping[str, str], actor: Actor, pools: Mapping[Any, tuple[str, ...]]) -> list[ReportPlace]:
    rows = visible_departments(actor).filter(**_where(named, {DEPARTMENT_NAME: "name", CLUSTER_ID: "cluster"}))
    found = rows.order_by("cluster__name", "name").values_list("pk", "name", "cluster__name", "cluster")
    return [
        ReportPlace(SampleOwner(DEPARTMENT, str(pk)), cluster, name, pools=pools.get(key, ()))
        for pk, name, cluster, key in found
    ]


def _clusters(named: Mapping[str, str]) -> list[ReportPlace]:
    rows = Cluster.objects.filter(**_where(named, {CLUSTER_ID: "pk"})).order_by("name").values_list("pk", "name")
    return [ReportPlace(SampleOwner(CLUSTER, str(pk)), name) for pk, name in rows]


def _node_pools(named: Mapping[str, str]) -> list[ReportPlace]:
    rows = NodePool.objects.filter(**_where(named, {CLUSTER_ID: "cluster"})).order_by("cluster__name", "name")
    found = rows.values_list("pk", "name", "cluster__name")
    return [ReportPlace(SampleOwner(NODE_POOL, str(pk)), cluster, pool=name) for pk, name, cluster in found]


def _pools(named: Mapping[str, str]) -> Mapping[Any, tuple[str, ...]]:
    """Names of the node pools of each cluster."""
    rows = NodePool.objects.filter(**_where(named, {CLUSTER_ID: "cluster"})).order_by("name")
    found: dict[Any, tuple[str, ...]] = {}
    for cluster, name in rows.values_list("cluster", "name"):
        found[cluster] = (*found.get(cluster, ()), name)
    return found


def _where(named: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, str]:
    return {column: named[field] for field, column in columns.items() if field in named}
