"""What goes with a project or department that is deleted. The app above registers itself here at start-up."""

from collections.abc import Callable
from typing import Final

from portal.core.actors import Actor
from tenants.models import Department, Project

Farewell = Callable[[Department | Project, Actor], None]
_registered: Final[list[Farewell]] = []


def register(farewell: Farewell) -> None:
    """Call this, in its transaction, before a project or department is deleted."""
    if farewell not in _registered:
        _registered.append(farewell)


def leave(owner: Department | Project, actor: Actor) -> None:
    """Let everybody take away, and record, what belongs to the owner."""
    for farewell in _registered:
        farewell(owner, actor)
