"""Access rules as Run:ai's clients write them: subject, role and scope by their ids."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from clusters.models import Cluster
from portal.core.actors import Actor
from portal.core.errors import Absent, RungError
from portal.core.filtering import id_number
from portal.core.wire import TENANT_ID
from tenants.models import AccessRole, Membership, ServiceAccount, User
from tenants.permissions import visible_departments, visible_projects
from tenants.services import memberships

WHOLE: Final = frozenset({"system", "tenant"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A rule to be, as it was asked for."""

    subject_type: str
    subject_id: str
    role_id: int
    scope_type: str
    scope_id: str
    cluster_id: str = ""

    def as_json(self) -> dict[str, Any]:
        """The body that asks for it."""
        said = {
            "subjectId": self.subject_id,
            "subjectType": self.subject_type,
            "roleId": self.role_id,
            "scopeId": self.scope_id,
            "scopeType": self.scope_type,
        }
        return said | ({"clusterId": self.cluster_id} if self.cluster_id else {})


@transaction.atomic
def create_rule(*, asked: Asked, actor: Actor) -> Membership:
    """Give the role. Absent (404) with a pointer for what is not there or not the actor's to see."""
    place = _place(asked, actor)
    memberships.require_rule(actor, **place)  # before anything is looked up: who may not, learns of nobody
    role = AccessRole.objects.filter(pk=asked.role_id).first()
    if role is None:
        raise Absent.at("/roleId", "unknown_role", _("There is no such role."))
    return memberships.grant(subject=_subject(asked), role=role, actor=actor, **place)


def create_rules(*, asked: list[Asked], actor: Actor) -> tuple[list[Membership], list[tuple[Asked, RungError]]]:
    """Each on its own: what was made, and what was refused and why."""
    made, refused = [], []
    for each in asked:
        try:
            made.append(create_rule(asked=each, actor=actor))
        except RungError as refusal:
            refused.append((each, refusal))
    return made, refused


def try_revoke(*, membership: Membership, actor: Actor) -> None:
    """Raise what deleting it would raise; nothing is deleted."""
    with transaction.atomic():
        memberships.revoke(membership=membership, actor=actor)
        transaction.set_rollback(True)


def _subject(asked: Asked) -> memberships.Subject:
    found = _SUBJECTS[asked.subject_type](asked.subject_id)
    if found is None:
        raise Absent.at("/subjectId", "unknown_subject", _("There is no such subject."))
    return found


def _account(key: str) -> ServiceAccount | None:
    """By client id, or by id."""
    known = ServiceAccount.objects.filter(client_id=key).first() if "\x00" not in key else None
    return known or next(iter(_by_uuid(ServiceAccount.objects.all(), key)), None)


def _person(key: str) -> User | None:
    """By user name alone: a name may look like somebody else's id."""
    return User.objects.filter(username=key).first() if "\x00" not in key else None


def _group(key: str) -> Group:
    """A group may be named before the identity provider has sent anybody of it."""
    return memberships.group_named(key)


_SUBJECTS: Final[Mapping[str, Callable[[str], memberships.Subject | None]]] = {
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


def _place(asked: Asked, actor: Actor) -> dict[str, Any]:
    """The scope as a keyword of `grant`: what the actor may not see is as absent as what is not there."""
    if asked.scope_type in WHOLE:
        if asked.scope_id not in {"", str(TENANT_ID)} or asked.cluster_id:
            raise Absent.at("/scopeId", "unknown_scope", _("There is no such scope."))
        return {}
    rows = {
        "project": lambda key: _by_number(visible_projects(actor), key),
        "department": lambda key: _by_number(visible_departments(actor), key),
        "cluster": lambda key: _by_uuid(Cluster.objects.all(), key),
    }[asked.scope_type](asked.scope_id)
    found = rows.first()
    if found is None:
        raise Absent.at("/scopeId", "unknown_scope", _("There is no such scope."))
    if asked.cluster_id not in {"", str(found.pk if isinstance(found, Cluster) else found.cluster_id)}:
        raise Absent.at("/clusterId", "unknown_cluster", _("The scope is not in this cluster."))
    return {asked.scope_type: found}


SCOPE_TYPES: Final = ("system", "tenant", "cluster", "department", "project")
