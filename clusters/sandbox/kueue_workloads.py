"""Kueue's own object in the sandbox: a Workload beside each object that stands in one of its queues."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.flavours.kueue import PRIORITY_LABEL, QUEUE_LABEL
from clusters.kinds import kind_for
from clusters.kinds_core import KUEUE_PRIORITY, KUEUE_WORKLOAD
from clusters.pods import condition_is_true, controller_of, labels
from clusters.ports import Manifest
from clusters.sandbox.store import Store

ADMITTED: Final = "Admitted"
RESERVED: Final = "QuotaReserved"
FINISHED: Final = "Finished"
GATE: Final = {"name": "kueue.x-k8s.io/admission"}


def queue_of(manifest: Manifest) -> str:
    """The LocalQueue that the object names; empty for others, and for what a controller made of one that does."""
    return "" if controller_of(manifest) else labels(manifest).get(QUEUE_LABEL, "")


def suspend_of(manifest: Mapping[str, Any]) -> str | None:
    """Pointer to the field that holds an object of its kind back; None: it has none, so its pods are gated."""
    kind = kind_for(str(manifest["apiVersion"]), str(manifest["kind"]))
    return kind.suspend if kind else None


def workload_of(store: Store, about: Mapping[str, Any], space: str) -> Manifest | None:
    """The Workload of an object, known by kind, name and uid."""
    return store.find(KUEUE_WORKLOAD.key, _name(about), space)


def is_admitted(workload: Manifest | None) -> bool:
    """Has it been let go?"""
    return workload is not None and condition_is_true(workload, ADMITTED)


def add_workload(store: Store, owner: Manifest, pods: Mapping[str, int]) -> Manifest:
    """Its controller makes it when it sees the object first. `pods`: how many of each role."""
    meta = owner["metadata"]
    about = {"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    reference = {"apiVersion": owner["apiVersion"], **about, "controller": True, "blockOwnerDeletion": True}
    return store.add(
        {
            "apiVersion": KUEUE_WORKLOAD.api_version,
            "kind": KUEUE_WORKLOAD.kind,
            "metadata": {
                "name": _name(about),
                "namespace": meta["namespace"],
                "ownerReferences": [reference],
            },
            "spec": {
                "queueName": queue_of(owner),
                "priority": _priority(store, owner),
                "podSets": [{"name": role, "count": count} for role, count in pods.items()],
            },
            "status": {"conditions": []},
        }
    )


def _name(about: Mapping[str, Any]) -> str:
    return f"{str(about['kind']).lower()}-{about['name'][:190]}-{about['uid'][:5]}"


def _priority(store: Store, owner: Manifest) -> int:
    found = store.find(KUEUE_PRIORITY.key, labels(owner).get(PRIORITY_LABEL, ""))
    return int(found.get("value", 0)) if found else 0


def pending_in(workloads: Iterable[Manifest], queue: str) -> dict[str, Any]:
    """What the visibility API answers about a LocalQueue: who waits there, next one first."""
    there = [each for each in workloads if each["spec"].get("queueName") == queue and is_waiting(each)]
    there.sort(key=lambda each: (-each["spec"]["priority"], each["metadata"]["creationTimestamp"]))
    return {
        "kind": "PendingWorkloadsSummary",
        "items": [
            {
                "metadata": {key: each["metadata"][key] for key in ("name", "namespace", "ownerReferences")},
                "priority": each["spec"]["priority"],
                "localQueueName": queue,
                "positionInLocalQueue": number,
            }
            for number, each in enumerate(there)
        ],
    }


def is_waiting(workload: Manifest) -> bool:
    """Has it no quota, and still to run?"""
    return not condition_is_true(workload, RESERVED) and not condition_is_true(workload, FINISHED)
