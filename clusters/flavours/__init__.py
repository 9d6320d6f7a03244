"""Scheduler dialects: specs in, plain manifests out, observations in, reasons out. Pure, one module per scheduler."""

from collections.abc import Mapping
from typing import Final

from clusters.flavours.kai import Kai
from clusters.flavours.kube import Kube
from clusters.ports import SchedulerFlavour

FLAVOURS: Final[Mapping[str, SchedulerFlavour]] = {flavour.name: flavour for flavour in (Kai(), Kube())}


def flavour_for(name: str) -> SchedulerFlavour:
    """The flavour of a cluster row. KeyError: no such flavour, which its service refuses before it is stored."""
    return FLAVOURS[name]
