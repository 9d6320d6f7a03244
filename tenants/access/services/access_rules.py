"""Grant, change and revoke roles. An actor can only grant what they hold themselves."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from clusters.inventory.models import Cluster
from portal.audit.services import record
from portal.kit.api.lists import id_number
from portal.kit.api.parsers import TENANT_ID
from portal.kit.db.validation import unique_or_conflict, validate_instance, validate_text
from portal.kit.errors import Conflict, Forbidden, NotFound, RungError, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.models import AccessRole, Membership, Role, ServiceAccount, User
from tenants.access.rules import ALL_PERMISSIONS, Permission
from tenants.access.selectors import (
    access_for,
    has_platform_admin,
    require,
    visible_departments,
    visible_projects,
)
from tenants.organisation.models import Department, Project

Subject = User | ServiceAccount | Group
LONGEST_GROUP = 150


@transaction.atomic
def grant(
    *,
    subject: Subject,
    role: AccessRole | str,
    actor: Actor,
    project: Project | None = None,
    department: Department | None = None,
    cluster: Cluster | None = None,
) -> Membership:
    """Give a role in a project, department or cluster, or (none named) in the whole installation, beside those held
    there. Conflict if it is held. `role` may be a key.
    """
    require_may_grant(actor, project=project, department=department, cluster=cluster)
    membership = Membership(
        user=subject if isinstance(subject, User) else None,
        service_account=subject if isinstance(subject, ServiceAccount) else None,
        group=subject if isinstance(subject, Group) else None,
        role=_known(role),
        project=project,
        department=department,
        cluster=cluster,
        created_by=actor.name[:254],
    )
    _check_not_stronger(actor, membership)
    validate_instance(membership)
    with unique_or_conflict(""):
        membership.save()
    _record(actor, "membership.grant", membership, {"role": membership.role.key})
    return membership


@transaction.atomic
def change_role(*, membership: Membership, role: AccessRole | str, actor: Actor) -> Membership:
    """Give another role in its place. Conflict if that is held in this scope too."""
    row = _locked(membership)
    require_may_grant(actor, project=row.project, department=row.department, cluster=row.cluster)
    _check_not_stronger(actor, row)
    before, row.role = row.role.key, _known(role)
    if row.role.key == before:
        return row
    _check_not_stronger(actor, row)
    validate_instance(row)
    with require_remaining_admin(taken=before == Role.PLATFORM_ADMIN):
        row.save(update_fields=["role", "updated_at"])
    _record(actor, "membership.change", row, {"before": before, "after": row.role.key})
    return row


@transaction.atomic
def revoke(*, membership: Membership, actor: Actor) -> None:
    """Take a role away; it counts from the subject's next request on."""
    row = _locked(membership)
    require_may_grant(actor, project=row.project, department=row.department, cluster=row.cluster)
    _check_not_stronger(actor, row)
    _record(actor, "membership.revoke", row, {"role": row.role.key})
    with require_remaining_admin(taken=row.role.key == Role.PLATFORM_ADMIN):
        row.delete()


def require_may_grant(
    actor: Actor,
    *,
    project: Project | None = None,
    department: Department | None = None,
    cluster: Cluster | None = None,
) -> None:
    """Raise unless the actor gives and takes roles there: in projects and departments who manages members, in
    clusters and everywhere platform admins.
    """
    if project is not None:
        require(actor, Permission.MANAGE_MEMBERS, project=project)
    elif department is not None:
        require(actor, Permission.MANAGE_MEMBERS, department=department)
    else:
        require(actor, Permission.MANAGE_ACCESS, cluster=cluster)


def outranks(actor: Actor, subject: User | ServiceAccount) -> bool:
    """Does the actor hold whatever the subject was given anywhere, be it disabled now or not?"""
    own = access_for(actor).permissions_in()
    if own == ALL_PERMISSIONS or subject.pk is None:
        return own == ALL_PERMISSIONS or not (isinstance(subject, User) and subject.is_superuser)
    if isinstance(subject, User):
        about = Q(user=subject) | Q(group__user=subject)
        given = ALL_PERMISSIONS if subject.is_superuser else frozenset[Permission]()
    else:
        about, given = Q(service_account=subject), frozenset()
    roles = AccessRole.objects.filter(memberships__in=Membership.objects.filter(about))
    return given.union(*(role.permissions for role in roles)) <= own


def require_outranks(actor: Actor, subject: User | ServiceAccount) -> None:
    """Raise Denied unless the actor manages access and is over the subject: else its new secret would be a way up."""
    require(actor, Permission.MANAGE_ACCESS)
    if not outranks(actor, subject):
        raise Forbidden(_("The subject has more permissions than you."))


@contextmanager
def require_remaining_admin(*, taken: bool = False) -> Iterator[None]:
    """Around what may remove permissions: Conflict where no user would be left who gives access, but was before.

    `taken`: this very power is, be it from a program.
    """
    led = taken or has_platform_admin()
    yield
    if led and not has_platform_admin():
        raise Conflict.at("", "last_platform_admin", _("The installation needs at least one platform admin."))


def get_or_create_group(name: str) -> Group:
    """The group of that name. One that no user has yet is created, empty."""
    cleaned = validate_text("/group", name, longest=LONGEST_GROUP)
    if not cleaned or "\n" in cleaned or "\t" in cleaned:
        raise ValidationFailed.at("/group", "invalid", _("The group name must be one line."))
    return Group.objects.get_or_create(name=cleaned)[0]


def _locked(membership: Membership) -> Membership:
    return Membership.objects.select_for_update().get(pk=membership.pk)


def _known(role: AccessRole | str) -> AccessRole:
    if isinstance(role, AccessRole):
        return role
    found = AccessRole.objects.filter(key=role).first()
    if found is None:
        allowed = AccessRole.objects.values_list("key", flat=True)
        raise ValidationFailed.at("/role", "unknown_role", _("Role not found."), allowed=allowed)
    return found


def _check_not_stronger(actor: Actor, membership: Membership) -> None:
    """Who grants, changes or revokes a role holds all its permissions in the same scope."""
    role = membership.role
    own = access_for(actor).permissions_in(
        project=membership.project, department=membership.department, cluster=membership.cluster
    )
    if not role.permissions <= own:
        raise Forbidden(_("You cannot grant a role with more permissions than you have here."))


def _record(actor: Actor, action: str, membership: Membership, detail: dict[str, str]) -> None:
    project_id = str(membership.project_id or "")
    detail = {"subject": membership.subject, "scope": membership.scope, **detail}
    record(actor, action, membership, detail=detail, project_id=project_id, entity_name=membership.subject)


WHOLE: Final = frozenset({"system", "tenant"})


@dataclass(frozen=True, slots=True)
class AccessRuleRequest:
    """A rule to be, as it was asked for."""

    subject_type: str
    subject_id: str
    role_id: int
    scope_type: str
    scope_id: str
    cluster_id: str = ""

    def as_json(self) -> dict[str, Any]:
        """The body that asks for it."""
        body = {
            "subjectId": self.subject_id,
            "subjectType": self.subject_type,
            "roleId": self.role_id,
            "scopeId": self.scope_id,
            "scopeType": self.scope_type,
        }
        return body | ({"clusterId": self.cluster_id} if self.cluster_id else {})


@transaction.atomic
def create_rule(*, requested: AccessRuleRequest, actor: Actor) -> Membership:
    """Give the role. Absent (404) with a pointer for what is not there or not the actor's to see."""
    place = _place(requested, actor)
    require_may_grant(actor, **place)  # before any lookup: a denied actor learns of no subject
    role = AccessRole.objects.filter(pk=requested.role_id).first()
    if role is None:
        raise NotFound.at("/roleId", "unknown_role", _("Role not found."))
    return grant(subject=_subject(requested), role=role, actor=actor, **place)


def create_rules(
    *, requested: list[AccessRuleRequest], actor: Actor
) -> tuple[list[Membership], list[tuple[AccessRuleRequest, RungError]]]:
    """Each on its own: what was made, and what was refused and why."""
    made, refused = [], []
    for each in requested:
        try:
            made.append(create_rule(requested=each, actor=actor))
        except RungError as refusal:
            refused.append((each, refusal))
    return made, refused


def check_revoke(*, membership: Membership, actor: Actor) -> None:
    """Raise what deleting it would raise; nothing is deleted."""
    with transaction.atomic():
        revoke(membership=membership, actor=actor)
        transaction.set_rollback(True)


def _subject(requested: AccessRuleRequest) -> Subject:
    found = _SUBJECTS[requested.subject_type](requested.subject_id)
    if found is None:
        raise NotFound.at("/subjectId", "unknown_subject", _("Subject not found."))
    return found


def _account(key: str) -> ServiceAccount | None:
    """By client id, or by id."""
    known = ServiceAccount.objects.filter(client_id=key).first() if "\x00" not in key else None
    return known or next(iter(_by_uuid(ServiceAccount.objects.all(), key)), None)


def _person(key: str) -> User | None:
    """By user name alone: a name may look like another user's id."""
    return User.objects.filter(username=key).first() if "\x00" not in key else None


def _group(key: str) -> Group:
    """A group may be named before the identity provider has sent anybody of it."""
    return get_or_create_group(key)


_SUBJECTS: Final[Mapping[str, Callable[[str], Subject | None]]] = {
    "user": _person,
    "group": _group,
    "service-account": _account,
    "app": _account,
}
SUBJECT_TYPES: Final = tuple(_SUBJECTS)


def _by_number(rows: QuerySet[Any], key: str) -> QuerySet[Any]:
    number = id_number(key)
    return rows.none() if number is None else rows.filter(pk=number)


def _by_uuid(rows: QuerySet[Any], key: str) -> QuerySet[Any]:
    try:
        return rows.filter(pk=UUID(key))
    except ValueError:
        return rows.none()


def _place(requested: AccessRuleRequest, actor: Actor) -> dict[str, Any]:
    """The scope as a keyword of `grant`: what the actor may not see is as absent as what is not there."""
    if requested.scope_type in WHOLE:
        if requested.scope_id not in {"", str(TENANT_ID)} or requested.cluster_id:
            raise NotFound.at("/scopeId", "unknown_scope", _("Scope not found."))
        return {}
    rows = {
        "project": lambda key: _by_number(visible_projects(actor), key),
        "department": lambda key: _by_number(visible_departments(actor), key),
        "cluster": lambda key: _by_uuid(Cluster.objects.all(), key),
    }[requested.scope_type](requested.scope_id)
    found = rows.first()
    if found is None:
        raise NotFound.at("/scopeId", "unknown_scope", _("Scope not found."))
    if requested.cluster_id not in {"", str(found.pk if isinstance(found, Cluster) else found.cluster_id)}:
        raise NotFound.at("/clusterId", "unknown_cluster", _("The scope does not belong to this cluster."))
    return {requested.scope_type: found}


SCOPE_TYPES: Final = ("system", "tenant", "cluster", "department", "project")
