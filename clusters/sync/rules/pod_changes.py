"""How an object describes its pods, and whether that may be written while some of them run. Pure.

An API server never changes the pod template of a Job, and a controller restarts every pod of a Deployment whose
template changes. So the object carries a hash of the description: equal means that nothing of it has to be written,
however the server has filled in defaults since. A companion of a workload's own object (a gang's group) never
changes either.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from clusters.ports.gateway import Manifest
from clusters.ports.objects import APPLIED_HASH, hash_of
from clusters.ports.pod_templates import OnChange, WorkloadKind, scheduling_fields
from clusters.ports.workload_kinds import kind_for
from clusters.sync.rules.diff import Changes, FieldChange

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
    said = _says_suspended(desired, kind)
    return result if said is None else _suspended(result, kind, value=said)


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
    said = _says_suspended(observed, kind)
    return desired if said is None else _suspended(copy.deepcopy(desired), kind, value=said)


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
