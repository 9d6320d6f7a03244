"""Kinds of workload of which no controller answered in a cluster."""

from datetime import datetime

from clusters.models import Cluster
from workloads.intake import WorkloadSpec


def no_controller_of(spec: WorkloadSpec, cluster: Cluster) -> str:
    """Why a workload of this kind would get no pods, as the rest of a sentence; empty: nothing says that."""
    group = spec.api_version.rpartition("/")[0]
    since = cluster.silent_kinds.get(f"{spec.kind}.{group}")
    if since is None:
        return ""
    when = f"{datetime.fromisoformat(since):%Y-%m-%d %H:%M} UTC"
    return (
        f"no controller of {spec.kind} seems to run in {cluster.name}, so it gets no pods: nothing has answered the "
        f"one that was created at {when}."
    )
