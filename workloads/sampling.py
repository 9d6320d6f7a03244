"""How many workloads there are and how long those that wait have waited, as it is sampled every minute."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Case, Count, DurationField, ExpressionWrapper, F, Sum, Value, When

from clusters.models import Cluster
from clusters.samples import ALL, CLUSTER, NODE_POOL, Figures, Name, Owner
from tenants.models import Department, Project
from tenants.sampling import DEPARTMENT, PROJECT
from workloads.lifecycle import LIVE, WAITING
from workloads.models import Workload

COUNTED: Final = (Name.WORKLOADS, Name.WAITING, Name.WAITED)


def sample(cluster: Cluster, /, *, at: datetime) -> Mapping[Owner, Figures]:
    """Workloads that have not ended, of the cluster, its pools, departments and projects. A fixed number of queries."""
    pools = dict(cluster.node_pools.values_list("name", "pk"))
    found: defaultdict[Owner, defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for owner in _everybody(cluster, pools):
        found[owner][ALL] = dict.fromkeys(COUNTED, 0)
    for row in _counted(cluster, at):
        pool = row["pool_name"]
        numbers = (row["number"], row["waiting"], row["before"] + (row["now"] or timedelta()).total_seconds())
        whole = [Owner(CLUSTER, str(cluster.pk)), *([Owner(NODE_POOL, str(pools[pool]))] if pool in pools else [])]
        split = [Owner(PROJECT, str(row["project"])), Owner(DEPARTMENT, str(row["project__department"]))]
        places = [(owner, ALL) for owner in (*whole, *split)] + [(owner, pool) for owner in split if pool]
        for owner, part in places:
            for name, number in zip(COUNTED, numbers, strict=True):
                found[owner][part][name] = found[owner][part].get(name, 0) + number
    return found


def _everybody(cluster: Cluster, pools: Mapping[str, int]) -> list[Owner]:
    keys = {
        NODE_POOL: list(pools.values()),
        DEPARTMENT: Department.objects.filter(cluster=cluster).values_list("pk", flat=True),
        PROJECT: Project.objects.filter(cluster=cluster).values_list("pk", flat=True),
    }
    return [Owner(CLUSTER, str(cluster.pk)), *(Owner(kind, str(pk)) for kind, found in keys.items() for pk in found)]


def _counted(cluster: Cluster, at: datetime) -> Iterable[Mapping[str, Any]]:
    """Live rows are found by their phase, so that a million ended ones cost nothing."""
    waits = When(phase__in=WAITING, then=ExpressionWrapper(Value(at) - F("phase_at"), DurationField()))
    rows = Workload.objects.filter(deleted_at__isnull=True, phase__in=LIVE, project__cluster=cluster)
    counted = rows.values("project", "project__department", "pool_name").annotate(
        number=Count("pk"),
        waiting=Count(Case(When(phase__in=WAITING, then=1))),
        before=Sum(Case(When(phase__in=WAITING, then=F("pending_seconds")), default=0)),
        now=Sum(Case(waits, output_field=DurationField())),
    )
    return counted.order_by()
