"""Who would be evicted and what it costs, whose eviction would cost less, and how often runs of a pool are evicted."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from clusters.flavours.registry import KEEPS_NON_PREEMPTIBLE, flavour_for
from clusters.inventory.models import Cluster
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import Actor
from scheduling.forecast.cycle import preview
from scheduling.forecast.headroom import Sharing
from scheduling.model.decisions import Evict, Outcome
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.min_runtime import any_min_runtime
from scheduling.state.workspace import OutOfTime
from tenants.access.selectors import Access, access_for, visible_among
from tenants.quotas.selectors.headroom import sharing_on
from workloads.forecast.rules.estimates import PERIOD, WITHIN, CheaperVictim, EvictionOdds, RunOdds
from workloads.forecast.rules.forecast import ForecastBasis, ForecastVictim, QuotaEffect, quota_effect
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.pod_groups import ABOVE, ABOVE_IN_FILE
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.state.models import Workload
from workloads.state.rules import CheckpointMedians, cost_at_risk
from workloads.state.selectors.usage import known_medians
from workloads.state.selectors.workloads import workload_ids

OTHERS: Final = "another project"
FOREIGN: Final = "another tenant's pod"
NO_CLASS: Final = "no class"
MOST_RUNS: Final = 2_000
CAUSES: Final = (PreemptionCause.PREEMPT, PreemptionCause.RECLAIM)
RunOutcome = tuple[str, bool | None]
"""Of a run: the cause of its eviction within the hours, else empty; whether it started over quota, if recorded."""


def eviction_odds(cluster: Cluster, pool: str, preemptibility: str) -> EvictionOdds | None:
    """Of runs with this preemptibility; None: its scheduler never evicts it.

    Runs that began within the hours do not count, whatever became of them: of those only the evicted ones are decided.
    """
    fixed = preemptibility == Preemptibility.NON_PREEMPTIBLE
    if fixed and cluster.flavour in KEEPS_NON_PREEMPTIBLE:
        return None
    non_preemptible, now = Q(preemptibility=Preemptibility.NON_PREEMPTIBLE), timezone.now()
    runs = Workload.objects.filter(
        non_preemptible if fixed else ~non_preemptible, project__cluster=cluster, pool_name=pool
    )
    fates = [*_evicted_runs(cluster, runs, now), *_other_runs(cluster, runs, now)]
    over, within = (_odds([cause for cause, was in fates if was is wanted]) for wanted in (True, False))
    return EvictionOdds(pool, over, within, _odds([cause for cause, _over in fates]), preemptible=not fixed)


def quota_effect_of(cluster: Cluster, outcome: Outcome, preemptibility: Preemptibility) -> QuotaEffect:
    """Whether it starts over quota, and who may then be reclaimed."""
    return quota_effect(
        cluster.flavour,
        project_over=outcome.over_quota,
        preemptible=preemptibility is not Preemptibility.NON_PREEMPTIBLE,
        reclaims=sharing_on(cluster) is not Sharing.TAKEN,
    )


def _odds(causes: Sequence[str]) -> RunOdds:
    return RunOdds(len(causes), len([cause for cause in causes if cause]), causes.count(PreemptionCause.RECLAIM))


def _evicted_runs(cluster: Cluster, runs: QuerySet[Workload], now: datetime) -> Iterator[RunOutcome]:
    """Each run that an eviction ended."""
    ended = PreemptionRecord.objects.filter(cluster=cluster, at__gte=now - PERIOD, first=None)
    rows = ended.filter(victim__in=runs, cause__in=CAUSES)
    for at, ran, cause, over in rows.values_list("at", "ran_seconds", "cause", "started_over_quota")[:MOST_RUNS]:
        if now - PERIOD <= at - timedelta(seconds=ran) <= now - WITHIN:
            yield cause if timedelta(seconds=ran) <= WITHIN else "", over


def _other_runs(cluster: Cluster, runs: QuerySet[Workload], now: datetime) -> Iterator[RunOutcome]:
    """Each newest run of a workload that was not evicted within the hours."""
    rows = runs.filter(started_at__range=(now - PERIOD, now - WITHIN)).order_by("-started_at")
    known = list(rows.values_list("pk", "started_at", "started_over_quota")[:MOST_RUNS])
    last = _last_evictions(cluster, now)
    for pk, started, over in known:
        if started and last.get(pk, started) <= started:
            yield "", over


def _last_evictions(cluster: Cluster, now: datetime) -> dict[UUID, datetime]:
    rows = PreemptionRecord.objects.filter(cluster=cluster, at__gte=now - PERIOD).order_by("at")
    return dict(rows.values_list("victim_id", "at"))


def named_victims(cluster: Cluster, actor: Actor, now: datetime, outcome: Outcome) -> tuple[ForecastVictim, ...]:
    """One per workload, however many of its pods go."""
    by_owner: dict[str, list[Evict]] = defaultdict(list)
    for evict in outcome.victims:
        by_owner[workload_of(evict.victim.name) or evict.victim.name].append(evict)
    rows = Workload.objects.filter(pk__in=workload_ids(by_owner)).defer("raw", "discarded", "applied_scheduling")
    found = {str(row.pk): row for row in rows.select_related("project__department", "priority", "type")}
    access = access_for(actor)
    visible = visible_among(actor, {row.project_id for row in found.values()})
    foreign = [owner.removeprefix(":") for owner in by_owner if owner.startswith(":")]
    pods = {f":{pod.uid}": pod for pod in foreign_pods(cluster, foreign, access)} if foreign else {}
    medians = known_medians(now) if by_owner else CheckpointMedians({})
    return tuple(
        _foreign_victim(now, pods.get(owner), evicts, medians)
        if owner.startswith(":")
        else _victim(now, found.get(owner), evicts, visible, medians)
        for owner, evicts in by_owner.items()
    )


def _foreign_victim(
    now: datetime, pod: ObservedPod | None, evicts: list[Evict], medians: CheckpointMedians
) -> ForecastVictim:
    """A pod that Rung did not make; `pod` is None where the actor may not know it."""
    group = evicts[0].victim
    label = f"{pod.namespace}/{pod.name}" if pod else FOREIGN
    priority = (pod.priority_class or NO_CLASS) if pod else ""
    hours = _at_risk(now, None, group, group.total.gpu, medians)
    return ForecastVictim(None, label, "", priority, group.priority, group.total.gpu, hours, _moved(evicts))


def _victim(
    now: datetime, row: Workload | None, evicts: list[Evict], visible: set[int], medians: CheckpointMedians
) -> ForecastVictim:
    gpus = sum(pod.requests.gpu for evict in evicts for pod in evict.victim.pods if pod.name in evict.pods)
    group = evicts[0].victim
    hours = _at_risk(now, row, group, gpus, medians)
    moved = _moved(evicts)
    if row is None or row.project_id not in visible:
        label = ABOVE_IN_FILE if group.name.startswith(ABOVE) else OTHERS
        return ForecastVictim(None, label, "", "", group.priority, gpus, hours, moved)
    return ForecastVictim(row, row.name, row.project.name, row.priority.name, row.priority_value, gpus, hours, moved)


def _moved(evicts: list[Evict]) -> bool:
    """Has the scheduler found another place for every pod?"""
    return all(pod in evict.moves_to for evict in evicts for pod in evict.pods)


def _at_risk(now: datetime, row: Workload | None, group: PodGroup, gpus: int, medians: CheckpointMedians) -> float:
    """GPU-hours, as `cost_at_risk` counts them."""
    if group.started is None:
        return 0.0
    started = datetime.fromtimestamp(group.started / 1_000_000, tz=now.tzinfo)
    notes, category = (row.spec.get("annotations"), row.category) if row else (None, "")
    return cost_at_risk(gpus, notes, category, started=started, now=now, medians=medians).gpu_hours


def foreign_pods(cluster: Cluster, uids: Iterable[str], access: Access) -> QuerySet[ObservedPod]:
    """Of these pods, those in namespaces of projects that the subject may view; all for a platform admin."""
    pods = ObservedPod.objects.filter(cluster=cluster, uid__in=list(uids))
    if access.is_platform_admin:
        return pods
    return pods.filter(namespace__in=access.projects().filter(cluster=cluster).values("namespace"))


TRIED: Final = 2
"""So many cheaper victims are tried with the model."""
MOST_COMPARED: Final = 200
WORTH: Final = 0.1
"""GPU-hours below which a smaller loss is not mentioned; it must also be at most half."""


def cheaper_victim(
    basis: ForecastBasis, victims: Sequence[ForecastVictim], cluster: Cluster, actor: Actor, now: datetime
) -> CheaperVictim | None:
    """A workload that the actor may see and whose eviction, in place of the costliest victim's, would lose less.

    It has the queue, pool and priority of that victim, may be evicted for the same reason, and holds at least as many
    GPUs; the scheduler's model confirms that the candidate then starts without another eviction. Work that a minimum
    runtime may protect is left out.
    """
    costly = max((each for each in victims if not each.moved), key=lambda each: each.gpu_hours_at_risk, default=None)
    if costly is None or costly.workload is None or any_min_runtime(basis.snapshot):
        return None
    key, outcome = str(costly.workload.pk), basis.outcome
    evicted = next(each.victim for each in outcome.victims if workload_of(each.victim.name) == key)
    others = [each for each in outcome.victims if workload_of(each.victim.name) != key]
    if any(len(each.pods) < len(each.victim.pods) for each in others):
        return None  # the snapshot without these groups would have more room than their evictions make
    chosen = {workload_of(each.victim.name) for each in outcome.victims}
    groups = _held_like(basis.snapshot, evicted, chosen, costly.gpu_milli)
    for pk, label, hours in _cheapest(groups, costly, actor, now)[:TRIED]:
        gone = {each.victim.name for each in others} | {each.name for each in groups[pk]}
        if _makes_room(basis, gone, cluster.flavour):
            title, at_risk = str(flavour_for(cluster.flavour).title), costly.gpu_hours_at_risk
            return CheaperVictim(label, pk, hours, costly.label, at_risk, cluster.flavour, title)
    return None


def _makes_room(basis: ForecastBasis, gone: Collection[str], flavour: str) -> bool:
    """Whether as many pods of the candidate start without further evictions; False where the time is over."""
    try:
        found = preview(basis.snapshot.without_groups(gone), *basis.candidates, flavour=flavour)
    except OutOfTime:
        return False
    return not found.victims and found.starting >= basis.outcome.starting + basis.outcome.coming


def _held_like(
    snapshot: Snapshot, evicted: PodGroup, chosen: Collection[str], gpu_milli: int
) -> dict[str, list[PodGroup]]:
    """Running groups by workload, of at most `MOST_COMPARED` workloads that could be evicted instead."""
    found: dict[str, list[PodGroup]] = defaultdict(list)
    wanted = (evicted.queue, evicted.pool, evicted.priority, evicted.preemptible)
    for each in snapshot.groups:
        like = wanted == (each.queue, each.pool, each.priority, each.preemptible)
        runs = each.started is not None and len(each.holding) == len(each.pods)
        if like and runs and (owner := workload_of(each.name)) and owner not in chosen:
            found[owner].append(each)
    large = {owner: own for owner, own in found.items() if sum(each.total.gpu for each in own) >= gpu_milli}
    return dict(islice(large.items(), MOST_COMPARED))


def _cheapest(
    groups: Mapping[str, Sequence[PodGroup]], costly: ForecastVictim, actor: Actor, now: datetime
) -> list[tuple[str, str, float]]:
    """Key, name and GPU-hours at risk of those that would lose clearly less, the least first."""
    rows = Workload.objects.filter(pk__in=workload_ids(groups), project__in=access_for(actor).projects())
    known = list(rows.only("name", "category", "spec"))
    medians = known_medians(now) if known else CheckpointMedians({})
    most, found = costly.gpu_hours_at_risk, []
    for row in known:
        own = groups[str(row.pk)]
        hours = sum(_at_risk(now, row, each, each.total.gpu, medians) for each in own)
        if hours <= most / 2 and most - hours >= WORTH:
            found.append((str(row.pk), row.name, hours))
    return sorted(found, key=lambda each: each[2])
