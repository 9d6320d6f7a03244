"""What else would start at once: the same model, tried with one thing changed. Only what works is offered."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from clusters.models import NodePool
from portal.core.errors import Refused
from scheduling.cycle import preview
from scheduling.decisions import Kind, Outcome
from scheduling.model import Snapshot
from scheduling.priority import Effective, Level, Preemptibility, Source
from scheduling.resources import DIMENSIONS, MILLI, Limit, Resources, decimal_text
from tenants.models import Project
from workloads.admission import pick_pool, refuse_over_cap
from workloads.compliance import broken_rules
from workloads.forecasts import Alternative, ForecastVictim
from workloads.holding_back import hold_of
from workloads.intake import WorkloadSpec
from workloads.policy_rules import Merged
from workloads.quota_hold import quota_hold_for
from workloads.resolution import current_dictionary
from workloads.sentences import GIB, amount_text, gpu_time_text, gpus_text
from workloads.services.submission import type_of
from workloads.snapshots import Wanted, groups_of

WHOLE: Final[Mapping[str, int]] = {"gpu": MILLI, "cpu": MILLI, "memory": GIB}
"""What is offered is a whole number of these."""
MOST_NAMED: Final = 3
COUNTED: Final = frozenset({"gpu", "cpu"})


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing to try: what, for whom, where, on which snapshot. short: the dimensions that kept it from starting."""

    spec: WorkloadSpec
    effective: Effective
    project: Project
    pool: NodePool
    snapshot: Snapshot
    now: datetime
    policy: Merged = field(default_factory=dict)
    short: tuple[str, ...] = ()
    named: Callable[[Outcome], Sequence[ForecastVictim]] | None = None
    """Who is evicted, as its people may know it; None: a stronger priority is no way out."""

    def outcome(self) -> Outcome | None:
        """What the model makes of it; None where quota, cap or policy forbids it, or Rung would hold it back."""
        chosen = replace(self.effective, priority_source=Source.EXPLICIT, preemptibility_source=Source.EXPLICIT)
        if self.policy and broken_rules(chosen, type_of(self.spec), self.policy):
            return None
        try:
            refuse_over_cap(self.spec, self.effective, self.project)
            pick_pool(self.spec, self.effective, self.project, [self.pool])
        except Refused:
            return None
        wanted = Wanted(
            name="candidate",
            spec=self.spec,
            project=self.project,
            pool=self.pool,
            value=self.effective.priority.value,
            preemption_policy=self.effective.priority.preemption_policy,
            preemptibility=self.effective.preemptibility,
            created=self.now,
        )
        if quota_hold_for(wanted):
            return None
        flavour = self.project.cluster.flavour
        found = preview(self.snapshot, *groups_of(wanted, flavour), flavour=flavour)
        return None if hold_of(found, self.project) else found

    def starts(self) -> bool:
        """Would it start now, and evict nobody?"""
        found = self.outcome()
        return found is not None and found.kind is Kind.PLACED


def alternatives(trial: Trial) -> Iterator[Alternative]:
    """Preemptible, a milder priority, less per pod of what is short, another pool, a stronger priority."""
    yield from _preemptible(trial)
    yield from _lower(trial)
    yield from _fewer(trial)
    yield from _elsewhere(trial)
    yield from _stronger(trial)


def _preemptible(trial: Trial) -> Iterator[Alternative]:
    if trial.effective.preemptibility is not Preemptibility.NON_PREEMPTIBLE:
        return
    pair = replace(trial.effective, preemptibility=Preemptibility.PREEMPTIBLE)
    found = replace(trial, effective=pair).outcome()
    if found is None or found.kind is Kind.PENDING or (found.victims and trial.named is None):
        return
    does = _evicting(trial.named(found)) if trial.named and found.victims else "now"
    words = f"Make it preemptible: it starts {does}, and may be evicted."
    yield Alternative(words, preemptibility=str(Preemptibility.PREEMPTIBLE))


def _lower(trial: Trial) -> Iterator[Alternative]:
    """The highest weaker priority that starts without an eviction; its preemptibility stays as asked."""
    for level in _weaker(trial.effective.priority):
        pair = replace(trial.effective, priority=level)
        if replace(trial, effective=pair).starts():
            yield Alternative(
                f"Choose {level.name} ({level.value}): it starts now and evicts nobody.",
                priority=level.name,
                preemptibility=str(trial.effective.preemptibility),
            )
            return


def _stronger(trial: Trial) -> Iterator[Alternative]:
    """The lowest stronger priority that lets it start, with whom it evicts; its preemptibility stays as asked."""
    if trial.named is None:
        return
    for level in _above(trial.effective.priority):
        tried = replace(trial, effective=replace(trial.effective, priority=level))
        found = tried.outcome()
        if found is not None and found.kind is not Kind.PENDING:
            does = _evicting(trial.named(found)) if found.victims else "now and evicts nobody"
            yield Alternative(
                f"Choose {level.name} ({level.value}): it starts {does}.",
                priority=level.name,
                preemptibility=str(trial.effective.preemptibility),
            )
            return


def _evicting(victims: Sequence[ForecastVictim]) -> str:
    names = [f"{each.label} ({gpus_text(each.gpu_milli)})" for each in victims[:MOST_NAMED]]
    if len(victims) > MOST_NAMED:
        names.append(f"{len(victims) - MOST_NAMED} more")
    lost = gpu_time_text(sum(each.gpu_hours_at_risk for each in victims) * 3600)
    return f"after evicting {', '.join(names)}, {lost} at risk"


def _above(priority: Level) -> list[Level]:
    levels = [level for level in current_dictionary() if level.alias_of is None and level.value > priority.value]
    return sorted(levels, key=lambda level: level.value)


def _weaker(priority: Level) -> list[Level]:
    levels = [level for level in current_dictionary() if level.alias_of is None and level.value < priority.value]
    return sorted(levels, key=lambda level: -level.value)


def _fewer(trial: Trial) -> Iterator[Alternative]:
    """Half, a quarter, … per pod of what is short, as long as it is whole; where that is not known, of the first of
    the dimensions that helps.
    """
    for names in [trial.short] if trial.short else [(name,) for name in DIMENSIONS]:
        asked = _largest(trial.spec).only(names)
        fewer = _half(asked)
        while fewer.dimensions == names:
            if replace(trial, spec=with_at_most(trial.spec, fewer)).starts():
                yield _of_size(fewer, asked)
                return
            fewer = _half(fewer)


def _largest(spec: WorkloadSpec) -> Resources:
    """The most that any of its pods asks for, per dimension."""
    amounts = [role.requests for role in spec.roles]
    return Resources(*(max((getattr(each, name) for each in amounts), default=0) for name in DIMENSIONS))


def _half(amount: Resources) -> Resources:
    return Resources(*(getattr(amount, name) // 2 // unit * unit for name, unit in WHOLE.items()))


def _of_size(fewer: Resources, asked: Resources) -> Alternative:
    names = fewer.dimensions
    before = amount_text(asked, names, up=True)
    if len(names) == 1 and names[0] in COUNTED:
        before = decimal_text(getattr(asked, names[0]))
    return Alternative(
        f"Ask for {amount_text(fewer, names)} per pod instead of {before}: it starts now.",
        gpus_per_pod=fewer.gpu // MILLI or None,
        cpus_per_pod=fewer.cpu // MILLI or None,
        gib_per_pod=fewer.memory // GIB or None,
    )


def with_at_most(spec: WorkloadSpec, most: Resources) -> WorkloadSpec:
    """The same pods with at most this much of what it names, for the model only: the manifest is as it was."""
    bound = Limit(*(getattr(most, name) or None for name in DIMENSIONS))
    roles = tuple(replace(role, requests=role.requests.clamp(bound)) for role in spec.roles)
    return replace(spec, roles=roles)


def _elsewhere(trial: Trial) -> Iterator[Alternative]:
    for pool in trial.project.cluster.node_pools.exclude(pk=trial.pool.pk):
        if replace(trial, pool=pool).starts():
            yield Alternative(f"Use the node pool {pool.name}: it starts there now.", pool=pool.name)
