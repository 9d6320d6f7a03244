"""Rows of a scope: where they stand, and which of them hold for an owner."""

from django.db.models import Q

from clusters.models import Cluster
from tenants.models import Department, Project
from workloads.models.scoped import PLACED, Owner, Scoped
from workloads.policy_rules import Place, Scope


def scope_for(owner: Owner) -> Scope:
    """Which sort of owner it is."""
    if isinstance(owner, Project):
        return Scope.PROJECT
    if isinstance(owner, Department):
        return Scope.DEPARTMENT
    return Scope.TENANT if owner is None else Scope.CLUSTER


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


def place_of(owner: Owner) -> Place:
    """The scope as a value, with its id and name as text."""
    return Place(scope_for(owner), str(owner.pk), owner.name) if owner else Place()


def place_of_row(row: Scoped) -> Place:
    """Where a row holds."""
    return place_of(row.owner)
