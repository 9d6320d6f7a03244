"""Bring one workload's object to a cluster, or take it away. Runs in workers only: it talks to the API server."""

from typing import Final

from clusters.diff import field_changes
from clusters.errors import NotSynced, ObjectConflict, VersionConflict
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import NAMESPACE, kind_of, ref_of
from clusters.models import Cluster
from clusters.ownership import generation_of, is_managed, owner_of, stamped
from clusters.ports import ClusterGateway, JobSpec, Manifest, ObjectRef

TRIES: Final = 3


def apply_job(cluster: Cluster, job: JobSpec) -> None:
    """Make the cluster hold the job as its row wants it. Again changes nothing. Raises only ClusterError.

    1. render it in the cluster's flavour; a suspended job whose kind cannot be suspended renders to nothing
    2. nothing: delete what is there
    3. absent: create, but only inside a namespace that is ours
    4. there: write unless it is equal, or already of a later generation
    """
    gateway = gateway_for(cluster)
    manifests = [stamped(manifest) for manifest in flavour_for(cluster.flavour).render(job)]
    if not manifests:
        _delete(gateway, job)
    for manifest in manifests:
        _apply(gateway, manifest)


def delete_job(cluster: Cluster, job: JobSpec) -> None:
    """Take the job's object away with its own grace. Gone already is success; a foreign or later object stays."""
    _delete(gateway_for(cluster), job)


def _apply(gateway: ClusterGateway, manifest: Manifest) -> None:
    """Read, decide, write; somebody else's write in between (a controller's status) means to read again."""
    for attempt in range(TRIES):
        try:
            _write_once(gateway, manifest)
        except VersionConflict:
            if attempt == TRIES - 1:
                raise
        else:
            return


def _write_once(gateway: ClusterGateway, manifest: Manifest) -> None:
    ref = ref_of(manifest)
    observed = gateway.get(ref)
    if observed is None:
        _refuse_foreign_namespace(gateway, ref.namespace)
        gateway.create(manifest)
        return
    if not is_managed(observed) or owner_of(observed) != owner_of(manifest):
        raise ObjectConflict(f"{ref.kind.kind} {ref.namespace}/{ref.name} exists and is not this workload's.")
    ahead = generation_of(manifest) - generation_of(observed)
    if ahead > 0 or (ahead == 0 and field_changes(observed, manifest)):
        gateway.update(manifest, observed=observed)


def _delete(gateway: ClusterGateway, job: JobSpec) -> None:
    ref = ObjectRef(kind_of(job.manifest), job.name, job.namespace)
    observed = gateway.get(ref)
    if observed is None or owner_of(observed) != f"workload.{job.id}" or not is_managed(observed):
        return
    if generation_of(observed) <= job.generation:
        gateway.delete(ref, uid=observed["metadata"]["uid"])


def _refuse_foreign_namespace(gateway: ClusterGateway, name: str) -> None:
    found = gateway.get(ObjectRef(NAMESPACE, name))
    if found is None:
        raise NotSynced(f"The namespace {name} is not in the cluster yet.")
    if not is_managed(found):
        raise ObjectConflict(f"The namespace {name} is not managed by Rung.")
