"""The sandbox's objects inside one transaction, their conditions and their Kubernetes events.

Every write happens under the lock of the cluster's `SandboxClock` row, which also counts resourceVersions, so writers
of one sandbox follow each other. Removed objects stay as tombstones for `KEPT_VERSIONS` versions: watches see them.
"""

import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from django.db.models import Q

from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.ports.objects import EVENT, is_managed, kind_of
from clusters.ports.pods import stamp
from clusters.sandbox.models import SandboxClock, SandboxObject

KEPT_VERSIONS: Final = 10_000

StoreKey = tuple[str, str]


class ObjectStore:
    """Open it inside `transaction.atomic()`; nothing is written before `flush`."""

    def __init__(self, cluster: Cluster, clock: SandboxClock, *, now: datetime) -> None:
        self.cluster = cluster
        self.clock = clock
        self.now = now
        self.number = 0  # of events in this transaction, for their names
        self._rows: dict[str, dict[StoreKey, SandboxObject]] = {}
        self._whole: set[str] = set()
        self._complete = False
        self._added: dict[uuid.UUID, SandboxObject] = {}
        self._changed: dict[uuid.UUID, SandboxObject] = {}
        self._removed: dict[uuid.UUID, SandboxObject] = {}
        self._by_uid: dict[str, SandboxObject] = {}

    @classmethod
    def open(cls, cluster: Cluster, *, now: datetime) -> "ObjectStore":
        """Lock the sandbox for this transaction."""
        SandboxClock.objects.get_or_create(cluster=cluster)
        return cls(cluster, SandboxClock.objects.select_for_update().get(cluster=cluster), now=now)

    def later(self, seconds: float) -> datetime:
        """The real moment at which that much of the sandbox's time has passed."""
        return self.clock.moment(self.now, seconds)

    def since(self, moment: datetime) -> float:
        """Seconds of the sandbox's time from a real moment until now."""
        return self.clock.passed(moment, self.now)

    def load(self) -> None:
        """Read every live object except events at once."""
        for row in self._live().exclude(kind=EVENT.key).order_by("version").iterator(chunk_size=2000):
            self._remember(row)
        self._complete = True

    def of(self, key: str) -> list[Manifest]:
        """Every live object of a kind, oldest change first."""
        if not self._complete and key not in self._whole:
            for row in self._live().filter(kind=key).order_by("version"):
                self._remember(row)
            self._whole.add(key)
        return [row.manifest for row in self._rows.get(key, {}).values()]

    def everything(self) -> Iterator[tuple[str, Manifest]]:
        """Every object read so far, with its kind."""
        for key, rows in self._rows.items():
            for row in list(rows.values()):
                yield key, row.manifest

    def find(self, key: str, name: str, namespace: str = "") -> Manifest | None:
        row = self._rows.get(key, {}).get((namespace, name))
        if row is None and not self._complete and key not in self._whole:
            row = self._live().filter(kind=key, namespace=namespace, name=name).first()
            if row is not None:
                self._remember(row)
        return None if row is None else row.manifest

    def by_uid(self, uid: str) -> Manifest | None:
        """One of the objects read so far."""
        row = self._by_uid.get(uid)
        return None if row is None else row.manifest

    def add(self, manifest: Manifest) -> Manifest:
        """A new object: its uid and creation time are the server's."""
        meta = manifest["metadata"]
        uid = uuid.uuid4()
        meta |= {"uid": str(uid), "creationTimestamp": stamp(self.now)}
        row = SandboxObject(
            uid=uid,
            cluster=self.cluster,
            kind=kind_of(manifest).key,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            manifest=manifest,
        )
        self._remember(row)
        self._added[uid] = row
        return manifest

    def replace(self, observed: Manifest, manifest: Manifest) -> Manifest:
        """Put another body under the same uid."""
        row = self._by_uid[observed["metadata"]["uid"]]
        row.manifest = manifest
        self._changed[row.uid] = row
        return manifest

    def touch(self, manifest: Manifest) -> None:
        """Its manifest was changed in place."""
        row = self._by_uid[manifest["metadata"]["uid"]]
        self._changed[row.uid] = row

    def remove(self, manifest: Manifest) -> None:
        """Leave a tombstone."""
        row = self._by_uid.pop(manifest["metadata"]["uid"])
        self._rows[row.kind].pop((row.namespace, row.name), None)
        self._changed.pop(row.uid, None)
        if self._added.pop(row.uid, None) is None:
            row.deleted = True
            self._removed[row.uid] = row

    def flush(self) -> int:
        """Write what changed, each object with its own new version; the number of objects written."""
        for row in self._removed.values():
            self._stamp(row)
        for row in self._added.values():
            self._stamp(row)
            row.created_version = row.version
        changed = [row for row in self._changed.values() if row.uid not in self._added]
        for row in changed:
            self._stamp(row)
        # Tombstones first: their names may be taken again in the same flush.
        self._write(self._removed.values())
        self._write([*self._added.values(), *changed])
        written = len(self._removed) + len(self._added) + len(changed)
        if written:
            self.clock.save(update_fields=["version"])
        self._removed, self._added, self._changed = {}, {}, {}
        return written

    def prune(self) -> int:
        """Forget tombstones and events older than `KEPT_VERSIONS` versions."""
        old = SandboxObject.objects.filter(cluster=self.cluster, version__lt=self.clock.version - KEPT_VERSIONS)
        forgotten, _by_model = old.filter(Q(deleted=True) | Q(kind=EVENT.key)).delete()
        return forgotten

    def _live(self) -> Any:
        return SandboxObject.objects.filter(cluster=self.cluster, deleted=False)

    def _remember(self, row: SandboxObject) -> None:
        known = self._by_uid.setdefault(str(row.uid), row)
        self._rows.setdefault(row.kind, {}).setdefault((row.namespace, row.name), known)

    def _stamp(self, row: SandboxObject) -> None:
        self.clock.version += 1
        row.version = self.clock.version
        row.manifest["metadata"]["resourceVersion"] = str(row.version)
        row.managed = is_managed(row.manifest)

    @staticmethod
    def _write(rows: Iterable[SandboxObject]) -> None:
        SandboxObject.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["uid"],
            update_fields=["manifest", "version", "managed", "deleted"],
        )


def set_condition(pod: Manifest, kind: str, status: str, *, at: datetime, reason: str = "", message: str = "") -> bool:
    """Set one condition; False when it already said exactly this. The transition time moves only with the status."""
    conditions: list[dict[str, Any]] = pod.setdefault("status", {}).setdefault("conditions", [])
    wanted = {"type": kind, "status": status, "reason": reason, "message": message}
    old = next((each for each in conditions if each["type"] == kind), None)
    if old is None:
        conditions.append({**wanted, "lastTransitionTime": stamp(at)})
        return True
    if all(old.get(key) == value for key, value in wanted.items()):
        return False
    if old["status"] != status:
        old["lastTransitionTime"] = stamp(at)
    old.update(wanted)
    return True


NORMAL: Final = "Normal"
WARNING: Final = "Warning"


def record_event(
    store: ObjectStore, about: Manifest, reason: str, message: str, *, source: str, kind: str = NORMAL
) -> None:
    """One core/v1 event about an object."""
    meta = about["metadata"]
    at = stamp(store.now)
    store.number += 1
    store.add(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name'][:200]}.{store.clock.version:x}.{store.number:x}",
                "namespace": meta.get("namespace", "default"),
            },
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": meta["name"],
                "namespace": meta.get("namespace", ""),
                "uid": meta["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": source},
            "reportingComponent": source,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
    )
