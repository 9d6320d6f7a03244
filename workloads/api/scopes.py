"""Scopes as bodies and queries name them."""

from collections.abc import Mapping, Sequence
from typing import Any

from portal.core.actors import Actor
from portal.core.errors import BadRequest, Refused
from workloads.models.scoped import Owner
from workloads.policy_rules import Scope
from workloads.selectors.scopes import owner_at


def owner_in_body(actor: Actor, scope: Scope, key: object, *, at: str) -> Owner:
    """Whose scope a body names by its id at the pointer; absent and foreign are refused alike, at the field."""
    if scope is not Scope.TENANT and key is None:
        missing(at)
    try:
        return owner_at(actor, scope, str(key))
    except LookupError:
        message = f"{at.rpartition('/')[2]} names no {scope} of yours."
        raise Refused.at(at, "unknown_id", message) from None


def owner_of_meta(actor: Actor, meta: Mapping[str, Any]) -> Owner:
    """The same of Run:ai's `{scope, projectId | departmentId | clusterId}`."""
    scope = Scope(meta["scope"])
    return owner_in_body(actor, scope, meta.get(f"{scope}Id"), at=f"/meta/{scope}Id")


def word_in(query: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    """One of the words, however their client writes it: `Scope.PROJECT`, `DistributedInference`; empty for none."""
    asked = query.get(name, "").rpartition(".")[2].replace("_", "").lower()
    found = next((each for each in known if each.lower() == asked), "")
    if asked and not found:
        raise BadRequest.at(f"/{name}", "out_of_range", f"{name} is one of {', '.join(known)}.", allowed=known)
    return found


def missing(pointer: str) -> str:
    """Refuse what lacks a field that it needs."""
    raise BadRequest.at(pointer, "required", f"{pointer.rpartition('/')[2]} is needed.")
