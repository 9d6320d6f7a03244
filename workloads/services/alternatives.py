"""What else would start at once: the same model, tried with one thing changed. Only what works is offered."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from clusters.models import NodePool
from portal.core.errors import Refused
from scheduling.cycle import preview
from scheduling.decisions import Kind
from scheduling.model import Snapshot
from scheduling.priority import Effective, Level, Preemptibility, Source
from scheduling.resources import DIMENSIONS, MILLI, Limit, Resources, decimal_text
from tenants.models import Project
from workloads.admission import pick_pool
from workloads.compliance import broken_rules
from workloads.forecasts import Alternative
from workloads.intake import WorkloadSpec
from workloads.policy_rules import Merged
from workloads.quota_hold import quota_hold_for
from workloads.resolution import current_dictionary
from workloads.sentences import GIB, amount_text
from workloads.services.submission import type_of
from workloads.snapshots import Wanted, groups_of

WHOLE: Final[Mapping[str, int]] = {"gpu": MILLI, "cpu": MILLI, "memory": GIB}
"""What is offered is a whole number of these."""
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

    def outcome(self) -> Kind:
        """What the model makes of it; PENDING where quotas could never hold it, or a policy forbids it."""
        chosen = replace(self.effective, priority_source=Source.EXPLICIT, preemptibility_source=Source.EXPLICIT)
        if self.policy and broken_rules(chosen, type_of(self.spec), self.policy):
            return Kind.PENDING
        try:
            pick_pool(self.spec, self.effective, self.project, [self.pool])
        except Refused:
            return Kind.PENDING
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
            return Kind.PENDING
        flavour = self.project.cluster.flavour
        return preview(self.snapshot, *groups_of(wanted, flavour), flavour=flavour).kind

    def starts(self) -> bool:
        """Would it start now, and evict nobody?"""
        return self.outcome() is Kind.PLACED


def alternatives(trial: Trial) -> Iterator[Alternative]:
    """Preemptible instead, a priority that evicts nobody, less per pod of what is short, another pool."""
    yield from _preemptible(trial)
    yield from _lower(trial)
    yield from _fewer(trial)
    yield from _elsewhere(trial)


def _preemptible(trial: Trial) -> Iterator[Alternative]:
    if trial.effective.preemptibility is not Preemptibility.NON_PREEMPTIBLE:
        return
    pair = replace(trial.effective, preemptibility=Preemptibility.PREEMPTIBLE)
    if replace(trial, effective=pair).starts():
        words = "Make it preemptible: it starts now, and may be evicted."
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
