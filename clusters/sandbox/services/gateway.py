"""The embedded default: an API server whose objects are rows of Rung's own database. Always simulated, and says so.

It answers like a real one: resourceVersions, conflicts, tombstones, admission, deletion with grace. What happens to the
objects afterwards is the work of `clusters.sandbox.services.simulation`.
"""

import copy
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from clusters.flavours import kueue_capabilities
from clusters.flavours.kueue_status import SHOWN_QUEUE, VISIBILITY_API
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ClusterRefused, Kind, ListPage, Manifest, ObjectRef, VersionExpired, WatchEvent
from clusters.ports.objects import KUEUE_WORKLOAD
from clusters.sandbox.models import SandboxClock, SandboxObject
from clusters.sandbox.services import admission
from clusters.sandbox.services.kubelet import lines
from clusters.sandbox.services.kueue_webhooks import pending_in
from clusters.sandbox.services.store import KEPT_VERSIONS, ObjectStore

VERSION = "v1.36.3-sandbox"
BUILT_IN: Final = {kueue_capabilities.CONF: kueue_capabilities.of_everything()}
"""What is there though nobody made it: the sandbox's Kueue manages every kind."""


class SandboxGateway:
    """`ClusterGateway` over the rows of one sandbox cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        managed_only: bool = True,
        metadata_only: bool = False,
        stale: bool = False,
    ) -> tuple[list[Manifest], str]:
        """Read the version first: objects written meanwhile are merely seen again by the watch."""
        version = self._version()
        rows = self._rows(kind).filter(deleted=False)
        if namespace:
            rows = rows.filter(namespace=namespace)
        if managed_only:
            rows = rows.filter(managed=True)
        return [row.manifest for row in rows.order_by("namespace", "name")], str(version)

    def pages(self, kind: Kind) -> Iterator[ListPage]:
        yield ListPage(*self.list(kind))

    def get(self, ref: ObjectRef) -> Manifest | None:
        row = self._rows(ref.kind).filter(deleted=False, namespace=ref.namespace, name=ref.name).first()
        return copy.deepcopy(BUILT_IN.get(ref)) if row is None else row.manifest

    def create(self, manifest: Manifest) -> Manifest:
        with transaction.atomic():
            store = self._open()
            created = admission.create(store, copy.deepcopy(manifest))
            store.flush()
        return copy.deepcopy(created)

    def update(self, manifest: Manifest, *, observed: Manifest) -> Manifest:
        with transaction.atomic():
            store = self._open()
            version = observed["metadata"]["resourceVersion"]
            updated = admission.update(store, copy.deepcopy(manifest), version=version)
            store.flush()
        return copy.deepcopy(updated)

    def delete(self, ref: ObjectRef, *, uid: str | None = None) -> None:
        with transaction.atomic():
            store = self._open()
            found = store.find(ref.kind.key, ref.name, ref.namespace)
            if found is not None and uid in {None, found["metadata"]["uid"]}:
                admission.delete(store, found)
                store.flush()

    def watch(self, kind: Kind, *, since: str, wait: float = 0.0, metadata_only: bool = False) -> Iterator[WatchEvent]:
        """Changes are compacted: an object changed twice since then comes once, as it stands now."""
        start = self._start(since)
        rows = self._rows(kind).filter(version__gt=start).exclude(Q(deleted=True) & Q(created_version__gt=start))
        for row in rows.order_by("version"):
            yield WatchEvent(_event_type(row, start), row.manifest)

    def newest(self) -> str:
        """The version of the last write of any kind."""
        return str(self._version())

    def logs(self, ref: ObjectRef, *, container: str = "", tail: int = 200) -> Sequence[str]:
        pod = self.get(ref)
        if pod is None:
            raise ClusterRefused(f'pods "{ref.name}" not found')
        names = [each.get("name") for each in pod["spec"].get("containers") or []]
        if container and container not in names:
            raise ClusterRefused(f"container {container} is not valid for pod {ref.name}")
        clock = SandboxClock.objects.filter(cluster=self._cluster).first() or SandboxClock()
        return lines(pod, now=timezone.now(), clock=clock, tail=tail)

    def part(self, ref: ObjectRef, name: str) -> Manifest | None:
        """A subresource: what waits in a queue of whole jobs. None: it serves no such part."""
        if (ref.kind, name) != (SHOWN_QUEUE, VISIBILITY_API.part):
            return None
        return pending_in(self.list(KUEUE_WORKLOAD, namespace=ref.namespace, managed_only=False)[0], ref.name)

    def try_create(self, manifest: Manifest) -> None:
        """Its webhooks always answer; what has no kind that it knows is refused."""
        admission.known_kind(manifest)

    def identity(self) -> tuple[str, str]:
        return str(uuid.uuid5(self._cluster.pk, "kube-system")), VERSION

    def serves(self, kind: Kind) -> bool:
        return True

    def _open(self) -> ObjectStore:
        return ObjectStore.open(self._cluster, now=timezone.now())

    def _rows(self, kind: Kind) -> QuerySet[SandboxObject]:
        return SandboxObject.objects.filter(cluster=self._cluster, kind=kind.key)

    def _version(self) -> int:
        return SandboxClock.objects.filter(cluster=self._cluster).values_list("version", flat=True).first() or 1

    def _start(self, since: str) -> int:
        """The version to watch from. Older than the tombstones that are kept, or from another store: list again."""
        newest = self._version()
        if not since.isdecimal() or not newest - KEPT_VERSIONS <= int(since) <= newest:
            raise VersionExpired(f"too old resource version: {since[:32]} ({newest})")
        return int(since)


def _event_type(row: SandboxObject, start: int) -> str:
    if row.deleted:
        return "DELETED"
    return "ADDED" if row.created_version > start else "MODIFIED"
