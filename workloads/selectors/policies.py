"""Policies as people may see them: those of the scopes their projects are in, and what holds there after all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from portal.core.actors import Actor
from tenants.models import Project
from tenants.permissions import Verb, standing_of
from workloads.models import Policy
from workloads.models.scoped import Owner
from workloads.policies import merged_of, policies_reaching, reaching_among
from workloads.policy_rules import WIDTH, Kind, Merged, Place, Scope, contradiction, imposed
from workloads.scopes import place_of_row
from workloads.selectors.scopes import seen_by


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds somewhere for workloads of one kind: its own policy if there is one, and what all say together."""

    kind: Kind
    own: Policy | None
    rows: Sequence[Policy]
    merged: Merged

    @property
    def updated_at(self) -> datetime | None:
        """The last change of any policy that counts here."""
        return max((row.updated_at for row in self.rows), default=None)


def holding_at(owner: Owner, kind: Kind) -> Holding:
    """What holds at the owner; the installation where it is None."""
    rows = [row for row in policies_reaching(owner) if row.kind == kind]
    own = next((row for row in rows if row.owner == owner), None)
    return Holding(kind, own, rows, merged_of(rows))


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy of a list: what it says, a sentence each, and whether the reader may change it."""

    row: Policy
    place: Place
    said: tuple[str, ...]
    problem: str
    may_edit: bool


def policy_rows(actor: Actor) -> list[PolicyRow]:
    """Every visible policy, kind by kind, the widest scope first. Whoever sees one sees those of wider scopes."""
    rows = list(visible_policies(actor))
    standing = standing_of(actor)
    projects = set(standing.projects(Verb.MANAGE_PROJECT).values_list("pk", flat=True))
    departments = set(standing.departments(Verb.MANAGE_DEPARTMENT).values_list("pk", flat=True))
    everything, reaching = standing.can(Verb.MANAGE_DICTIONARY), reaching_among(rows)

    def row_of(row: Policy) -> PolicyRow:
        place = place_of_row(row)
        problem = contradiction(merged_of(reaching(row)))
        mine = row.project_id in projects or row.department_id in departments
        wide = place.scope in {Scope.TENANT, Scope.CLUSTER}
        return PolicyRow(row, place, tuple(said_by(row)), problem, everything if wide else mine)

    return sorted(map(row_of, rows), key=lambda each: (each.row.kind, WIDTH[each.place.scope], each.place.name))


def said_by(row: Policy) -> Iterator[str]:
    """What one policy says, without naming itself."""
    for sentence in imposed(merged_of([row])):
        yield f"{sentence.partition(': set by')[0]}."


def effective_rows(project: Project) -> list[tuple[Kind, list[str], str]]:
    """By kind: what holds in the project, a sentence each, and what is wrong with it."""
    rows = list(policies_reaching(project))
    merged = {kind: merged_of(row for row in rows if row.kind == kind) for kind in Kind}
    return [(kind, list(imposed(found)), contradiction(found)) for kind, found in merged.items() if found]


def visible_policies(actor: Actor) -> QuerySet[Policy]:
    """Those of the installation, and of clusters, departments and projects the actor may know of."""
    return Policy.objects.filter(seen_by(actor)).select_related("cluster", "department", "project")
