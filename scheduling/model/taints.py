"""Nodes that keep pods away, and pods that come all the same."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps pods without a matching toleration away from its node. A mere preference is none."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints a pod bears. `operator` Exists asks for no value; without key or effect any will do."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def bears(self, taint: Taint) -> bool:
        """True when this taint does not keep the pod away."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or self.value == taint.value


def welcome(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """May a pod with these tolerations come to a node with these taints?"""
    borne = tuple(tolerations)
    return all(any(each.bears(taint) for each in borne) for taint in taints)
