"""Scheduler dialects: specs in, plain manifests out, observations in, reasons out. Pure, one module per scheduler."""

from collections.abc import Mapping
from typing import Final

from clusters.flavours.kai import Kai
from clusters.flavours.kube import Kube
from clusters.flavours.kube_gangs import KubeGangs
from clusters.flavours.kueue import Kueue
from clusters.flavours.volcano import Volcano
from clusters.ports import SchedulerFlavour

FLAVOURS: Final[Mapping[str, SchedulerFlavour]] = {
    flavour.name: flavour for flavour in (Kube(), KubeGangs(), Kai(), Kueue(), Volcano())
}
"""In the order in which they are offered."""
BESIDE_KEYS: Final = frozenset(kind.key for each in FLAVOURS.values() for kind in each.traits.beside)
TOLD_KEYS: Final = frozenset(kind.key for each in FLAVOURS.values() for kind in each.traits.tells)
LABELLED_KEYS: Final = frozenset(kind.key for each in FLAVOURS.values() for kind in each.traits.told_by_label)


def flavour_for(name: str) -> SchedulerFlavour:
    """The flavour of a cluster row. KeyError: no such flavour, which its service refuses before it is stored."""
    return FLAVOURS[name]
