"""Store Rung's own objects and the status of job objects; a foreign change requests a reconcile.

Users who can create pods can write any label on them, and the operator of a cluster can report anything. So a label
that names a workload of another project or cluster is ignored.

Only a hint: what really differs is for reconcile to find, and the periodic one finds it without any hint.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from django.db.models import QuerySet

from clusters.flavours.registry import COMPANION_KEYS, flavour_for
from clusters.inventory.models import Cluster
from clusters.inventory.selectors import namespaces_of
from clusters.inventory.services import dirty_owners
from clusters.inventory.services.dirty_owners import ObjectKey, notify_sync
from clusters.ports.gateway import Manifest
from clusters.ports.objects import (
    ANSWERED,
    FINGERPRINT,
    OWNER,
    SCHEDULING,
    generation_of,
    hash_of,
    is_managed,
    owner_of,
)
from clusters.ports.pods import controller_of, moment_of, phase
from clusters.watch.models import ObservedObject, ObservedPod
from clusters.watch.rules import MISSING, JobStatus, job_status
from clusters.watch.services.pods import workload_id
from clusters.watch.services.watch_buffer import CHUNK, WatchBatch

log = structlog.get_logger(__name__)


def drop_foreign_owners(cluster: Cluster, looks: Mapping[str, WatchBatch]) -> None:
    """Take the owner label off what claims a workload that is at home elsewhere."""
    claims = [(owner, each) for look in looks.values() for each in look.every if (owner := workload_id(each))]
    homes = namespaces_of({owner for owner, _ in claims})
    for owner, each in claims:
        metadata = each["metadata"]
        here = (cluster.pk, metadata.get("namespace", ""))
        if homes.get(owner, here) != here:
            del metadata["labels"][OWNER]
            log.warning("observe.claims_another", cluster=cluster.name, namespace=here[1], name=metadata["name"])


FIELDS: Final = (
    "namespace",
    "name",
    "owner_id",
    "generation",
    "applied_hash",
    "fingerprint",
    "agreed",
    "answered",
    "scheduling",
    "created_at",
)


@dataclass(slots=True)
class StoredObjects:
    """Of one kind: its rows now, what stood in them before by uid, and the rows that are no more."""

    rows: list[ObservedObject] = field(default_factory=list)
    before: dict[str, ObservedObject] = field(default_factory=dict)
    lost: list[ObservedObject] = field(default_factory=list)

    @property
    def fresh(self) -> list[ObservedObject]:
        """Those seen for the first time."""
        return [row for row in self.rows if row.uid not in self.before]


def stored_fingerprints(cluster: Cluster) -> dict[str, dict[str, str]]:
    """What was stored of the objects that Rung makes: by kind, for all kinds of the flavour, fingerprints by uid."""
    found: dict[str, dict[str, str]] = {kind.key: {} for kind in flavour_for(cluster.flavour).kinds()}
    rows = ObservedObject.objects.filter(cluster=cluster, kind__in=found)
    for kind, uid, fingerprint in rows.values_list("kind", "uid", "fingerprint"):
        found[kind][uid] = fingerprint
    return found


def store_objects(cluster: Cluster, look: WatchBatch, present: Sequence[Manifest]) -> StoredObjects:
    """Bring the rows of one kind up to what was seen: `present` are those of the look that are ours."""
    stored_objects = StoredObjects()
    here = {each["metadata"]["uid"] for each in present}
    gone = {each["metadata"]["uid"] for each in look.gone} - here
    stored = _stored(cluster, look, here | gone)
    stored_objects.lost = [row for uid, row in stored.items() if uid in gone or (look.whole and uid not in here)]
    stored_objects.before = {uid: row for uid, row in stored.items() if uid in here}
    stored_objects.rows = [
        _row(cluster, look, each, stored_objects.before.get(each["metadata"]["uid"])) for each in present
    ]
    _write(stored_objects)
    return stored_objects


def _stored(cluster: Cluster, look: WatchBatch, uids: set[str]) -> dict[str, ObservedObject]:
    rows = ObservedObject.objects.filter(cluster=cluster, kind=look.kind.key)
    return {row.uid: row for row in (rows if look.whole else rows.filter(uid__in=uids))}


def _write(stored: StoredObjects) -> None:
    changed = [row for row in stored.rows if row.uid not in stored.before or differs(row, stored.before[row.uid])]
    ObservedObject.objects.bulk_create(
        changed,
        batch_size=CHUNK,
        update_conflicts=True,
        unique_fields=["cluster", "uid"],
        update_fields=["kind", *FIELDS],
    )
    if stored.lost:
        ObservedObject.objects.filter(pk__in=[row.pk for row in stored.lost]).delete()


def differs(row: ObservedObject, before: ObservedObject) -> bool:
    """Does it say something else than it did?"""
    return any(getattr(row, name) != getattr(before, name) for name in FIELDS)


def _row(cluster: Cluster, look: WatchBatch, manifest: Manifest, before: ObservedObject | None) -> ObservedObject:
    """What was agreed changes with our hash only: a foreign hand changes the rest."""
    meta, written, says = manifest["metadata"], hash_of(manifest), manifest[FINGERPRINT]
    agreed = before.agreed if before and before.applied_hash == written else says
    return ObservedObject(
        cluster=cluster,
        kind=look.kind.key,
        uid=meta["uid"],
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        owner_id=workload_id(manifest),
        generation=generation_of(manifest),
        applied_hash=written[:64],
        fingerprint=says,
        agreed=agreed,
        answered=bool(manifest.get(ANSWERED)) or bool(before and before.answered),
        scheduling=manifest.get(SCHEDULING, {}),
        created_at=moment_of(meta.get("creationTimestamp")),
    )


BY_PHASE = {"Succeeded": "succeeded", "Failed": "failed"}


def job_changes(cluster: Cluster, looks: Iterable[WatchBatch]) -> tuple[dict[str, JobStatus], list[ObservedObject]]:
    """Status by workload id of every job object that changed, and the objects seen for the first time.

    What a controller makes below it (a ReplicaSet of a Deployment, a Job of a CronJob) carries the same labels: it is
    kept, for its events, but says nothing of the workload as a whole, and is no loss while the workload's own is there.
    """
    changes: dict[str, JobStatus] = {}
    lost: set[str] = set()
    fresh: list[ObservedObject] = []
    for look in looks:
        ours = [each for each in look.present if workload_id(each)]
        stored = store_objects(cluster, look, ours)
        lost |= {row.owner_id for row in stored.lost if row.owner_id}
        changes |= {workload_id(each): job_status(each) for each in ours if controller_of(each) is None}
        fresh += stored.fresh
    if lost:
        lost -= set(_own_objects(cluster, lost).values_list("owner_id", flat=True))
    return {**changes, **dict.fromkeys(lost, JobStatus(MISSING))}, fresh


def bare_pod_changes(cluster: Cluster, look: WatchBatch, rows: Iterable[ObservedPod]) -> dict[str, JobStatus]:
    """A bare Pod is its own object: its state is its phase; once deleted it is missing."""
    changes = {owner: _by_phase(pod) for pod in look.present if (owner := _bare_owner(pod))}
    gone = {row.owner_id for row in rows if row.gone_at and row.owner_id} - set(changes)
    if gone:
        objects = _own_objects(cluster, gone)
        alive = ObservedPod.objects.filter(cluster=cluster, owner_id__in=gone, gone_at__isnull=True)
        gone -= {*objects.values_list("owner_id", flat=True), *alive.values_list("owner_id", flat=True)}
    return changes | {owner: JobStatus(MISSING) for owner in gone}


def companion_changes(cluster: Cluster, looks: Iterable[WatchBatch]) -> dict[str, JobStatus]:
    """Track companion objects of workloads. A workload that lost one counts as missing and is recreated."""
    lost: set[str] = set()
    for look in looks:
        stored = store_objects(cluster, look, [each for each in look.present if workload_id(each)])
        owners = {row.owner_id for row in stored.lost if row.owner_id}
        there = ObservedObject.objects.filter(cluster=cluster, kind=look.kind.key, owner_id__in=owners)
        lost |= owners - set(there.values_list("owner_id", flat=True))
    return dict.fromkeys(lost, JobStatus(MISSING))


def _own_objects(cluster: Cluster, owners: Iterable[str]) -> QuerySet[ObservedObject]:
    """A gang's group is no sign that its job is there."""
    return ObservedObject.objects.filter(cluster=cluster, owner_id__in=owners).exclude(kind__in=COMPANION_KEYS)


def _bare_owner(pod: Manifest) -> str:
    return "" if controller_of(pod) else workload_id(pod)


def _by_phase(pod: Manifest) -> JobStatus:
    return JobStatus(BY_PHASE.get(phase(pod), "active"), str((pod.get("status") or {}).get("reason", "")))


def detect_foreign_changes(cluster: Cluster, look: WatchBatch) -> bool:
    """Keep the managed objects of one look; true when the cluster was marked due. Runs in the look's transaction.

    Whole objects are compared: a quota's numbers can change without a word in its metadata. A deletion is always a
    reason to look. Only these objects are looked at, where the look still says whose they were.
    """
    stored = store_objects(cluster, look, [each for each in look.present if is_managed(each)])
    strange = _foreign(stored)
    if strange:
        names = [row.name for row in strange[:5]]
        log.info("observe.foreign_hand", cluster=cluster.name, kind=look.kind.key, objects=names)
        touched = _dirty_keys(look, strange)
        dirty_owners.enqueue(cluster.pk, touched, only=touched)
        notify_sync(cluster.pk)
    return bool(strange)


def _foreign(stored: StoredObjects) -> list[ObservedObject]:
    return [row for row in stored.rows if _by_another(row, stored.before.get(row.uid))] + stored.lost


def _dirty_keys(look: WatchBatch, strange: Sequence[ObservedObject]) -> dict[str, list[ObjectKey]]:
    """They, by whose they are; everybody's where that is not known."""
    owners = {each["metadata"]["uid"]: owner_of(each) for each in (*look.gone, *look.present)}
    touched: dict[str, list[ObjectKey]] = {}
    for row in strange:
        place = ObjectKey(look.kind.key, row.namespace, row.name)
        touched.setdefault(owners.get(row.uid, dirty_owners.ALL_OWNERS), []).append(place)
    return touched


def _by_another(row: ObservedObject, before: ObservedObject | None) -> bool:
    """Not as we wrote it: without our hash, of an earlier generation, or changed beside our hash."""
    if not row.applied_hash:
        return before is None or before.fingerprint != row.fingerprint
    if before is None:
        return False
    if row.generation < before.generation:
        return True
    return row.fingerprint not in {before.fingerprint, row.agreed}
