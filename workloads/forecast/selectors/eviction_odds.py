"""How often preemptible runs of a node pool were evicted soon after their start, by what was recorded of them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.utils import timezone

from clusters.inventory.models import Cluster
from scheduling.model.preemptibility import Preemptibility
from workloads.forecast.rules.forecast import PERIOD, WITHIN, EvictionOdds
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.state.models import Workload
from workloads.state.rules import HOLDING

ENOUGH: Final = 20
"""Of fewer runs nothing is said."""
MOST_RUNS: Final = 2_000


def eviction_odds(cluster: Cluster, pool: str, preemptibility: str) -> EvictionOdds | None:
    """None: it is not evicted, or too few runs are known. Runs that have not lasted long enough yet do not count."""
    if preemptibility == Preemptibility.NON_PREEMPTIBLE:
        return None
    now = timezone.now()
    fates = [*_evicted_runs(cluster, pool, now), *_other_runs(cluster, pool, now)]
    evicted = [cause for cause in fates if cause]
    if len(fates) < ENOUGH:
        return None
    return EvictionOdds(pool, len(fates), len(evicted), evicted.count(PreemptionCause.RECLAIM))


def _evicted_runs(cluster: Cluster, pool: str, now: datetime) -> Iterator[str]:
    """Of each run that an eviction ended its cause; empty: it had lasted longer."""
    rows = PreemptionRecord.objects.filter(
        cluster=cluster, at__gte=now - PERIOD, first=None, victim__pool_name=pool, cause__in=CAUSES
    )
    for at, ran, cause in rows.values_list("at", "ran_seconds", "cause")[:MOST_RUNS]:
        if at - timedelta(seconds=ran) >= now - PERIOD:
            yield cause if timedelta(seconds=ran) <= WITHIN else ""


CAUSES: Final = (PreemptionCause.PREEMPT, PreemptionCause.RECLAIM)


def _other_runs(cluster: Cluster, pool: str, now: datetime) -> Iterator[str]:
    """One empty cause for each newest run of a workload that was not evicted within the hours."""
    rows = Workload.objects.filter(project__cluster=cluster, pool_name=pool, started_at__gte=now - PERIOD)
    rows = rows.exclude(preemptibility=Preemptibility.NON_PREEMPTIBLE).order_by("-started_at")
    known = list(rows.values_list("pk", "started_at", "phase")[:MOST_RUNS])
    last = _last_evictions(cluster, now)
    for pk, started, phase in known:
        if started is None or (phase in HOLDING and now - started < WITHIN):
            continue  # it is not decided yet
        if last.get(pk, started) <= started:
            yield ""


def _last_evictions(cluster: Cluster, now: datetime) -> dict[UUID, datetime]:
    rows = PreemptionRecord.objects.filter(cluster=cluster, at__gte=now - PERIOD).order_by("at")
    return dict(rows.values_list("victim_id", "at"))
