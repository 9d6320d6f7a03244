"""The owner label of observed objects as a workload's id. What a cluster says is anybody's text; most of it is none."""

from collections.abc import Iterable
from uuid import UUID


def workload_id(owner: str) -> UUID | None:
    """The id, or None for anything else."""
    try:
        return UUID(owner)
    except ValueError:
        return None


def workload_ids(owners: Iterable[str]) -> list[UUID]:
    """Those of the owners that are ids."""
    return [found for owner in owners if (found := workload_id(owner)) is not None]
