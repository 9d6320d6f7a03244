"""A forecast for a scheduler that admits by quota: what is admitted may still find no node. Pure but for its types."""

from dataclasses import replace
from typing import Final

from scheduling.decisions import Outcome
from scheduling.model import PodGroup, Snapshot
from scheduling.nodeless import Nodeless, nodeless
from scheduling.reasons import Reason
from scheduling.shortage import PODS
from workloads.forecasts import Forecast, Verdict, admission_sentence
from workloads.sentences import amount_text

BLIND: Final = "Admitted at once: its quota is free."
LATER: Final = "It has its place in {pool} and starts once pods that are ending there have left."
HOLDS: Final = "Admitted work holds its quota while it waits for nodes; the kube-scheduler evicts nobody for it."

BIT_BY_BIT: Final = (
    "Admitted pods wait for a node already: what the evicted leave comes free bit by bit, and may go to them before it "
    "is enough for this workload."
)


def looked_at_nodes(found: Forecast, snapshot: Snapshot, group: PodGroup, outcome: Outcome) -> Forecast:
    """The same where its pods find nodes. Otherwise it waits for them, or will once its victims are gone."""
    if found.verdict not in {Verdict.STARTS, Verdict.EVICTS, Verdict.RECLAIMS}:
        return found
    missing = nodeless(snapshot, group, outcome.victims)
    if missing is None:
        rivals = outcome.victims and nodeless(snapshot, group, outcome.victims, last=True)
        return replace(found, cautions=(*found.cautions, BIT_BY_BIT)) if rivals else found
    if missing.later:
        return _after_others(found, missing)
    placed, sentence = missing.of - missing.pods, _sentence(missing, found)
    starting = min(found.starting, placed)
    found = replace(
        found,
        starting=starting,
        coming=placed - starting,
        waiting=found.waiting + missing.pods,
        cautions=(*found.cautions, HOLDS),
    )
    if found.verdict is not Verdict.STARTS:
        return replace(found, sentence=f"{admission_sentence(found.pool, found.victims)} {sentence}")
    return replace(
        found,
        verdict=Verdict.STARTS if placed >= group.min_member else Verdict.WAITS,
        sentence=f"{BLIND} {sentence}",
        reason=str(Reason.NO_ROOM),
        numbers=_numbers(missing, found),
    )


def _after_others(found: Forecast, missing: Nodeless) -> Forecast:
    """What evicts waits for its victims anyway."""
    if found.verdict is not Verdict.STARTS:
        return found
    return replace(
        found,
        verdict=Verdict.WAITS,
        starting=0,
        coming=found.placed,
        sentence=f"{BLIND} {LATER.format(pool=found.pool)}",
        reason=str(Reason.EVICTING),
        numbers=_numbers(missing, found),
    )


def _numbers(missing: Nodeless, found: Forecast) -> dict[str, str]:
    return {
        "needed": str(missing.asked),
        "pool": found.pool,
        "free": str(missing.free),
        "largest_free": str(missing.short.largest),
        **({"short": ", ".join(missing.short.names)} if missing.short.names else {}),
    }


def _sentence(missing: Nodeless, found: Forecast) -> str:
    who = f"{missing.pods} of its {missing.of} pods" if missing.of > 1 else "Its pod"
    names = [name for name in missing.short.names if name != PODS]
    if not names:
        return f"{who} may find no node: those of {found.pool} run as many pods as they may, or are not for it."
    needed, free, largest = (
        amount_text(each, names, up=up)
        for each, up in ((missing.asked, True), (missing.free, False), (missing.short.largest, False))
    )
    one = "a node with room for the rest of what it asks for" if missing.short.beside else "one node"
    return (
        f"{who} may find no node: each needs {needed} on one node of {found.pool}, where {free} are free, at most "
        f"{largest} on {one}."
    )
