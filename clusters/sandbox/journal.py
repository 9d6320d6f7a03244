"""Kubernetes events of the sandbox, worded as the real components word theirs."""

from typing import Final

from clusters.pods import stamp
from clusters.ports import Manifest
from clusters.sandbox.store import Store

NORMAL: Final = "Normal"
WARNING: Final = "Warning"


def note(store: Store, about: Manifest, reason: str, message: str, *, source: str, kind: str = NORMAL) -> None:
    """One core/v1 event about an object."""
    meta = about["metadata"]
    at = stamp(store.now)
    store.number += 1
    store.add(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name'][:200]}.{store.clock.version:x}.{store.number:x}",
                "namespace": meta.get("namespace", "default"),
            },
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": meta["name"],
                "namespace": meta.get("namespace", ""),
                "uid": meta["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": source},
            "reportingComponent": source,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
    )
