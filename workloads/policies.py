"""Which policies hold for a project: rows as values, kept in this process for as long as no rule has changed."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from portal.core.marks import Kept
from tenants.models import Project
from workloads.models import Policy
from workloads.models.scoped import Owner
from workloads.policy_documents import Known, part_of
from workloads.policy_rules import KIND_OF_TYPE, Kind, Merged, Scope, merge
from workloads.resolution import current_dictionary
from workloads.scopes import place_of_row, reaching

NOBODYS: Final[Merged] = {}
_merged: Final = Kept[Mapping[Kind, Merged]]("rules")


def policy_for(type_name: str, project: Project) -> Merged:
    """What all scopes together say to workloads of this type in this project. Nothing for the types of manifests."""
    if (kind := KIND_OF_TYPE.get(type_name)) is None:
        return NOBODYS
    return _merged.of(project.pk, lambda: _read(project)).get(kind, NOBODYS)


def _read(project: Project) -> Mapping[Kind, Merged]:
    rows = list(policies_reaching(project))
    return {kind: merged_of(row for row in rows if row.kind == kind) for kind in {Kind(row.kind) for row in rows}}


def policies_reaching(owner: Owner) -> Iterable[Policy]:
    """The policies of the owner and of every wider scope."""
    return Policy.objects.filter(reaching(owner)).select_related("cluster", "department", "project").order_by()


def reaching_among(rows: Iterable[Policy]) -> Callable[[Policy], list[Policy]]:
    """Of these rows: those of the same kind that hold where one of them does, its own and those of wider scopes."""
    at = {(row.kind, row.scope, row.project_id or row.department_id or row.cluster_id): row for row in rows}

    def reaching_it(row: Policy) -> list[Policy]:
        near = row.project or row.department
        places = (
            (Scope.TENANT, None),
            (Scope.CLUSTER, near.cluster_id if near else row.cluster_id),
            (Scope.DEPARTMENT, row.project.department_id if row.project else row.department_id),
            (Scope.PROJECT, row.project_id),
        )
        return [at[key] for scope, owner in places if (key := (row.kind, str(scope), owner)) in at]

    return reaching_it


def merged_of(rows: Iterable[Policy]) -> Merged:
    """What these policies of one kind say together."""
    known = known_priorities()
    return merge(part_of(Kind(row.kind), place_of_row(row), row.document, known) for row in rows)


def known_priorities() -> Known:
    """Tells the dictionary's own name for a priority or an alias of it; None where workloads may not name it."""
    dictionary = current_dictionary()

    def known(name: str) -> str | None:
        level = dictionary.lookup(name)
        return level.canonical if level else None

    return known
