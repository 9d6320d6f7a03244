"""A forecast for a scheduler that admits by quota: what is admitted may still find no node. Pure but for its types."""

from dataclasses import replace
from typing import Final

from scheduling.decisions import Outcome
from scheduling.model import PodGroup, Snapshot
from scheduling.nodeless import Nodeless, nodeless
from scheduling.reasons import Reason
from workloads.forecasts import Forecast, Verdict
from workloads.sentences import amount_text

BLIND: Final = "Admitted at once: its quota is free."
AWARE: Final = "Waits, though its quota is free:"
HOLDS: Final = (
    "Admitted work holds its quota while it waits for nodes, and the kube-scheduler may evict lower priorities of any "
    "project for it."
)


def looked_at_nodes(
    found: Forecast, snapshot: Snapshot, group: PodGroup, outcome: Outcome, *, aware: bool = False
) -> Forecast:
    """The same where its pods find nodes. Otherwise it waits for them, or will once its victims are gone.

    `aware`: in this pool the scheduler knows the nodes, so it admits nothing that has no place on them.
    """
    if found.verdict not in {Verdict.STARTS, Verdict.EVICTS, Verdict.RECLAIMS}:
        return found
    missing = nodeless(snapshot, group, outcome.victims)
    if missing is None:
        return found
    sentence, holds = _sentence(missing, found), () if aware else (HOLDS,)
    if found.verdict is not Verdict.STARTS:
        return replace(found, cautions=(*found.cautions, sentence, *holds))
    numbers = {
        "needed": str(missing.asked),
        "pool": found.pool,
        "free": str(missing.free),
        "largest_free": str(missing.largest_free),
    }
    if missing.topology is not None:
        near = {"topology": missing.topology, "domain": missing.domain, "largest_domain": str(missing.largest_domain)}
        numbers |= near
    return replace(
        found,
        verdict=Verdict.WAITS,
        sentence=f"{AWARE if aware else BLIND} {sentence}",
        reason=str(Reason.NO_ROOM if missing.topology is None else Reason.NO_DOMAIN),
        numbers=numbers,
        cautions=(*found.cautions, *holds),
    )


def _sentence(missing: Nodeless, found: Forecast) -> str:
    who = f"{missing.pods} of its {missing.of} pods" if missing.of > 1 else "Its pod"
    said = f"{who} may find no node: each needs {amount_text(missing.asked)} on one node of {found.pool},"
    free, largest = amount_text(missing.free), amount_text(missing.largest_free)
    if missing.topology is None:
        return f"{said} where {free} are free, at most {largest} on one node."
    return f"{said} all on nodes with one value of {missing.topology}{_near(missing)}."


def _near(missing: Nodeless) -> str:
    """What the domain has that takes most of a gang."""
    if not missing.domain:
        return ", which no ready node carries"
    free, most = amount_text(missing.free), amount_text(missing.largest_domain)
    return f"; {free} are free, at most {most} with one value ({missing.domain})"
