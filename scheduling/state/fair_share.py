"""Fair share: deserved first, then the surplus by rank, then by over-quota weight.

Source: KAI resource division (numbers of its documentation are tests). On every level of the queue tree, in every
dimension:

1. each queue gets its deserved quota, at most what it requests and never above its limit;
2. the surplus goes to the highest rank first; inside a rank in proportion to weight, again and again while some queue
   is satisfied with less than its part. Parts are cut down to whole units (a GPU, a millicore, a byte);
3. what the cutting left over goes out unit by unit, highest rank first, largest remainder first, older queue first.

A department's fair share is what its projects divide. All arithmetic is exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Final

from scheduling.model.resources import MILLI, ZERO, Resources
from scheduling.model.snapshot import Queue

GPU_UNIT: Final = MILLI
FINE_UNIT: Final = 1
NOTHING: Final = Fraction(0)
MOST_KNOWN: Final = 1024
Division = tuple[str | Resources | None, ...]
"""The parent of the queues, the amount that is divided among them, and what each of them requests."""


@dataclass(slots=True)
class _Claim:
    """One queue's claim in one dimension, and what it has received so far."""

    name: str
    rank: int
    weight: int
    created: int
    wanted: int
    deserved: int
    share: int = 0

    @property
    def open(self) -> int:
        """What it may still receive."""
        return self.wanted - self.share


def fair_shares(
    queues: Iterable[Queue],
    requested: Mapping[str, Resources],
    total: Resources,
    known: dict[Division, dict[str, Resources]] | None = None,
) -> dict[str, Resources]:
    """Fair share of every queue. `requested` is in use plus waiting, departments included.

    known: earlier divisions among the same queues, by what decides them; new ones are added.
    """
    known = {} if known is None else known
    children: dict[str | None, list[Queue]] = {}
    for queue in queues:
        children.setdefault(queue.parent, []).append(queue)
    shares: dict[str, Resources] = {}
    levels: list[tuple[str | None, Resources]] = [(None, total)]
    while levels:
        parent, amount = levels.pop()
        below = children.pop(parent, ())
        key = (parent, amount, *[requested.get(queue.name, ZERO) for queue in below])
        if key not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[key] = divide(amount, below, requested)
        shares |= known[key]
        levels.extend(known[key].items())
    return shares


def divide(total: Resources, queues: Sequence[Queue], requested: Mapping[str, Resources]) -> dict[str, Resources]:
    """Divide `total` among queues of one level."""
    requests = {queue.name: requested.get(queue.name, ZERO) for queue in queues}
    gpu = [_claim(q, None, requests[q.name].gpu, q.deserved.gpu, q.limit.gpu, total.gpu) for q in queues]
    cpu = [_claim(q, q.cpu_weight, requests[q.name].cpu, q.deserved.cpu, q.limit.cpu, total.cpu) for q in queues]
    memory = [
        _claim(q, q.memory_weight, requests[q.name].memory, q.deserved.memory, q.limit.memory, total.memory)
        for q in queues
    ]
    _divide(total.gpu, gpu, GPU_UNIT)
    _divide(total.cpu, cpu, FINE_UNIT)
    _divide(total.memory, memory, FINE_UNIT)
    columns = zip(gpu, cpu, memory, strict=True)
    return {g.name: Resources(g.share, c.share, m.share) for g, c, m in columns}


def _claim(
    queue: Queue, weight: int | None, requested: int, deserved: int | None, limit: int | None, total: int
) -> _Claim:
    return _Claim(
        queue.name,
        queue.rank,
        queue.weight if weight is None else weight,
        queue.created,
        wanted=requested if limit is None else min(requested, limit),
        deserved=total if deserved is None else deserved,
    )


def _divide(total: int, claims: list[_Claim], unit: int) -> None:
    for claim in claims:
        claim.share = min(claim.deserved, claim.wanted)
        total -= claim.share
    if total <= 0 or not any(claim.open for claim in claims):
        return
    by_rank = groupby(sorted(claims, key=lambda claim: (-claim.rank, claim.created, claim.name)), lambda c: c.rank)
    remainders: list[list[tuple[Fraction, _Claim]]] = []
    for _rank, equals in by_rank:
        total, left = _by_weight(total, list(equals), unit)
        remainders.append(left)
    for left in remainders:
        total = _leftovers(total, left, unit)


def _by_weight(amount: int, claims: list[_Claim], unit: int) -> tuple[int, list[tuple[Fraction, _Claim]]]:
    """Rounds by weight among queues of one rank; returns what is left and each queue's cut-off remainder."""
    left: dict[str, tuple[Fraction, _Claim]] = {}
    another_round = True
    while another_round and amount:
        unsatisfied = [claim for claim in claims if claim.open and claim.weight]
        weights = sum(claim.weight for claim in unsatisfied)
        in_this_round, another_round = amount, False
        for claim in unsatisfied:
            part, wanted = in_this_round * claim.weight, claim.open * weights  # in parts of one by the weights
            another_round = another_round or wanted < part
            given = claim.open if wanted <= part else part // (weights * unit) * unit
            rest = part - given * weights if claim.open > given else 0
            left[claim.name] = (Fraction(rest, weights) if rest else NOTHING, claim)
            claim.share += given
            amount -= given
    return amount, [(rest, claim) for rest, claim in left.values() if rest]


def _leftovers(amount: int, left: list[tuple[Fraction, _Claim]], unit: int) -> int:
    for _rest, claim in sorted(left, key=lambda item: (-item[0], item[1].created, item[1].name)):
        given = min(unit, amount, claim.open)
        claim.share += given
        amount -= given
    return amount
