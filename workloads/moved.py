"""Taken, or only moved: a scheduler that consolidates ends work for which it has found another node."""

from collections.abc import Sequence
from typing import Final

from clusters.flavours import flavour_for
from workloads.models import PreemptionRecord

CONSOLIDATE: Final = "consolidate"


def was_moved(records: Sequence[PreemptionRecord]) -> bool:
    """By the scheduler's own words, which the record keeps; nobody in particular gains by a move."""
    return all(_cause(record) == CONSOLIDATE for record in records)


def _cause(record: PreemptionRecord) -> str:
    said = {"reason": "Evicted", "message": record.message}
    return flavour_for(record.cluster.flavour).interpret({}, [said]).cause if record.message else ""
