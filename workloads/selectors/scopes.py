"""Scopes as people may see them: the installation's and those their projects and departments are in."""

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet

from clusters.models import Cluster
from portal.core.actors import Actor
from portal.core.errors import Absent
from portal.core.filtering import id_number
from tenants.models import Department, Project
from tenants.permissions import Standing, Verb, standing_of
from workloads.models.scoped import Owner
from workloads.policy_rules import Place, Scope


def seen_by(actor: Actor) -> Q:
    """Scoped rows of the installation, and of the clusters, departments and projects that the actor may know of."""
    standing = standing_of(actor)
    return (
        Q(scope=str(Scope.TENANT))
        | Q(cluster__in=_clusters(standing))
        | Q(department__in=_departments(standing))
        | Q(project__in=standing.projects())
    )


def owner_at(actor: Actor, scope: Scope, key: str) -> Owner:
    """The cluster, department or project with this id; LookupError where it is absent or not the actor's to see."""
    if scope is Scope.TENANT:
        return None
    found = _candidates(standing_of(actor), scope).filter(pk=key).first() if _is_key(scope, key) else None
    if found is None:
        raise LookupError(key)
    return found


def chosen_owner(actor: Actor, place: str) -> Owner:
    """The owner that a choice of `manageable_owners` names. Absent for another one."""
    scope, _colon, key = place.partition(":")
    try:
        return owner_at(actor, Scope(scope), key)
    except LookupError:
        raise Absent from None


def _candidates(standing: Standing, scope: Scope) -> QuerySet[Cluster] | QuerySet[Department] | QuerySet[Project]:
    if scope is Scope.CLUSTER:
        return _clusters(standing)
    if scope is Scope.DEPARTMENT:
        return _departments(standing)
    return standing.projects().select_related("cluster", "department")


def _clusters(standing: Standing) -> QuerySet[Cluster]:
    """Clusters where somebody has a role, and those their departments and projects are on."""
    if standing.can(Verb.MANAGE_DICTIONARY):
        return Cluster.objects.all()
    return Cluster.objects.filter(
        Q(pk__in=standing.clusters(Verb.VIEW_PROJECT).values("pk"))
        | Q(pk__in=standing.departments().values("cluster"))
        | Q(pk__in=standing.projects().values("cluster"))
    )


def _departments(standing: Standing) -> QuerySet[Department]:
    """Departments where somebody has a role, and those of their projects, whose rows hold for them."""
    own = Q(pk__in=standing.departments().values("pk"))
    return Department.objects.filter(own | Q(pk__in=standing.projects().values("department"))).select_related("cluster")


def _is_key(scope: Scope, key: str) -> bool:
    if scope is not Scope.CLUSTER:
        return id_number(key) is not None
    field = Cluster._meta.pk
    try:
        return field.to_python(key) is not None
    except ValidationError:
        return False


def manageable_owners(actor: Actor, *, in_project: Verb = Verb.MANAGE_PROJECT) -> list[tuple[str, str]]:
    """Where the actor may keep scoped rows: `department:12` and its words, the widest first."""
    standing = standing_of(actor)
    found = [("tenant:", Place().words)] if standing.can(Verb.MANAGE_DICTIONARY) else []
    if found:
        found += [(f"cluster:{each.pk}", f"cluster {each.name}") for each in Cluster.objects.order_by("name")]
    departments = standing.departments(Verb.MANAGE_DEPARTMENT).select_related("cluster").order_by("name")
    found += [(f"department:{each.pk}", f"department {each.name} on {each.cluster.name}") for each in departments]
    projects = standing.projects(in_project).order_by("name")
    return found + [(f"project:{each.pk}", f"project {each.name}") for each in projects]
