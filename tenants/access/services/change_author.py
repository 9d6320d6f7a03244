"""Who changed a row and why, as the history tables keep it."""

from typing import TypeVar

from django.db.models import Model

from portal.kit.security.actors import Actor, ActorKind
from tenants.access.models import User

M = TypeVar("M", bound=Model)


def set_change_author(instance: M, *, actor: Actor, reason: str = "") -> M:
    """Name the author and the reason of the next save or deletion. Programs and the system leave the author empty."""
    author = User(pk=int(actor.id)) if actor.kind is ActorKind.USER else None
    vars(instance).update(_history_user=author, _change_reason=reason or None)
    return instance
