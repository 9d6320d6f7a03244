"""What has to be done so that the organisation is as it is declared; pure, but for doing it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rung_cli.errors import ApiError, UsageError
from rung_cli.http.client import Api
from rung_cli.manifests import server_state
from rung_cli.manifests.organisation import KINDS, TYPE, DeclaredKey, DeclaredObject, amounts
from rung_cli.manifests.server_state import ServerOrganisation
from rung_cli.output.stderr import progress

FIXED: Final = ("namespace",)


class PlannedAction(StrEnum):
    """What becomes of a thing."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field: as it is, and as it is to be."""

    field: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One thing that is not as declared."""

    act: PlannedAction
    thing: DeclaredObject
    differences: tuple[Difference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        changes = [{"field": each.field, "before": each.before, "after": each.after} for each in self.differences]
        key = self.thing.key
        return {"action": self.act, "kind": key.kind, "name": key.name, "cluster": key.cluster, "changes": changes}


def plan(wanted: Sequence[DeclaredObject], known: ServerOrganisation, *, prune: bool = False) -> list[PlannedChange]:
    """In a safe order: what others name comes first, and goes last. Misused for what can never be."""
    named = {thing.key for thing in wanted}
    for thing in wanted:
        server_state.refuse_unknown(thing, known, coming=named)
    steps = [step for thing in wanted if (step := _step(thing, known))]
    steps.sort(key=lambda step: KINDS.index(step.thing.key.kind))
    if not prune:
        return steps
    kinds = {thing.key.kind for thing in wanted} - {TYPE}
    extra = [thing for key, thing in known.things.items() if key.kind in kinds and key not in named]
    extra.sort(key=lambda thing: KINDS.index(thing.key.kind), reverse=True)
    return [*steps, *(PlannedChange(PlannedAction.DELETE, thing) for thing in extra)]


def apply_plan(api: Api, steps: Sequence[PlannedChange]) -> None:
    """Step by step; what is refused is tried again after the others while that helps: it may wait for another's quota.

    Refused, with the server's words, for the first that stays refused; what was done by then stays done, and the same
    command goes on from there.
    """
    left, known = list(steps), server_state.read(api)
    while left:
        waiting, refusal = _round(api, left, known)
        if refusal and len(waiting) == len(left):
            raise refusal
        left = waiting
    progress("")


def _round(
    api: Api, steps: Sequence[PlannedChange], known: ServerOrganisation
) -> tuple[list[PlannedChange], ApiError | None]:
    left, first = list[PlannedChange](), None
    for number, step in enumerate(steps, start=1):
        progress(f"{number} of {len(steps)}: {step.act} {step.thing.key} …")
        try:
            if step.act is PlannedAction.CREATE:
                server_state.create(api, step.thing, known)
            elif step.act is PlannedAction.UPDATE:
                server_state.change(api, step.thing, known)
            else:
                server_state.remove(api, step.thing)
        except ApiError as refusal:
            left.append(step)
            refusal.where = refusal.where or f"{step.act} {step.thing.key}"
            first = first or refusal
    return left, first


def _step(thing: DeclaredObject, known: ServerOrganisation) -> PlannedChange | None:
    now = known.things.get(thing.key)
    if now is None:
        if thing.key.kind == TYPE and thing.key not in known.withdrawn:
            raise UsageError(
                f"{thing.source}: unknown {thing.key}. Types cannot be created; list them with: rung types"
            )
        return PlannedChange(PlannedAction.CREATE, thing, tuple(Difference(*each) for each in _flat(thing.spec)))
    if thing.department and thing.department != now.department:
        text = f"{thing.source}: {thing.key} is in department {now.department} and cannot be moved."
        raise UsageError(text)
    found = tuple(_differences(thing, now))
    for each in found:
        if each.field in FIXED:
            raise UsageError(f"{thing.source}: {each.field} of {thing.key} is {each.before} and cannot change.")
    return PlannedChange(PlannedAction.UPDATE, thing, found) if found else None


def _flat(spec: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    for name, value in spec.items():
        if name == "quotas":
            for pool, entry in value.items():
                for what, amount in amounts(entry).items():
                    if amount not in (None, 0):
                        yield f"quota of {pool}: {what}", None, amount
        elif value not in ("", [], {}, None):
            yield name, None, value


def _differences(thing: DeclaredObject, now: DeclaredObject) -> Iterator[Difference]:
    for name, value in thing.spec.items():
        before = now.spec.get(name)
        if name == "quotas":
            yield from _quotas(value, before or {})
        elif name == "schedulingRules":
            rules = before or {}
            for rule, seconds in value.items():
                if rules.get(rule) != seconds:
                    yield Difference(rule, rules.get(rule), seconds)
        elif (value or None) != (before or None):
            yield Difference(name, before, value)


def _quotas(wanted: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    for pool in dict.fromkeys((*wanted, *now)):
        before, after = amounts(now.get(pool, {})), amounts(wanted.get(pool, {}))
        for what, amount in after.items():
            if amount != before[what]:
                yield Difference(f"quota of {pool}: {what}", before[what], amount)


def name_of(key: DeclaredKey) -> str:
    """For `-o name`."""
    return f"{key.kind.lower()}/{key.name}"
