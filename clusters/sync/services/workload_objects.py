"""Apply or delete one workload's objects, and find fields that the API server dropped.

Most workloads are one object. What a flavour puts beside it (a gang's group, which its pods name) comes before it,
goes after it, and is never changed under it.

A definition from before gangs drops `schedulingGroup`, one without embedded metadata drops every label and annotation
of a pod template: the object is accepted, and its pods start as if nothing had been said. Read back after writing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from clusters.connection.services.gateways import gateway_for
from clusters.flavours.registry import flavour_for
from clusters.flavours.rendering import service_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import JobSpec, SchedulerFlavour
from clusters.ports.gateway import (
    ClusterGateway,
    ClusterRefused,
    Manifest,
    NotAuthorized,
    NotServed,
    NotSynced,
    ObjectConflict,
    ObjectRef,
    VersionConflict,
)
from clusters.ports.objects import NAMESPACE, generation_of, is_managed, kind_of, owner_of, ref_of, stamped
from clusters.ports.pod_templates import FoundPart, TemplateShape, parts_in
from clusters.ports.workload_kinds import kind_for
from clusters.sync.rules.changes import (
    has_same_pods_hash,
    needs_replacing,
    with_pods_hash,
    writable,
    written_scheduling,
)
from clusters.sync.rules.diff import field_changes
from clusters.sync.services import scheduler_migration

TRIES: Final = 3
NO_CLASS: Final = "no PriorityClass with name"


def apply_job(
    cluster: Cluster, job: JobSpec, *, pods_run: bool = False, pods_wait: bool = False
) -> dict[str, str | bool]:
    """Make the cluster hold the job as its row wants it. Again changes nothing. Raises only ClusterError.

    Answers the `scheduling_fields` that its own object is to have from now on.

    `pods_run`: how pods are described is left as it is where writing it would end running ones. `pods_wait`: there are
    some, and none has a node, so that they may go with a group that has to be another.

    1. what was made for a former scheduler stays so while its pods run, and goes otherwise: also as it is stopped,
       since what is resumed while its pods end is to be the present scheduler's
    2. render it in the flavour; a suspended job whose kind cannot be suspended renders to nothing
    3. nothing, or companion objects have to be replaced: delete what is there
    4. absent: create, but only inside a namespace that is ours
    5. there: write unless it is equal, or already of a later generation; what the API server never changes is deleted
       and recreated (NotSynced: it is still terminating)
    """
    gateway, flavour = gateway_for(cluster), flavour_for(cluster.flavour)
    if earlier := scheduler_migration.former_flavour_of(cluster, job.id):
        if pods_run and not job.suspended:
            flavour = earlier
        else:
            delete_job(cluster, job)
    manifests = [stamped(with_pods_hash(manifest)) for manifest in _rendered(flavour, job)]
    if not manifests or ((pods_wait or not pods_run) and _is_on_another(gateway, manifests[:-1])):
        delete_job(cluster, job)
    written: dict[str, str | bool] = {}
    for manifest in manifests:
        written = written_scheduling(_apply(gateway, manifest, pods_run=pods_run), manifest)
    return written


def _rendered(flavour: SchedulerFlavour, job: JobSpec) -> list[Manifest]:
    """In the flavour; an inference's address comes first, as every companion of a workload's own object."""
    manifests = flavour.render(job)
    address = service_for(job) if manifests else None
    return [address, *manifests] if address else manifests


def is_there(cluster: Cluster, job: JobSpec) -> bool:
    """Return whether the cluster holds the workload's own object. Raises ClusterError."""
    observed = gateway_for(cluster).get(ObjectRef(kind_of(job.manifest), job.name, job.namespace))
    return observed is not None and is_managed(observed) and owner_of(observed) == f"workload.{job.id}"


def delete_job(cluster: Cluster, job: JobSpec) -> None:
    """Take its objects away, its own first and with its grace. Gone already is success; foreign or later ones stay."""
    gateway = gateway_for(cluster)
    for kind in (kind_of(job.manifest), *reversed(flavour_for(cluster.flavour).traits.beside)):
        _delete(gateway, ObjectRef(kind, job.name, job.namespace), job)
    if address := service_for(job):
        _delete(gateway, ref_of(address), job)
    for kind in scheduler_migration.companion_kinds(cluster):
        _delete_of_former(gateway, ObjectRef(kind, job.name, job.namespace), job)
    scheduler_migration.mark_recreated(cluster, job.id)


def _is_on_another(gateway: ClusterGateway, beside: Sequence[Manifest]) -> bool:
    """Pods that name a group are never left with another one than they were made for."""
    seen = ((gateway.get(ref_of(manifest)), manifest) for manifest in beside)
    return any(observed is not None and needs_replacing(observed, manifest) for observed, manifest in seen)


def _apply(gateway: ClusterGateway, manifest: Manifest, *, pods_run: bool) -> Manifest:
    """Read, decide, write; a write of another controller in between (a status) means to read again."""
    for _attempt in range(TRIES - 1):
        with suppress(VersionConflict):
            return _write_once(gateway, manifest, pods_run=pods_run)
    return _write_once(gateway, manifest, pods_run=pods_run)


def _write_once(gateway: ClusterGateway, manifest: Manifest, *, pods_run: bool) -> Manifest:
    """What the cluster is to hold from now on."""
    ref = ref_of(manifest)
    observed = gateway.get(ref)
    if observed is None:
        _check_namespace(gateway, ref.namespace)
        _create(gateway, manifest)
        return manifest
    _check_owner(observed, manifest, ref)
    ahead = generation_of(manifest) - generation_of(observed)
    if ahead < 0:
        return manifest
    _check_not_leaving(observed, ref)
    if needs_replacing(observed, manifest) and not pods_run:
        _replace(gateway, ref, observed, manifest)
        return manifest
    body = writable(observed, manifest, pods_run=pods_run)
    if ahead > 0 or field_changes(observed, body):
        gateway.update(body, observed=observed)
    return body


def _create(gateway: ClusterGateway, manifest: Manifest) -> None:
    try:
        gateway.create(manifest)
    except ClusterRefused as refusal:
        if NO_CLASS in refusal.message:  # gone for a moment while a new value replaces it
            raise NotSynced(refusal.message) from refusal
        raise
    except VersionConflict:
        raise
    except ObjectConflict as conflict:
        _read_back(gateway, manifest, conflict)


def _read_back(gateway: ClusterGateway, manifest: Manifest, conflict: ObjectConflict) -> NoReturn:
    """Raise VersionConflict where the name is taken by this workload's own object: another worker was faster.

    Two workers may have found nothing and both created it, or the answer to the first try was lost.
    """
    ref = ref_of(manifest)
    observed = gateway.get(ref)
    if observed is not None:
        _check_owner(observed, manifest, ref)
    raise VersionConflict(f"{ref.kind.kind} {ref.name} was created or deleted in the meantime.") from conflict


def _check_owner(observed: Manifest, manifest: Manifest, ref: ObjectRef) -> None:
    """Raise ObjectConflict unless the object carries this workload's owner label, which holds its uuid."""
    if not is_managed(observed) or owner_of(observed) != owner_of(manifest):
        message = f"{ref.kind.kind} {ref.namespace}/{ref.name} exists and does not belong to this workload."
        raise ObjectConflict(message, pointer="/metadata/name")


def _replace(gateway: ClusterGateway, ref: ObjectRef, observed: Manifest, manifest: Manifest) -> None:
    """Delete, create. What takes its grace to go is waited for by another try."""
    gateway.delete(ref, uid=observed["metadata"]["uid"])
    if (leaving := gateway.get(ref)) is not None:
        _check_not_leaving(leaving, ref)
    _create(gateway, manifest)


def _check_not_leaving(observed: Manifest, ref: ObjectRef) -> None:
    if observed["metadata"].get("deletionTimestamp"):
        raise NotSynced(f"{ref.kind.kind} {ref.name} is terminating. Rung recreates it afterwards.")


def _delete(gateway: ClusterGateway, ref: ObjectRef, job: JobSpec) -> None:
    observed = gateway.get(ref)
    if observed is None or owner_of(observed) != f"workload.{job.id}" or not is_managed(observed):
        return
    if generation_of(observed) <= job.generation:
        gateway.delete(ref, uid=observed["metadata"]["uid"])


def _delete_of_former(gateway: ClusterGateway, ref: ObjectRef, job: JobSpec) -> None:
    """A scheduler that the cluster had before may be gone with its kinds, and Rung's rights to them."""
    with suppress(NotServed, NotAuthorized):
        _delete(gateway, ref, job)


def _check_namespace(gateway: ClusterGateway, name: str) -> None:
    found = gateway.get(ObjectRef(NAMESPACE, name))
    if found is None:
        raise NotSynced(f"The namespace {name} does not exist in the cluster yet.")
    if not is_managed(found):
        raise NotSynced(f"The namespace {name} is not managed by Rung. Admins see it as a conflict.")


MOST_DROPPED: Final = ("schedulingGroup", "schedulerName", "priorityClassName")
"""Fields of a pod by which its scheduler learns what it must not miss."""
MARKS: Final = ("labels", "annotations")


def dropped_fields(cluster: Cluster, job: JobSpec) -> tuple[str, ...]:
    """Pointers into the pods of a gang of what was written and is not held. Raises ClusterError.

    Kinds that every API server brings along know all of it, and are not asked about.
    """
    kind = kind_for(str(job.manifest["apiVersion"]), str(job.manifest["kind"]))
    if kind is None or kind.core or job.min_member < 2 or not (rendered := flavour_for(cluster.flavour).render(job)):
        return ()
    body = with_pods_hash(rendered[-1])
    live = gateway_for(cluster).get(ref_of(body))
    if live is None or not has_same_pods_hash(live, body):
        return ()  # its pods are still described as before
    held = {found.pointer: found.part for found in parts_in(live, kind)}
    return tuple(pointer for found in parts_in(body, kind) for pointer in _dropped(found, held.get(found.pointer, {})))


def _dropped(found: FoundPart, held: Mapping[str, Any]) -> Iterator[str]:
    if found.shape is TemplateShape.TEMPLATE:
        yield from _missing(f"{found.pointer}/spec", found.part["spec"], held.get("spec"), MOST_DROPPED)
        yield from _missing(f"{found.pointer}/metadata", found.part["metadata"], held.get("metadata"), MARKS)
    elif found.shape is TemplateShape.POD:
        yield from _missing(found.pointer, found.part, held, (*MOST_DROPPED, *MARKS))


def _missing(pointer: str, wanted: Mapping[str, Any], held: object, names: tuple[str, ...]) -> Iterator[str]:
    """Left out whole: what another hand changed there is drift, and another matter."""
    known = held if isinstance(held, Mapping) else {}
    yield from (f"{pointer}/{name}" for name in names if wanted.get(name) and not known.get(name))
