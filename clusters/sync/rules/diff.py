"""Observed x desired -> what to create, update, replace or delete, and what to leave alone. Pure.

`observed` holds everything that carries our label, and any foreign object that has the name of a desired one. The
applied-hash says whether Rung wrote this very content; the live fields are compared all the same, so that an edit by
hand that kept the annotation is found. A field that only the observed object has belongs to another writer.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import (
    APPLIED_HASH,
    GENERATION,
    KAI_TOPOLOGY,
    NAMESPACE,
    PRIORITY_CLASS,
    WHOLE_MAPS,
    generation_of,
    hash_of,
    is_managed,
    ref_of,
    stamped,
)
from scheduling.model.resources import parse_quantity


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field: JSON pointer, what the cluster holds, what it should hold. None is absent."""

    path: str
    observed: Any
    desired: Any

    def as_row(self) -> list[Any]:
        """The shape stored in history rows."""
        return [self.path, self.observed, self.desired]


Changes: TypeAlias = tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """The object is missing."""

    ref: ObjectRef
    desired: Manifest
    changes: Changes = ()


@dataclass(frozen=True, slots=True)
class Update:
    """Fields differ and may be written."""

    ref: ObjectRef
    desired: Manifest
    observed: Manifest
    changes: Changes


@dataclass(frozen=True, slots=True)
class Replace:
    """A field differs that the API server never changes: delete, then create. Pods keep the old integer."""

    ref: ObjectRef
    desired: Manifest
    observed: Manifest
    changes: Changes


@dataclass(frozen=True, slots=True)
class Delete:
    """Ours, and no longer wanted."""

    ref: ObjectRef
    observed: Manifest
    changes: Changes = ()


@dataclass(frozen=True, slots=True)
class NameConflict:
    """A conflict: a foreign object (`observed`, never overwritten), its namespace, or a deletion in progress."""

    ref: ObjectRef
    desired: Manifest
    reason: str
    changes: Changes = ()
    observed: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """The cluster already holds a later generation, so this change is not written."""

    ref: ObjectRef
    desired: Manifest
    observed: Manifest
    changes: Changes = field(default=())


Change: TypeAlias = Create | Update | Replace | Delete | NameConflict | Fenced

IMMUTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    PRIORITY_CLASS.key: ("/value", "/preemptionPolicy"),
    KAI_TOPOLOGY.key: ("/spec/levels",),
}
"""Beginnings of pointers."""
# Values below these keys are quantities: "1" and "1000m" are the same.
QUANTITIES: Final = WHOLE_MAPS | {"default", "defaultRequest", "max", "min", "limits", "requests", "resources"}
IGNORED: Final = frozenset(f"/metadata/annotations/{name.replace('/', '~1')}" for name in (APPLIED_HASH, GENERATION))


DesiredObjects: TypeAlias = Mapping[ObjectRef, Manifest]
"""Each with its hash, by its place."""


def by_place(desired: Iterable[Manifest]) -> DesiredObjects:
    """What is desired, ready to be compared."""
    return {ref_of(manifest): stamped(manifest) for manifest in desired}


def diff(
    observed: Iterable[Manifest],
    desired: Iterable[Manifest],
    *,
    adopted: Container[str] = frozenset(),
    fence: bool = False,
) -> list[Change]:
    """`differences` for what is not yet ready to be compared."""
    return differences(observed, by_place(desired), adopted=adopted, fence=fence)


def is_up_to_date(observed: Manifest, desired: Manifest, *, fence: bool = False) -> bool:
    """Whether the object is not being deleted and has the desired content and Rung's labels."""
    return not is_leaving(observed) and _is_unchanged(observed, desired, fence=fence)


def differences(
    observed: Iterable[Manifest],
    wanted: DesiredObjects,
    *,
    held: Container[ObjectRef] = frozenset(),
    adopted: Container[str] = frozenset(),
    fence: bool = False,
) -> list[Change]:
    """What would make the cluster equal to the desired state; empty when it already is. The order is not yet safe.

    `held`: what is known to hold and is not among the observed. `adopted`: uids of foreign objects that may become
    ours. `fence`: objects of equal content are written too where they carry a lower generation, since a worker that was
    lost may still hold what was wanted in between.
    """
    live = {ref_of(manifest): manifest for manifest in observed}
    blocked = {
        ref.name: no
        for ref in wanted
        if ref.kind == NAMESPACE and ref in live and (no := _unusable(live[ref], adopted))
    }
    changes: list[Change] = []
    for ref, manifest in wanted.items():
        if ref.namespace in blocked:
            changes.append(NameConflict(ref, manifest, blocked[ref.namespace]))
        elif ref not in held and (change := _compare(ref, live.get(ref), manifest, adopted, fence=fence)):
            changes.append(change)
    extra = (Delete(ref, each) for ref, each in live.items() if ref not in wanted and is_managed(each))
    return [*changes, *(change for change in extra if not is_leaving(change.observed))]


def conflict_with(ref: ObjectRef, observed: Manifest, desired: Manifest) -> NameConflict:
    """A conflict with a foreign object, with the changes that a takeover would make."""
    reason = f"{ref.kind.kind} {ref.name} exists and is not managed by Rung."
    return NameConflict(ref, desired, reason, field_changes(observed, desired), observed)


def same_but_status(one: Manifest, other: Manifest) -> bool:
    """The same object, saying the same, but for its status and what the API server counts."""
    parts = ("uid", "labels", "annotations", "deletionTimestamp")
    if any(one["metadata"].get(part) != other["metadata"].get(part) for part in parts):
        return False
    return all(one.get(key) == other.get(key) for key in (one.keys() | other.keys()) - {"metadata", "status"})


def is_leaving(manifest: Mapping[str, Any]) -> bool:
    """Its deletion has been asked for: it cannot be kept any more."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def _unusable(namespace: Manifest, adopted: Container[str]) -> str:
    """Why nothing may be written into the namespace; empty: it may."""
    name = namespace["metadata"]["name"]
    if not (is_managed(namespace) or namespace["metadata"].get("uid") in adopted):
        return f"The namespace {name} is not managed by Rung."
    return f"The namespace {name} is being deleted. Rung recreates it afterwards." if is_leaving(namespace) else ""


def field_changes(observed: Manifest, desired: Manifest) -> Changes:
    """Every desired leaf that the cluster holds differently; bookkeeping annotations aside."""
    return tuple(each for each in _leaves(observed, desired, "", "") if each.path not in IGNORED)


def _compare(
    ref: ObjectRef, observed: Manifest | None, desired: Manifest, adopted: Container[str], *, fence: bool
) -> Change | None:
    if observed is None:
        return Create(ref, desired)
    if not (is_managed(observed) or observed["metadata"].get("uid") in adopted):
        return conflict_with(ref, observed, desired)
    if is_leaving(observed):
        return NameConflict(ref, desired, f"{ref.kind.kind} {ref.name} is being deleted. Rung recreates it afterwards.")
    if _is_unchanged(observed, desired, fence=fence):
        return None
    changes, behind = field_changes(observed, desired), _is_behind(observed, desired, fence=fence)
    if not (behind or changes) and hash_of(observed) == hash_of(desired):
        return None
    if generation_of(desired) < generation_of(observed):
        return Fenced(ref, desired, observed, changes)
    if any(change.path.startswith(IMMUTABLE.get(ref.kind.key, ())) for change in changes):
        return Replace(ref, desired, observed, changes)
    return Update(ref, desired, observed, changes)


def _is_behind(observed: Manifest, desired: Manifest, *, fence: bool) -> bool:
    return fence and generation_of(observed) < generation_of(desired)


def _is_unchanged(observed: Manifest, desired: Manifest, *, fence: bool) -> bool:
    """Written by Rung with this content, and still so, defaults beside it: the cheap answer for nearly every one."""
    if _is_behind(observed, desired, fence=fence):
        return False
    theirs, ours = observed["metadata"], desired["metadata"]
    live, own = theirs.get("annotations"), ours["annotations"]
    if not live or not theirs.get("labels") or live.get(APPLIED_HASH) != own[APPLIED_HASH]:
        return False
    if not _says(observed, desired):
        return False
    if theirs["labels"] != ours["labels"] and not theirs["labels"].items() >= ours["labels"].items():
        return False
    return live == own or all(live.get(key) == text for key, text in own.items() if key != GENERATION)


def _says(observed: Manifest, desired: Manifest) -> bool:
    for key, value in desired.items():
        if key != "metadata" and (theirs := observed.get(key)) != value and not _within(theirs, value):
            return False
    return True


def _within(observed: Any, desired: Any) -> bool:
    """Whether everything desired is present literally; other keys of maps are defaults of the API server."""
    if type(desired) is dict and type(observed) is dict:
        return all(
            name in observed
            and ((theirs := observed[name]) == ours or (name not in WHOLE_MAPS and _within(theirs, ours)))
            for name, ours in desired.items()
        )
    if type(desired) is list and type(observed) is list and len(desired) == len(observed):
        return all(theirs == ours or _within(theirs, ours) for theirs, ours in zip(observed, desired, strict=True))
    return False


def _leaves(observed: Any, desired: Any, path: str, key: str) -> Iterator[FieldChange]:
    if isinstance(desired, Mapping) and isinstance(observed, Mapping | None):
        yield from _in_maps(observed or {}, desired, path, key)
    elif _is_list(desired) and _is_list(observed) and len(desired) == len(observed):
        for index, (theirs, ours) in enumerate(zip(observed, desired, strict=True)):
            yield from _leaves(theirs, ours, f"{path}/{index}", key)
    elif not _same(observed, desired, quantity=key in QUANTITIES):
        yield FieldChange(path, observed, desired)


def _in_maps(observed: Mapping[str, Any], desired: Mapping[str, Any], path: str, key: str) -> Iterator[FieldChange]:
    for name, ours in desired.items():
        below = name if not _is_leaf(ours) else key
        yield from _leaves(observed.get(name), ours, f"{path}/{_token(name)}", below)
    if key in WHOLE_MAPS:
        for name in observed.keys() - desired.keys():
            yield FieldChange(f"{path}/{_token(name)}", observed[name], None)


def _same(observed: Any, desired: Any, *, quantity: bool) -> bool:
    """Equal; or empty where the API server leaves an empty value out; or the same quantity written otherwise."""
    if type(observed) is type(desired) and observed == desired:
        return True
    if observed is None:
        return desired is None or desired in (False, "", [])
    if _is_number(observed) and _is_number(desired):
        return bool(observed == desired)
    return quantity and _quantity(observed) is not None and _quantity(observed) == _quantity(desired)


def _quantity(value: Any) -> Any:
    try:
        return parse_quantity(str(value))
    except ValueError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, Mapping) and not _is_list(value)


def _token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
