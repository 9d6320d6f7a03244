"""What a project could start now, in words: the text beside its quota bar. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _

from portal.core.display import gpu_text, gpus_text
from scheduling.headroom import Bound, Headroom


@dataclass(frozen=True, slots=True)
class Place:
    """Where: names for people. all_pools: its limits hold for all node pools together. stopped: why nothing starts."""

    pool: str
    department: str
    all_pools: bool = False
    stopped: str = ""


def sentence_of(found: Headroom | None, place: Place) -> str:
    """How much, within quota and over it, what binds it, and what others could have to give back."""
    if place.stopped:
        return _("Nothing starts in %(pool)s now: %(why)s") % {"pool": place.pool, "why": place.stopped}
    if found is None:
        return _("What can start in %(pool)s is unknown: no node of it has been seen.") % {"pool": place.pool}
    return " ".join(_parts(found, place))


def _parts(found: Headroom, place: Place) -> Iterator[str]:
    yield _amount(found) % {
        "inside": gpus_text(found.inside),
        "over": gpu_text(found.over),
        "all": gpus_text(found.now),
        "pool": place.pool,
    }
    if found.largest < found.now:
        yield _("One pod gets at most %(largest)s.") % {"largest": gpus_text(found.largest)}
    yield _bound(found, place)
    if found.back:
        text = _("Within quota, up to %(back)s more can be taken back from others that are over theirs.")
        yield text % {"back": gpus_text(found.back)}


def _amount(found: Headroom) -> str:
    if not found.now:
        return _("You can start nothing now in %(pool)s without an eviction.")
    if not found.inside:
        return _("You can start %(all)s now in %(pool)s, all over quota: preemptible only.")
    if found.over:
        return _("You can start %(inside)s now in %(pool)s within quota; %(over)s more over quota, preemptible only.")
    return _("You can start %(inside)s now in %(pool)s within quota.")


def _bound(found: Headroom, place: Place) -> str:
    if found.bound is Bound.FREE:
        return _("No more GPUs are free.") if found.now else _("No GPU is free.")
    if found.bound is Bound.LENDABLE:
        return _("No more quota is left to borrow.") if found.now else _("No quota is left, nor any to borrow.")
    words = {
        "limit": gpus_text(found.allowed or 0),
        "used": gpu_text(found.used),
        "department": place.department,
        "pools": _(" over all node pools") if place.all_pools else "",
    }
    if found.bound is Bound.DEPARTMENT_LIMIT:
        return _("The limit of department %(department)s is %(limit)s, %(used)s in use.") % words
    return _("The project's limit is %(limit)s%(pools)s, %(used)s in use.") % words
