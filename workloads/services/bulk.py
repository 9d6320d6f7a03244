"""One verb on many workloads. Every row is its own transaction with its own answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from django.db.models import QuerySet

from portal.core.actors import Actor
from portal.core.errors import BadRequest, RungError
from workloads.models import Workload
from workloads.services import lifecycle

MOST: Final = 100
VERBS: Final[Mapping[str, Callable[..., Workload]]] = MappingProxyType(
    {"stop": lifecycle.stop, "resume": lifecycle.resume, "retry": lifecycle.retry, "delete": lifecycle.delete}
)


@dataclass(frozen=True, slots=True)
class RowResult:
    """What happened to one row; an empty refusal means that it is so. changed: it was not so before."""

    name: str
    refusal: str = ""
    workload: Workload | None = None
    changed: bool = False


def act_on_all(*, rows: QuerySet[Workload], ids: Sequence[str], verb: str, actor: Actor) -> list[RowResult]:
    """Stop, resume, retry or delete the visible rows among at most 100 ids; the others are named as not found."""
    found = {str(row.pk): row for row in chosen(rows=rows, ids=ids, verb=verb)}
    return [_act(found.get(each), verb, actor) for each in dict.fromkeys(ids)]


def chosen(*, rows: QuerySet[Workload], ids: Sequence[str], verb: str) -> list[Workload]:
    """The visible rows among them, by name. BadRequest for no verb, no id or more than 100."""
    if verb not in VERBS or not 0 < len(ids) <= MOST:
        raise BadRequest(f"Choose stop, resume, retry or delete, and 1 to {MOST} workloads.", code="bad_bulk")
    return list(rows.filter(pk__in=ids).select_related("project__cluster", "type", "priority").order_by("name", "pk"))


def _act(workload: Workload | None, verb: str, actor: Actor) -> RowResult:
    if workload is None:
        return RowResult("–", "Not found.")
    before = workload.generation
    try:
        VERBS[verb](workload=workload, actor=actor)
    except RungError as refusal:
        return RowResult(workload.name, refusal.message, workload)
    return RowResult(workload.name, workload=workload, changed=workload.generation != before)
