"""The Pod Security level of a cluster's project namespaces."""

from django.db import transaction

from clusters.flavours.hardening import LEVELS
from clusters.models import Cluster
from clusters.services.estate import touch
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Refused


@transaction.atomic
def set_pod_security(*, cluster: Cluster, level: str, actor: Actor) -> None:
    """Choose `restricted` or `baseline` for every project namespace. Pods that are there stay as they are."""
    if level not in LEVELS:
        raise Refused.at("/podSecurity", "unknown", f"{level[:40]!r} is none of {', '.join(LEVELS)}.", allowed=LEVELS)
    before = cluster.pod_security
    if level == before:
        return
    cluster.pod_security = level
    cluster.save(update_fields=["pod_security"])
    touch(cluster)
    record(actor, "cluster.pod_security", cluster, detail={"before": before, "after": level})
