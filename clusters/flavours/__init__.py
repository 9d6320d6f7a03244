"""Scheduler dialects: specs in, plain manifests out, observations in, reasons out. Pure, one module per scheduler."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from clusters.flavours import kueue_reading
from clusters.flavours.kai import Kai
from clusters.flavours.kube import Kube
from clusters.flavours.kube_gangs import KubeGangs
from clusters.flavours.kueue import Kueue
from clusters.flavours.volcano import Volcano
from clusters.kinds_core import KUEUE_WORKLOAD
from clusters.ports import Kind, Manifest, SchedulerFlavour

Teller: TypeAlias = Callable[[Manifest], Iterator[Manifest]]

FLAVOURS: Final[Mapping[str, SchedulerFlavour]] = {
    flavour.name: flavour for flavour in (Kai(), Kube(), KubeGangs(), Kueue(), Volcano())
}

TELLERS: Final[Mapping[str, Mapping[Kind, Teller]]] = {"kueue": {KUEUE_WORKLOAD: kueue_reading.tell}}
"""By flavour: kinds of the scheduler's own objects that are read, and how each becomes events about its job."""
TOLD: Final = frozenset(kind.key for tellers in TELLERS.values() for kind in tellers)
SUMS: Final = frozenset({"kueue"})
"""Flavours in which a department's objects depend on the sum of what its projects deserve."""


def flavour_for(name: str) -> SchedulerFlavour:
    """The flavour of a cluster row. KeyError: no such flavour, which its service refuses before it is stored."""
    return FLAVOURS[name]
