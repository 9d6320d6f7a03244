"""Give a living cluster another scheduler: first what that would do, then in one transaction, then a reconcile does it.

The plan asks the cluster and writes nothing. It is an estimate: the cluster moves on, and what is not Rung's is only
looked at. Undone by switching back.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from django.db import transaction
from django.utils import timezone

from clusters.connection.services.connection_test import SwitchPreconditions, hindrances
from clusters.connection.services.gateways import gateway_for
from clusters.connection.services.scheduler_config import guarantees_on, guarantees_under, with_scheduler
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.services import workload_hooks
from clusters.inventory.services.inventory import forget_versions, mark_dirty, paused_conflict
from clusters.inventory.services.workload_hooks import SwitchEffect
from clusters.ports.flavour import Guarantee, SchedulerFlavour
from clusters.ports.gateway import ClusterGateway, Kind, Manifest, ObjectRef, collect_pages
from clusters.sync.models import Drift, DriftKind, FormerFlavour, OrphanedObject
from clusters.sync.rules.diff import Change, Create, Delete, NameConflict, Replace, Update, diff
from clusters.sync.selectors import desired_state
from clusters.sync.services.applier import thread_limit_of
from clusters.sync.services.drift import adopted_uids
from clusters.sync.services.object_reads import pages_of
from clusters.sync.services.observed_state import gc_disabled
from clusters.sync.services.scheduler_migration import RetiredKinds, retired_from
from portal.audit.services import record, record_refusals
from portal.kit.db.transactions import external_call
from portal.kit.errors import Conflict as StateConflict
from portal.kit.errors import ValidationFailed
from portal.kit.messaging.concurrency import map_concurrently, no_work
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import check_direct_change

SAMPLES: Final = 3
BATCH: Final = 500
WORSE: Final = {"yes": 2, "partly": 1, "no": 0}
"""How much of a guarantee is kept."""


@dataclass(frozen=True, slots=True)
class KindPlan:
    """What becomes of Rung's objects of one kind. `kept`: they go once the last workload made for them has ended."""

    kind: str
    create: int = 0
    update: int = 0
    replace: int = 0
    delete: int = 0
    kept: int = 0
    conflict: int = 0
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GuaranteeChange:
    """A guarantee that the two schedulers keep differently."""

    before: Guarantee
    after: Guarantee

    @property
    def is_worse(self) -> bool:
        """The new scheduler keeps less of it."""
        return WORSE[self.after.enforced] < WORSE[self.before.enforced]


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """What a switch would do, as of one generation of the cluster. `conflicts`: what prevents it, in sentences.

    target: the cluster's row with the new scheduler and its configuration, as far as that could be read.
    """

    before: SchedulerFlavour
    after: SchedulerFlavour
    target: Cluster
    generation: int
    asked_at: datetime
    observed_at: datetime | None
    kinds: tuple[KindPlan, ...]
    unchanged: int
    conflicts: tuple[str, ...]
    guarantees: tuple[GuaranteeChange, ...]
    work: SwitchEffect
    hindrances: SwitchPreconditions
    uncompared: tuple[str, ...] = ()  # kinds of the new scheduler that could not be listed: all of theirs counts as new

    @property
    def possible(self) -> bool:
        """Nothing forbids it."""
        return self.hindrances.none


@gc_disabled()
def plan_switch(*, cluster: Cluster, flavour: str) -> SwitchPlan:
    """What giving the cluster that scheduler would do. Reads only. Raises Refused, Conflict, ClusterError.

    1. what the new scheduler misses there: kinds that are not served, rights that Rung lacks
    2. list what is Rung's of both schedulers' kinds, and everybody's of the kinds that are new and may be listed
    3. compare with what Rung would want there
    """
    cluster.refresh_from_db()
    _check_choice(cluster, flavour)
    before, after = flavour_for(cluster.flavour), flavour_for(flavour)
    gateway, asked_at = gateway_for(cluster), timezone.now()
    missing = hindrances(gateway, before, after)
    target = with_scheduler(cluster, flavour, missing.configured)
    work = workload_hooks.work_in(target, after)
    retired = _retired(cluster, after, stays=work.stays.count > 0)
    wanted: list[Manifest] = []
    kinds = _kinds(before, retired, [kind for kind in after.kinds() if kind.key not in missing.unreadable])
    lists = partial(_listed, gateway, {kind.key for kind in (*before.kinds(), *retired.kinds)}, retired)
    meanwhile = partial(_want, target, wanted)
    answers = map_concurrently(kinds, lists, threads=thread_limit_of(gateway), idle=no_work, meanwhile=meanwhile)
    observed = [each for _, found in answers for each in found]
    known = _known_conflicts(cluster)
    changes = [_as_known(each, known) for each in diff(observed, wanted, adopted=adopted_uids(cluster))]
    return SwitchPlan(
        before=before,
        after=after,
        target=target,
        generation=cluster.generation,
        asked_at=asked_at,
        observed_at=cluster.observed_at,
        kinds=tuple(_by_kind(changes, retired)),
        unchanged=len(wanted) - sum(not isinstance(change, Delete) for change in changes),
        conflicts=tuple(change.reason for change in changes if isinstance(change, NameConflict))[:20],
        guarantees=tuple(
            _guarantee_changes(
                guarantees_on(cluster),
                guarantees_under(after, missing.configured, deferring=cluster.defer_preemptors),
            )
        ),
        work=work,
        hindrances=missing,
        uncompared=tuple(kind.key for kind in after.kinds() if kind.key in missing.unreadable),
    )


def switch_flavour(*, cluster: Cluster, flavour: str, generation: int, actor: Actor) -> None:
    """Give the cluster that scheduler, as it was planned for this generation. Raises Refused, Conflict, ClusterError.

    1. ask the cluster again for what would forbid it, before a transaction opens
    2. in one transaction: store the new scheduler, mark waiting work to be recreated and everything dirty, audit
    A reconcile then makes the new objects before it takes the old ones away. Objects of what runs are not touched.
    """
    with record_refusals(actor=actor, action="cluster.switch", entity_type="cluster", entity_name=cluster.name):
        check_direct_change()
        _check_choice(cluster, flavour)
        _check_preconditions(cluster, flavour)
        with transaction.atomic():
            row = Cluster.objects.select_for_update().get(pk=cluster.pk)
            _check_choice(row, flavour)
            check_generation(row, generation)
            detail = {"before": row.flavour, "after": flavour, "left_behind": _leave(row, flavour)}
            record(actor, "cluster.switch", row, detail=detail)
    cluster.refresh_from_db()


def check_generation(cluster: Cluster, generation: int) -> None:
    """Conflict where the cluster's configuration has moved on from this generation."""
    if cluster.generation != generation:
        message = f"The configuration of {cluster.name} changed after this plan was created. Review the plan again."
        raise StateConflict(message, code="plan_outdated")


def _leave(row: Cluster, flavour: str) -> int:
    """The rows of a switch; how many workloads were made for another scheduler now."""
    now, before = timezone.now(), row.flavour
    FormerFlavour.objects.filter(cluster=row, flavour=flavour).delete()
    FormerFlavour.objects.update_or_create(cluster=row, flavour=before, defaults={"left_at": now, "cleared_at": None})
    Cluster.objects.filter(pk=row.pk).update(flavour=flavour, configured={}, resync_due_at=now, failures=0)
    behind = OrphanedObject.objects.filter(cluster=row)
    older = set(behind.values_list("workload_id", flat=True))
    fresh = workload_hooks.begin(row) - older
    made = (OrphanedObject(cluster=row, flavour=before, workload_id=each) for each in fresh)
    OrphanedObject.objects.bulk_create(made, batch_size=BATCH)
    behind.filter(flavour=flavour).delete()
    mark_dirty(row)
    forget_versions(row)
    return behind.count()


def _check_choice(cluster: Cluster, flavour: str) -> None:
    if flavour not in FLAVOURS:
        raise ValidationFailed.at(
            "/flavour", "unknown", f"{flavour[:40]!r} is not a scheduler.", allowed=list(FLAVOURS)
        )
    if flavour == cluster.flavour:
        raise ValidationFailed.at("/flavour", "same", f"{cluster.name} already has this scheduler.")
    if cluster.state != ClusterState.ACTIVE:
        raise paused_conflict(cluster)


def _check_preconditions(cluster: Cluster, flavour: str) -> None:
    before, after = flavour_for(cluster.flavour), flavour_for(flavour)
    found = external_call(partial(hindrances, gateway_for(cluster), before, after))
    if not found.none:
        raise StateConflict(found.sentence, code="switch_hindered")


def _retired(cluster: Cluster, after: SchedulerFlavour, *, stays: bool) -> RetiredKinds:
    former = FormerFlavour.objects.filter(cluster=cluster, cleared_at=None).exclude(flavour=after.name)
    behind = set(OrphanedObject.objects.filter(cluster=cluster).values_list("flavour", flat=True).distinct())
    names = [*former.values_list("flavour", flat=True), cluster.flavour]
    return retired_from(names, after.name, behind | ({cluster.flavour} if stays else set()))


def _kinds(before: SchedulerFlavour, retired: RetiredKinds, after: Iterable[Kind]) -> list[Kind]:
    own = [kind for kind in before.kinds() if kind.key not in retired.keys]
    return list({kind.key: kind for kind in (*own, *retired.kinds, *after)}.values())


def _listed(gateway: ClusterGateway, ours: Collection[str], retired: RetiredKinds, kind: Kind) -> list[Manifest]:
    """Ours; of a kind that Rung has nothing of yet everybody's, since one of them may hold a wanted name."""
    if kind.key in ours:
        return collect_pages(pages_of(gateway, retired.keys, kind))[0]
    return gateway.list(kind, managed_only=False)[0]


def _want(target: Cluster, wanted: list[Manifest]) -> None:
    wanted.extend(flavour_for(target.flavour).objects_for(desired_state(target)))


def _known_conflicts(cluster: Cluster) -> dict[tuple[str, str, str], str]:
    rows = Drift.objects.filter(cluster=cluster, category=DriftKind.CONFLICT)
    return {
        (row.kind, row.namespace, row.name): row.message for row in rows.only("kind", "namespace", "name", "message")
    }


def _as_known(change: Change, known: dict[tuple[str, str, str], str]) -> Change:
    """Of the kinds that both have only Rung's own were listed: what else is in the way is known from the last look."""
    if isinstance(change, Create) and (reason := known.get(_place(change.ref))):
        return NameConflict(change.ref, change.desired, reason)
    return change


def _place(ref: ObjectRef) -> tuple[str, str, str]:
    return (ref.kind.key, ref.namespace, ref.name)


def _by_kind(changes: Iterable[Change], retired: RetiredKinds) -> Iterator[KindPlan]:
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(change.ref.kind.key, []).append(change)
    for key, some in sorted(found.items()):
        counts = Counter(_verb(each, retired) for each in some)
        samples = tuple("/".join(filter(None, (each.ref.namespace, each.ref.name))) for each in some[:SAMPLES])
        yield KindPlan(key, **counts, samples=samples)


def _verb(change: Change, retired: RetiredKinds) -> str:
    """The field of `KindPlan` in which it counts."""
    match change:
        case Create():
            return "create"
        case Replace():
            return "replace"
        case Delete():
            return "kept" if change.ref.kind.key in retired.held else "delete"
        case Update():
            return "update"
        case _:
            return "conflict"


def _guarantee_changes(before: Iterable[Guarantee], after: Iterable[Guarantee]) -> list[GuaranteeChange]:
    """What is kept differently, losses first."""
    known = {guarantee.code: guarantee for guarantee in before}
    pairs = [GuaranteeChange(known[each.code], each) for each in after if each.code in known]
    return sorted(
        (pair for pair in pairs if pair.before.enforced != pair.after.enforced), key=lambda pair: not pair.is_worse
    )
