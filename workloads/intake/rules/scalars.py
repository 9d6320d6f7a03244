"""Names, labels, annotations, image references and quantities: which of them a tenant may write."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from clusters.flavours.objects import LEVEL_KEY, LONGEST_LEVEL_KEY, PLACEMENT, PLACEMENTS, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from clusters.ports.pods import GPU_GROUP
from portal.kit.security.strict_json import Unreadable, visible
from scheduling.model.resources import LARGEST, parse_quantity
from workloads.intake.rules.values import ABSENT, Location, Rule, mapping, storable, table, text, wrong_type

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
# KAI reads a bare `project` label as a queue name and writes that of shared GPUs; the controllers write the others.
RESERVED_LABELS: Final = frozenset(
    {
        "project",
        "pod-template-hash",
        "controller-uid",
        "controller-revision-hash",
        GPU_GROUP,
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
    TOPOLOGY_KEY: text(LONGEST_LEVEL_KEY, LEVEL_KEY, "the key of a node label such as topology.kubernetes.io/rack"),
    PLACEMENT: text(10, "|".join(PLACEMENTS), "one of " + " and ".join(PLACEMENTS)),
    MIN_MEMBER: text(5, r"[1-9][0-9]*", "a whole number of pods from 1, in quotes"),
    NODE_POOLS: text(1024, rf"{LABEL}( *, *{LABEL}){{0,9}}", "up to ten names of node pools, separated by commas"),
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


def _managed(key: str, place: Location) -> bool:
    prefix = _prefix(key)
    return key in RESERVED_LABELS or any(
        prefix == each or prefix.endswith(f".{each}") for each in place.scope.managed_prefixes
    )


def label_key(key: Any, place: Location) -> Any:
    """A label the tenant owns: without prefix or below app.kubernetes.io. The rest belongs to controllers."""
    if identifier_of(key, place) is ABSENT:
        return ABSENT
    if (
        key in {PRIORITY_LABEL, PREEMPTIBILITY_LABEL, MANAGER_LABEL}
        or _managed(key, place)
        or (_prefix(key) not in {"", *OWN_LABEL_PREFIXES})
    ):
        return place.refuse(
            "managed_label", _reserved(key), ("<name>", *(f"{each}/<name>" for each in OWN_LABEL_PREFIXES))
        )
    return key


def _reserved(key: str) -> str:
    """Who writes the label, and what to do about it."""
    prefix = _prefix(key)
    if key in {PRIORITY_LABEL, PREEMPTIBILITY_LABEL}:
        what = "priority" if key == PRIORITY_LABEL else "preemptibility"
        return f"Rung sets the label {key} of pods. Remove it, and choose the {what} of the workload instead."
    if key in WRITERS or key in RESERVED_LABELS or prefix in OWN_LABEL_PREFIXES:
        return f"The label {visible(key)} is reserved for {WRITERS.get(key, CONTROLLERS)}. Remove it."
    writer = next((WRITERS[each] for each in WRITERS if prefix == each or prefix.endswith(f".{each}")), OTHERS)
    return f"Labels with the prefix {visible(prefix)}/ are reserved for {writer}. Remove the label {visible(key)}."


CONTROLLERS: Final = "the controllers of Kubernetes"
OTHERS: Final = "the controllers of the cluster"
WRITERS: Final[Mapping[str, str]] = {
    MANAGER_LABEL: "Rung",
    "project": "KAI Scheduler",
    GPU_GROUP: "KAI Scheduler",
    "rung.dev": "Rung",
    "kai.scheduler": "KAI Scheduler",
    "run.ai": "Run:ai",
    "kueue.x-k8s.io": "Kueue",
    "volcano.sh": "Volcano",
    "nvidia.com": "NVIDIA's operators",
    "kubeflow.org": "Kubeflow",
    "ray.io": "KubeRay",
    "knative.dev": "Knative",
    "kubernetes.io": "Kubernetes",
    "k8s.io": "Kubernetes",
}
"""Who writes a reserved label, by its key or the end of its prefix; the first that matches counts."""


def identifier_of(key: Any, place: Location) -> Any:
    if not isinstance(key, str):
        return wrong_type(key, place, "a string")
    prefix, slash, name = key.rpartition("/")
    if not storable(key, place) or (slash and dns_name(prefix, place) is ABSENT):
        return ABSENT
    return ABSENT if identifier(name, place) is ABSENT else key


labels: Rule = mapping(label_key, label_value, 64)


def annotations(known: Mapping[str, Rule]) -> Rule:
    """Annotations steer controllers, so only known ones are taken; what tools left behind is dropped."""

    def check(given: Any, place: Location) -> Any:
        if not isinstance(given, Mapping):
            return wrong_type(given, place, "an object")
        rebuilt = {}
        for key, value in given.items():
            result = _annotation(key, value, known, place)
            if result is not ABSENT:
                rebuilt[key] = result
        return rebuilt

    return check


def _annotation(key: Any, value: Any, known: Mapping[str, Rule], place: Location) -> Any:
    if key in LEFTOVERS:
        place.report.warn(f"Annotation {key} was removed.")
        return ABSENT
    if key not in known:
        message = f"The annotation {visible(key)} is not allowed."
        return place.at(key).refuse("annotation_not_allowed", message, sorted(known))
    return known[key](value, place.at(key))


def slug(prefix: str) -> str:
    """A `generateName` prefix without the dashes it ends in: Rung writes the rest of the name itself."""
    return re.sub(r"[-.]+$", "", prefix)


LONGEST_REFERENCE: Final = 512
ANY_REGISTRY: Final = "*"
DEFAULT_REGISTRY: Final = "docker.io"
_HOST = (
    r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z0-9-]+(?::[0-9]{1,5})?|localhost(?::[0-9]{1,5})?|[a-z0-9-]+:[0-9]{1,5}"
)
_PATH = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_REFERENCE = re.compile(rf"(?P<host>{_HOST})/(?P<path>{_PATH}(?:/{_PATH})*)(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?")


def full_reference(reference: str) -> str:
    """What every container engine reads: `busybox` is `docker.io/library/busybox`, `team/app` is on Docker Hub too."""
    first, slash, rest = reference.partition("/")
    if not slash or (first != "localhost" and not {".", ":"}.intersection(first)):
        first, rest = DEFAULT_REGISTRY, reference
    if first not in {DEFAULT_REGISTRY, f"index.{DEFAULT_REGISTRY}"}:
        return reference
    return f"{DEFAULT_REGISTRY}/{rest if '/' in rest else f'library/{rest}'}"


def image(value: Any, place: Location) -> Any:
    """`[registry/]path[:tag][@sha256:digest]`, rebuilt with its registry, which is one of the project's."""
    if not isinstance(value, str):
        return wrong_type(value, place, "a string")
    if len(value) > LONGEST_REFERENCE:
        return place.refuse("bad_image", f"{len(value)} characters; the maximum is {LONGEST_REFERENCE}.")
    if not storable(value, place):
        return ABSENT
    if "@" in value and "@sha256:" not in value:
        return place.refuse(
            "image_credentials", "Image references cannot contain a user, and digests start with @sha256:."
        )
    full = full_reference(value)
    match = _REFERENCE.fullmatch(full)
    if match is None:
        message = f"{visible(value)!r} is not an image reference such as busybox:1.36 or registry.example/team/app:1.0."
        return place.refuse("bad_image", message)
    if not _granted(f"{match['host']}/{match['path']}", place):
        means = "" if full == value else f"{value} is {full}. "
        message = f"{means}The registry {match['host']} is not allowed for this project."
        return place.refuse("registry_denied", message, place.scope.allowed_registries)
    return full


def _granted(name: str, place: Location) -> bool:
    return any(
        granted == ANY_REGISTRY or name.startswith(f"{granted.rstrip('/')}/")
        for granted in place.scope.allowed_registries
    )


GPU: Final = "nvidia.com/gpu"
MIG: Final = re.compile(r"nvidia\.com/(mig-[1-9]g\.[0-9]{1,3}gb(?:\.me)?)")
MOST_GPUS: Final = 64
FRACTION: Final = "gpu-fraction"
_PLAIN: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def quantity(*, unit: int = 1, least: int = 0) -> Rule:
    """A Kubernetes quantity that is exact in 1/`unit`, rebuilt as text."""

    def check(value: Any, place: Location) -> Any:
        if isinstance(value, (bool, Unreadable)) or not isinstance(value, (int, float, str)):
            return wrong_type(value, place, "a quantity such as 500m or 16Gi")
        written = _written(value)
        try:
            amount = parse_quantity(written) * unit
        except ValueError:
            return place.refuse("bad_quantity", f"{visible(written)!r} is not a quantity such as 500m or 16Gi.")
        if amount.denominator != 1 or not least <= amount <= LARGEST or written != written.strip():
            return place.refuse("bad_quantity", f"{visible(written)!r} is negative, too fine or too large.")
        return written

    return check


def _written(value: float | str) -> str:
    return format(Decimal(str(value)), "f") if isinstance(value, float) else visible(value, 60)


def whole(most: int, what: str) -> Rule:
    """A plain count of devices: 8 or "8", nothing else that could be read as a number."""

    def check(value: Any, place: Location) -> Any:
        written = visible(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(written, str):
            return (
                wrong_type(value, place, f"a whole number of {what}")
                if not isinstance(value, float)
                else _no_count(value, place, most, what)
            )
        if not _PLAIN.fullmatch(written) or int(written) > most:
            return _no_count(written, place, most, what)
        return written

    return check


def _no_count(value: Any, place: Location, most: int, what: str) -> Any:
    return place.refuse("bad_gpu_count", f"{visible(value)!r} is not a whole number of {what} from 0 to {most}.")


cpu: Rule = quantity(unit=1000)
memory: Rule = quantity()
gpus: Rule = whole(MOST_GPUS, "GPUs")
_KNOWN: Final[Mapping[str, Rule]] = {"cpu": cpu, "memory": memory, "ephemeral-storage": memory, GPU: gpus}


def rule_for(key: Any, place: Location) -> Rule | None:
    """How an amount of this resource is checked; None where the project may not ask for it, which is noted."""
    if isinstance(key, str) and key in _KNOWN:
        return _KNOWN[key]
    found = MIG.fullmatch(key) if isinstance(key, str) else None
    if found and found[1] in place.scope.mig_profiles:
        return gpus
    granted = tuple(f"nvidia.com/{each}" for each in place.scope.mig_profiles)
    place.refuse(
        "resource_not_allowed", f"The resource {visible(key)} is not available to this project.", (*_KNOWN, *granted)
    )
    return None


def amounts(value: Any, place: Location) -> Any:
    """One side of a container's resources."""
    if not isinstance(value, Mapping):
        return wrong_type(value, place, "an object")
    rebuilt = {}
    for key, amount in value.items():
        rule = rule_for(key, place.at(key))
        result = ABSENT if rule is None else rule(amount, place.at(key))
        if result is not ABSENT:
            rebuilt[key] = result
    return rebuilt


_sides: Rule = table({"limits": amounts, "requests": amounts})


def resources(value: Any, place: Location) -> Any:
    """`limits` and `requests`; devices stand under limits, and a request equals its limit or stays away."""
    rebuilt = _sides(value, place)
    if rebuilt is ABSENT:
        return ABSENT
    limits, requests = rebuilt.get("limits", {}), rebuilt.get("requests", {})
    for name, requested in requests.items():
        _compare(name, requested, limits.get(name), place.at("requests").at(name))
    return rebuilt


def _compare(name: str, requested: str, limit: str | None, place: Location) -> None:
    if name.startswith("nvidia.com/"):
        if requested != limit:
            place.refuse("gpu_request_differs", f"GPU requests must equal limits. Write {name} under limits.")
    elif limit is not None and parse_quantity(requested) > parse_quantity(limit):
        place.refuse("request_over_limit", f"The request {requested} exceeds the limit {limit}.")
