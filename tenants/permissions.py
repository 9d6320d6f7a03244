"""Who may do what where: one table of roles and verbs for pages, REST, admin console and commands.

A role in a department reaches down to its projects; a role without scope reaches everything. Rows are read at every
question, or once within `grants_read_once`, or kept while no mark has moved (`portal.core.marks`): a removed membership
or a disabled account counts from the next request on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from portal.core.actors import Actor, ActorKind
from portal.core.errors import Absent, Denied
from portal.core.marks import Kept
from tenants.models import Department, Membership, Project, Role, User


class Verb(StrEnum):
    """What can be allowed."""

    VIEW_PROJECT = "view_project"
    SUBMIT = "submit"
    MANAGE_WORKLOAD = "manage_workload"  # one's own
    MANAGE_ANY_WORKLOAD = "manage_any_workload"
    MANAGE_MEMBERS = "manage_members"
    VIEW_AUDIT = "view_audit"
    VIEW_DEPARTMENT = "view_department"
    MANAGE_PROJECT = "manage_project"
    MANAGE_PROJECT_QUOTA = "manage_project_quota"
    MANAGE_DEPARTMENT = "manage_department"
    MANAGE_DEPARTMENT_QUOTA = "manage_department_quota"
    MANAGE_ORGANISATION = "manage_organisation"
    MANAGE_ACCESS = "manage_access"
    MANAGE_DICTIONARY = "manage_dictionary"
    MANAGE_CLUSTERS = "manage_clusters"


_VIEWER: Final = frozenset({Verb.VIEW_PROJECT, Verb.VIEW_DEPARTMENT})
_MEMBER: Final = _VIEWER | {Verb.SUBMIT, Verb.MANAGE_WORKLOAD}
_OWNER: Final = _MEMBER | {Verb.MANAGE_ANY_WORKLOAD, Verb.MANAGE_MEMBERS, Verb.VIEW_AUDIT}
_DEPARTMENT_ADMIN: Final = _OWNER | {Verb.MANAGE_PROJECT, Verb.MANAGE_PROJECT_QUOTA, Verb.MANAGE_DEPARTMENT}

MAY: Final[dict[Role, frozenset[Verb]]] = {
    Role.VIEWER: _VIEWER,
    Role.MEMBER: _MEMBER,
    Role.OWNER: _OWNER,
    Role.DEPARTMENT_ADMIN: _DEPARTMENT_ADMIN,
    Role.PLATFORM_ADMIN: frozenset(Verb),
}
STRENGTH: Final[dict[Role, int]] = {role: place for place, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Grant:
    """One membership: a role in a project, in a department, or (both empty) everywhere."""

    role: Role
    project_id: int | None = None
    department_id: int | None = None

    @property
    def everywhere(self) -> bool:
        """True without a scope."""
        return self.project_id is None and self.department_id is None

    def reaches(self, *, project: Project | None, department: Department | None) -> bool:
        """True where it covers the project, or the department as such."""
        if self.everywhere:
            return True
        if project is not None:
            return self.project_id == project.pk or self.department_id == project.department_id
        return department is not None and self.department_id == department.pk


EVERYTHING: Final = Grant(Role.PLATFORM_ADMIN)


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything a subject has been granted, read once. Empty for unknown and disabled subjects."""

    grants: tuple[Grant, ...] = ()

    @property
    def is_platform_admin(self) -> bool:
        """True for superusers and for the role without scope."""
        return any(grant.everywhere and grant.role == Role.PLATFORM_ADMIN for grant in self.grants)

    def role_in(self, *, project: Project | None = None, department: Department | None = None) -> Role | None:
        """The strongest role there; without project and department: in the whole installation."""
        roles = [grant.role for grant in self.grants if grant.reaches(project=project, department=department)]
        return max(roles, key=STRENGTH.__getitem__, default=None)

    def can(self, verb: Verb, *, project: Project | None = None, department: Department | None = None) -> bool:
        """Does some role there allow the verb?"""
        role = self.role_in(project=project, department=department)
        return role is not None and verb in MAY[role]

    def holds(self, verb: Verb) -> bool:
        """Is the verb allowed anywhere at all?"""
        return any(verb in MAY[grant.role] for grant in self.grants)

    def projects(self, verb: Verb = Verb.VIEW_PROJECT) -> QuerySet[Project]:
        """Projects where the verb is allowed."""
        grants = [grant for grant in self.grants if verb in MAY[grant.role]]
        if any(grant.everywhere for grant in grants):
            return Project.objects.all()
        return Project.objects.filter(
            Q(pk__in=[grant.project_id for grant in grants if grant.project_id])
            | Q(department__in=[grant.department_id for grant in grants if grant.department_id])
        )

    def departments(self, verb: Verb = Verb.VIEW_DEPARTMENT) -> QuerySet[Department]:
        """Departments where the verb is allowed."""
        grants = [grant for grant in self.grants if verb in MAY[grant.role]]
        if any(grant.everywhere for grant in grants):
            return Department.objects.all()
        return Department.objects.filter(pk__in=[grant.department_id for grant in grants if grant.department_id])


_seen: ContextVar[dict[tuple[ActorKind, str], Standing] | None] = ContextVar("_seen", default=None)


@contextmanager
def grants_read_once() -> Iterator[None]:
    """For one request that asks several times and changes no membership: each subject's grants are read once in it."""
    before = _seen.set({})
    try:
        yield
    finally:
        _seen.reset(before)


def standing_of(actor: Actor) -> Standing:
    """What the subject holds now, in one query at most. The system itself may do everything."""
    seen, subject = _seen.get(), (actor.kind, actor.id)
    if seen is None:
        return _standing_of(actor)
    if subject not in seen:
        seen[subject] = _standing_of(actor)
    return seen[subject]


_standings: Final = Kept[Standing]("access")


def _standing_of(actor: Actor) -> Standing:
    if actor.kind is ActorKind.SYSTEM:
        return Standing((EVERYTHING,))
    if not actor.id:
        return Standing()
    read = _standing_of_user if actor.kind is ActorKind.USER else _standing_of_account
    return _standings.of((actor.kind, actor.id), lambda: read(actor.id))


def _standing_of_account(account_id: str) -> Standing:
    grants = Membership.objects.filter(service_account__pk=account_id, service_account__enabled=True).order_by()
    return Standing(tuple(Grant(Role(role), *scope) for role, *scope in grants.values_list(*_GRANT)))


_GRANT: Final = ("role", "project_id", "department_id")


def _standing_of_user(user_id: str) -> Standing:
    """The join gives one row per membership, and one with empty columns for a user without any."""
    rows = User.objects.filter(pk=user_id, is_active=True).values_list(
        "is_superuser", *(f"memberships__{column}" for column in _GRANT)
    )
    grants = [Grant(Role(role), project, department) for _su, role, project, department in rows if role]
    return Standing((EVERYTHING, *grants) if any(row[0] for row in rows) else tuple(grants))


def role_in(actor: Actor, *, project: Project | None = None, department: Department | None = None) -> Role | None:
    """The actor's strongest role there, None without any."""
    return standing_of(actor).role_in(project=project, department=department)


def can(actor: Actor, verb: Verb, *, project: Project | None = None, department: Department | None = None) -> bool:
    """May the actor do this there? Without project and department: in the whole installation."""
    return standing_of(actor).can(verb, project=project, department=department)


def require(actor: Actor, verb: Verb, *, project: Project | None = None, department: Department | None = None) -> None:
    """Raise unless allowed: Absent for what the actor may not even see, else Denied."""
    standing = standing_of(actor)
    if standing.can(verb, project=project, department=department):
        return
    if project is not None and not standing.can(Verb.VIEW_PROJECT, project=project):
        raise Absent
    if project is None and department is not None and not standing.can(Verb.VIEW_DEPARTMENT, department=department):
        raise Absent
    raise Denied(_("You may not do this here: it needs “%(verb)s”.") % {"verb": verb.value.replace("_", " ")})


def visible_projects(actor: Actor) -> QuerySet[Project]:
    """Projects that the actor may see."""
    return standing_of(actor).projects()


def visible_departments(actor: Actor) -> QuerySet[Department]:
    """Departments where the actor has a role of their own; a member of a project sees only the department's name."""
    return standing_of(actor).departments()
