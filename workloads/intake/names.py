"""Names, labels and annotations: which keys a tenant may write, and which are Rung's or the cluster's."""

import re
from collections.abc import Mapping
from typing import Any, Final

from clusters.flavours.common import PLACEMENT, PLACEMENTS, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from clusters.topologies import LABEL_KEY, LONGEST
from workloads.intake.problems import visible
from workloads.intake.rules import ABSENT, Place, Rule, mapping, storable, text, wrong_type

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
dns_label: Rule = text(63, LABEL, "a name of lower-case letters, digits and '-'", shortest=1, code="bad_name")
dns_name: Rule = text(
    253, rf"{LABEL}(\.{LABEL})*", "a name of lower-case letters, digits, '-' and '.'", code="bad_name"
)
port_name: Rule = text(15, r"(?=.*[a-z])" + LABEL, "a port name such as http", shortest=1, code="bad_name")
identifier: Rule = text(
    63, r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?", "a name of letters, digits, '-', '_' and '.'", code="bad_name"
)
label_value: Rule = text(63, r"([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?", "a label value", code="bad_label")

PRIORITY_LABEL: Final = "priorityClassName"
PREEMPTIBILITY_LABEL: Final = "kai.scheduler/preemptibility"
RAY_PRIORITY_LABEL: Final = "ray.io/priority-class-name"
MANAGER_LABEL: Final = "app.kubernetes.io/managed-by"

OWN_LABEL_PREFIXES: Final = ("app.kubernetes.io",)
# KAI reads a bare `project` label as a queue name, and the controllers write the others.
RESERVED_LABELS: Final = frozenset(
    {
        "project",
        "pod-template-hash",
        "controller-uid",
        "controller-revision-hash",
        "job-name",
        "statefulset.kubernetes.io/pod-name",
    }
)
DURATION = r"([0-9]{1,9}(\.[0-9]{1,3})?(s|m|h|d)){1,4}"
STAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+][0-9]{2}:[0-9]{2})"

NODE_POOLS: Final = "rung.dev/node-pools"

ANNOTATIONS: Final[Mapping[str, Rule]] = {
    "description": text(1024),
    "kubernetes.io/description": text(1024),
    "kubectl.kubernetes.io/default-container": dns_label,
    "rung.dev/last-checkpoint-at": text(40, STAMP, "a time such as 2030-01-31T12:00:00Z"),
    "rung.dev/checkpoint-interval": text(40, DURATION, "a duration such as 10m"),
    "rung.dev/run-seconds": text(9, r"[1-9][0-9]*", "a whole number of seconds, in quotes"),
    "rung.dev/exit-code": text(3, r"0|[1-9][0-9]{0,2}", "an exit code for simulated runs, in quotes"),
    "sidecar.istio.io/inject": text(5, "false", "the word false, in quotes"),
}
POD_ANNOTATIONS: Final[Mapping[str, Rule]] = {
    **ANNOTATIONS,
    "gpu-fraction": text(4, r"0\.(0[1-9]|[1-9][0-9]?)", "a share of one GPU from 0.01 to 0.99, in quotes"),
}
REVISION_ANNOTATIONS: Final[Mapping[str, Rule]] = {
    **POD_ANNOTATIONS,
    "autoscaling.knative.dev/min-scale": text(4, r"[0-9]+", "a whole number, in quotes"),
    "autoscaling.knative.dev/max-scale": text(4, r"[1-9][0-9]*", "a whole number from 1, in quotes"),
}
PLACING: Final[Mapping[str, Rule]] = {
    TOPOLOGY_KEY: text(LONGEST, LABEL_KEY, "the key of a node label such as topology.kubernetes.io/rack"),
    PLACEMENT: text(10, "|".join(PLACEMENTS), "one of " + " and ".join(PLACEMENTS)),
    MIN_MEMBER: text(5, r"[1-9][0-9]*", "a whole number of pods from 1, in quotes"),
    NODE_POOLS: text(1024, rf"{LABEL}( *, *{LABEL}){{0,9}}", "up to ten names of node pools, parted by commas"),
}
"""Annotations of a workload as a whole: where its pods are to go, and how many of them start together."""
LEFTOVERS: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
        "kubectl.kubernetes.io/restartedAt",
    }
)


def _prefix(key: str) -> str:
    return key.rpartition("/")[0]


def _managed(key: str, place: Place) -> bool:
    prefix = _prefix(key)
    return key in RESERVED_LABELS or any(
        prefix == each or prefix.endswith(f".{each}") for each in place.scope.managed_prefixes
    )


def label_key(key: Any, place: Place) -> Any:
    """A label the tenant owns: without prefix or below app.kubernetes.io. The rest belongs to controllers."""
    if identifier_of(key, place) is ABSENT:
        return ABSENT
    if (
        key in {PRIORITY_LABEL, PREEMPTIBILITY_LABEL, MANAGER_LABEL}
        or _managed(key, place)
        or (_prefix(key) not in {"", *OWN_LABEL_PREFIXES})
    ):
        message = f"The label {visible(key)} is written by Rung or by a controller, never by a manifest."
        return place.refuse("managed_label", message, ("<name>", *(f"{each}/<name>" for each in OWN_LABEL_PREFIXES)))
    return key


def identifier_of(key: Any, place: Place) -> Any:
    """A syntactically valid label key."""
    if not isinstance(key, str):
        return wrong_type(key, place, "a string")
    prefix, slash, name = key.rpartition("/")
    if not storable(key, place) or (slash and dns_name(prefix, place) is ABSENT):
        return ABSENT
    return ABSENT if identifier(name, place) is ABSENT else key


labels: Rule = mapping(label_key, label_value, 64)


def annotations(known: Mapping[str, Rule]) -> Rule:
    """Annotations steer controllers, so only known ones are taken; what tools left behind is dropped."""

    def check(given: Any, place: Place) -> Any:
        if not isinstance(given, Mapping):
            return wrong_type(given, place, "an object")
        rebuilt = {}
        for key, value in given.items():
            result = _annotation(key, value, known, place)
            if result is not ABSENT:
                rebuilt[key] = result
        return rebuilt

    return check


def _annotation(key: Any, value: Any, known: Mapping[str, Rule], place: Place) -> Any:
    if key in LEFTOVERS:
        place.report.warn(f"Annotation {key} was left out.")
        return ABSENT
    if key not in known:
        message = f"The annotation {visible(key)} is not one Rung takes."
        return place.at(key).refuse("annotation_not_allowed", message, sorted(known))
    return known[key](value, place.at(key))


def slug(prefix: str) -> str:
    """A `generateName` prefix without the dashes it ends in: Rung writes the rest of the name itself."""
    return re.sub(r"[-.]+$", "", prefix)
