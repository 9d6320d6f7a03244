"""Our own objects as compact rows, so that a loss or a foreign hand is noticed after a restart too."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from clusters.fingerprints import ANSWERED, FINGERPRINT
from clusters.flavours import flavour_for
from clusters.models import Cluster, ObservedObject
from clusters.ownership import generation_of, hash_of
from clusters.pods import moment_of
from clusters.ports import Manifest
from clusters.services.looks import Look
from clusters.services.observed_pods import workload_id
from portal.core.inserting import upsert

FIELDS: Final = (
    "namespace",
    "name",
    "owner_id",
    "generation",
    "applied_hash",
    "fingerprint",
    "agreed",
    "answered",
    "created_at",
)


@dataclass(slots=True)
class Kept:
    """Of one kind: its rows now, what stood in them before by uid, and the rows that are no more."""

    rows: list[ObservedObject] = field(default_factory=list)
    before: dict[str, ObservedObject] = field(default_factory=dict)
    lost: list[ObservedObject] = field(default_factory=list)

    @property
    def fresh(self) -> list[ObservedObject]:
        """Those seen for the first time."""
        return [row for row in self.rows if row.uid not in self.before]


def said_by_ours(cluster: Cluster) -> dict[str, dict[str, str]]:
    """What was stored of the objects that Rung makes: by kind, for all kinds of the flavour, fingerprints by uid."""
    found: dict[str, dict[str, str]] = {kind.key: {} for kind in flavour_for(cluster.flavour).kinds()}
    rows = ObservedObject.objects.filter(cluster=cluster, kind__in=found)
    for kind, uid, fingerprint in rows.values_list("kind", "uid", "fingerprint"):
        found[kind][uid] = fingerprint
    return found


def keep_objects(cluster: Cluster, look: Look, present: Sequence[Manifest]) -> Kept:
    """Bring the rows of one kind up to what was seen: `present` are those of the look that are ours."""
    kept = Kept()
    here = {each["metadata"]["uid"] for each in present}
    gone = {each["metadata"]["uid"] for each in look.gone} - here
    stored = _stored(cluster, look, here | gone)
    kept.lost = [row for uid, row in stored.items() if uid in gone or (look.whole and uid not in here)]
    kept.before = {uid: row for uid, row in stored.items() if uid in here}
    kept.rows = [_row(cluster, look, each, kept.before.get(each["metadata"]["uid"])) for each in present]
    _write(kept)
    return kept


def _stored(cluster: Cluster, look: Look, uids: set[str]) -> dict[str, ObservedObject]:
    rows = ObservedObject.objects.filter(cluster=cluster, kind=look.kind.key)
    return {row.uid: row for row in (rows if look.whole else rows.filter(uid__in=uids))}


def _write(kept: Kept) -> None:
    changed = [row for row in kept.rows if row.uid not in kept.before or differs(row, kept.before[row.uid])]
    upsert(changed, unique=["cluster", "uid"], update=["kind", *FIELDS])
    if kept.lost:
        ObservedObject.objects.filter(pk__in=[row.pk for row in kept.lost]).delete()


def differs(row: ObservedObject, before: ObservedObject) -> bool:
    """Does it say something else than it did?"""
    return any(getattr(row, name) != getattr(before, name) for name in FIELDS)


def _row(cluster: Cluster, look: Look, manifest: Manifest, before: ObservedObject | None) -> ObservedObject:
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
        created_at=moment_of(meta.get("creationTimestamp")),
    )
