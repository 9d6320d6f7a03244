"""A scenario and the answer to it, in plain values."""

from dataclasses import dataclass, field
from enum import StrEnum

from scheduling.model.resources import Resources

NAMESPACES = ("agree-a", "agree-b", "agree-c")


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node. closed: cordoned, or tainted, or without the label that the pods select. rack: a label of it."""

    name: str
    capacity: Resources
    max_pods: int = 110
    closed: str = ""
    rack: str = ""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod. value: of its class; None without one, and so without Never. start: seconds, larger is younger.

    ending: somebody has deleted it, and its grace period runs. gang: the PodGroup it belongs to.
    """

    name: str
    namespace: str
    requests: Resources
    value: int | None
    never: bool = False
    node: str | None = None
    start: int = 0
    ending: bool = False
    gang: str = ""

    @property
    def priority(self) -> int:
        return self.value or 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """`earlier` comes before the candidate and is decided first; None where there is no such pod."""

    seed: int
    family: str
    nodes: tuple[NodePlan, ...]
    pods: tuple[PodPlan, ...]
    candidate: PodPlan
    earlier: PodPlan | None = None

    @property
    def comers(self) -> tuple[PodPlan, ...]:
        """Who comes, one after the other."""
        return (self.earlier, self.candidate) if self.earlier else (self.candidate,)


class Kind(StrEnum):
    """What becomes of a pod."""

    PLACED = "placed"
    WAITS = "waits"
    PREEMPTS = "preempts"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a pod and who goes for it. node: where it runs or waits for its victims; empty if nowhere."""

    kind: Kind
    victims: frozenset[str] = field(default=frozenset())
    node: str = ""

    def agrees(self, other: "Verdict") -> bool:
        """The same in all that is not the scheduler's free choice: which of several free nodes it takes."""
        same_node = self.node == other.node or self.kind is Kind.PLACED
        return self.kind is other.kind and self.victims == other.victims and same_node

    def __str__(self) -> str:
        return f"{self.kind} {sorted(self.victims)} on {self.node or 'no node'}"
