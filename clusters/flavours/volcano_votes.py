"""Whether Volcano's plugin cdp keeps young work from being evicted, where plugins vote tier by tier. Pure.

Source: Volcano 1.15, `Session.Preemptable` and `Session.Reclaimable`. The first tier that leaves anybody decides. One
that leaves nobody decides nothing: the next is asked about everybody again, so that a veto holds only where it is made
in every tier that is asked. Inside a tier only who is in the lists of all plugins goes; but where two lists have nobody
in common, the next plugin's counts alone, so that a veto is safe only when it is the last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from scheduling.decisions import Cause

CDP: Final = "cdp"
SWITCHES: Final = {Cause.PREEMPT: "enablePreemptable", Cause.RECLAIM: "enableReclaimable"}
"""What keeps a plugin from being asked about an action."""
_BOTH: Final = frozenset({"gang", "conformance", "drf", "pdb", "extender", CDP})
VOTERS: Final = {
    Cause.PREEMPT: _BOTH | {"priority", "tdm"},
    Cause.RECLAIM: _BOTH | {"capacity", "proportion"},
}
LENIENT: Final = frozenset({CDP, "conformance"})
"""They ask neither for priority nor for quotas."""

Tier = Sequence[Mapping[str, Any]]


def spared_from(tiers: Sequence[Tier]) -> Iterator[Cause]:
    """The actions that never take what cdp spares."""
    for action in VOTERS:
        asked = list(_asked(tiers, action))
        if asked and all(map(_has_the_last_word, asked)):
            yield action


def opened_to(tiers: Sequence[Tier]) -> Iterator[Cause]:
    """The actions that take whoever is old enough, whatever its priority or quota, when the tiers before say nobody."""
    for action in VOTERS:
        if any(CDP in voters and LENIENT.issuperset(voters) for voters in _asked(tiers, action)):
            yield action


def _asked(tiers: Iterable[Tier], action: Cause) -> Iterator[list[str]]:
    """The plugins of each tier that have a say, in their order."""
    for tier in tiers:
        named = [str(each.get("name")) for each in tier if each.get(SWITCHES[action]) is not False]
        if voters := [name for name in named if name in VOTERS[action]]:
            yield voters


def _has_the_last_word(voters: Sequence[str]) -> bool:
    """Of two the first is as good: nobody comes after the second."""
    return voters[-1] == CDP or (len(voters) == 2 and voters[0] == CDP)
