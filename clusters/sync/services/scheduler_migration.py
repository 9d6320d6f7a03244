"""Schedulers a cluster had before: which of their objects are still looked for, which stay for now, and what is left.

What the API server itself enforces (ResourceQuotas and the like) binds the pods of every scheduler, so it goes as soon
as the new objects stand. What only the old scheduler reads stays while workloads that were made for it live: their pods
are placed again by it when they are lost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.inventory.services import workload_hooks
from clusters.ports.flavour import SchedulerFlavour
from clusters.ports.gateway import Kind
from clusters.sync.models import FormerFlavour, OrphanedObject
from clusters.sync.rules.diff import Change, Delete


@dataclass(frozen=True, slots=True)
class RetiredKinds:
    """Kinds of former schedulers that the present one has not. `held`: those that stay for now."""

    kinds: tuple[Kind, ...] = ()
    held: frozenset[str] = frozenset()

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(kind.key for kind in self.kinds)

    def free(self, changes: Iterable[Change]) -> list[Change]:
        """The changes without the deletion of what stays."""
        return [each for each in changes if not (isinstance(each, Delete) and each.ref.kind.key in self.held)]


NOTHING: Final = RetiredKinds()


def retired_in(cluster: Cluster) -> RetiredKinds:
    """What a look at everything has to look for beside the present scheduler's kinds."""
    former = list(FormerFlavour.objects.filter(cluster=cluster, cleared_at=None).values_list("flavour", flat=True))
    if not former:
        return NOTHING
    in_use = set(OrphanedObject.objects.filter(cluster=cluster).values_list("flavour", flat=True).distinct())
    return retired_from(former, cluster.flavour, in_use)


def retired_from(former: Iterable[str], present: str, in_use: Iterable[str]) -> RetiredKinds:
    """`in_use`: former schedulers for which living workloads were made."""
    in_place, used = {kind.key for kind in flavour_for(present).kinds()}, set(in_use)
    found: dict[str, Kind] = {}
    held: set[str] = set()
    for name in former:
        own = [kind for kind in flavour_for(name).kinds() if kind.key not in in_place]
        found |= {kind.key: kind for kind in own}
        held |= {kind.key for kind in own if kind.group and name in used}
    return RetiredKinds(tuple(found.values()), frozenset(held))


def settle_migration(cluster: Cluster, *, left: int | None) -> None:
    """After a look at everything. `left`: objects of former schedulers that it found; None: it could not see them all.

    1. forget workloads that have ended; recreate those that no longer run
    2. a former scheduler of which nothing is left, for which no living workload was made, is not looked for any more
    """
    former = FormerFlavour.objects.filter(cluster=cluster, cleared_at=None)
    rows = OrphanedObject.objects.filter(cluster=cluster)
    if ids := set(rows.values_list("workload_id", flat=True)):
        rows.filter(workload_id__in=ids - workload_hooks.tend(ids)).delete()
    if left == 0 and former.exists():
        former.exclude(flavour__in=rows.values("flavour")).update(cleared_at=timezone.now())


def is_leaving(cluster: Cluster) -> bool:
    """Something of a former scheduler may still be there."""
    return FormerFlavour.objects.filter(cluster=cluster, cleared_at=None).exists()


def former_flavour_of(cluster: Cluster, workload_id: UUID | str) -> SchedulerFlavour | None:
    """The former scheduler for which this workload's objects were made; None: for the present one."""
    rows = OrphanedObject.objects.filter(cluster=cluster, workload_id=str(workload_id))
    name = rows.values_list("flavour", flat=True).first()
    return flavour_for(name) if name else None


def mark_recreated(cluster: Cluster, workload_id: UUID | str) -> None:
    """What was made of this workload for a former scheduler is gone."""
    OrphanedObject.objects.filter(cluster=cluster, workload_id=str(workload_id)).delete()


def companion_kinds(cluster: Cluster) -> Sequence[Kind]:
    """Kinds of what former schedulers alone may have beside a workload's own object, in the order of taking it away."""
    former = FormerFlavour.objects.filter(cluster=cluster).values_list("flavour", flat=True)
    present = flavour_for(cluster.flavour).traits.beside
    kinds = (kind for name in former for kind in reversed(flavour_for(name).traits.beside))
    return [kind for kind in dict.fromkeys(kinds) if kind not in present]
