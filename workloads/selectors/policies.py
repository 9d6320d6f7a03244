"""Policies as people may see them: those of the scopes their projects are in, and what holds there after all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet

from clusters.models import Cluster
from portal.core.actors import Actor
from tenants.models import Department, Project
from tenants.permissions import Verb, standing_of
from workloads.models import Policy
from workloads.policies import merged_of, place_of_row, policies_reaching, reaching_among
from workloads.policy_rules import WIDTH, Kind, Merged, Place, Scope, contradiction, imposed

Owner = Cluster | Department | Project | None


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
    own = next((row for row in rows if (row.project or row.department or row.cluster) == owner), None)
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
    everything = standing.can(Verb.MANAGE_DICTIONARY)

    def row_of(row: Policy) -> PolicyRow:
        place = place_of_row(row)
        problem = contradiction(merged_of(reaching_among(rows, row)))
        mine = row.project_id in projects or row.department_id in departments
        return PolicyRow(row, place, tuple(said_by(row)), problem, everything or mine)

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


def manageable_owners(actor: Actor) -> list[tuple[str, str]]:
    """Where the actor may set policies: `department:12` and its words, the widest first."""
    standing = standing_of(actor)
    found = [("tenant:", Place().words)] if standing.can(Verb.MANAGE_DICTIONARY) else []
    if found:
        found += [(f"cluster:{each.pk}", f"cluster {each.name}") for each in Cluster.objects.order_by("name")]
    departments = standing.departments(Verb.MANAGE_DEPARTMENT).select_related("cluster").order_by("name")
    found += [(f"department:{each.pk}", f"department {each.name} on {each.cluster.name}") for each in departments]
    projects = standing.projects(Verb.MANAGE_PROJECT).order_by("name")
    return found + [(f"project:{each.pk}", f"project {each.name}") for each in projects]


def visible_policies(actor: Actor) -> QuerySet[Policy]:
    """Those of the installation and of clusters, and of departments and projects the actor may know of."""
    projects = standing_of(actor).projects()
    wide = Q(scope__in=[str(Scope.TENANT), str(Scope.CLUSTER)])
    near = Q(project__in=projects) | Q(department__in=visible_departments(actor))
    return Policy.objects.filter(wide | near).select_related("cluster", "department", "project")


def visible_departments(actor: Actor) -> QuerySet[Department]:
    """Departments where the actor has a role, and those of their projects, whose policies hold for them."""
    standing = standing_of(actor)
    own = Q(pk__in=standing.departments().values("pk"))
    return Department.objects.filter(own | Q(pk__in=standing.projects().values("department"))).select_related("cluster")


def owner_at(actor: Actor, scope: Scope, key: str) -> Owner:
    """The cluster, department or project with this id; LookupError where it is absent or not the actor's to see."""
    if scope is Scope.TENANT:
        return None
    found = _candidates(actor, scope).filter(pk=key).first() if _is_key(scope, key) else None
    if found is None:
        raise LookupError(key)
    return found


def _candidates(actor: Actor, scope: Scope) -> QuerySet[Cluster] | QuerySet[Department] | QuerySet[Project]:
    if scope is Scope.CLUSTER:
        return Cluster.objects.all()
    if scope is Scope.DEPARTMENT:
        return visible_departments(actor)
    return standing_of(actor).projects().select_related("cluster", "department")


def _is_key(scope: Scope, key: str) -> bool:
    if scope is not Scope.CLUSTER:
        return key.isascii() and key.isdigit() and len(key) < 19
    field = Cluster._meta.pk
    try:
        return field.to_python(key) is not None
    except ValidationError:
        return False
