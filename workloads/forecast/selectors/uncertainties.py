"""What a forecast depends on and Rung cannot see: the same model once more, as it might be instead."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from clusters.connection.services.scheduler_config import shard_forecast_warnings, shard_settings_warnings
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import NodePool
from portal.kit.pages.formatting import duration_text
from portal.kit.security.actors import Actor
from scheduling.forecast.cycle import WITHOUT_NOMINATION, Flavour, cycle, preview
from scheduling.model.decisions import Evict, Outcome, OutcomeKind, Start
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import Pod, PodGroup, Snapshot
from tenants.access.selectors import access_for, visible_among
from workloads.forecast.rules.forecast import absent_sentence, instead_sentence, overtaken_sentence, turning_sentence
from workloads.forecast.rules.messages import Doubt, DoubtCode, doubt
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.placement_validation import configured_so
from workloads.forecast.selectors.pod_groups import ABOVE, ABOVE_IN_FILE, WaitingWorkload, waiting_workload
from workloads.forecast.selectors.snapshot import ObservedCluster
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.selectors.workloads import workload_ids

RIVALS: Final = (
    "{title} decides again while evicted pods stop. Another waiting workload may take the freed GPUs first, and then "
    "more workloads are evicted."
)
GANG_RIVALS: Final = (
    "{title} reserves no GPUs of evicted pods for a gang. Until all of them have stopped, waiting and evicted "
    "workloads may start on freed GPUs, and are evicted again: the gang may start later."
)
VICTIMS_FIRST: Final = (
    "Once evicted work ({names}) is submitted again, {title} may start it before this workload, and evict it again and "
    "again while this workload waits."
)
OTHERS_FIRST: Final = (
    "It needs GPUs that workloads ahead of it are expected to free by evictions. None has started yet; without "
    "them it waits longer."
)
BREAKS: Final = (
    "It evicts single pods of a running gang. The gang's other pods keep their GPUs: on this scheduler only a "
    "gang evicts whole gangs."
)
IN_VAIN: Final = "It still waits afterwards: the freed GPUs are not in one domain of its topology."
MORE: Final = (
    "{title} decides again as each evicted pod stops. If its queue is within quota by then, more may be evicted "
    "for it ({count})."
)
AGAIN: Final = "The evictions free more than it uses, and {names} may evict it for the rest."
BEFORE_A_GANG: Final = (
    "It takes GPUs that a waiting gang of a higher priority counts on. They are not reserved for the gang: {names} may "
    "evict it next."
)
TOGETHER: Final = (
    "{title} may evict and move workloads in one step, which the model tries separately. The workload may start anyway."
)
TIED: Final = (
    "Other victims are as good by priority, number and start time, and {title} picks among them in no fixed order: "
    "{names} may be evicted instead."
)
NOTHING_SEEN: Final = "The cluster has not been observed yet: its nodes and pods are not known."
STALE: Final = "The cluster was last observed {age} ago. What has changed since is not known."
FRESH: Final = timedelta(minutes=5)
MOST_TIED: Final = 8
"""So many victims that are as good are looked for."""
MOST_FIRST: Final = 8
"""Of so many victims it is tried what follows if one is the first to leave."""
Others = Mapping[str, WaitingWorkload]
"""By id."""


def configuration_doubts(pool: NodePool, outcome: Outcome) -> Iterator[Doubt]:
    """What the scheduler's own settings change that the model does not take from them."""
    for each in configured_so(pool.cluster, outcome):
        yield doubt(DoubtCode.SCHEDULER_CONFIGURATION, each)
    if outcome.kind is not OutcomeKind.PLACED:
        for each in shard_settings_warnings(pool.cluster, pool.name):
            yield doubt(DoubtCode.SCHEDULER_CONFIGURATION, each)
    for each in shard_forecast_warnings(pool.cluster, pool.name):
        yield doubt(DoubtCode.SCHEDULER_SHARED, each)


def snapshot_age_doubts(observed: datetime | None, now: datetime) -> Iterator[Doubt]:
    """That nothing was observed yet, or nothing of late."""
    if observed is None:
        yield doubt(DoubtCode.NO_SNAPSHOT, NOTHING_SEEN)
    elif now - observed > FRESH:
        yield doubt(DoubtCode.STALE_SNAPSHOT, STALE.format(age=duration_text(now - observed)))


def outcome_warnings(outcome: Outcome) -> Iterator[str]:
    """That evictions leave a part of a gang, or do not help."""
    if _breaks_a_gang(outcome):
        yield BREAKS
    if outcome.victims and outcome.pend and outcome.pend.reason is Reason.NO_DOMAIN:
        yield IN_VAIN


def _breaks_a_gang(outcome: Outcome) -> bool:
    taken: Counter[str] = Counter()
    for evict in outcome.victims:
        taken[evict.victim.name] += len(evict.pods)
    return any(each.victim.gang and taken[each.victim.name] < len(each.victim.holding) for each in outcome.victims)


def uncertainties(
    pool: NodePool, actor: Actor, observed: ObservedCluster, candidates: Sequence[PodGroup], outcome: Outcome
) -> Iterator[Doubt]:
    """Others that this pool's scheduler does not see yet, where it would make a difference that it did.

    Stronger ones without a pod, and those of another pool whose next one this is. And whether it counts on others.
    """
    snapshot = observed.snapshot
    if outcome.coming and not outcome.victims and not snapshot.ending:
        yield doubt(DoubtCode.COUNTS_ON_EVICTIONS, OTHERS_FIRST)
    cluster, value = pool.cluster, candidates[0].priority
    if (
        outcome.pend
        and not outcome.pend.never_fits
        and not outcome.coming
        and cluster.flavour in WITHOUT_NOMINATION
        and _has_weaker(snapshot, candidates[0])
    ):
        yield doubt(DoubtCode.EVICTS_AND_MOVES, TOGETHER.format(title=flavour_for(cluster.flavour).title))
    if outcome.victims and flavour_for(cluster.flavour).traits.queues_jobs:
        yield from _again(cluster.flavour, actor, snapshot, candidates, outcome)
    if outcome.victims and cluster.flavour in {Flavour.KUBE, Flavour.KUBE_GANGS}:
        yield from _tied(cluster.flavour, actor, snapshot, candidates, outcome)
    if any(each.gang and each.priority > value for each in snapshot.waiting) and not outcome.victims:
        yield from _evicted_next(cluster.flavour, actor, snapshot, candidates, outcome, BEFORE_A_GANG)
    by_queue = flavour_for(cluster.flavour).traits.queues_by_pool  # then a weaker one may be served first
    later = {owner: each for owner, each in observed.later.items() if each.groups[0].priority > value}
    turning = {owner: each for owner, each in _turning(pool).items() if by_queue or each.groups[0].priority > value}
    for others, sentence, code in (
        (later, absent_sentence, DoubtCode.PODS_PAUSED),
        (turning, turning_sentence, DoubtCode.OTHER_POOLS_TURN),
    ):
        other = preview(_with(snapshot, others), *candidates, flavour=cluster.flavour) if others else outcome
        if _fate(other) != _fate(outcome):
            evicted = {workload_of(each.victim.name) or each.victim.name for each in other.victims}
            instead = instead_sentence(len(others), starting=other.starting, coming=other.coming, evicted=len(evicted))
            yield doubt(code, f"{sentence(_names(others, actor), pool.name)} {instead}")


def _has_weaker(snapshot: Snapshot, candidate: PodGroup) -> bool:
    """Does preemptible work of a lower priority run in its own queue?"""
    own = (each for each in snapshot.groups if each.queue == candidate.queue and each.pool == candidate.pool)
    return any(each.holding and each.preemptible and each.priority < candidate.priority for each in own)


def _again(
    flavour: str, actor: Actor, snapshot: Snapshot, candidates: Sequence[PodGroup], outcome: Outcome
) -> Iterator[Doubt]:
    """What a scheduler of jobs may decide between two of its victims' ends, and once it is let in."""
    evicted = {each.victim.name for each in outcome.victims}
    more = set[str]()
    for first in sorted(evicted)[:MOST_FIRST]:
        then = preview(_after(snapshot, first, evicted), *candidates, flavour=flavour)
        more |= {workload_of(each.victim.name) for each in then.victims if each.victim.name not in evicted}
    if more:
        yield doubt(DoubtCode.MORE_EVICTIONS, MORE.format(title=flavour_for(flavour).title, count=len(more)))
    yield from _evicted_next(flavour, actor, snapshot, candidates, outcome, AGAIN)


def _tied(
    flavour: str, actor: Actor, snapshot: Snapshot, candidates: Sequence[PodGroup], outcome: Outcome
) -> Iterator[Doubt]:
    """Who is evicted instead if the victims had started a microsecond earlier, less than a cluster's clock shows.

    Source: pickOneNodeForPreemption in kube-scheduler keeps the nodes in a map and takes the first of equal ones.
    """
    owners = {_owner(each) for each in outcome.victims}
    victims, others = outcome.victims, set[str]()
    while victims and len(others) < MOST_TIED:
        snapshot = _started_earlier(snapshot, victims)
        found = preview(snapshot, *candidates, flavour=flavour).victims
        victims = tuple(each for each in found if _owner(each) not in owners | others)
        others |= {_owner(each) for each in victims}
    if others:
        names = " or ".join(_known(others, actor))
        yield doubt(DoubtCode.TIED_VICTIMS, TIED.format(title=flavour_for(flavour).title, names=names))


def _owner(evict: Evict) -> str:
    return workload_of(evict.victim.name) or evict.victim.name


def _started_earlier(snapshot: Snapshot, victims: Sequence[Evict]) -> Snapshot:
    """The same with an earlier start of these pods."""
    evicted = {pod for each in victims for pod in each.pods}
    groups = {each.victim.name: each.victim for each in victims}
    earlier = [
        replace(group, pods=tuple(_earlier(pod, group) if pod.name in evicted else pod for pod in group.pods))
        for group in groups.values()
    ]
    return snapshot.changed(groups, earlier, now=snapshot.now)


def _earlier(pod: Pod, group: PodGroup) -> Pod:
    start = group.started if pod.started is None else pod.started
    return pod if start is None else replace(pod, started=start - 1)


def _evicted_next(
    flavour: str, actor: Actor, snapshot: Snapshot, candidates: Sequence[PodGroup], outcome: Outcome, sentence: str
) -> Iterator[Doubt]:
    """What waits and evicts it in the cycle after it has started, its victims gone."""
    if outcome.waiting:
        return
    own = {each.name: _started(each, outcome.placements, snapshot.now) for each in candidates}
    then_there = snapshot.changed({each.victim.name for each in outcome.victims}, own.values(), now=snapshot.now)
    after = cycle(then_there, flavour=flavour, about=())
    takers = {each.for_group for each in after if isinstance(each, Evict) and each.victim.name in own}
    if takers:
        yield doubt(DoubtCode.EVICTED_NEXT, sentence.format(names=" and ".join(_known(takers, actor))))


def _started(group: PodGroup, placements: Mapping[str, str], now: int | None) -> PodGroup:
    pods = tuple(replace(pod, node=placements.get(pod.name)) for pod in group.pods)
    return replace(group, pods=pods, started=now)


def _after(snapshot: Snapshot, first: str, evicted: Collection[str]) -> Snapshot:
    """The first of them is gone, the others have their grace."""
    others = (snapshot.group(name) for name in evicted if name != first)
    return snapshot.changed({first}, map(_leaving, filter(None, others)), now=snapshot.now)


def _leaving(group: PodGroup) -> PodGroup:
    return replace(group, pods=tuple(replace(pod, terminating=True) for pod in group.pods))


def _turning(pool: NodePool) -> Others:
    """Waiting in another pool, with this one among their own; what has a pod on a node is moved nowhere."""
    cluster = pool.cluster
    rows = Workload.objects.filter(
        project__cluster=cluster,
        phase=Phase.PENDING,
        desired_phase=DesiredPhase.RUNNING,
        deleted_at__isnull=True,
        allocated_gpu_milli=0,
        node_pools__1__isnull=False,
    )
    named = rows.exclude(pool_name=pool.name).values_list("pk", "node_pools")
    turning = [pk for pk, pools in named if pool.name in pools]
    found = Workload.objects.filter(pk__in=turning).select_related("project__cluster", "priority") if turning else ()
    return {str(row.pk): waiting_workload(row, pool, cluster.flavour) for row in found}


def _with(snapshot: Snapshot, others: Others) -> Snapshot:
    """The same with these, and without what else of them waits."""
    gone = (each.name for each in snapshot.waiting if workload_of(each.name) in others)
    return snapshot.changed(gone, (group for each in others.values() for group in each.groups), now=snapshot.now)


def _names(others: Others, actor: Actor) -> list[str]:
    visible = visible_among(actor, {each.project_id for each in others.values()})
    return [each.name if each.project_id in visible else "another project's workload" for each in others.values()]


def rivals(
    pool: NodePool, actor: Actor, snapshot: Snapshot, candidates: Sequence[PodGroup], outcome: Outcome
) -> Iterator[Doubt]:
    """That another, or what is evicted for it, may take room that is made for it."""
    if not outcome.victims or outcome.first:
        return
    flavour, title = pool.cluster.flavour, flavour_for(pool.cluster.flavour).title
    waits = any(each.pool == pool.name for each in snapshot.waiting)
    evicted = {each.victim.name: each.victim for each in outcome.victims}
    if flavour in WITHOUT_NOMINATION and waits:
        yield doubt(DoubtCode.RIVALS_FIRST, RIVALS.format(title=title))
    elif flavour == Flavour.KUBE_GANGS and candidates[0].gang and (waits or len(evicted) > 1):
        yield doubt(DoubtCode.RIVALS_FIRST, GANG_RIVALS.format(title=title))
    elif flavour == Flavour.VOLCANO and (first := _served_first_again(snapshot, evicted, candidates)):
        yield doubt(DoubtCode.RIVALS_FIRST, VICTIMS_FIRST.format(title=title, names=" and ".join(_known(first, actor))))


def _served_first_again(
    snapshot: Snapshot, evicted: Mapping[str, PodGroup], candidates: Sequence[PodGroup]
) -> set[str]:
    """Which of the evicted groups start before the candidate if all their pods are gone and wait again."""
    again = [replace(each, pods=tuple(map(_waiting, each.pods)), started=None) for each in evicted.values()]
    there = snapshot.changed(evicted, [*again, *candidates], now=snapshot.now)
    decisions = cycle(there, flavour=Flavour.VOLCANO, about=())
    started = {each.group.name for each in decisions if isinstance(each, Start)}
    return started & evicted.keys() if started.isdisjoint(each.name for each in candidates) else set()


def _waiting(pod: Pod) -> Pod:
    return Pod(pod.name, pod.requests)


def overtaken(actor: Actor, outcome: Outcome) -> Iterator[str]:
    """Workloads that take the capacity freed for it, as far as the actor may know them."""
    if outcome.first:
        yield overtaken_sentence(_known({each.name for each in outcome.first}, actor))


def _known(groups: Collection[str], actor: Actor) -> list[str]:
    """Their workloads by name as far as the actor may know them, and how many others."""
    ids = workload_ids({workload_of(each) for each in groups})
    rows = Workload.objects.filter(pk__in=ids, project__in=access_for(actor).projects()).order_by("name")
    names = list(rows.values_list("name", flat=True))
    owners = {workload_of(each) or each for each in groups}
    names += [ABOVE_IN_FILE for each in owners if each.startswith(ABOVE)]
    if more := len(owners) - len(names):
        names.append(f"{more} workload{'' if more == 1 else 's'} of others")
    return names


def _fate(outcome: Outcome) -> tuple[object, ...]:
    pods = frozenset(pod for evict in outcome.victims for pod in evict.pods)
    return (outcome.kind, outcome.starting, outcome.coming, pods)
