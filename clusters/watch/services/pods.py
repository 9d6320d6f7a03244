"""Pods as compact rows: upserted by uid, never moved back to an older resourceVersion, kept after they have gone."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.models import QuerySet

from clusters.flavours import kai, volcano
from clusters.flavours.objects import POOL
from clusters.flavours.rendering import ROLE
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.flavour import PodStatusReason, SchedulerFlavour
from clusters.ports.gateway import Manifest
from clusters.ports.objects import owner_of
from clusters.ports.pods import (
    DEFAULT_GRACE,
    condition,
    is_terminal,
    labels,
    moment_of,
    more_requests,
    phase,
    preemptibility_of,
    requests_of,
    shared_device,
    tolerations_of,
)
from clusters.watch.models import ObservedPod
from clusters.watch.services.watch_buffer import CHUNK, WatchBatch, batched, number
from scheduling.model.preemptibility import Preemptibility

FIELDS = [each.name for each in ObservedPod._meta.concrete_fields if each.name not in {"id", "cluster", "uid"}]
SAID = [each.attname for each in ObservedPod._meta.concrete_fields if each.name in FIELDS[:-2]]  # not when it was seen
WORKLOAD = "workload."
LONGEST_GRACE = 10**8  # three years: together with the moments that are believed, seconds stay a number of 32 bits
_said = attrgetter(*SAID)


class StoredPod(NamedTuple):
    """The values of a pod's row, plain because most of them are only compared."""

    version: str
    values: tuple[Any, ...]

    def value(self, name: str) -> Any:
        return self.values[SAID.index(name)]


@dataclass(slots=True)
class PodChanges:
    """Rows that changed or went, and how their pods stand."""

    rows: list[ObservedPod] = field(default_factory=list)
    readings: dict[str, PodStatusReason] = field(default_factory=dict)
    fresh: list[ObservedPod] = field(default_factory=list)  # seen for the first time


def workload_id(manifest: Manifest) -> str:
    """The workload's id in our owner label; empty when it is none of ours."""
    owner = owner_of(manifest)
    return owner.removeprefix(WORKLOAD) if owner.startswith(WORKLOAD) else ""


@dataclass(frozen=True, slots=True)
class PodStore:
    """Pods of one cluster at one moment."""

    cluster: Cluster
    flavour: SchedulerFlavour
    pools: list[NodePool]
    at: datetime

    def store(self, look: WatchBatch) -> PodChanges:
        """Write what changed.

        1. pods that are there, newer than their row, and saying something else than it
        2. pods whose deletion was reported, with their last state
        3. rows that were not listed, and rows whose name another uid has taken: gone unseen
        """
        changes = PodChanges()
        known = self._known([each["metadata"]["uid"] for each in (*look.present, *look.gone)])
        for manifest in look.present:
            row = known.get(manifest["metadata"]["uid"])
            if row is None or _is_news(manifest, row):
                self._add(changes, manifest, row)
        for manifest in look.gone:
            row = known.get(manifest["metadata"]["uid"])
            if row is None or row.value("gone_at") is None:
                self._add(changes, manifest, row, gone=True)
        changes.rows += self._lost(look) if look.whole else self._replaced(changes)
        ObservedPod.objects.bulk_create(
            changes.rows,
            batch_size=CHUNK,
            update_conflicts=True,
            unique_fields=["cluster", "uid"],
            update_fields=FIELDS,
        )
        return changes

    def _rows(self) -> QuerySet[ObservedPod]:
        return ObservedPod.objects.filter(cluster=self.cluster)

    def _known(self, uids: list[str]) -> dict[str, StoredPod]:
        rows = self._rows().values_list("uid", "resource_version", *SAID)
        parts = (rows.filter(uid__in=part) for part in batched(uids))
        return {uid: StoredPod(version, tuple(values)) for part in parts for uid, version, *values in part}

    def _add(self, changes: PodChanges, manifest: Manifest, before: StoredPod | None, *, gone: bool = False) -> None:
        reading = self.flavour.interpret(manifest)
        row = self._row(manifest, reading)
        row.gone_at = self.at if gone else None
        if before is None:
            changes.fresh.append(row)
        else:
            if before.value("deletion_at"):  # the first word counts: a node's own last one is a grace of 0
                row.deletion_at, row.grace_seconds = before.value("deletion_at"), before.value("grace_seconds")
            if _said(row) == before.values:  # a probe's time, an annotation
                return
        changes.rows.append(row)
        changes.readings[row.uid] = reading

    def _lost(self, look: WatchBatch) -> list[ObservedPod]:
        """A list names everything: live rows that it does not name have gone."""
        listed = {each["metadata"]["uid"] for each in look.present} | {each["metadata"]["uid"] for each in look.gone}
        live = self._rows().filter(gone_at__isnull=True)
        missed = [uid for uid in live.values_list("uid", flat=True) if uid not in listed]
        parts = (self._rows().filter(uid__in=part) for part in batched(missed))
        return self._ended(row for part in parts for row in part)

    def _replaced(self, changes: PodChanges) -> list[ObservedPod]:
        """A name that a new pod has taken belongs to no other one any more."""
        new = {(row.namespace, row.name): row.uid for row in changes.fresh if row.gone_at is None}
        reported = {row.uid for row in changes.rows}
        live = self._rows().filter(gone_at__isnull=True)
        parts = (zip(*part, strict=True) for part in batched(sorted(new)))  # sorted: few namespaces each
        same = (row for spaces, names in parts for row in live.filter(namespace__in={*spaces}, name__in={*names}))
        return self._ended(row for row in same if (row.namespace, row.name) in new and row.uid not in reported)

    def _ended(self, rows: Iterable[ObservedPod]) -> list[ObservedPod]:
        ended = list(rows)
        for row in ended:
            row.gone_at = self.at
            row.observed_at = self.at
        return ended

    def _row(self, pod: Manifest, reading: PodStatusReason) -> ObservedPod:
        meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        end = _end_of(pod)
        marks, requested = labels(pod), requests_of(pod)
        return ObservedPod(
            cluster=self.cluster,
            uid=meta["uid"],
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            owner_id=workload_id(pod),
            node_name=spec.get("nodeName") or "",
            pool_name=self._pool(pod),
            phase=phase(pod)[:20],
            reason=(reading.reason or end.reason)[:100],
            message=reading.message or str(status.get("message") or "") or end.sentence,
            priority_class=spec.get("priorityClassName") or "",
            priority=int(spec.get("priority") or 0),
            preemptible=preemptibility_of(pod) is not Preemptibility.NON_PREEMPTIBLE,
            never_preempts=spec.get("preemptionPolicy") == "Never",
            queue=_queue(pod),
            pod_group=str((meta.get("annotations") or {}).get(kai.POD_GROUP) or "")[:253],
            device=shared_device(pod)[:64],
            role=marks.get(ROLE, "")[:63],
            gpu_milli=requested.gpu,
            cpu_milli=requested.cpu,
            memory_bytes=requested.memory,
            more_requests=more_requests(pod),
            grace_seconds=_grace(pod),
            created_at=moment_of(meta.get("creationTimestamp")) or self.at,
            started_at=moment_of(status.get("startTime")),
            deletion_at=moment_of(meta.get("deletionTimestamp")),
            ended_at=_ended_at(pod),
            resource_version=str(meta.get("resourceVersion", "")),
            observed_at=self.at,
            **_disruption(pod, self.at),
            **_wishes(spec, status),
        )

    def _pool(self, pod: Manifest) -> str:
        """By its label, else by its node selector, else the default pool."""
        selector = (pod.get("spec") or {}).get("nodeSelector") or {}
        if name := labels(pod).get(POOL):
            return name
        for pool in self.pools:
            if selector.get(pool.label_key) == pool.label_value:
                return pool.name
        return next((pool.name for pool in self.pools if pool.is_default), "")


def _queue(pod: Manifest) -> str:
    """As it says itself, whichever scheduler it says it to."""
    annotations = pod["metadata"].get("annotations") or {}
    return str(labels(pod).get(kai.QUEUE_LABEL) or annotations.get(volcano.QUEUE) or "")[:253]


def _is_news(manifest: Manifest, row: StoredPod) -> bool:
    return number(str(manifest["metadata"].get("resourceVersion", ""))) > number(row.version)


def _grace(pod: Manifest) -> int:
    """What its deletion granted it, once it is being deleted; what it asks for until then."""
    granted = pod["metadata"].get("deletionGracePeriodSeconds")
    requested = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    grace = next((int(each) for each in (granted, requested) if each is not None), DEFAULT_GRACE)
    return min(max(grace, 0), LONGEST_GRACE)


def _ended_at(pod: Manifest) -> datetime | None:
    """When the last of its containers ended, if its node said so for all of them."""
    ends = [
        moment_of(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in (pod.get("status") or {}).get("containerStatuses") or []
    ]
    return max((end for end in ends if end), default=None) if all(ends) else None


def _wishes(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Where it may go: of interest only until it has a node."""
    if spec.get("nodeName"):
        return {}
    return {
        "nominated_node": status.get("nominatedNodeName") or "",
        "node_selector": dict(spec.get("nodeSelector") or {}),
        "tolerations": [asdict(each) for each in tolerations_of(spec)],
    }


class _ContainerEnd(NamedTuple):
    """When and how a container ended; at is empty where its node did not say."""

    reason: str
    code: int = 0
    name: str = ""
    at: str = ""

    @property
    def sentence(self) -> str:
        why = f" ({self.reason})" if self.reason not in {"", "Error"} else ""
        return f"Container {self.name} ended with exit code {self.code}{why}" if self.code else ""


def _end_of(pod: Manifest) -> _ContainerEnd:
    """Of the container that failed last, else of the first one, else of the pod; empty before the pod has ended."""
    if not is_terminal(pod):
        return _ContainerEnd("")
    status = pod.get("status") or {}
    containers = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    ends = [_container_end(each, end) for each in containers if (end := (each.get("state") or {}).get("terminated"))]
    failed = [each for each in ends if each.code]
    if failed:
        return max(failed, key=lambda each: each.at)
    return ends[0] if ends else _ContainerEnd(str(status.get("reason") or ""))


def _container_end(container: Mapping[str, Any], end: Mapping[str, Any]) -> _ContainerEnd:
    at, code = moment_of(end.get("finishedAt")), int(end.get("exitCode") or 0)
    return _ContainerEnd(str(end.get("reason", "")), code, container.get("name", ""), at.isoformat() if at else "")


def _disruption(pod: Manifest, at: datetime) -> dict[str, object]:
    found = condition(pod, "DisruptionTarget")
    if found is None or found.get("status") != "True":
        return {}
    return {
        "disrupted_at": moment_of(found.get("lastTransitionTime")) or at,
        "disruption_reason": str(found.get("reason", ""))[:64],
        "disruption_message": str(found.get("message", "")),
    }
