"""Previews: the scheduling model on the observed cluster, for a workload that is not submitted. Writes nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from django.utils import timezone

from clusters.connection.services.scheduler_config import (
    domain_warnings,
    guarantees_on,
    kind_warnings,
    unserved_because,
)
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import NodePool
from clusters.sync.selectors import unserved_kinds, work_stopped
from portal.kit.errors import RungError
from portal.kit.security.actors import Actor
from scheduling.forecast.cycle import FLAVOURS, preview
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.preemptibility import Preemptibility, as_scheduled
from scheduling.model.reasons import Reason
from scheduling.model.resources import DIMENSIONS
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.workspace import OutOfTime
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.organisation.models import Project
from tenants.organisation.selectors import with_current_cluster
from workloads.dictionary.rules.resolution import Effective
from workloads.dictionary.selectors import category_of
from workloads.forecast.rules.forecast import (
    AT_ONCE,
    LATER_POOL,
    Alternative,
    Forecast,
    ForecastBasis,
    ForecastVictim,
    PartialStart,
    QuotaEffect,
    Verdict,
    eviction_sentence,
    holding_sentence,
    start_sentence,
    turn_sentence,
    vain_sentence,
    with_node_capacity,
)
from workloads.forecast.rules.messages import Doubt, DoubtCode, doubt, pend_sentence
from workloads.forecast.selectors.alternatives import AlternativeTrial, alternatives
from workloads.forecast.selectors.eviction_risk import cheaper_victim, eviction_odds, named_victims, quota_effect_of
from workloads.forecast.selectors.placement_validation import (
    check_gang_capacity,
    check_kind_scheduled,
    check_placement,
    missing_on_nodes,
    no_controller_of,
)
from workloads.forecast.selectors.pod_groups import Above, PodGroupRequest, candidate_request, groups_above, groups_of
from workloads.forecast.selectors.pool_selection import (
    QuotaHold,
    check_kind_served,
    check_priority_cap,
    pend_labels,
    pools_for,
    pools_with_quota,
    quota_hold_for,
)
from workloads.forecast.selectors.runtime_rules import (
    Deferral,
    expected_deferral,
    limit_sentences,
    min_runtime_sentences,
    protection_sentences,
)
from workloads.forecast.selectors.snapshot import ObservedCluster, observed_cluster
from workloads.forecast.selectors.time_budget import TOO_LONG, time_budget, until_out_of_time
from workloads.forecast.selectors.uncertainties import (
    configuration_doubts,
    outcome_warnings,
    overtaken,
    rivals,
    snapshot_age_doubts,
    uncertainties,
)
from workloads.forecast.selectors.unmodelled import ForecastSubject, unmodelled
from workloads.intake import WorkloadSpec
from workloads.intake.rules.spec import shared_topology
from workloads.policies.selectors import policy_for
from workloads.policies.services import resolve_for, type_of
from workloads.state.rules import NO_CONTROLLER

VERDICTS: Final = {
    OutcomeKind.PLACED: Verdict.STARTS,
    OutcomeKind.PREEMPTS: Verdict.EVICTS,
    OutcomeKind.RECLAIMS: Verdict.RECLAIMS,
    OutcomeKind.CONSOLIDATES: Verdict.EVICTS,
    OutcomeKind.PREEMPTS_AND_RECLAIMS: Verdict.EVICTS,
    OutcomeKind.PENDING: Verdict.WAITS,
}
INCOMPLETE: Final = f"The estimate is incomplete: {TOO_LONG}."


@dataclass(frozen=True, slots=True)
class _Stage:
    """What every part of a forecast needs. when: what starts at once in the pool that is looked at does so."""

    spec: WorkloadSpec
    effective: Effective
    project: Project
    actor: Actor
    now: datetime
    above: tuple[PodGroup, ...]
    when: str = AT_ONCE

    @property
    def observed(self) -> datetime | None:
        return self.project.cluster.observed_at

    @property
    def counted(self) -> Preemptibility:
        """Its preemptibility as the scheduler takes it."""
        return as_scheduled(self.effective.preemptibility, self.effective.priority.value)

    def answer(self, verdict: Verdict, sentence: str, pool: str) -> Forecast:
        """A forecast with what is the same in all of them."""
        cluster, effective = self.project.cluster, self.effective
        flavour = flavour_for(cluster.flavour)
        may_hold_gpus = verdict is not Verdict.REFUSED and self.spec.total.gpu > 0
        assured = protection_sentences(
            self.project,
            preemptibility=effective.preemptibility,
            pods=self.spec.pods,
            minimum=self.spec.min_member,
        )
        return Forecast(
            effective=effective,
            verdict=verdict,
            sentence=sentence,
            project=self.project.name,
            pool=pool,
            flavour=flavour.title,
            warnings=(
                *filter(None, [work_stopped(cluster), unserved_kinds(cluster)]),
                *flavour.cautions(value=effective.priority.value, preemptibility=effective.preemptibility),
                *(domain_warnings(cluster) if shared_topology(self.spec) else ()),
                *limit_sentences(self.project, category_of(type_of(self.spec))),
            ),
            doubts=(
                *snapshot_age_doubts(self.observed, self.now),
                *(doubt(DoubtCode.KIND_ASSUMED, each) for each in kind_warnings(cluster, self.spec.kind)),
            ),
            assurances=assured,
            odds=eviction_odds(cluster, pool, self.counted) if may_hold_gpus else None,
            guarantees=guarantees_on(cluster),
            simulated=cluster.is_simulated,
            snapshot_age=(self.now - self.observed).total_seconds() if self.observed else None,
        )


def forecast(*, spec: WorkloadSpec, project: Project, actor: Actor, above: Above = ()) -> Forecast:
    """What would happen now. Refused (as submission would) where priority or pool cannot be resolved.

    `above`: what is previewed before it, which counts as submitted where `counts_above` says so.

    1. resolve, and check what can never come true: that is the verdict `refused`, with the numbers
    2. run one cycle of the cluster's scheduler model with this workload beside everything observed
    3. name the victims as far as the actor may see them, and try what would do better
    """
    require(actor, Permission.SUBMIT, project=project)
    project = with_current_cluster(project)
    now = timezone.now()
    stage = _Stage(spec, resolve_for(spec, project), project, actor, now, tuple(groups_above(above, project, now)))
    check_kind_served(spec, project)
    check_kind_scheduled(spec, project)
    check_placement(spec, project)
    pools = pools_for(spec, project)
    try:
        check_priority_cap(spec, stage.effective, project)
        holding = pools_with_quota(spec, stage.effective, project, pools)
        check_gang_capacity(spec, project, pools)
    except RungError as refusal:
        return _refused_forecast(stage, pools, refusal)
    if project.cluster.flavour not in FLAVOURS:
        return stage.answer(
            Verdict.UNKNOWN, "No estimate: Rung has no model of this cluster's scheduler.", holding[0].name
        )
    with time_budget():
        try:
            return _forecast_of(stage, holding)
        except OutOfTime:
            return stage.answer(Verdict.UNKNOWN, f"No estimate: {TOO_LONG}.", holding[0].name)


def _refused_forecast(stage: _Stage, pools: list[NodePool], refusal: RungError) -> Forecast:
    base = stage.answer(Verdict.REFUSED, refusal.message, pools[0].name)
    numbers = refusal.problems[0].numbers if refusal.problems else {}
    return replace(
        base,
        reason=refusal.code,
        numbers=numbers,
        problems=refusal.problems,
        alternatives=_alternatives(stage, pools[0], short=numbers.get("short", "").split(", ")),
    )


def _forecast_of(stage: _Stage, pools: Sequence[NodePool]) -> Forecast:
    """In the first of its pools; where that one does not let it start, in the next one that does."""
    observed = observed_cluster(stage.project.cluster)
    if stage.above:
        observed = replace(observed, snapshot=observed.snapshot.with_groups(stage.above))
    snapshot = observed.snapshot
    first, outcome = pools[0], _outcome(stage, pools[0], snapshot)
    if not (outcome.starting or _may_start(stage, first, snapshot, outcome)):  # what has a node is tried nowhere else
        for pool in pools[1:]:
            later = _outcome(stage, pool, snapshot)
            if _may_start(stage, pool, snapshot, later):
                found = _build_forecast(replace(stage, when=LATER_POOL), pool, observed, later)
                return _later(stage, found, first, outcome, pend_labels(observed.state, outcome.pend))
    return _build_forecast(stage, first, observed, outcome)


def _may_start(stage: _Stage, pool: NodePool, snapshot: Snapshot, outcome: Outcome) -> bool:
    if outcome.kind is OutcomeKind.PENDING or _deferral(stage, pool, outcome):
        return False
    return missing_on_nodes(stage.spec, pool, snapshot) is None


def _deferral(stage: _Stage, pool: NodePool, outcome: Outcome) -> Deferral | QuotaHold | None:
    if outcome.pend and outcome.pend.never_fits and not outcome.victims:
        return None
    return quota_hold_for(_wanted(stage, pool)) or expected_deferral(outcome, stage.project)


def _outcome(stage: _Stage, pool: NodePool, snapshot: Snapshot) -> Outcome:
    return preview(snapshot, *_candidates(stage, pool), flavour=stage.project.cluster.flavour, explain=True)


def _later(stage: _Stage, found: Forecast, first: NodePool, outcome: Outcome, labels: Mapping[str, str]) -> Forecast:
    """It does not start in its first choice: why, and when the next one has its turn."""
    why = pend_sentence(outcome.pend, pool=first.name, labels=labels) if outcome.pend else f"waits in {first.name}"
    if hold := _deferral(stage, first, outcome):
        why = f"waits: {hold}" if isinstance(hold, QuotaHold) else f"waits in {first.name}: {hold}"
    return replace(found, sentence=turn_sentence(found.sentence, pool=found.pool, why=why))


def _build_forecast(stage: _Stage, pool: NodePool, observed: ObservedCluster, outcome: Outcome) -> Forecast:
    basis = ForecastBasis(observed.snapshot, _candidates(stage, pool), outcome)
    found = _in_pool(stage, pool, observed, outcome)
    cheaper = cheaper_victim(basis, found.victims, stage.project.cluster, stage.actor, stage.now)
    return replace(found, basis=basis, cheaper=cheaper)


def _in_pool(stage: _Stage, pool: NodePool, observed: ObservedCluster, outcome: Outcome) -> Forecast:
    snapshot = observed.snapshot
    if hold := _deferral(stage, pool, outcome):
        return _deferred_forecast(stage, pool, snapshot, hold)
    if why := unserved_because(stage.project.cluster, pool.name):
        return replace(stage.answer(Verdict.WAITS, f"Waits: {why}", pool.name), reason=str(Reason.NO_SUCH_POOL))
    if why := no_controller_of(stage.spec, stage.project.cluster):
        return replace(stage.answer(Verdict.WAITS, f"Waits: {why}", pool.name), reason=NO_CONTROLLER)
    if missing := missing_on_nodes(stage.spec, pool, snapshot):
        base = stage.answer(Verdict.WAITS, f"Never fits: {missing.why}.", pool.name)
        return replace(base, reason=str(Reason.NEVER_FITS), numbers=missing.numbers, odds=None)
    verdict = _verdict(stage, outcome)
    victims = named_victims(stage.project.cluster, stage.actor, stage.now, outcome)
    labels = pend_labels(observed.state, outcome.pend)
    effect = quota_effect_of(stage.project.cluster, outcome, stage.counted)
    sentence = _sentence(verdict, pool, outcome, victims, labels, effect, when=stage.when)
    base = stage.answer(verdict, sentence, pool.name)
    pend, protected = outcome.pend, list[str]()
    if verdict is Verdict.WAITS:
        protected += min_runtime_sentences(snapshot, _candidates(stage, pool), stage.project.cluster.flavour)
    found = replace(
        base,
        reason=str(pend.code) if pend else "",
        odds=None if pend and pend.never_fits else base.odds,
        numbers={key: labels.get(text, text) for key, text in pend.numbers().items()} if pend else {},
        victims=victims,
        warnings=(*base.warnings, *overtaken(stage.actor, outcome), *outcome_warnings(outcome)),
        doubts=(
            *base.doubts,
            *until_out_of_time(_doubts(stage, pool, observed, outcome), doubt(DoubtCode.OUT_OF_TIME, INCOMPLETE)),
        ),
        over_quota=effect.over,
        assurances=(*base.assurances, *protected),
        nodes=tuple(sorted(set(outcome.placements.values()))),
        starting=outcome.starting,
        coming=outcome.coming,
        waiting=outcome.waiting,
        alternatives=_instead(stage, pool, snapshot, outcome),
    )
    blind = flavour_for(stage.project.cluster.flavour).traits.queues_jobs and not pool.topology_levels
    group = _admitted(stage, pool, outcome)
    return with_node_capacity(found, snapshot, group, outcome, when=stage.when) if blind else found


def _verdict(stage: _Stage, outcome: Outcome) -> Verdict:
    """A part that is enough starts it; a smaller one only holds its nodes while it waits for the rest."""
    if outcome.kind is OutcomeKind.PENDING and outcome.starting >= stage.spec.min_member:
        return Verdict.STARTS
    return VERDICTS[outcome.kind]


def _admitted(stage: _Stage, pool: NodePool, outcome: Outcome) -> PodGroup:
    """Its pods that are let go, now or once the evicted have left."""
    groups = _candidates(stage, pool)
    pods = [pod for group in groups for pod in group.pods]
    return replace(groups[0], pods=tuple(pods[: outcome.starting + outcome.coming]))


def _deferred_forecast(stage: _Stage, pool: NodePool, snapshot: Snapshot, hold: Deferral | QuotaHold) -> Forecast:
    """It would evict a run inside its min guaranteed runtime, or exceed its deserved quota: only Rung prevents that."""
    base = stage.answer(Verdict.WAITS, f"Waits: {hold}.", pool.name)
    return replace(base, reason=hold.reason, numbers=hold.numbers(), alternatives=_alternatives(stage, pool, snapshot))


def _doubts(stage: _Stage, pool: NodePool, observed: ObservedCluster, outcome: Outcome) -> Iterator[Doubt]:
    candidates, snapshot = _candidates(stage, pool), observed.snapshot
    yield from rivals(pool, stage.actor, snapshot, candidates, outcome)
    yield from configuration_doubts(pool, outcome)
    yield from uncertainties(pool, stage.actor, observed, candidates, outcome)
    yield from unmodelled(ForecastSubject(stage.spec, stage.project, pool, snapshot, candidates, outcome))


def _candidates(stage: _Stage, pool: NodePool) -> tuple[PodGroup, ...]:
    return groups_of(_wanted(stage, pool), stage.project.cluster.flavour)


def _wanted(stage: _Stage, pool: NodePool) -> PodGroupRequest:
    return candidate_request(stage.spec, stage.effective, stage.project, pool, stage.now)


def _sentence(
    verdict: Verdict,
    pool: NodePool,
    outcome: Outcome,
    victims: tuple[ForecastVictim, ...],
    labels: dict[str, str],
    effect: QuotaEffect,
    *,
    when: str,
) -> str:
    why = pend_sentence(outcome.pend, pool=pool.name, labels=labels) if outcome.pend else ""
    part = (
        PartialStart(outcome.starting, outcome.coming, outcome.waiting, f"the workload {why}", when)
        if outcome.partial
        else None
    )
    if verdict is Verdict.STARTS:
        return start_sentence(pool.name, effect, part, when=when)
    if verdict in {Verdict.EVICTS, Verdict.RECLAIMS}:
        return eviction_sentence(verdict, pool.name, victims, part=part)
    if part:
        return holding_sentence(pool.name, part)
    if victims:
        return vain_sentence(pool.name, victims)
    if outcome.pend and outcome.pend.never_fits:
        return f"Never fits: it {why}."
    return f"Waits: it {why}." if why else f"Waits in {pool.name}."


def _instead(stage: _Stage, pool: NodePool, snapshot: Snapshot, outcome: Outcome) -> tuple[Alternative, ...]:
    if outcome.kind is OutcomeKind.PLACED:
        return ()
    names = partial(named_victims, stage.project.cluster, stage.actor, stage.now)
    named = names if outcome.kind is OutcomeKind.PENDING else None
    return _alternatives(stage, pool, snapshot, short=outcome.pend.short if outcome.pend else (), named=named)


def _alternatives(
    stage: _Stage,
    pool: NodePool,
    snapshot: Snapshot | None = None,
    *,
    short: Sequence[str] = (),
    named: Callable[[Outcome], Sequence[ForecastVictim]] | None = None,
) -> tuple[Alternative, ...]:
    """snapshot: None where it was refused before the model was asked."""
    if stage.project.cluster.flavour not in FLAVOURS:
        return ()
    observed = snapshot or observed_cluster(stage.project.cluster).snapshot
    policy = policy_for(stage.spec.type_name, stage.project)
    names, refused = tuple(name for name in DIMENSIONS if name in short), snapshot is None
    spec, effective, project, now = stage.spec, stage.effective, stage.project, stage.now
    trial = AlternativeTrial(spec, effective, project, pool, observed, now, policy, names, named, refused)
    return tuple(alternatives(trial))
