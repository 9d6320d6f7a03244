"""Rows of a scope as an actor sees them, and the policies that apply to a project."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet

from clusters.inventory.models import Cluster
from portal.kit.api.lists import id_number
from portal.kit.db.read_cache import cached_read
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import Access, access_for, require
from tenants.organisation.models import Department, Project
from workloads.dictionary.selectors import current_dictionary
from workloads.policies.models import PLACED, Owner, Policy
from workloads.policies.rules.documents import Known, part_of
from workloads.policies.rules.merge import (
    KIND_OF_TYPE,
    WIDTH,
    Merged,
    PolicyKind,
    Scope,
    ScopeRef,
    contradiction,
    imposed,
    merge,
)


def scope_for(owner: Owner) -> Scope:
    """Which sort of owner it is."""
    if isinstance(owner, Project):
        return Scope.PROJECT
    if isinstance(owner, Department):
        return Scope.DEPARTMENT
    return Scope.TENANT if owner is None else Scope.CLUSTER


def department_of(owner: Owner) -> int | None:
    """Id of the department that is the owner, or has the project that is; None for wider scopes."""
    if isinstance(owner, Department):
        return owner.pk
    return owner.department_id if isinstance(owner, Project) else None


def owner_names(owner: Owner) -> dict[str, str]:
    """The owner as a change to plan has it, by names."""
    if owner is None:
        return {}
    if isinstance(owner, Cluster):
        return {"cluster": owner.name}
    return {str(owner._meta.model_name): owner.name, "cluster": owner.cluster.name}


def columns_of(owner: Owner) -> dict[str, str | Owner]:
    """The owner as the columns of its rows."""
    scope = str(scope_for(owner))
    return {"scope": scope, **{each: owner if each == scope else None for each in PLACED}}


def reaching(owner: Owner) -> Q:
    """Rows of the owner and of every wider scope."""
    where = Q(scope=str(Scope.TENANT))
    if isinstance(owner, Cluster):
        where |= Q(cluster=owner)
    if isinstance(owner, Department | Project):
        where |= Q(cluster=owner.cluster_id)
    if isinstance(owner, Department):
        where |= Q(department=owner)
    if isinstance(owner, Project):
        where |= Q(department=owner.department_id) | Q(project=owner)
    return where


def below(owner: Owner) -> Q:
    """Rows of what is inside the owner; everything for the installation."""
    if isinstance(owner, Cluster):
        return Q(department__cluster=owner) | Q(project__cluster=owner)
    if isinstance(owner, Department):
        return Q(project__department=owner)
    return Q(pk__in=()) if isinstance(owner, Project) else Q()


def place_of(owner: Owner) -> ScopeRef:
    """The scope as a value, with its id and name as text."""
    return ScopeRef(scope_for(owner), str(owner.pk), owner.name) if owner else ScopeRef()


def seen_by(actor: Actor) -> Q:
    """Scoped rows of the installation, and of the clusters, departments and projects that the actor may know of."""
    access = access_for(actor)
    return (
        Q(scope=str(Scope.TENANT))
        | Q(cluster__in=_clusters(access))
        | Q(department__in=_departments(access))
        | Q(project__in=access.projects())
    )


def owner_at(actor: Actor, scope: Scope, key: str) -> Owner:
    """The cluster, department or project with this id; LookupError where it is absent or not the actor's to see."""
    if scope is Scope.TENANT:
        return None
    found = _candidates(access_for(actor), scope).filter(pk=key).first() if _is_key(scope, key) else None
    if found is None:
        raise LookupError(key)
    return found


def _candidates(access: Access, scope: Scope) -> QuerySet[Cluster] | QuerySet[Department] | QuerySet[Project]:
    if scope is Scope.CLUSTER:
        return _clusters(access)
    if scope is Scope.DEPARTMENT:
        return _departments(access)
    return access.projects().select_related("cluster", "department")


def _clusters(access: Access) -> QuerySet[Cluster]:
    """Clusters where the actor has a role, and those their departments and projects are on."""
    if access.can(Permission.MANAGE_DICTIONARY):
        return Cluster.objects.all()
    return Cluster.objects.filter(
        Q(pk__in=access.clusters(Permission.VIEW_PROJECT).values("pk"))
        | Q(pk__in=access.departments().values("cluster"))
        | Q(pk__in=access.projects().values("cluster"))
    )


def _departments(access: Access) -> QuerySet[Department]:
    """Departments where the actor has a role, and those of their projects, whose rows hold for them."""
    own = Q(pk__in=access.departments().values("pk"))
    return Department.objects.filter(own | Q(pk__in=access.projects().values("department"))).select_related("cluster")


def _is_key(scope: Scope, key: str) -> bool:
    if scope is not Scope.CLUSTER:
        return id_number(key) is not None
    field = Cluster._meta.pk
    try:
        return field.to_python(key) is not None
    except ValidationError:
        return False


@dataclass(frozen=True, slots=True)
class ManageableScopes:
    """Where an actor may keep scoped rows."""

    installation: bool
    clusters: QuerySet[Cluster]
    departments: QuerySet[Department]
    projects: QuerySet[Project]

    def __bool__(self) -> bool:
        return self.installation or self.departments.exists() or self.projects.exists()


def manageable_scopes(actor: Actor, *, in_project: Permission = Permission.MANAGE_PROJECT) -> ManageableScopes:
    """Where the actor may keep scoped rows: clusters only for who may do so for the whole installation."""
    access = access_for(actor)
    everywhere = access.can(Permission.MANAGE_DICTIONARY)
    return ManageableScopes(
        everywhere,
        Cluster.objects.all() if everywhere else Cluster.objects.none(),
        access.departments(Permission.MANAGE_DEPARTMENT),
        access.projects(in_project),
    )


NOBODYS: Final[Merged] = {}


def policy_for(type_name: str, project: Project) -> Merged:
    """What all scopes together say to workloads of this type in this project. Nothing for the types of manifests."""
    if (kind := KIND_OF_TYPE.get(type_name)) is None:
        return NOBODYS
    return _merged(project).get(kind, NOBODYS)


@cached_read
def _merged(project: Project) -> Mapping[PolicyKind, Merged]:
    rows = list(policies_reaching(project))
    return {kind: merged_of(row for row in rows if row.kind == kind) for kind in {PolicyKind(row.kind) for row in rows}}


def policies_reaching(owner: Owner) -> Iterable[Policy]:
    """The policies of the owner and of every wider scope."""
    return Policy.objects.filter(reaching(owner)).select_related("cluster", "department", "project").order_by()


def reaching_among(rows: Iterable[Policy]) -> Callable[[Policy], list[Policy]]:
    """Of these rows: those of the same kind that hold where one of them does, its own and those of wider scopes."""
    at = {(row.kind, row.scope, row.project_id or row.department_id or row.cluster_id): row for row in rows}

    def reaching_it(row: Policy) -> list[Policy]:
        owner = row.project or row.department
        places = (
            (Scope.TENANT, None),
            (Scope.CLUSTER, owner.cluster_id if owner else row.cluster_id),
            (Scope.DEPARTMENT, row.project.department_id if row.project else row.department_id),
            (Scope.PROJECT, row.project_id),
        )
        return [at[key] for scope, owner in places if (key := (row.kind, str(scope), owner)) in at]

    return reaching_it


def merged_of(rows: Iterable[Policy]) -> Merged:
    """What these policies of one kind say together."""
    known = known_priorities()
    return merge(part_of(PolicyKind(row.kind), row.place, row.document, known) for row in rows)


def known_priorities() -> Known:
    """Tells the dictionary's own name for a priority or an alias of it; None where workloads may not name it."""
    dictionary = current_dictionary()

    def known(name: str) -> str | None:
        entry = dictionary.lookup(name)
        return entry.canonical if entry else None

    return known


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """What holds somewhere for workloads of one kind: its own policy if there is one, and what all say together."""

    kind: PolicyKind
    own: Policy | None
    rows: Sequence[Policy]
    merged: Merged

    @property
    def updated_at(self) -> datetime | None:
        """The last change of any policy that counts here."""
        return max((row.updated_at for row in self.rows), default=None)


def effective_policy_at(owner: Owner, kind: PolicyKind) -> EffectivePolicy:
    """What holds at the owner; the installation where it is None."""
    rows = [row for row in policies_reaching(owner) if row.kind == kind]
    own = next((row for row in rows if row.owner == owner), None)
    return EffectivePolicy(kind, own, rows, merged_of(rows))


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy of a list: what it says, a sentence each, and whether the reader may change it."""

    row: Policy
    place: ScopeRef
    said: tuple[str, ...]
    problem: str
    may_edit: bool


def policy_rows(actor: Actor) -> list[PolicyRow]:
    """Every visible policy, kind by kind, the widest scope first. Whoever sees one sees those of wider scopes."""
    rows = list(visible_policies(actor))
    access = access_for(actor)
    projects = set(access.projects(Permission.MANAGE_PROJECT).values_list("pk", flat=True))
    departments = set(access.departments(Permission.MANAGE_DEPARTMENT).values_list("pk", flat=True))
    everything, reaching = access.can(Permission.MANAGE_DICTIONARY), reaching_among(rows)

    def row_of(row: Policy) -> PolicyRow:
        place = row.place
        problem = contradiction(merged_of(reaching(row)))
        mine = row.project_id in projects or row.department_id in departments
        wide = place.scope in {Scope.TENANT, Scope.CLUSTER}
        return PolicyRow(row, place, tuple(policy_sentences(row)), problem, everything if wide else mine)

    return sorted(map(row_of, rows), key=lambda each: (each.row.kind, WIDTH[each.place.scope], each.place.name))


def policy_sentences(row: Policy) -> Iterator[str]:
    """What one policy says, without naming itself."""
    for sentence in imposed(merged_of([row])):
        yield f"{sentence.partition(': set by')[0]}."


def effective_rows(project: Project) -> list[tuple[PolicyKind, list[str], str]]:
    """By kind: what holds in the project, a sentence each, and what is wrong with it."""
    rows = list(policies_reaching(project))
    merged = {kind: merged_of(row for row in rows if row.kind == kind) for kind in PolicyKind}
    return [(kind, list(imposed(found)), contradiction(found)) for kind, found in merged.items() if found]


def visible_policies(actor: Actor) -> QuerySet[Policy]:
    """Those of the installation, and of clusters, departments and projects the actor may know of."""
    return Policy.objects.filter(seen_by(actor)).select_related("cluster", "department", "project")


def needed_permission(owner: Owner, in_project: Permission) -> tuple[Permission, dict[str, Any]]:
    if isinstance(owner, Project):
        return in_project, {"project": owner}
    if isinstance(owner, Department):
        return Permission.MANAGE_DEPARTMENT, {"department": owner}
    return Permission.MANAGE_DICTIONARY, {}


def require_scope(actor: Actor, owner: Owner, *, in_project: Permission = Permission.MANAGE_PROJECT) -> None:
    """Rows of a project need `in_project`; of a department: to manage it; of all else: to be a platform admin."""
    verb, place = needed_permission(owner, in_project)
    require(actor, verb, **place)
