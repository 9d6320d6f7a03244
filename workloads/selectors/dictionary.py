"""The dictionary and the types as pages show them, with how each cluster stands."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from clusters.models import Cluster, ClusterState, Drift
from clusters.selectors import comparison_of
from workloads.models import Priority, Workload, WorkloadType


@dataclass(frozen=True, slots=True)
class Dot:
    """How one cluster stands: synced, changing, drifted, paused or unknown; `detail` says what differs, or why."""

    cluster: str
    state: str
    detail: str = ""
    simulated: bool = False
    synced_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DictionaryRow:
    """One entry. `types`: titles of the types it is the default of."""

    id: str
    name: str
    value: int
    preemption_policy: str
    description: str
    source: str
    alias_of: str
    retired: bool
    types: tuple[str, ...]
    dots: tuple[Dot, ...]

    @property
    def offered(self) -> bool:
        """Shown in forms."""
        return not self.alias_of and not self.retired


def dictionary_rows() -> list[DictionaryRow]:
    """Every entry, highest value first, in a constant number of queries."""
    clusters = list(Cluster.objects.all())
    drifts = _drifts()
    rows = Priority.objects.select_related("alias_of").prefetch_related("types").order_by("-value", "name")
    return [
        DictionaryRow(
            id=str(row.pk),
            name=row.name,
            value=row.value,
            preemption_policy=row.preemption_policy,
            description=row.description,
            source=row.source,
            alias_of=row.alias_of.name if row.alias_of else "",
            retired=row.retired_at is not None,
            types=tuple(sorted(type_.title for type_ in row.types.all() if type_.withdrawn_at is None)),
            dots=tuple(_dot(cluster, drifts[cluster.pk].get(row.name, "")) for cluster in clusters),
        )
        for row in rows
    ]


def sync_state_of_priorities() -> list[Dot]:
    """One dot per cluster for the dictionary as a whole."""
    drifts = _drifts()
    return [_dot(cluster, "; ".join(drifts[cluster.pk].values())) for cluster in Cluster.objects.all()]


def _drifts() -> dict[object, dict[str, str]]:
    """Cluster id to what differs, by the name of the PriorityClass."""
    found: dict[object, dict[str, str]] = defaultdict(dict)
    for drift in Drift.objects.filter(kind__startswith="PriorityClass"):
        found[drift.cluster_id][drift.name] = drift.message or f"{drift.name}: {drift.category}"
    return found


def _dot(cluster: Cluster, drift: str) -> Dot:
    compared = comparison_of(cluster)
    state: str = compared.state
    detail = compared.why
    if cluster.state == ClusterState.PAUSED:
        state, detail = "paused", cluster.paused_reason
    elif drift:
        state, detail = "drifted", drift
    elif state == "never":
        state = "changing"
    return Dot(cluster.name, state, detail, cluster.is_simulated, compared.at)


def workload_types(*, withdrawn: bool = False) -> QuerySet[WorkloadType]:
    """The types that are offered, or those that are withdrawn, with category and priority."""
    return WorkloadType.objects.filter(withdrawn_at__isnull=not withdrawn).select_related("category", "priority")


def type_rows(*, withdrawn: bool = False) -> list[WorkloadType]:
    """The same, with how many workloads exist of each (`used_by`) and have running pods (`running`)."""
    there = Workload.objects.filter(deleted_at__isnull=True)
    rows = workload_types(withdrawn=withdrawn).annotate(
        used_by=_count(there), running=_count(there.filter(running_pods__gt=0))
    )
    return list(rows.order_by("-native", "category__name", "name"))


def _count(workloads: QuerySet[Workload]) -> Coalesce:
    of_type = workloads.filter(type=OuterRef("pk")).order_by().values("type")
    return Coalesce(Subquery(of_type.annotate(count=Count("pk")).values("count")), 0)
