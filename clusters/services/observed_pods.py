"""Pods as compact rows: upserted by uid, never moved back to an older resourceVersion, kept after they have gone."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import QuerySet

from clusters.flavours.common import POOL
from clusters.flavours.kai import QUEUE_LABEL
from clusters.flavours.rendering import ROLE
from clusters.models import Cluster, NodePool, ObservedPod
from clusters.ownership import owner_of
from clusters.pods import (
    DEFAULT_GRACE,
    condition,
    is_terminal,
    labels,
    moment_of,
    phase,
    preemptibility_of,
    requests_of,
)
from clusters.ports import Manifest, Reading, SchedulerFlavour
from clusters.services.looks import Look, number
from scheduling.priority import Preemptibility

FIELDS = [each.name for each in ObservedPod._meta.concrete_fields if each.name not in {"id", "cluster", "uid"}]
WORKLOAD = "workload."


@dataclass(slots=True)
class PodChanges:
    """Rows that changed or went, and how their pods stand."""

    rows: list[ObservedPod] = field(default_factory=list)
    readings: dict[str, Reading] = field(default_factory=dict)


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

    def store(self, look: Look) -> PodChanges:
        """Write what changed.

        1. pods that are there and newer than their row
        2. pods whose deletion was told, with their last state
        3. rows that nobody listed, and rows whose name another uid has taken: gone unseen
        """
        changes = PodChanges()
        uids = [each["metadata"]["uid"] for each in (*look.present, *look.gone)]
        known = {row.uid: row for row in self._rows().filter(uid__in=uids)}
        for manifest in look.present:
            if _is_news(manifest, known):
                self._add(changes, manifest, gone=False)
        for manifest in look.gone:
            row = known.get(manifest["metadata"]["uid"])
            if row is None or row.gone_at is None:
                self._add(changes, manifest, gone=True)
        changes.rows += self._gone_unseen(look, changes.rows)
        ObservedPod.objects.bulk_create(
            changes.rows, update_conflicts=True, unique_fields=["cluster", "uid"], update_fields=FIELDS
        )
        return changes

    def _rows(self) -> QuerySet[ObservedPod]:
        return ObservedPod.objects.filter(cluster=self.cluster)

    def _add(self, changes: PodChanges, manifest: Manifest, *, gone: bool) -> None:
        reading = self.flavour.interpret(manifest)
        row = self._row(manifest, reading)
        row.gone_at = self.at if gone else None
        changes.rows.append(row)
        changes.readings[row.uid] = reading

    def _gone_unseen(self, look: Look, written: Iterable[ObservedPod]) -> list[ObservedPod]:
        live = self._rows().filter(gone_at__isnull=True)
        if look.whole:
            lost = list(live.exclude(uid__in=[each["metadata"]["uid"] for each in look.present]))
        else:
            here = {(row.namespace, row.name): row.uid for row in written if row.gone_at is None}
            told = {row.uid for row in written}
            same_name = live.filter(name__in=[name for _namespace, name in here])
            lost = [row for row in same_name if (row.namespace, row.name) in here and row.uid not in told]
        for row in lost:
            row.gone_at = self.at
            row.observed_at = self.at
        return lost

    def _row(self, pod: Manifest, reading: Reading) -> ObservedPod:
        meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        marks, asked = labels(pod), requests_of(pod)
        return ObservedPod(
            cluster=self.cluster,
            uid=meta["uid"],
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            owner_id=workload_id(pod),
            node_name=spec.get("nodeName") or "",
            pool_name=self._pool(pod),
            phase=phase(pod)[:20],
            reason=(reading.reason or _end_reason(pod))[:100],
            message=reading.message or str(status.get("message") or ""),
            priority_class=spec.get("priorityClassName") or "",
            priority=int(spec.get("priority") or 0),
            preemptible=preemptibility_of(pod) is not Preemptibility.NON_PREEMPTIBLE,
            queue=marks.get(QUEUE_LABEL, ""),
            role=marks.get(ROLE, "")[:63],
            gpu_milli=asked.gpu,
            cpu_milli=asked.cpu,
            memory_bytes=asked.memory,
            grace_seconds=int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)),
            created_at=moment_of(meta.get("creationTimestamp")) or self.at,
            started_at=moment_of(status.get("startTime")),
            deletion_at=moment_of(meta.get("deletionTimestamp")),
            resource_version=str(meta.get("resourceVersion", "")),
            observed_at=self.at,
            **_disruption(pod, self.at),
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


def _is_news(manifest: Manifest, known: dict[str, ObservedPod]) -> bool:
    row = known.get(manifest["metadata"]["uid"])
    return row is None or number(str(manifest["metadata"].get("resourceVersion", ""))) > number(row.resource_version)


def _end_reason(pod: Manifest) -> str:
    """Completed, Error, OOMKilled: the first container's, once the pod has ended."""
    if not is_terminal(pod):
        return ""
    for each in (pod.get("status") or {}).get("containerStatuses") or []:
        return str(((each.get("state") or {}).get("terminated") or {}).get("reason", ""))
    return str((pod.get("status") or {}).get("reason", ""))


def _disruption(pod: Manifest, at: datetime) -> dict[str, object]:
    found = condition(pod, "DisruptionTarget")
    if found is None or found.get("status") != "True":
        return {}
    return {
        "disrupted_at": moment_of(found.get("lastTransitionTime")) or at,
        "disruption_reason": str(found.get("reason", ""))[:64],
        "disruption_message": str(found.get("message", "")),
    }
