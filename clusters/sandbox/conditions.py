"""Setting conditions on pods in place."""

from datetime import datetime
from typing import Any

from clusters.pods import stamp
from clusters.ports import Manifest


def set_condition(pod: Manifest, kind: str, status: str, *, at: datetime, reason: str = "", message: str = "") -> bool:
    """Set one condition; False when it already said exactly this. The transition time moves only with the status."""
    conditions: list[dict[str, Any]] = pod.setdefault("status", {}).setdefault("conditions", [])
    wanted = {"type": kind, "status": status, "reason": reason, "message": message}
    old = next((each for each in conditions if each["type"] == kind), None)
    if old is None:
        conditions.append({**wanted, "lastTransitionTime": stamp(at)})
        return True
    if all(old.get(key) == value for key, value in wanted.items()):
        return False
    if old["status"] != status:
        old["lastTransitionTime"] = stamp(at)
    old.update(wanted)
    return True
