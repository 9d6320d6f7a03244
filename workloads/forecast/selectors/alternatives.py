"""Alternatives that start at once: the model with one thing changed, and what each would evict."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Final

from django.utils import timezone

from clusters.connection.services.scheduler_config import unserved_because
from clusters.inventory.models import Cluster, NodePool
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import ValidationFailed
from portal.kit.pages.formatting import gpus_text
from portal.kit.security.actors import Actor
from scheduling.forecast.cycle import FLAVOURS, preview
from scheduling.forecast.quota_only import unplaced_pods
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.preemptibility import THRESHOLD, Preemptibility
from scheduling.model.resources import DIMENSIONS, MILLI, Limit, Resources, decimal_text
from scheduling.model.snapshot import Snapshot
from scheduling.state.workspace import OutOfTime
from tenants.organisation.models import Project
from workloads.dictionary.rules.resolution import Effective, PriorityEntry, Source
from workloads.dictionary.selectors import current_dictionary, effective_as, entry_of
from workloads.forecast.rules.forecast import Alternative, ForecastVictim
from workloads.forecast.rules.messages import GIB, amount_text, gpu_time_text, pend_sentence
from workloads.forecast.selectors.eviction_risk import named_victims
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.placement_validation import missing_on_nodes
from workloads.forecast.selectors.pod_groups import PodGroupRequest, candidate_request, groups_of, pod_group_request
from workloads.forecast.selectors.pool_selection import (
    check_priority_cap,
    pick_pool,
    queue_labels,
    quota_hold_for,
    quota_hold_of,
    tried_pools,
)
from workloads.forecast.selectors.runtime_rules import expected_deferral
from workloads.forecast.selectors.snapshot import observed_cluster, snapshot_of
from workloads.forecast.selectors.time_budget import TOO_LONG, time_budget, until_out_of_time
from workloads.intake import WorkloadSpec
from workloads.policies.rules.merge import Merged
from workloads.policies.selectors import policy_for
from workloads.policies.services import broken_rules, type_of
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import NO_CONTROLLER, WAITING
from workloads.state.selectors.workloads import may_manage

NOT_ALL_TRIED: Final = f"Not all alternatives were tried: {TOO_LONG}."


WHOLE: Final[Mapping[str, int]] = {"gpu": MILLI, "cpu": MILLI, "memory": GIB}
"""What is offered is a whole number of these."""
MOST_NAMED: Final = 3
MOST_TRIALS: Final = 3
"""Sizes tried after one that starts was found: of up to 16 GPUs per pod, the largest one is found."""
COUNTED: Final = frozenset({"gpu", "cpu"})


@dataclass(frozen=True, slots=True)
class AlternativeTrial:
    """An alternative: change, workload, pool and snapshot. short: the dimensions that kept it from starting."""

    spec: WorkloadSpec
    effective: Effective
    project: Project
    pool: NodePool
    snapshot: Snapshot
    now: datetime
    policy: Merged = field(default_factory=dict)
    short: tuple[str, ...] = ()
    named: Callable[[Outcome], Sequence[ForecastVictim]] | None = None
    """The victims as the reader may know them; None: a higher priority does not help."""
    refused: bool = False
    """Cap, quota or capacity refused it before the scheduler's model was asked."""
    tried: tuple[str, ...] = ()
    """Node pools that Rung tries by itself."""

    def outcome(self) -> Outcome | None:
        """What the model makes of it; None where quota, cap or policy forbids it, or Rung would hold it back."""
        chosen = replace(self.effective, priority_source=Source.EXPLICIT, preemptibility_source=Source.EXPLICIT)
        if self.policy and broken_rules(chosen, type_of(self.spec), self.policy):
            return None
        try:
            check_priority_cap(self.spec, self.effective, self.project)
            pick_pool(self.spec, self.effective, self.project, [self.pool])
        except ValidationFailed:
            return None
        wanted = self._wanted
        if quota_hold_for(wanted):
            return None
        flavour = self.project.cluster.flavour
        found = preview(self.snapshot, *groups_of(wanted, flavour), flavour=flavour)
        return None if expected_deferral(found, self.project) else found

    @property
    def _wanted(self) -> PodGroupRequest:
        return candidate_request(self.spec, self.effective, self.project, self.pool, self.now)

    def has_room(self) -> bool:
        """Whether its pods find nodes beside all others: takes a part of the time of the model's answer."""
        groups = groups_of(self._wanted, self.project.cluster.flavour)
        pods = tuple(pod for group in groups for pod in group.pods)
        return unplaced_pods(self.snapshot.shard(self.pool.name), replace(groups[0], pods=pods)) is None

    def starts(self) -> bool:
        """Whether it would start now without evictions."""
        found = self.outcome()
        return found is not None and found.kind is OutcomeKind.PLACED


def alternatives(trial: AlternativeTrial) -> Iterator[Alternative]:
    """Preemptible, a weaker priority, less per pod of what is short, another pool, a stronger priority.

    One without a change where the time budget is over before all are tried.
    """
    tried = chain.from_iterable(kind(trial) for kind in (_preemptible, _lower, _fewer, _elsewhere, _stronger))
    return until_out_of_time(tried, Alternative(NOT_ALL_TRIED))


def _preemptible(trial: AlternativeTrial) -> Iterator[Alternative]:
    if trial.effective.preemptibility is not Preemptibility.NON_PREEMPTIBLE:
        return
    pair = replace(trial.effective, preemptibility=Preemptibility.PREEMPTIBLE)
    found = replace(trial, effective=pair).outcome()
    if found is None or found.kind is OutcomeKind.PENDING or (found.victims and trial.named is None):
        return
    does = _evicting(trial.named(found)) if trial.named and found.victims else "now"
    words = f"Make it preemptible: it starts {does} and may be evicted."
    yield Alternative(words, preemptibility=str(Preemptibility.PREEMPTIBLE))


def _lower(trial: AlternativeTrial) -> Iterator[Alternative]:
    """The highest weaker priority that starts without an eviction; its preemptibility stays as asked.

    Only for what was refused: what waits for room or evicts does not start earlier when it comes later in the queue.
    """
    if not trial.refused:
        return
    for entry in _weaker(trial.effective.priority):
        pair = replace(trial.effective, priority=entry)
        if replace(trial, effective=pair).starts():
            yield Alternative(
                f"Choose {entry.name} ({entry.value}): it starts now without evictions.",
                priority=entry.name,
                preemptibility=str(trial.effective.preemptibility),
            )
            return


def _stronger(trial: AlternativeTrial) -> Iterator[Alternative]:
    """The lowest higher priority that lets it start, with its victims; preemptibility stays as requested."""
    if trial.named is None:
        return
    alike: dict[tuple[str, bool], list[PriorityEntry]] = {}
    for entry in _above(trial.effective.priority):
        alike.setdefault((entry.preemption_policy, entry.value >= THRESHOLD), []).append(entry)
    helpful = (entry for entries in alike.values() if _highest_helps(trial, entries) for entry in entries)
    for entry in sorted(helpful, key=lambda entry: entry.value):
        found = _outcome_with(trial, entry)
        if found is not None and found.kind is not OutcomeKind.PENDING:
            does = _evicting(trial.named(found)) if found.victims else "now without evictions"
            yield Alternative(
                f"Choose {entry.name} ({entry.value}): it starts {does}.",
                priority=entry.name,
                preemptibility=str(trial.effective.preemptibility),
            )
            return


def _highest_helps(trial: AlternativeTrial, entries: Sequence[PriorityEntry]) -> bool:
    """Whether the highest that may be chosen lets it start. If not, none does: these differ in their value only."""
    found = next(filter(None, (_outcome_with(trial, entry) for entry in reversed(entries))), None)
    return found is not None and found.kind is not OutcomeKind.PENDING


def _outcome_with(trial: AlternativeTrial, entry: PriorityEntry) -> Outcome | None:
    return replace(trial, effective=replace(trial.effective, priority=entry)).outcome()


def _evicting(victims: Sequence[ForecastVictim]) -> str:
    names = [f"{each.label} ({gpus_text(each.gpu_milli)})" for each in victims[:MOST_NAMED]]
    if len(victims) > MOST_NAMED:
        names.append(f"{len(victims) - MOST_NAMED} more")
    lost = gpu_time_text(sum(each.gpu_hours_at_risk for each in victims) * 3600)
    return f"after evicting {', '.join(names)}, {lost} at risk"


def _above(priority: PriorityEntry) -> list[PriorityEntry]:
    entries = [entry for entry in current_dictionary() if entry.alias_of is None and entry.value > priority.value]
    return sorted(entries, key=lambda entry: entry.value)


def _weaker(priority: PriorityEntry) -> list[PriorityEntry]:
    entries = [entry for entry in current_dictionary() if entry.alias_of is None and entry.value < priority.value]
    return sorted(entries, key=lambda entry: -entry.value)


def _fewer(trial: AlternativeTrial) -> Iterator[Alternative]:
    """The largest whole amount per pod of what is short with which it starts: half, a quarter, … until one helps, then
    between that one and the last one that did not. Where it is not known what is short, of the first of the dimensions
    that helps.
    """
    for names in [trial.short] if trial.short else [(name,) for name in DIMENSIONS]:
        requested = _largest(trial.spec).only(names)
        larger, fewer = requested, _half(requested)
        while fewer.dimensions == names:
            if replace(trial, spec=with_at_most(trial.spec, fewer)).starts():
                yield _of_size(_largest_between(trial, fewer, larger), requested)
                return
            larger, fewer = fewer, _half(fewer)


def _largest_between(trial: AlternativeTrial, fits: Resources, larger: Resources) -> Resources:
    """The largest tried amount from `fits`, with which it starts, to below `larger`, with which it does not."""
    for _ in range(MOST_TRIALS):
        middle = _half(fits + larger)
        if middle in {fits, larger}:
            break
        smaller = replace(trial, spec=with_at_most(trial.spec, middle))
        fits, larger = (middle, larger) if smaller.has_room() and smaller.starts() else (fits, middle)
    return fits


def _largest(spec: WorkloadSpec) -> Resources:
    """The most that any of its pods asks for, per dimension."""
    amounts = [role.requests for role in spec.roles]
    return Resources(*(max((getattr(each, name) for each in amounts), default=0) for name in DIMENSIONS))


def _half(amount: Resources) -> Resources:
    return Resources(*(getattr(amount, name) // 2 // unit * unit for name, unit in WHOLE.items()))


def _of_size(fewer: Resources, requested: Resources) -> Alternative:
    names = fewer.dimensions
    before = amount_text(requested, names, up=True)
    if len(names) == 1 and names[0] in COUNTED:
        before = decimal_text(getattr(requested, names[0]))
    return Alternative(
        f"Request {amount_text(fewer, names)} per pod instead of {before}: it starts now.",
        gpus_per_pod=fewer.gpu // MILLI or None,
        cpus_per_pod=fewer.cpu // MILLI or None,
        gib_per_pod=fewer.memory // GIB or None,
    )


def with_at_most(spec: WorkloadSpec, most: Resources) -> WorkloadSpec:
    """The same pods with at most this much of what it names, for the model only: the manifest is as it was."""
    bound = Limit(*(getattr(most, name) or None for name in DIMENSIONS))
    roles = tuple(replace(role, requests=role.requests.clamp(bound)) for role in spec.roles)
    return replace(spec, roles=roles)


def _elsewhere(trial: AlternativeTrial) -> Iterator[Alternative]:
    for pool in trial.project.cluster.node_pools.all():
        if pool != trial.pool and pool.name not in trial.tried and replace(trial, pool=pool).starts():
            yield Alternative(f"Use node pool {pool.name}: it starts now.", pool=pool.name)


STALE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class PriorityForecast:
    """What a waiting workload would do with another priority, and whom it would evict."""

    sentence: str
    victims: tuple[ForecastVictim, ...] = ()


def priority_forecast(*, workload: Workload, entry: PriorityEntry, actor: Actor) -> PriorityForecast | None:
    """None where it does not wait in its cluster's queue, or nothing recent is known of the cluster."""
    if not is_waiting(workload) or _is_stale(workload.project.cluster):
        return None
    pool = _pool_of(workload)
    if pool is None or workload.phase_reason == NO_CONTROLLER or unserved_because(pool.cluster, pool.name):
        return None
    with cached_reads(), time_budget():
        try:
            return _with_priority(workload, pool, entry, actor)
        except OutOfTime:
            return PriorityForecast(f"No estimate: {TOO_LONG}.")


def _with_priority(workload: Workload, pool: NodePool, entry: PriorityEntry, actor: Actor) -> PriorityForecast:
    cluster, now = workload.project.cluster, timezone.now()
    as_it_is = pod_group_request(workload, pool)
    wanted = replace(as_it_is, value=entry.value, preemption_policy=entry.preemption_policy)
    observed = observed_cluster(cluster)
    snapshot = _snapshot_without(workload, observed.snapshot)
    if missing := missing_on_nodes(wanted.spec, pool, snapshot):
        return PriorityForecast(_estimated(entry, f"never fits: {missing.why}"))
    found = preview(snapshot, *groups_of(wanted, cluster.flavour), flavour=cluster.flavour)
    if hold := quota_hold_of(workload, pool) or expected_deferral(found, workload.project):
        return PriorityForecast(_estimated(entry, f"waits: {hold}"))
    victims = named_victims(cluster, actor, now, found)
    waits = found.kind is OutcomeKind.PENDING and found.starting < wanted.spec.min_member
    if waits and found.pend and not victims:
        why = pend_sentence(found.pend, pool=pool.name, labels=queue_labels(observed.state))
        return PriorityForecast(_estimated(entry, why))
    how = _evicting(victims) if victims else "now without evictions"
    return PriorityForecast(_estimated(entry, f"{'waits' if waits else 'starts'} {how}"), victims)


def _estimated(entry: PriorityEntry, does: str) -> str:
    return f"Estimate: with {entry.name} ({entry.value}) it {does}."


def waiting_alternatives(*, workload: Workload, actor: Actor) -> tuple[Alternative, ...]:
    """Changes with which it would start by the model, for who may change it; none where it starts as it is."""
    if not is_waiting(workload) or workload.phase != Phase.PENDING or workload.type.fixed:
        return ()
    if not may_manage(actor, workload):
        return ()
    if _is_stale(workload.project.cluster):
        return ()
    with cached_reads(), time_budget():
        return tuple(until_out_of_time(_tried(workload, actor), Alternative(NOT_ALL_TRIED)))


def _is_stale(cluster: Cluster) -> bool:
    seen = cluster.observed_at
    return seen is None or timezone.now() - seen > STALE


def is_waiting(workload: Workload) -> bool:
    wanted = workload.desired_phase == DesiredPhase.RUNNING
    return wanted and workload.phase in WAITING and not workload.running_pods


def _snapshot_without(workload: Workload, observed: Snapshot) -> Snapshot:
    """The cluster without the workload's own pods."""
    own = (each.name for each in observed.groups if workload_of(each.name) == str(workload.pk))
    return observed.without_groups(own)


def _pool_of(workload: Workload) -> NodePool | None:
    """Its node pool; None where that is gone, or its scheduler has no model."""
    cluster = workload.project.cluster
    rows = NodePool.objects.filter(cluster=cluster, name=workload.pool_name)
    return rows.first() if cluster.flavour in FLAVOURS else None


def _tried(workload: Workload, actor: Actor) -> Iterator[Alternative]:
    cluster, flavour = workload.project.cluster, workload.project.cluster.flavour
    pool = _pool_of(workload)
    if pool is None:
        return
    observed, _at = snapshot_of(cluster)
    snapshot = _snapshot_without(workload, observed)
    wanted = pod_group_request(workload, pool)
    outcome = preview(snapshot, *groups_of(wanted, flavour), flavour=flavour)
    if outcome.kind is not OutcomeKind.PENDING and not quota_hold_for(wanted):
        return
    short = outcome.pend.short if outcome.pend else ()
    spec = WorkloadSpec.from_json(workload.spec)
    trial = AlternativeTrial(
        spec=spec,
        effective=effective_as(workload, entry_of(workload.priority), Preemptibility(workload.preemptibility)),
        project=workload.project,
        pool=pool,
        snapshot=snapshot,
        now=workload.created_at,
        policy=policy_for(spec.type_name, workload.project),
        short=tuple(name for name in DIMENSIONS if name in short),
        named=partial(named_victims, cluster, actor, timezone.now()),
        tried=tried_pools(workload),
    )
    yield from alternatives(trial)
