"""An API server's manners in a dictionary: resourceVersions, uids, conflicts, immutable fields, watches.

A real implementation of the gateway, for tests: nothing runs in it, so no controller makes pods and none are scheduled.
"""

import copy
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import RLock
from typing import Any, Final

from clusters.ports.gateway import (
    ClusterError,
    ClusterRefused,
    Kind,
    ListPage,
    Manifest,
    ObjectConflict,
    ObjectRef,
    VersionConflict,
    VersionExpired,
    WatchEvent,
)
from clusters.ports.objects import NAMESPACE, PRIORITY_CLASS, is_managed, kind_of, ref_of

MemoryKey = tuple[str, str, str]
Fault = Callable[[str, ObjectRef], ClusterError | None]

SERVER_FIELDS: Final = ("uid", "creationTimestamp", "resourceVersion")
OUR_PREFIX: Final = "rung.dev/"


@dataclass
class MemoryStore:
    """What one memory cluster holds. `faults` are asked before every write: an answer is raised instead of it."""

    objects: dict[MemoryKey, Manifest] = field(default_factory=dict)
    events: list[tuple[int, str, Kind, Manifest]] = field(default_factory=list)
    logs: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    writes: list[tuple[str, ObjectRef]] = field(default_factory=list)
    version: int = 1
    oldest: int = 0
    lock: RLock = field(default_factory=RLock)

    def forget_events(self) -> None:
        """Compact the history: older watches get `VersionExpired`."""
        self.events.clear()
        self.oldest = self.version


_stores: Final[dict[str, MemoryStore]] = {}


def store_of(cluster_id: str) -> MemoryStore:
    """The store of a cluster in this process, born with kube-system."""
    if cluster_id not in _stores:
        _stores[cluster_id] = MemoryStore()
        kube_system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
        MemoryGateway(_stores[cluster_id]).create(kube_system)
    return _stores[cluster_id]


def forget_all() -> None:
    """Drop every store: a new test begins."""
    _stores.clear()


class MemoryGateway:
    """A `ClusterGateway` over one store."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        managed_only: bool = True,
        metadata_only: bool = False,
        stale: bool = False,
    ) -> tuple[list[Manifest], str]:
        with self.store.lock:
            found = [
                copy.deepcopy(manifest)
                for (key, space, _), manifest in self.store.objects.items()
                if key == kind.key and namespace in {"", space} and (is_managed(manifest) or not managed_only)
            ]
            return found, str(self.store.version)

    def pages(self, kind: Kind) -> Iterator[ListPage]:
        yield ListPage(*self.list(kind))

    def get(self, ref: ObjectRef) -> Manifest | None:
        with self.store.lock:
            return copy.deepcopy(self.store.objects.get(_place(ref)))

    def create(self, manifest: Manifest) -> Manifest:
        with self.store.lock:
            ref = _checked(manifest)
            self._ask_faults("create", ref)
            if _place(ref) in self.store.objects:
                raise ObjectConflict(f"{ref.kind.kind} {ref.name} already exists.")
            self._refuse_without_namespace(ref)
            metadata = {key: value for key, value in manifest["metadata"].items() if key not in SERVER_FIELDS}
            born = {"uid": str(uuid.uuid4()), "creationTimestamp": datetime.now(tz=UTC).isoformat()}
            return self._write("ADDED", ref, {**manifest, "metadata": {**metadata, **born}})

    def update(self, manifest: Manifest, *, observed: Manifest) -> Manifest:
        with self.store.lock:
            ref = _checked(manifest)
            self._ask_faults("update", ref)
            live = self.store.objects.get(_place(ref))
            if live is None:
                raise ClusterRefused(f"{ref.kind.kind} {ref.name} is not there.")
            if live["metadata"]["resourceVersion"] != observed["metadata"].get("resourceVersion"):
                raise VersionConflict(f"{ref.kind.kind} {ref.name} was changed by another writer: read it again.")
            _refuse_immutable(ref, live, manifest)
            status = {"status": live["status"]} if "status" in live else {}
            return self._write("MODIFIED", ref, {**manifest, "metadata": _merged(live, manifest), **status})

    def delete(self, ref: ObjectRef, *, uid: str | None = None) -> None:
        with self.store.lock:
            self._ask_faults("delete", ref)
            live = self.store.objects.get(_place(ref))
            if live is None or (uid is not None and live["metadata"]["uid"] != uid):
                return
            self._remove(ref, live)
            if ref.kind == NAMESPACE:
                for inside in [each for (_, space, _), each in self.store.objects.items() if space == ref.name]:
                    self._remove(ref_of(inside), inside)

    def watch(self, kind: Kind, *, since: str, wait: float = 0.0, metadata_only: bool = False) -> Iterator[WatchEvent]:
        with self.store.lock:
            if not since.isdecimal() or int(since) < self.store.oldest:
                raise VersionExpired(f"Nothing is known of version {since} any more: list again.")
            later = [each for each in self.store.events if each[0] > int(since) and each[2].key == kind.key]
        for _, type_, _, manifest in later:
            yield WatchEvent(type_, copy.deepcopy(manifest))

    def logs(self, ref: ObjectRef, *, container: str = "", tail: int = 200) -> Sequence[str]:
        if self.get(ref) is None:
            raise ClusterRefused(f"Pod {ref.name} is not there.")
        return self.store.logs.get((ref.namespace, ref.name), [])[-tail:]

    def identity(self) -> tuple[str, str]:
        kube_system = self.get(ObjectRef(NAMESPACE, "kube-system"))
        return (kube_system["metadata"]["uid"] if kube_system else ""), "memory"

    def serves(self, kind: Kind) -> bool:
        return True

    def _write(self, type_: str, ref: ObjectRef, manifest: Manifest) -> Manifest:
        stored = copy.deepcopy(manifest)
        self.store.objects[_place(ref)] = stored
        self._note(type_, ref, stored)
        return copy.deepcopy(stored)

    def _remove(self, ref: ObjectRef, live: Manifest) -> None:
        del self.store.objects[_place(ref)]
        self._note("DELETED", ref, live)

    def _note(self, type_: str, ref: ObjectRef, manifest: Manifest) -> None:
        self.store.version += 1
        manifest["metadata"]["resourceVersion"] = str(self.store.version)
        self.store.events.append((self.store.version, type_, ref.kind, copy.deepcopy(manifest)))
        self.store.writes.append((type_, ref))

    def _ask_faults(self, verb: str, ref: ObjectRef) -> None:
        for fault in self.store.faults:
            if error := fault(verb, ref):
                raise error

    def _refuse_without_namespace(self, ref: ObjectRef) -> None:
        if ref.namespace and (NAMESPACE.key, "", ref.namespace) not in self.store.objects:
            raise ClusterRefused(f"The namespace {ref.namespace} is not there.")


def _place(ref: ObjectRef) -> MemoryKey:
    return (ref.kind.key, ref.namespace if ref.kind.namespaced else "", ref.name)


def _checked(manifest: Manifest) -> ObjectRef:
    try:
        kind = kind_of(manifest)
    except KeyError as error:
        raise ClusterRefused(f"Kind not served: {error.args[0]}.") from error
    if kind.namespaced and not manifest["metadata"].get("namespace"):
        raise ClusterRefused(f"{kind.kind} {manifest['metadata']['name']} names no namespace.")
    return ref_of(manifest)


def _refuse_immutable(ref: ObjectRef, live: Manifest, manifest: Manifest) -> None:
    if ref.kind == PRIORITY_CLASS:
        for name in ("value", "preemptionPolicy"):
            if live.get(name) != manifest.get(name):
                raise ClusterRefused(f"PriorityClass {ref.name} is invalid: {name}: field is immutable.")


def _merged(live: Manifest, manifest: Manifest) -> dict[str, Any]:
    """Our metadata over theirs: foreign labels and annotations stay, ours are exactly what was asked for."""
    theirs, ours = live["metadata"], manifest["metadata"]
    maps = {
        part: {
            **{key: text for key, text in theirs.get(part, {}).items() if not key.startswith(OUR_PREFIX)},
            **ours.get(part, {}),
        }
        for part in ("labels", "annotations")
        if theirs.get(part) or ours.get(part)
    }
    return {**theirs, **maps}
