"""A foreign hand on our objects, noticed when it happens: the cluster is due for its reconcile at once.

Only a hint: what really differs is for reconcile to find, and the periodic one finds it without any hint.
"""

from collections.abc import Sequence

import structlog

from clusters.enqueue import wake_sync
from clusters.models import Cluster, ObservedObject
from clusters.ownership import is_managed, owner_of
from clusters.services import touches
from clusters.services.looks import Look
from clusters.services.observed_objects import Kept, keep_objects
from clusters.services.touches import Place

log = structlog.get_logger(__name__)


def note_changes(cluster: Cluster, look: Look) -> bool:
    """Keep the managed objects of one look; true when the cluster was marked due. Runs in the look's transaction.

    Whole objects are compared: a quota's numbers can change without a word in its metadata. A deletion is always a
    reason to look. Only these objects are looked at, where the look still says whose they were.
    """
    kept = keep_objects(cluster, look, [each for each in look.present if is_managed(each)])
    strange = _strange(kept)
    if strange:
        names = [row.name for row in strange[:5]]
        log.info("observe.foreign_hand", cluster=cluster.name, kind=look.kind.key, objects=names)
        touched = _touched(look, strange)
        touches.call_for(cluster.pk, touched, only=touched)
        wake_sync(cluster.pk)
    return bool(strange)


def _strange(kept: Kept) -> list[ObservedObject]:
    return [row for row in kept.rows if _by_another(row, kept.before.get(row.uid))] + kept.lost


def _touched(look: Look, strange: Sequence[ObservedObject]) -> dict[str, list[Place]]:
    """They, by whose they are; everybody's where that is not known."""
    owners = {each["metadata"]["uid"]: owner_of(each) for each in (*look.gone, *look.present)}
    touched: dict[str, list[Place]] = {}
    for row in strange:
        place = Place(look.kind.key, row.namespace, row.name)
        touched.setdefault(owners.get(row.uid, touches.EVERYTHING), []).append(place)
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
