"""What else would start at once: the same model, tried with one thing changed. Only what works is offered."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from clusters.models import NodePool
from portal.core.errors import Refused
from scheduling.cycle import preview
from scheduling.decisions import Kind
from scheduling.model import Snapshot
from scheduling.priority import Effective, Level, Preemptibility, Source
from scheduling.resources import Resources
from tenants.models import Project
from workloads.admission import pick_pool
from workloads.compliance import broken_rules
from workloads.forecasts import Alternative
from workloads.intake import WorkloadSpec
from workloads.policy_rules import Merged
from workloads.resolution import current_dictionary
from workloads.sentences import gpus_text
from workloads.services.submission import type_of
from workloads.snapshots import Wanted, groups_of


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing to try: what, for whom, where, on which snapshot."""

    spec: WorkloadSpec
    effective: Effective
    project: Project
    pool: NodePool
    snapshot: Snapshot
    now: datetime
    policy: Merged = field(default_factory=dict)

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
        flavour = self.project.cluster.flavour
        return preview(self.snapshot, *groups_of(wanted, flavour), flavour=flavour).kind

    def starts(self) -> bool:
        """Would it start now, and evict nobody?"""
        return self.outcome() is Kind.PLACED


def alternatives(trial: Trial) -> Iterator[Alternative]:
    """Preemptible instead, a priority that evicts nobody, fewer GPUs per pod, another pool."""
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
    """Half, a quarter, … of the GPUs of each pod, as long as they are whole."""
    per_pod = max((role.requests.gpu for role in trial.spec.roles), default=0) // 1000
    fewer = per_pod // 2
    while fewer >= 1:
        if replace(trial, spec=with_gpus(trial.spec, fewer)).starts():
            words = f"Ask for {gpus_text(fewer * 1000)} per pod instead of {per_pod}: it starts now."
            yield Alternative(words, gpus_per_pod=fewer)
            return
        fewer //= 2


def with_gpus(spec: WorkloadSpec, gpus: int) -> WorkloadSpec:
    """The same pods with at most this many GPUs each, for the model only: the manifest is as it was."""
    roles = tuple(
        replace(
            role,
            requests=Resources(min(role.requests.gpu, gpus * 1000), role.requests.cpu, role.requests.memory),
        )
        for role in spec.roles
    )
    return replace(spec, roles=roles)


def _elsewhere(trial: Trial) -> Iterator[Alternative]:
    for pool in trial.project.cluster.node_pools.exclude(pk=trial.pool.pk):
        if replace(trial, pool=pool).starts():
            yield Alternative(f"Use the node pool {pool.name}: it starts there now.", pool=pool.name)
