"""Whose objects are whose: an owner label counts only where its owner is at home.

Whoever may create a pod somewhere may write any label on it, and whoever runs a cluster may show anything. So a label
that names a workload of another project or another cluster names nobody.
"""

from collections.abc import Mapping

import structlog

from clusters.models import Cluster
from clusters.naming import homes_of
from clusters.ports import OWNER
from clusters.services.looks import Look
from clusters.services.observed_pods import workload_id

log = structlog.get_logger(__name__)


def disown_strangers(cluster: Cluster, looks: Mapping[str, Look]) -> None:
    """Take the owner label off what claims a workload that is at home elsewhere."""
    claims = [(owner, each) for look in looks.values() for each in look.every if (owner := workload_id(each))]
    homes = homes_of({owner for owner, _ in claims})
    for owner, each in claims:
        metadata = each["metadata"]
        here = (cluster.pk, metadata.get("namespace", ""))
        if homes.get(owner, here) != here:
            del metadata["labels"][OWNER]
            log.warning("observe.claims_another", cluster=cluster.name, namespace=here[1], name=metadata["name"])
