"""How long a pod runs in the sandbox, and how it ends. Pure.

Kinds that serve run for ever. For the others the annotation `rung.dev/run-seconds` says it, else it is between
10 minutes and 6 hours, drawn from the uid of the pod's controller, so that the pods of one job end together.
"""

import re
import zlib
from typing import Final

from clusters.pods import annotations, controller_of
from clusters.ports import Manifest
from clusters.sandbox.blueprints import RUN_SECONDS

EXIT_CODE: Final = "rung.dev/exit-code"  # annotation: how the container ends; 0 when absent
CHECKPOINT_INTERVAL: Final = "rung.dev/checkpoint-interval"  # annotation: 10m, 1h30m
_PART: Final = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SHORTEST: Final = 600
LONGEST: Final = 6 * 3600
ENDLESS: Final = frozenset(
    {
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "Notebook",
        "DevWorkspace",
        "RayCluster",
        "RayService",
        "Service",
        "InferenceService",
        "LeaderWorkerSet",
        "SeldonDeployment",
        "NIMService",
        "DynamoGraphDeployment",
        "VirtualMachineInstance",
    }
)


def run_seconds(pod: Manifest) -> int | None:
    """Seconds of the sandbox's time; None: until somebody stops it."""
    owner = controller_of(pod)
    if owner and owner["kind"] in ENDLESS:
        return None
    text = annotations(pod).get(RUN_SECONDS, "")
    if text.isascii() and text.isdecimal():
        return int(text[:9])
    if not owner and pod["spec"].get("restartPolicy", "Always") == "Always":
        return None
    uid = owner["uid"] if owner else pod["metadata"]["uid"]
    return SHORTEST + zlib.crc32(str(uid).encode()) % (LONGEST - SHORTEST)


def checkpoint_seconds(pod: Manifest) -> int:
    """The rhythm in which the work says that it saves itself; 0 when it says nothing."""
    parts = _PART.findall(annotations(pod).get(CHECKPOINT_INTERVAL, ""))
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def exit_code(pod: Manifest) -> int:
    """What the container's process returns at the end of its run time."""
    text = annotations(pod).get(EXIT_CODE, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0
