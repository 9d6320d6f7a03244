"""Who has which role where. Nobody can hand out more than they hold themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from clusters.models import Cluster
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Denied, Refused
from tenants.models import AccessRole, Department, Membership, Project, Role, ServiceAccount, User
from tenants.permissions import Verb, has_platform_admin, require, standing_of
from tenants.roles import EVERY
from tenants.services.checks import checked, readable, unless_taken

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
    require_rule(actor, project=project, department=department, cluster=cluster)
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
    _refuse_stronger(actor, membership)
    checked(membership)
    with unless_taken(""):
        membership.save()
    _record(actor, "membership.grant", membership, {"role": membership.role.key})
    return membership


@transaction.atomic
def change_role(*, membership: Membership, role: AccessRole | str, actor: Actor) -> Membership:
    """Give another role in its place. Conflict if that is held in this scope too."""
    row = _locked(membership)
    require_rule(actor, project=row.project, department=row.department, cluster=row.cluster)
    _refuse_stronger(actor, row)
    before, row.role = row.role.key, _known(role)
    if row.role.key == before:
        return row
    _refuse_stronger(actor, row)
    checked(row)
    with an_admin_stays(taken=before == Role.PLATFORM_ADMIN):
        row.save(update_fields=["role", "updated_at"])
    _record(actor, "membership.change", row, {"before": before, "after": row.role.key})
    return row


@transaction.atomic
def revoke(*, membership: Membership, actor: Actor) -> None:
    """Take a role away; it counts from the subject's next request on."""
    row = _locked(membership)
    require_rule(actor, project=row.project, department=row.department, cluster=row.cluster)
    _refuse_stronger(actor, row)
    _record(actor, "membership.revoke", row, {"role": row.role.key})
    with an_admin_stays(taken=row.role.key == Role.PLATFORM_ADMIN):
        row.delete()


def require_rule(
    actor: Actor,
    *,
    project: Project | None = None,
    department: Department | None = None,
    cluster: Cluster | None = None,
) -> None:
    """Raise unless the actor gives and takes roles there: in projects and departments whoever manages members, in
    clusters and everywhere platform admins.
    """
    if project is not None:
        require(actor, Verb.MANAGE_MEMBERS, project=project)
    elif department is not None:
        require(actor, Verb.MANAGE_MEMBERS, department=department)
    else:
        require(actor, Verb.MANAGE_ACCESS, cluster=cluster)


def is_over(actor: Actor, subject: User | ServiceAccount) -> bool:
    """Does the actor hold whatever the subject was given anywhere, be it disabled now or not?"""
    own = standing_of(actor).verbs_in()
    if own == EVERY or subject.pk is None:
        return own == EVERY or not (isinstance(subject, User) and subject.is_superuser)
    if isinstance(subject, User):
        about = Q(user=subject) | Q(group__user=subject)
        given = EVERY if subject.is_superuser else frozenset[Verb]()
    else:
        about, given = Q(service_account=subject), frozenset()
    roles = AccessRole.objects.filter(memberships__in=Membership.objects.filter(about))
    return given.union(*(role.verbs for role in roles)) <= own


def require_over(actor: Actor, subject: User | ServiceAccount) -> None:
    """Raise Denied unless the actor manages access and is over the subject: else its new secret would be a way up."""
    require(actor, Verb.MANAGE_ACCESS)
    if not is_over(actor, subject):
        raise Denied(_("They may do more than you."))


@contextmanager
def an_admin_stays(*, taken: bool = False) -> Iterator[None]:
    """Around what may take somebody's power: Conflict where nobody would be left who lets others in, but was before.

    `taken`: this very power is, be it from a program.
    """
    led = taken or has_platform_admin()
    yield
    if led and not has_platform_admin():
        raise Conflict.at("", "last_platform_admin", _("This would leave the installation without a platform admin."))


def group_named(name: str) -> Group:
    """The group of that name. It may be one that nobody has come with yet: then it is made, empty."""
    said = readable("/group", name, longest=LONGEST_GROUP)
    if not said or "\n" in said or "\t" in said:
        raise Refused.at("/group", "invalid", _("Name a group in one line."))
    return Group.objects.get_or_create(name=said)[0]


def _locked(membership: Membership) -> Membership:
    return Membership.objects.select_for_update().get(pk=membership.pk)


def _known(role: AccessRole | str) -> AccessRole:
    if isinstance(role, AccessRole):
        return role
    found = AccessRole.objects.filter(key=role).first()
    if found is None:
        allowed = AccessRole.objects.values_list("key", flat=True)
        raise Refused.at("/role", "unknown_role", _("There is no such role."), allowed=allowed)
    return found


def _refuse_stronger(actor: Actor, membership: Membership) -> None:
    """Whoever gives, changes or takes a role holds all of it in the same place."""
    role = membership.role
    own = standing_of(actor).verbs_in(
        project=membership.project, department=membership.department, cluster=membership.cluster
    )
    if not role.verbs <= own:
        raise Denied(_("You hold a weaker role here than this one."))


def _record(actor: Actor, action: str, membership: Membership, detail: dict[str, str]) -> None:
    project_id = str(membership.project_id or "")
    detail = {"subject": membership.subject, "scope": membership.scope, **detail}
    record(actor, action, membership, detail=detail, project_id=project_id, entity_name=membership.subject)
