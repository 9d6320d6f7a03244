"""Policies are set, changed and taken away by whoever manages their scope; each is checked before it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Absent, Conflict, Problem, Refused
from tenants.models import Project
from workloads.models import Policy
from workloads.models.scoped import Owner
from workloads.permissions import require_scope
from workloads.policies import known_priorities
from workloads.policy_documents import Document, patched, read_document, without
from workloads.policy_rules import Kind
from workloads.scopes import columns_of, place_of
from workloads.services.denials import verb

LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class Target:
    """Which policy: of this kind, for this owner; None is the installation."""

    kind: Kind
    owner: Owner = None

    @property
    def where(self) -> dict[str, str | Owner]:
        """As columns."""
        return columns_of(self.owner)

    @property
    def title(self) -> str:
        """`training policy of department research`."""
        return f"{self.kind} policy of {place_of(self.owner).words}"

    @property
    def row(self) -> Policy | None:
        """The policy, locked until the end of the transaction; None where there is none."""
        return Policy.objects.select_for_update().filter(kind=str(self.kind), **self.where).first()


def set_policy(*, target: Target, name: str, document: object, actor: Actor) -> Policy:
    """Make the policy, or put this one in its place. Refused with a pointer for whatever would not be enforced."""
    with verb(actor=actor, action="policy.set", **_entity(target)):
        require_scope(actor, target.owner)
        kept = _checked(target.kind, name, document)
        return _keep(target, target.row, name, kept, actor)


def change_policy(
    *, target: Target, document: object, actor: Actor, name: str | None = None, reset: Sequence[str] = ()
) -> Policy:
    """Clear the fields of `reset`, then merge the document in: absent stays, null takes away. Absent where none is."""
    with verb(actor=actor, action="policy.set", **_entity(target)):
        require_scope(actor, target.owner)
        if (row := target.row) is None:
            raise Absent
        cleared, problems = without(target.kind, row.document, list(reset))
        _refuse(problems)
        wanted = row.name if name is None else name
        kept = _checked(target.kind, wanted, cleared if document is None else patched(cleared, document))
        return _keep(target, row, wanted, kept, actor)


def lift_policy(*, target: Target, actor: Actor) -> None:
    """Take the policy away; those of wider scopes go on holding. Absent where there is none."""
    with verb(actor=actor, action="policy.lift", **_entity(target)):
        require_scope(actor, target.owner)
        if (row := target.row) is None:
            raise Absent
        record(actor, "policy.lift", row, detail={"before": row.document}, **_entity(target))
        row.delete()


def _checked(kind: Kind, name: str, document: object) -> Document:
    kept, problems = read_document(kind, document, known_priorities())
    if not 0 < len(name.strip()) <= LONGEST_NAME:
        problems.insert(0, Problem("/meta/name", "bad_name", f"A name has 1 to {LONGEST_NAME} characters."))
    _refuse(problems)
    return kept


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Refused(problems[0].message, code=problems[0].code, problems=problems)


def _keep(target: Target, row: Policy | None, name: str, document: Document, actor: Actor) -> Policy:
    now = timezone.now()
    before = row.document if row else None
    row = row or Policy(kind=str(target.kind), **target.where, created_by=actor.name, created_at=now)
    row.name, row.document, row.updated_by, row.updated_at = name.strip(), document, actor.name, now
    _store(row, target)
    record(actor, "policy.set", row, detail={"name": row.name, "before": before, "after": document}, **_entity(target))
    return row


def _store(row: Policy, target: Target) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        raise Conflict(f"Somebody else has just made the {target.title}; look again.", code="moved_on") from None


def _entity(target: Target) -> dict[str, str]:
    project = str(target.owner.pk) if isinstance(target.owner, Project) else ""
    return {"entity_type": "policy", "entity_name": target.title, "project_id": project}
