"""What an API server silently left out of a workload's object, because the definition of its kind does not know it.

A definition from before gangs drops `schedulingGroup`, one without embedded metadata drops every label and annotation
of a pod template: the object is accepted, and its pods start as if nothing had been said. Read back after writing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from clusters.descriptions import described, describes_alike
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds import FoundPart, Shape, kind_for, parts_in
from clusters.kinds_core import ref_of
from clusters.models import Cluster
from clusters.ports import JobSpec

TOLD: Final = ("schedulingGroup", "schedulerName", "priorityClassName")
"""Fields of a pod by which its scheduler learns what it must not miss."""
MARKS: Final = ("labels", "annotations")


def dropped_by(cluster: Cluster, job: JobSpec) -> tuple[str, ...]:
    """Pointers into the pods of a gang of what was written and is not held. Raises ClusterError.

    Kinds that every API server brings along know all of it, and are not asked about.
    """
    kind = kind_for(str(job.manifest["apiVersion"]), str(job.manifest["kind"]))
    if kind is None or kind.core or job.min_member < 2 or not (rendered := flavour_for(cluster.flavour).render(job)):
        return ()
    body = described(rendered[-1])
    live = gateway_for(cluster).get(ref_of(body))
    if live is None or not describes_alike(live, body):
        return ()  # its pods are still described as before
    held = {found.pointer: found.part for found in parts_in(live, kind)}
    return tuple(pointer for found in parts_in(body, kind) for pointer in _dropped(found, held.get(found.pointer, {})))


def _dropped(found: FoundPart, held: Mapping[str, Any]) -> Iterator[str]:
    if found.shape is Shape.TEMPLATE:
        yield from _missing(f"{found.pointer}/spec", found.part["spec"], held.get("spec"), TOLD)
        yield from _missing(f"{found.pointer}/metadata", found.part["metadata"], held.get("metadata"), MARKS)
    elif found.shape is Shape.POD:
        yield from _missing(found.pointer, found.part, held, (*TOLD, *MARKS))


def _missing(pointer: str, wanted: Mapping[str, Any], held: object, names: tuple[str, ...]) -> Iterator[str]:
    """Left out whole: what another hand changed there is drift, and another matter."""
    known = held if isinstance(held, Mapping) else {}
    yield from (f"{pointer}/{name}" for name in names if wanted.get(name) and not known.get(name))
