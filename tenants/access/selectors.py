"""Who may do what where: one place that pages, REST, admin console and commands ask.

A role reaches down: from the installation to its clusters, from a cluster to its departments and projects, from a
department to its projects. Rows are read at every question, or once within `cached_reads`: a removed membership, a
changed role or a disabled account counts from the next request on. What roles allow is the table of
`tenants.access.rules`.

Access rules to read: memberships with subject, role and scope as columns, as far as an actor may see them.

Run:ai's words: a membership is an access rule, the whole installation the scope `tenant`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Case, CharField, DateTimeField, Exists, Expression, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Cast, Coalesce, NullIf, Replace
from django.utils.translation import gettext as _

from clusters.inventory.models import Cluster, NodePool
from portal.kit.api.lists import KnownRows
from portal.kit.api.parsers import TENANT_ID
from portal.kit.db.read_cache import cached_read
from portal.kit.errors import Forbidden, NotFound
from portal.kit.security.actors import Actor, ActorKind, CredentialLimits
from tenants.access.models import SCOPES, AccessRole, Membership, Role, User
from tenants.access.rules import (
    ALL_PERMISSIONS,
    PREDEFINED,
    READ_PERMISSIONS,
    SETS,
    Permission,
    Permissions,
    permissions_of_role,
)
from tenants.organisation.models import Department, Project


@dataclass(frozen=True, slots=True)
class Grant:
    """What one membership allows, and where: every place it names must be the one asked about; without any, all are."""

    permissions: Permissions
    project_id: int | None = None
    department_id: int | None = None
    cluster_id: UUID | None = None
    role: str = ""
    """How the role is called: the key of one that comes with Rung, the name of a custom one."""

    @property
    def place(self) -> tuple[int | None, int | None, UUID | None]:
        return self.project_id, self.department_id, self.cluster_id

    @property
    def everywhere(self) -> bool:
        """True without a scope."""
        return self.place == _EVERYWHERE

    def reaches(self, place: Sequence[object]) -> bool:
        """True where it covers the project, the department as such, or the cluster as such."""
        return all(own is None or own == there for own, there in zip(self.place, place, strict=True))

    def narrowed(self, limits: CredentialLimits) -> "Grant":
        """What is left of it under a credential's limits; nothing where they contradict each other."""
        permissions = self.permissions & READ_PERMISSIONS if limits.read_only else self.permissions
        project_id, department_id = self.project_id or limits.project_id, self.department_id or limits.department_id
        inside = limits.project_id in {None, project_id} and limits.department_id in {None, department_id}
        return replace(
            self, permissions=permissions if inside else frozenset(), project_id=project_id, department_id=department_id
        )


_EVERYWHERE: Final = (None, None, None)
EVERYTHING: Final = Grant(ALL_PERMISSIONS, role=Role.PLATFORM_ADMIN.value)


def _place_of(
    project: Project | None = None, department: Department | None = None, cluster: Cluster | None = None
) -> tuple[object, object, object]:
    """The smallest one named, with what it is in."""
    if project is not None:
        return project.pk, project.department_id, project.cluster_id
    if department is not None:
        return None, department.pk, department.cluster_id
    return None, None, cluster.pk if cluster is not None else None


@dataclass(frozen=True, slots=True)
class Access:
    """Everything a subject has been granted, read once. Empty for unknown and disabled subjects."""

    grants: tuple[Grant, ...] = ()

    @property
    def is_platform_admin(self) -> bool:
        """True for superusers and for holders of every permission without scope."""
        return any(grant.everywhere and grant.permissions == ALL_PERMISSIONS for grant in self.grants)

    @property
    def permissions(self) -> Permissions:
        return frozenset[Permission]().union(*(grant.permissions for grant in self.grants))

    def permissions_in(
        self, *, project: Project | None = None, department: Department | None = None, cluster: Cluster | None = None
    ) -> Permissions:
        """All that is allowed there; without a place: in the whole installation."""
        place = _place_of(project, department, cluster)
        return frozenset[Permission]().union(*(grant.permissions for grant in self.grants if grant.reaches(place)))

    def can(
        self,
        permission: Permission,
        *,
        project: Project | None = None,
        department: Department | None = None,
        cluster: Cluster | None = None,
    ) -> bool:
        """Does some role there allow the permission?"""
        place = _place_of(project, department, cluster)
        return any(permission in grant.permissions and grant.reaches(place) for grant in self.grants)

    def holds(self, permission: Permission) -> bool:
        """Is the permission allowed anywhere at all?"""
        return any(permission in grant.permissions for grant in self.grants)

    def granting(self, permission: Permission) -> list[Grant]:
        """The grants that allow the permission."""
        return [grant for grant in self.grants if permission in grant.permissions]

    def projects(self, permission: Permission = Permission.VIEW_PROJECT) -> QuerySet[Project]:
        return _reached(Project.objects.all(), self.granting(permission), ("pk", "department", "cluster"))

    def departments(self, permission: Permission = Permission.VIEW_DEPARTMENT) -> QuerySet[Department]:
        return _reached(Department.objects.all(), self.granting(permission), ("pk", "cluster"))

    def clusters(self, permission: Permission) -> QuerySet[Cluster]:
        return _reached(Cluster.objects.all(), self.granting(permission), ("pk",))

    def narrowed(self, limits: CredentialLimits | None) -> "Access":
        """What a credential with limits leaves of it."""
        if limits is None:
            return self
        return Access(tuple(left for grant in self.grants if (left := grant.narrowed(limits)).permissions))


def _reached(rows: QuerySet[Any], grants: Iterable[Grant], columns: Sequence[str]) -> QuerySet[Any]:
    """Rows in the places of the grants. Each column is listed once, so that indexes can serve it."""
    listed: dict[str, list[object]] = {column: [] for column in columns}
    rest = Q(pk__in=())
    for grant in grants:
        smaller, place = grant.place[: -len(columns)], grant.place[-len(columns) :]
        if any(part is not None for part in smaller):
            continue
        named = {column: value for column, value in zip(columns, place, strict=True) if value is not None}
        if not named:
            return rows
        if len(named) > 1:
            rest |= Q(**named)
        else:
            (column, value), *_none = named.items()
            listed[column].append(value)
    for column, values in listed.items():
        rest |= Q(**{f"{column}__in": values})
    return rows.filter(rest)


def access_for(actor: Actor) -> Access:
    """What the subject holds now, in one query at most, as far as its credential goes. The system may do everything."""
    return _access_for(actor.kind, actor.id).narrowed(actor.limits)


@cached_read
def _access_for(kind: ActorKind, subject_id: str) -> Access:
    if kind is ActorKind.SYSTEM:
        return Access((EVERYTHING,))
    if not subject_id:
        return Access()
    return _access_of_user(subject_id) if kind is ActorKind.USER else _access_of_account(subject_id)


_GRANT: Final = (
    "role__key",
    "role__name",
    "role__enabled",
    "role__permission_sets",
    "project_id",
    "department_id",
    "cluster_id",
)


def _grant(row: Sequence[Any]) -> Grant | None:
    """The columns of `_GRANT`; None for a disabled role and for empty columns."""
    key, name, enabled, sets, project, department, cluster = row
    if not enabled:
        return None
    return Grant(
        permissions_of_role(key, tuple(sets)), project, department, cluster, key if key in PREDEFINED else name
    )


def _access_of_account(account_id: str) -> Access:
    rows = Membership.objects.filter(service_account__pk=account_id, service_account__enabled=True).order_by()
    return Access(tuple(grant for row in rows.values_list(*_GRANT) if (grant := _grant(row))))


def _access_of_user(user_id: str) -> Access:
    """One row per membership, one's own and those of one's groups, and rows with empty columns where there are none."""
    person = User.objects.filter(pk=user_id, is_active=True)
    own, shared = (
        person.values_list("is_superuser", *(f"{path}__{column}" for column in _GRANT))
        for path in ("memberships", "groups__memberships")
    )
    rows = list(own.union(shared, all=True))
    grants = [grant for _su, *row in rows if (grant := _grant(row))]
    return Access((EVERYTHING, *grants) if any(row[0] for row in rows) else tuple(grants))


def has_platform_admin(*, using: str = DEFAULT_DB_ALIAS) -> bool:
    """Can anybody sign in who may do everything: a superuser, or a person with such a role, directly or by a group?

    The same as `Access.is_platform_admin`, of all people at once.
    """
    if User.objects.using(using).filter(is_active=True, is_superuser=True).exists():
        return True
    everywhere = Membership.objects.using(using).filter(SCOPES["installation"], role=OuterRef("key"))
    held = everywhere.filter(Q(user__is_active=True) | Q(group__user__is_active=True))
    roles = AccessRole.objects.using(using).filter(Exists(held), enabled=True)
    return any(role.permissions == ALL_PERMISSIONS for role in roles)


def count_holders(permission: Permission, *, department: Department | None = None) -> int:
    """How many people and service accounts may do this there, each once; without a place: in the installation."""
    place = _place_of(department=department)
    found = {("user", pk) for pk in User.objects.filter(is_active=True, is_superuser=True).values_list("pk", flat=True)}
    active = Q(user__is_active=True) | Q(service_account__enabled=True) | Q(group__user__is_active=True)
    subjects = ("user", "group__user", "service_account")
    for *row, person, member, account in Membership.objects.filter(active).values_list(*_GRANT, *subjects):
        if (grant := _grant(row)) and permission in grant.permissions and grant.reaches(place):
            found.add(("account", account) if account else ("user", person or member))
    return len(found)


def can(
    actor: Actor,
    permission: Permission,
    *,
    project: Project | None = None,
    department: Department | None = None,
    cluster: Cluster | None = None,
) -> bool:
    """May the actor do this there? Without a place: in the whole installation."""
    return access_for(actor).can(permission, project=project, department=department, cluster=cluster)


def require(
    actor: Actor,
    permission: Permission,
    *,
    project: Project | None = None,
    department: Department | None = None,
    cluster: Cluster | None = None,
) -> None:
    """Raise unless allowed: Absent for what the actor may not even see, else Denied."""
    access = access_for(actor)
    if access.can(permission, project=project, department=department, cluster=cluster):
        return
    if project is not None and not access.can(Permission.VIEW_PROJECT, project=project):
        raise NotFound
    if project is None and department is not None and not access.can(Permission.VIEW_DEPARTMENT, department=department):
        raise NotFound
    roles = ", ".join(str(role.label) for role in Role if permission in permissions_of_role(role.value))
    sets = [each for each in SETS.values() if permission in each.permissions]
    if not sets:
        raise Forbidden(_("Permission denied. Roles that allow this: %(roles)s.") % {"roles": roles})
    text = _("Permission denied. Roles that allow this: %(roles)s; or a custom role with the permission set “%(set)s”.")
    raise Forbidden(text % {"roles": roles, "set": min(sets, key=lambda each: len(each.permissions)).name})


def visible_projects(actor: Actor) -> QuerySet[Project]:
    return access_for(actor).projects()


def visible_among(actor: Actor, projects: Collection[int]) -> set[int]:
    """Those of these projects, by id, that the actor may see. One query, which does not grow with all projects."""
    return set(visible_projects(actor).filter(pk__in=projects).order_by().values_list("pk", flat=True))


def visible_departments(actor: Actor) -> QuerySet[Department]:
    """Departments where the actor has a role of their own; a member of a project sees only the department's name."""
    return access_for(actor).departments()


INSTALLATION: Final = "Whole installation"
_SCOPE_COLUMNS: Final = ("project", "department", "cluster")


def visible_rules(actor: Actor) -> QuerySet[Membership]:
    """Rules of the places where the actor may look at access; everybody's for those who may look everywhere."""
    access = access_for(actor)
    if access.can(Permission.VIEW_ACCESS):
        return Membership.objects.all()
    return Membership.objects.filter(
        Q(project__in=access.projects(Permission.VIEW_ACCESS))
        | Q(department__in=access.departments(Permission.VIEW_ACCESS))
        | Q(cluster__in=access.clusters(Permission.VIEW_ACCESS))
    )


def own_rules(actor: Actor) -> QuerySet[Membership]:
    """Rules that are about the actor, by name or by a group."""
    if actor.kind is ActorKind.SERVICE_ACCOUNT:
        return Membership.objects.filter(service_account=UUID(actor.id))
    if actor.kind is ActorKind.USER and actor.id:
        shared = User.groups.through.objects.filter(user=int(actor.id), group=OuterRef("group"))
        return Membership.objects.filter(Q(user=int(actor.id)) | Exists(shared))
    return Membership.objects.none()


def with_api_columns(rules: QuerySet[Membership]) -> QuerySet[Membership]:
    """The rules with the words of the API as columns, to filter and sort by, and all that their JSON needs."""
    return rules.select_related(
        "user", "service_account", "group", "role", "cluster", "department__cluster", "project__department__cluster"
    ).annotate(**_columns())


def _columns() -> dict[str, Expression | F]:
    text = CharField()
    return {
        "subject_type": Case(
            When(user__isnull=False, then=Value("user")),
            When(group__isnull=False, then=Value("group")),
            default=Value("service-account"),
            output_field=text,
        ),
        "subject_key": Coalesce("user__username", "service_account__client_id", "group__name", output_field=text),
        "scope_type": Case(
            *(When(**{f"{place}__isnull": False, "then": Value(place)}) for place in _SCOPE_COLUMNS),
            default=Value("tenant"),
            output_field=text,
        ),
        "scope_key": Coalesce(
            Cast("project_id", text),
            Cast("department_id", text),
            Replace(Cast("cluster_id", text), Value("-"), Value("")),  # databases write UUIDs in their own ways
            Value(str(TENANT_ID)),
            output_field=text,
        ),
        "scope_name": Coalesce(
            "project__name", "department__name", "cluster__name", Value(INSTALLATION), output_field=text
        ),
        "deleted_at": NullIf(F("created_at"), F("created_at"), output_field=DateTimeField()),  # none is kept
        "phase": Case(When(pk__isnull=False, then=Value("Ready")), default=Value(""), output_field=text),
    }


def of_cluster(cluster_id: str) -> Q:
    """Rules of a cluster, of its departments and of its projects."""
    return Q(cluster=cluster_id) | Q(department__cluster=cluster_id) | Q(project__cluster=cluster_id)


def matching_text(text: str) -> Q:
    """Rules whose subject, role or scope contains the text."""
    columns = ("subject_key", "role__name", "scope_name")
    return Q(*(Q(**{f"{column}__icontains": text}) for column in columns), _connector=Q.OR)


def _clusters(_actor: Actor) -> QuerySet[Cluster]:
    return Cluster.objects.all()


def _pools(_actor: Actor) -> QuerySet[NodePool]:
    return NodePool.objects.all()


def _departments(actor: Actor) -> QuerySet[Department]:
    """A member of a project knows the name of its department."""
    own = visible_projects(actor).values("department")
    return Department.objects.filter(Q(pk__in=visible_departments(actor).values("pk")) | Q(pk__in=own))


CLUSTER_ID: Final = KnownRows(_clusters, "pk")
POOL_ID: Final = KnownRows(_pools, "pk")
POOL_NAME: Final = KnownRows(_pools)
DEPARTMENT_ID: Final = KnownRows(_departments, "pk")
DEPARTMENT_NAME: Final = KnownRows(_departments)
PROJECT_ID: Final = KnownRows(visible_projects, "pk")
PROJECT_NAME: Final = KnownRows(visible_projects)
