"""What a cluster serves, kept on its row: a request is answered from there, never by the cluster.

Kinds of workload, and the topologies that an admin has made for its node pools.
"""

from collections.abc import Iterable

from clusters.errors import ClusterRefused
from clusters.flavours import flavour_for
from clusters.kinds import KINDS
from clusters.kinds_core import kind_of_workload
from clusters.models import Cluster
from clusters.ports import ClusterGateway
from clusters.topologies import MOST, kinds_among, line_of, topologies_among


def note_served(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Ask the cluster and keep the answer, as `<apiVersion> <Kind>`. Writes only what changed. Raises ClusterError."""
    kinds = sorted(
        f"{version} {kind.kind}"
        for kind in KINDS
        for version in kind.api_versions
        if gateway.serves(kind_of_workload(kind, api_version=version))
    )
    _keep(cluster, [*kinds, *topologies_among(cluster.served_kinds)])


def note_topologies(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Ask for those of the cluster's scheduler, if it knows such. Writes only what changed. Raises ClusterError."""
    kind = flavour_for(cluster.flavour).traits.topologies
    if kind is None:
        lines: list[str] = []
    else:
        try:
            found = gateway.list(kind, managed_only=False)[0] if gateway.serves(kind) else []
        except ClusterRefused:
            return  # the account may not read them: what was known stands
        lines = sorted(filter(None, map(line_of, found[:MOST])))
    _keep(cluster, [*kinds_among(cluster.served_kinds), *lines])


def _keep(cluster: Cluster, lines: Iterable[str]) -> None:
    served = list(lines)
    if served != cluster.served_kinds:
        Cluster.objects.filter(pk=cluster.pk).update(served_kinds=served)
        cluster.served_kinds = served
