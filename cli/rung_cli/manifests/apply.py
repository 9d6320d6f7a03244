"""What has to be done so that everything is as it is declared, what the server says of it beforehand, and doing it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from rung_cli.errors import ApiError
from rung_cli.manifests.kinds import ORDER
from rung_cli.manifests.resources import DeclaredKey, DeclaredObject, Difference, ServerState, refuse_unknown
from rung_cli.output.stderr import progress


class PlannedAction(StrEnum):
    """What becomes of a thing."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    NONE = "none"


class ApplyOutcome(StrEnum):
    """What became of it. The last three of a plan: what would."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    SKIPPED = "skipped"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNCHECKED = "unchecked"


DONE: Final = {
    PlannedAction.CREATE: ApplyOutcome.CREATED,
    PlannedAction.UPDATE: ApplyOutcome.UPDATED,
    PlannedAction.DELETE: ApplyOutcome.DELETED,
    PlannedAction.NONE: ApplyOutcome.UNCHANGED,
}
BAD: Final = frozenset({ApplyOutcome.FAILED, ApplyOutcome.SKIPPED, ApplyOutcome.REFUSED})


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One document, or one thing that is to be deleted. `outcome` and `message` once it was tried."""

    act: PlannedAction
    thing: DeclaredObject
    differences: tuple[Difference, ...] = ()
    outcome: ApplyOutcome | None = None
    message: str = ""
    refusal: ApiError | None = None
    plans: tuple[Mapping[str, Any], ...] = ()
    """What the portal plans to do, where it plans such changes."""

    @property
    def changes(self) -> bool:
        """Is there anything to do?"""
        return self.act is not PlannedAction.NONE

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        changes = [{"field": each.field, "before": each.before, "after": each.after} for each in self.differences]
        key = self.thing.key
        step = {"action": str(self.act), "kind": key.kind, "name": key.name, "cluster": key.cluster, "changes": changes}
        source = {"document": self.thing.source} if self.thing.source else {}
        errors = {"errors": self.refusal.problems} if self.refusal and self.refusal.problems else {}
        became = {"result": str(self.outcome), "message": self.message, **errors} if self.outcome else {}
        return {**source, **step, **became, **({"plans": list(self.plans)} if self.plans else {})}


def plan(wanted: Sequence[DeclaredObject], server: ServerState, *, prune: bool = False) -> list[PlannedChange]:
    """In a safe order: what others name comes first, and goes last. UsageError for what can never be."""
    named = {thing.key for thing in wanted}
    for thing in wanted:
        refuse_unknown(thing, server, named)
    steps = [_step(thing, server) for thing in wanted]
    steps.sort(key=lambda step: ORDER.index(step.thing.kind.name))
    if not prune:
        return steps
    kinds = {thing.kind.name: thing.kind for thing in wanted if thing.kind.prunable}
    there = [each for kind in kinds for each in server.things(kind).values() if kinds[kind].is_managed(each)]
    extra = [thing for thing in there if thing.key not in named]
    extra.sort(key=lambda thing: ORDER.index(thing.kind.name), reverse=True)
    return [*steps, *(PlannedChange(PlannedAction.DELETE, thing) for thing in extra)]


def check_plan(server: ServerState, steps: Sequence[PlannedChange]) -> Iterator[PlannedChange]:
    """A dry run of each step by the server, by itself, on how things are now.

    What names a thing that is still to be made has no dry run. What is refused while something that it hangs
    together with changes, too, may be accepted after that: neither is called refused.
    """
    changing = [step for step in steps if step.changes]
    for number, step in enumerate(steps, start=1):
        if not step.changes:
            yield replace(step, outcome=ApplyOutcome.UNCHANGED)
            continue
        progress(f"{number} of {len(steps)}: checking {step.thing.key} …")
        related = [other for other in changing if other is not step and _hang_together(step, other)]
        coming = [other for other in related if other.act is PlannedAction.CREATE and _names(step, other.thing.key)]
        if coming:
            message = f"depends on {_list(coming)}"
            yield replace(step, outcome=ApplyOutcome.UNCHECKED, message=message)
            continue
        try:
            server.api.plans.clear()
            _act(server, step, dry_run=True)
        except ApiError as refusal:
            outcome = ApplyOutcome.UNCHECKED if related else ApplyOutcome.REFUSED
            after = f" {_list(related)} may have to change first." if related else ""
            yield replace(step, outcome=outcome, message=f"{_said(refusal)}{after}", refusal=refusal)
        else:
            yield replace(step, outcome=ApplyOutcome.ACCEPTED, plans=tuple(server.api.plans))
    progress("")


def apply_plan(server: ServerState, steps: Sequence[PlannedChange]) -> Iterator[PlannedChange]:
    """Run step by step, printing each outcome. A refused step stops only its dependents.

    What is refused is tried again after the others while that helps: it may wait for another's quota. What depends on a
    step that stays refused is skipped. Everything that was done stays done, and the same command goes on from there.
    """
    yield from (replace(step, outcome=ApplyOutcome.UNCHANGED) for step in steps if not step.changes)
    left = [step for step in steps if step.changes]
    while left:
        waiting = list[PlannedChange]()
        for number, step in enumerate(left, start=1):
            blockers = [other for other in waiting if _blocks(other, step)]
            if blockers:
                message = f"depends on {_list(blockers)}"
                waiting.append(replace(step, outcome=ApplyOutcome.SKIPPED, message=message, refusal=None))
                continue
            progress(f"{number} of {len(left)}: {step.act} {step.thing.key} …")
            try:
                _act(server, step, dry_run=False)
            except ApiError as refusal:
                refusal.where = f"{step.thing.source}: {step.act} {step.thing.key}".removeprefix(": ")
                waiting.append(replace(step, outcome=ApplyOutcome.FAILED, message=_said(refusal), refusal=refusal))
            else:
                progress("")
                yield replace(step, outcome=DONE[step.act], message="", refusal=None)
        if len(waiting) == len(left):
            progress("")
            yield from waiting
            return
        left = waiting
    progress("")


def _step(thing: DeclaredObject, server: ServerState) -> PlannedChange:
    known = server.find(thing.key)
    now = thing.kind.complete(server, known) if known else None
    thing.kind.refuse_impossible(thing, now, server)
    if now is None:
        return PlannedChange(PlannedAction.CREATE, thing, tuple(thing.kind.summary(thing.spec)))
    found = tuple(thing.kind.differences(thing.spec, now.spec))
    return PlannedChange(PlannedAction.UPDATE if found else PlannedAction.NONE, thing, found)


def _act(server: ServerState, step: PlannedChange, *, dry_run: bool) -> None:
    thing, kind = step.thing, step.thing.kind
    if step.act is PlannedAction.CREATE:
        made = kind.create(server, thing, dry_run=dry_run)
        if not dry_run:
            server.keep(replace(thing, extra=made))
    elif step.act is PlannedAction.DELETE:
        kind.remove(server, thing, dry_run=dry_run)
        if not dry_run:
            server.drop(thing.key)
    elif (now := server.find(thing.key)) is not None:
        kind.change(server, thing, kind.complete(server, now), dry_run=dry_run)


def _names(step: PlannedChange, key: DeclaredKey) -> bool:
    return any(named.names(key) for named in step.thing.kind.references(step.thing))


def _blocks(other: PlannedChange, step: PlannedChange) -> bool:
    """Must the step wait for the other one? Quotas of projects and departments may change in either order."""
    if other.act is PlannedAction.DELETE or step.act is PlannedAction.DELETE or not _names(step, other.thing.key):
        return False
    return other.act is PlannedAction.CREATE or not _are_queues(step, other)


def _hang_together(step: PlannedChange, other: PlannedChange) -> bool:
    """Could the other change, done first, turn a refusal of the step into a yes?

    What it names may; what names it only where it is deleted, or where quotas of both have to agree.
    """
    if _names(step, other.thing.key):
        return True
    if step.act is PlannedAction.DELETE:
        return _names(other, step.thing.key)
    return _are_queues(step, other) and step.act is PlannedAction.UPDATE and _names(other, step.thing.key)


def _are_queues(step: PlannedChange, other: PlannedChange) -> bool:
    return step.thing.kind.order_with_parent and other.thing.kind.order_with_parent


def _list(steps: Sequence[PlannedChange]) -> str:
    return ", ".join(str(step.thing.key) for step in steps)


def _said(refusal: ApiError) -> str:
    """In one line."""
    problems = [
        f"{each['pointer']}: {each['message']}".removeprefix(": ") for each in refusal.problems if "pointer" in each
    ]
    return "; ".join(problems) or refusal.message


def name_of(key: DeclaredKey) -> str:
    """For `-o name`."""
    return f"{key.kind.lower()}/{key.name}"
