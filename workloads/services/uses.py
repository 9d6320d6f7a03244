"""Who still uses a dictionary entry."""

from collections.abc import Iterator
from typing import Final

from django.db.models import Q

from portal.core.errors import Conflict, Problem
from workloads.drafts import Draft
from workloads.lifecycle import ENDED
from workloads.models import Policy, Workload
from workloads.policy_documents import named_in
from workloads.scopes import place_of_row

SHOWN: Final = 20


def refuse_in_use(draft: Draft, name: str) -> None:
    """Conflict with the list: types, categories, aliases, policies, and workloads that may still have pods."""
    if uses := list(_uses(draft, name)):
        message = f"{name} is in use by {', '.join(uses[:SHOWN])}{' …' if len(uses) > SHOWN else ''}."
        raise Conflict(message, code="in_use", problems=[Problem("/name", "in_use", message, tuple(uses[:SHOWN]))])


def _uses(draft: Draft, name: str) -> Iterator[str]:
    yield from (f"category {category}" for category, held in draft.categories.items() if held == name)
    yield from (f"type {each.name}" for each in draft.types.values() if each.priority == name and not each.withdrawn)
    yield from (f"alias {alias.name}" for alias in draft.aliases_of(name) if not alias.retired)
    placed = Policy.objects.select_related("cluster", "department", "project")
    yield from (f"{row.kind} policy of {place_of_row(row).words}" for row in placed if name in named_in(row.document))
    live = Workload.objects.filter(priority__name=name, deleted_at__isnull=True).exclude(Q(phase__in=ENDED))
    for workload in live.select_related("project")[: SHOWN + 1]:
        yield f"workload {workload.project.name}/{workload.name}"
