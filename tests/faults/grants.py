"""What was granted when, beside what an API server was seen to enforce."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

Amounts = Mapping[str, float]
"""GPUs by the name of a hard quota, all node pools together; one that is not named is not limited."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A hard quota as it was at some moment between `begun` and `ended` (monotonic seconds)."""

    namespace: str
    name: str
    gpus: int
    begun: float
    ended: float


class Ledger:
    """Every grant of every namespace, and when everything was at rest."""

    def __init__(self) -> None:
        self._grants: dict[str, list[tuple[float, Amounts]]] = defaultdict(list)
        self._rests: list[float] = [0.0]

    def note(self, namespace: str, amounts: Amounts) -> None:
        """From now on this may be enforced there. Call it before it is granted."""
        self._grants[namespace].append((time.monotonic(), dict(amounts)))

    def rest(self) -> None:
        """The API server enforces what was granted last: no earlier grant explains what it enforces later."""
        self._rests.append(time.monotonic())

    def last(self) -> dict[str, Amounts]:
        """What is granted now, by namespace."""
        return {namespace: said[-1][1] for namespace, said in self._grants.items()}

    def most(self, sample: Sample) -> float:
        """The highest of what was granted at the last rest before the sample, and of all since."""
        rest = max(each for each in self._rests if each <= sample.begun)
        said = [each for each in self._grants[sample.namespace] if each[0] <= sample.ended]
        old = [each for each in said if each[0] <= rest][-1:]
        new = [each for each in said if each[0] > rest]
        return max((amounts.get(sample.name, inf) for _, amounts in [*old, *new]), default=0)
