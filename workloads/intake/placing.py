"""What a manifest says of the workload as a whole: its node pools in order, and how many of its pods start together."""

from collections.abc import Mapping
from typing import Any, Final

from clusters.flavours.rendering import MIN_MEMBER
from clusters.kinds import WorkloadKind
from workloads.intake.names import NODE_POOLS
from workloads.intake.problems import Report, token
from workloads.intake.roles import together
from workloads.intake.spec import PodRole

NOTES: Final = "/metadata/annotations"
MINIMUM_PLACE: Final = f"{NOTES}/{token(MIN_MEMBER)}"
Manifest = dict[str, Any]


def node_pools_of(notes: Mapping[str, str]) -> tuple[str, ...]:
    """The pools of the annotation, in order of preference and once each; empty where it says nothing."""
    names = (name.strip() for name in notes.get(NODE_POOLS, "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def stated_minimum(manifest: Manifest, kind: WorkloadKind, roles: tuple[PodRole, ...], report: Report) -> int | None:
    """How many pods the annotation wants to start together; None where it says nothing.

    A kind with a field for it gets it written there too, so that whoever reads only that field knows.
    """
    text = manifest["metadata"].get("annotations", {}).get(MIN_MEMBER)
    if text is None:
        return None
    wanted, most = int(text), together(kind, roles)
    if not kind.gang and wanted > 1:
        report.add(MINIMUM_PLACE, "no_gang", f"The pods of a {kind.kind} start one by one.", ("1",))
    elif wanted > most:
        report.add(MINIMUM_PLACE, "gang_too_large", f"It becomes {most} pods: {wanted} cannot start together.")
    else:
        _agree(manifest, kind, wanted, report)
    return wanted


def _agree(manifest: Manifest, kind: WorkloadKind, wanted: int, report: Report) -> None:
    """The kind's own field must not say another number."""
    own = kind.minimum_of(manifest)
    if own and own != wanted:
        report.add(MINIMUM_PLACE, "two_minimums", f"{kind.minimum} says {own}: leave one of the two out.", (str(own),))
    elif kind.minimum.endswith("/minAvailable"):
        policy = manifest["spec"].setdefault("runPolicy", {}).setdefault("schedulingPolicy", {})
        policy["minAvailable"] = wanted
