"""Who becomes reclaimable by a lower deserved quota: preemptible work above it, which others may take back."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from django.utils.translation import gettext as _

from clusters.models import NodePool
from clusters.services.configured import promise_on
from portal.core.errors import Problem
from scheduling.resources import Limit, Resources
from tenants.quota_values import DIMENSIONS, amount_text
from tenants.usage import HeldWork, preemptible_work

NAMED: Final = 10
"""How many workloads are named in one sentence."""


def newly_reclaimable(
    *, node_pool: NodePool, projects: Collection[int], allocated: Resources, before: Limit, after: Limit
) -> Iterator[Problem]:
    """What is above the deserved quota of these projects only once it is lowered; nothing where nothing is reclaimed.

    Reads what runs only where something is.
    """
    if promise_on(node_pool.cluster, "over_quota_and_reclaim").enforced == "no":
        return
    for dimension in DIMENSIONS:
        used = getattr(allocated, dimension)
        was, over = (_over(used, getattr(limit, dimension)) for limit in (before, after))
        if over > was:
            work = _taken(preemptible_work(projects, node_pool.name), dimension, was, over)
            yield _problem(node_pool, dimension, over=over, deserved=used - over, work=work)


def _over(used: int, deserved: int | None) -> int:
    return 0 if deserved is None else max(used - deserved, 0)


def _taken(work: Sequence[HeldWork], dimension: str, was: int, over: int) -> list[HeldWork]:
    """In the order of reclaim: those that nothing above the quota of before reached, until the new one holds again."""
    found: list[HeldWork] = []
    above = 0
    for each in work:
        if above >= over:
            break
        if (amount := getattr(each.held, dimension)) and above >= was:
            found.append(each)
        above += amount
    return found


def _problem(node_pool: NodePool, dimension: str, *, over: int, deserved: int, work: Sequence[HeldWork]) -> Problem:
    numbers = {"over": amount_text(dimension, over), "deserved": amount_text(dimension, deserved)}
    named = ", ".join(
        f"{each.label} ({amount_text(dimension, getattr(each.held, dimension))})" for each in work[:NAMED]
    )
    more = _(" and %(count)d more") % {"count": len(work) - NAMED} if len(work) > NAMED else ""
    whom = _(" Lowest priority and youngest first: %(named)s%(more)s.") % {"named": named, "more": more} if work else ""
    text = _(
        "In %(pool)s %(over)s of what is in use would be above the deserved %(deserved)s: others may take it back."
    )
    message = text % {**numbers, "pool": node_pool.name} + whom
    return Problem(f"/{dimension}/deserved", "becomes_reclaimable", message, numbers=numbers)
