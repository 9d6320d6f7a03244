"""What the configuration of a cluster's scheduler leaves out, as far as Rung knows."""

from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.models import Cluster


def left_out(cluster: Cluster) -> frozenset[str]:
    """Causes of evictions that it does not have.

    A simulated cluster is asked, since its objects are Rung's own rows; of a real one nothing is known between two
    connection tests, which warn.
    """
    configured = flavour_for(cluster.flavour).traits.configuration
    if configured is None or not cluster.is_simulated:
        return frozenset()
    return configured.leaves_out(gateway_for(cluster).get(configured.ref))
