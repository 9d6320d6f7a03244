"""Which changes may be written while pods run, and in which order changes are safe: lower before raise. Pure."""

import copy
import hashlib
import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from clusters.ports.gateway import Manifest
from clusters.ports.objects import (
    APPLIED_HASH,
    CREATION_ORDER,
    KAI_QUEUE,
    KUEUE_COHORT,
    KUEUE_QUEUE,
    PARENTS,
    RESOURCE_QUOTA,
    VOLCANO_QUEUE,
    hash_of,
    stamped,
)
from clusters.ports.pod_templates import OnChange, WorkloadKind, scheduling_fields
from clusters.ports.workload_kinds import kind_for
from clusters.sync.rules.diff import Change, Changes, Create, Delete, FieldChange, Update
from scheduling.model.resources import parse_quantity

LOWERING, BUILDING, CLEARING, RETIRING = 0, 1, 2, 3
AMOUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    RESOURCE_QUOTA.key: ("/spec/hard/",),
    KAI_QUEUE.key: ("/spec/resources/",),
    VOLCANO_QUEUE.key: ("/spec/deserved/", "/spec/capability/"),
    KUEUE_COHORT.key: ("/spec/resourceGroups/",),
    KUEUE_QUEUE.key: ("/spec/resourceGroups/",),
}
ENDLESS: Final = float("inf")
Wave: TypeAlias = tuple[int, int, int]
"""Phase, rank of the kind, depth in the tree of queues."""

_RANK: Final = {kind.key: number for number, kind in enumerate(CREATION_ORDER)}


def in_waves(changes: Iterable[Change], *, retired: Container[str] = ()) -> list[list[Change]]:
    """Changes that do not stand on each other, wave after wave: each begins when the one before it has ended.

    1. quotas that shrink or go, 2. everything that is built up, parents first, 3. what goes, children first,
    4. what goes of retired kinds (their keys), which only a former scheduler reads.
    An update that lowers one amount and raises another becomes two, so an object is in a wave once at most.
    """
    known = [step for change in changes for step in _steps(change)]
    depths = _depths(known)
    waves: dict[Wave, list[Change]] = defaultdict(list)
    for step in known:
        last = is_retiring(step, retired)
        depth = depths.get(step.ref.name, 0)
        waves[_retiring(step, depth) if last else _wave(step, depth)].append(step)
    return [sorted(waves[wave], key=_place) for wave in sorted(waves)]


def is_retiring(change: Change, retired: Container[str]) -> bool:
    """It takes away what a former scheduler needed."""
    return isinstance(change, Delete) and change.ref.kind.key in retired


def is_lowering(change: Change) -> bool:
    """It gives an amount back: applied before anything that takes one."""
    if isinstance(change, Delete):
        return change.ref.kind.key in PARENTS
    return isinstance(change, Update) and "lower" in _directions(change.ref.kind.key, change.changes)


def is_raising(change: Change) -> bool:
    """It takes an amount: not applied while a lowering of the same owner has failed."""
    if isinstance(change, Create):
        return change.ref.kind.key in PARENTS
    if isinstance(change, Delete):
        return change.ref.kind == RESOURCE_QUOTA
    return isinstance(change, Update) and "raise" in _directions(change.ref.kind.key, change.changes)


def body_of(change: Change) -> Manifest:
    """The object the change is about: as desired, or as observed where it goes."""
    return change.observed if isinstance(change, Delete) else change.desired


def _steps(change: Change) -> Iterator[Change]:
    if isinstance(change, Update) and is_lowering(change) and is_raising(change):
        raised = tuple(each for each in change.changes if _direction(change.ref.kind.key, each) == "raise")
        first = copy.deepcopy(change.desired)
        for each in raised:
            _put(first, each.path, each.observed)
        rest = tuple(each for each in change.changes if each not in raised)
        yield replace(change, desired=stamped(first), changes=rest)
        yield replace(change, changes=raised)
    else:
        yield change


def _put(manifest: Manifest, pointer: str, value: Any) -> None:
    *above, last = (token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])
    node: Any = manifest
    for token in above:
        node = node[int(token)] if isinstance(node, list) else node[token]
    node[last] = value


def _wave(change: Change, depth: int) -> Wave:
    rank = _RANK.get(change.ref.kind.key, len(CREATION_ORDER))
    if is_lowering(change):
        return (LOWERING, -rank, -depth)
    if isinstance(change, Delete):
        return (CLEARING, -rank, -depth)
    return (BUILDING, rank, depth)


def _retiring(change: Change, depth: int) -> Wave:
    return (RETIRING, -_RANK.get(change.ref.kind.key, len(CREATION_ORDER)), -depth)


def _place(change: Change) -> tuple[str, str]:
    return (change.ref.namespace, change.ref.name)


def _depths(changes: Iterable[Change]) -> dict[str, int]:
    """Depth of each queue below the root, as far as the changes show."""
    parents = {
        change.ref.name: str(body_of(change).get("spec", {}).get(PARENTS[change.ref.kind.key]) or "")
        for change in changes
        if change.ref.kind.key in PARENTS
    }
    return {name: _depth(name, parents) for name in parents}


def _depth(name: str, parents: Mapping[str, str]) -> int:
    steps = 0
    while (name := parents.get(name, "")) and steps <= len(parents):
        steps += 1
    return steps


def _directions(kind_key: str, changes: Changes) -> Iterator[str]:
    return (_direction(kind_key, change) for change in changes)


def _direction(kind_key: str, change: FieldChange) -> str:
    """lower, raise, or empty for a field that bounds nothing."""
    if not change.path.startswith(AMOUNTS.get(kind_key, ())) or change.path.endswith("overQuotaWeight"):
        return ""
    before, after = _amount(change.observed), _amount(change.desired)
    if before == after:
        return ""
    return "lower" if after < before else "raise"


def _amount(value: Any) -> float:
    """-1, absent and unreadable bound nothing."""
    try:
        number = float(parse_quantity(str(value)))
    except ValueError:
        return ENDLESS
    return ENDLESS if number < 0 else number


# An API server never changes the pod template of a Job, and a controller restarts every pod of a Deployment whose
# template changes. So the object carries a hash of the description: equal means that nothing of it has to be written,
# however the server has filled in defaults since. A companion of a workload's own object (a gang's group) never
# changes either.

PODS_HASH: Final = "rung.dev/pods-hash"
AT_ONCE: Final = frozenset({OnChange.NEW_PODS, OnChange.NEXT_RUN})


def with_pods_hash(manifest: Manifest) -> Manifest:
    """A copy that carries the hash of its spec, whether suspended or not."""
    result = copy.deepcopy(manifest)
    kind = _kind_of(manifest)
    spec = _suspended(copy.deepcopy(result), kind, value=False).get("spec")
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    result["metadata"].setdefault("annotations", {})[PODS_HASH] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return result


def has_same_pods_hash(observed: Manifest, desired: Manifest) -> bool:
    """Was the object written with this very description?"""
    return _hash(observed) == _hash(desired) != ""


def needs_replacing(observed: Manifest, desired: Manifest) -> bool:
    """True when its pods are to be described otherwise and the API server never changes that."""
    return _on_change(_kind_of(desired)) is OnChange.RECREATE and not has_same_pods_hash(observed, desired)


def writable(observed: Manifest, desired: Manifest, *, pods_run: bool) -> Manifest:
    """What may be written over the observed object now: the description only where it disturbs no running pod.

    How many there are is another matter: a controller that rolls its pods out reaches that without touching the rest.
    """
    kind = _kind_of(desired)
    if _on_change(kind) in AT_ONCE or (_on_change(kind) is OnChange.RESTART and not pods_run):
        return desired if _says_suspended(desired, kind) is not None else _as_it_is(desired, observed, kind)
    result = copy.deepcopy(desired)
    result["spec"] = copy.deepcopy(observed["spec"])
    if _on_change(kind) is OnChange.RESTART and "replicas" in desired["spec"]:
        result["spec"]["replicas"] = desired["spec"]["replicas"]
    result["metadata"]["annotations"][PODS_HASH] = _hash(observed)
    if not has_same_pods_hash(observed, desired):
        result["metadata"]["annotations"][APPLIED_HASH] = hash_of(observed)  # what it holds of pods was written then
    suspended = _says_suspended(desired, kind)
    return result if suspended is None else _suspended(result, kind, value=suspended)


def _kind_of(manifest: Mapping[str, Any]) -> WorkloadKind | None:
    """None for companion objects of a workload."""
    return kind_for(str(manifest["apiVersion"]), str(manifest["kind"]))


def _on_change(kind: WorkloadKind | None) -> OnChange:
    return kind.on_change if kind else OnChange.RECREATE


def _hash(manifest: Mapping[str, Any]) -> str:
    return str((manifest["metadata"].get("annotations") or {}).get(PODS_HASH, ""))


def _says_suspended(manifest: Manifest, kind: WorkloadKind | None) -> bool | None:
    """None: another writer owns it (a scheduler that queues whole jobs)."""
    steps = ((kind and kind.suspend) or "").split("/")[1:]
    node: Any = manifest
    for step in steps:
        node = (node or {}).get(step)
    return bool(node) if steps and node is not None else None


def _as_it_is(desired: Manifest, observed: Manifest, kind: WorkloadKind | None) -> Manifest:
    """Held back or let go as it is now: the API server takes an absent field for false."""
    suspended = _says_suspended(observed, kind)
    return desired if suspended is None else _suspended(copy.deepcopy(desired), kind, value=suspended)


def _suspended(manifest: Manifest, kind: WorkloadKind | None, *, value: bool) -> Manifest:
    """The same manifest, held back or let go where its kind knows how."""
    if kind and kind.suspend:
        *trail, last = kind.suspend.split("/")[1:]
        node: Any = manifest
        for step in trail:
            node = node.setdefault(step, {})
        node[last] = value
    return manifest


BEYOND: Final = ("/schedulerName", "/priorityClassName")
"""Suffixes of pointers at which values that Rung did not write count as a difference, too."""
OF_OBJECT: Final = "/metadata/"


def written_scheduling(body: Manifest, desired: Manifest) -> dict[str, str | bool]:
    """`scheduling_fields` as Rung wrote them in the end; nothing for a companion of a workload's own object.

    `body`: `desired`, or what `writable` left of it. An older description of its pods counts as it is held.
    """
    kind = _kind_of(desired)
    if kind is None:
        return {}
    found = scheduling_fields(desired if has_same_pods_hash(body, desired) else body, kind)
    return (
        found if _says_suspended(desired, kind) is not None else {k: v for k, v in found.items() if k != kind.suspend}
    )


def scheduling_changes(held: Mapping[str, str | bool], written: Mapping[str, str | bool]) -> Changes:
    """Where the cluster holds other scheduling fields than were written.

    Queue and priority labels at the object, scheduler and priority class of pods count also where only the cluster has
    one. In pod templates schedulers set labels of their own, and where Rung says nothing of `suspend` a queue does.
    """
    extra = {path for path in held if path.startswith(OF_OBJECT) or path.endswith(BEYOND)}
    return tuple(
        FieldChange(path, held.get(path), written.get(path))
        for path in sorted(written.keys() | extra)
        if (held.get(path) or None) != (written.get(path) or None)
    )
