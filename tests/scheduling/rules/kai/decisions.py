"""What KAI decides in a cycle or about one candidate, in the words of the tests of its rules."""

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Decision, Outcome, Start
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode
from tests.builders import queue, snapshot

DEP = queue("dep", deserved=None)


def decide(*items: SnapshotNode | Queue | PodGroup) -> list[Decision]:
    return cycle(snapshot(*items), flavour="kai")


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kai")


def victims(found: Outcome) -> list[str]:
    return sorted(evict.victim.name for evict in found.victims)


def reason(found: Outcome) -> Reason | None:
    return found.pend.reason if found.pend else None


def started(decisions: list[Decision]) -> list[str]:
    return [decision.group.name for decision in decisions if isinstance(decision, Start)]
