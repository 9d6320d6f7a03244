"""What kinds of workload a cluster serves, kept on its row: a request is answered from there, never by the cluster."""

from clusters.kinds import KINDS
from clusters.kinds_core import kind_of_workload
from clusters.models import Cluster
from clusters.ports import ClusterGateway


def note_served(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Ask the cluster and keep the answer, as `<apiVersion> <Kind>`. Writes only what changed. Raises ClusterError."""
    kinds = sorted(
        f"{version} {kind.kind}"
        for kind in KINDS
        for version in kind.api_versions
        if gateway.serves(kind_of_workload(kind, api_version=version))
    )
    if kinds != cluster.served_kinds:
        Cluster.objects.filter(pk=cluster.pk).update(served_kinds=kinds)
        cluster.served_kinds = kinds
