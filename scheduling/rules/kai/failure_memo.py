"""Whom KAI does not look for room for again in one action, since somebody alike has found none.

Source: KAI's `MinimalJobRepresentatives` and its signature of scheduling constraints, which holds the priority and the
number of pods, but neither preemptibility nor size.
"""

from collections.abc import Sequence

from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup

Key = tuple[object, ...]


class VictimSearchMemo:
    """Searches that found nobody: the same queue need not search again for something no smaller."""

    def __init__(self) -> None:
        self._failed: dict[Key, list[tuple[int, Resources]]] = {}

    @staticmethod
    def _key(group: PodGroup) -> Key:
        return (group.queue, group.preemptible, group.tolerations)

    def add(self, group: PodGroup, chunk: tuple[Pod, ...]) -> None:
        """Nobody goes for these pods."""
        if not group.node_selector and not group.topology and len({pod.requests for pod in chunk}) == 1:
            self._failed.setdefault(self._key(group), []).append((len(chunk), chunk[0].requests))

    def covers(self, group: PodGroup, chunk: tuple[Pod, ...]) -> bool:
        """Has an easier pod group of the same queue failed? (Later ones have no higher priority.)"""
        return any(
            count <= len(chunk) and all(asked.fits_in(pod.requests) for pod in chunk)
            for count, asked in self._failed.get(self._key(group), ())
        )


class FailureMemo:
    """The easiest of what has failed and is alike: what is no easier is not tried, though it might not be in vain.

    across_queues: also where another queue's has failed.
    """

    def __init__(self, *, across_queues: bool) -> None:
        self._across_queues = across_queues
        self._easiest: dict[Key, list[Resources]] = {}

    def add(self, group: PodGroup, pods: Sequence[Pod]) -> None:
        """These pods, all that wait of the group, found no room."""
        known, sizes = self._easiest.get(self._key(group, pods)), _sizes(pods)
        if known is None or all(mine.fits_in(theirs) for mine, theirs in zip(sizes, known, strict=True)):
            self._easiest[self._key(group, pods)] = sizes

    def covers(self, group: PodGroup, pods: Sequence[Pod]) -> bool:
        """Is there one that these are no easier than?"""
        known = self._easiest.get(self._key(group, pods))
        return known is not None and not any(
            mine.fits_in(theirs) and mine != theirs for mine, theirs in zip(_sizes(pods), known, strict=True)
        )

    def _key(self, group: PodGroup, pods: Sequence[Pod]) -> Key:
        where = frozenset(group.node_selector.items())
        alike = (group.priority, group.tolerations, where, group.topology, len(pods))
        return alike if self._across_queues else (group.queue, *alike)


def _sizes(pods: Sequence[Pod]) -> list[Resources]:
    return sorted((pod.requests for pod in pods), key=lambda asked: (asked.gpu, asked.cpu, asked.memory))
