"""Nodes in the order of their free GPUs, so that a search does not visit nodes without free GPUs."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence


class NodesByGpus:
    """Indexes of nodes by their free GPUs, which the owner changes.

    changed: nodes that may have other GPUs than before. They are moved at the next search: most changes of an attempt
    are undone by then.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = gpus
        self._sorted_by: list[int] = []
        self._amounts: list[int] = []
        self._indexes: dict[int, list[int]] = {}
        self.changed = set(range(len(gpus)))

    def having(self, gpu: int, *, spread: bool = False) -> Iterator[int]:
        """Nodes that have as much, the fullest first; with `spread`, the emptiest first. Ties by index."""
        self._sort()
        amounts = self._amounts[bisect_left(self._amounts, gpu) :]
        return self._in_order(amounts[::-1] if spread else amounts)

    def _in_order(self, amounts: Sequence[int]) -> Iterator[int]:
        for amount in amounts:
            yield from [*self._indexes.get(amount, ())]

    def total(self) -> int:
        """Sum of free GPUs; overcommitted nodes count as zero."""
        self._sort()
        return sum(amount * len(self._indexes[amount]) for amount in self._amounts if amount > 0)

    def _sort(self) -> None:
        if len(self.changed) > len(self._gpus) // 4:
            self._sorted_by, self._indexes = [*self._gpus], {}
            for index, gpu in enumerate(self._gpus):
                self._indexes.setdefault(gpu, []).append(index)
            self._amounts = sorted(self._indexes)
        else:
            for index in self.changed:
                if self._sorted_by[index] != self._gpus[index]:
                    self._move(index, self._sorted_by[index], self._gpus[index])
        self.changed.clear()

    def _move(self, index: int, before: int, gpu: int) -> None:
        left = self._indexes[before]
        del left[bisect_left(left, index)]
        if not left:
            del self._indexes[before]
            self._amounts.remove(before)
        if gpu not in self._indexes:
            self._indexes[gpu] = []
            insort(self._amounts, gpu)
        insort(self._indexes[gpu], index)
        self._sorted_by[index] = gpu
