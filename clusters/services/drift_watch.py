"""A foreign hand on our objects, noticed when it happens: the cluster is due for its reconcile at once.

Only a hint: what really differs is for reconcile to find, and the periodic one finds it without any hint.
"""

import structlog
from django.db.models.functions import Now

from clusters.enqueue import wake_sync
from clusters.models import Cluster, ObservedObject
from clusters.ownership import is_managed
from clusters.services.looks import Look
from clusters.services.observed_objects import Kept, keep_objects

log = structlog.get_logger(__name__)


def note_changes(cluster: Cluster, look: Look) -> bool:
    """Keep the managed objects of one look; true when the cluster was marked due. Runs in the look's transaction.

    Whole objects are compared: a quota's numbers can change without a word in its metadata. A deletion is always a
    reason to look, since nothing in it says whose it was.
    """
    kept = keep_objects(cluster, look, [each for each in look.present if is_managed(each)])
    strange = _strange(kept)
    if strange:
        log.info("observe.foreign_hand", cluster=cluster.name, kind=look.kind.key, objects=strange[:5])
        Cluster.objects.filter(pk=cluster.pk).update(sync_due_at=Now())
        wake_sync(cluster.pk)
    return bool(strange)


def _strange(kept: Kept) -> list[str]:
    changed = [row.name for row in kept.rows if _by_another(row, kept.before.get(row.uid))]
    return changed + [row.name for row in kept.lost]


def _by_another(row: ObservedObject, before: ObservedObject | None) -> bool:
    """Not as we wrote it: without our hash, of an earlier generation, or changed beside our hash."""
    if not row.applied_hash:
        return before is None or before.fingerprint != row.fingerprint
    if before is None:
        return False
    if row.generation < before.generation:
        return True
    return row.fingerprint not in {before.fingerprint, row.agreed}
