"""Objects, names, topology levels and durations that all flavours write alike. Pure.

The rules are those of the schedulers' own objects (Kueue and KAI): no key twice, the node's own name only last.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from clusters.ports.flavour import DesiredState, PoolSpec, PriorityClassSpec, ProjectSpec
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import owned
from portal.kit.errors import Problem

POOL: Final = "rung.dev/node-pool"
TOPOLOGY_KEY: Final = "rung.dev/topology-key"
"""Annotation of a workload: a node label; the whole gang runs on nodes with one value of it."""
PLACEMENT: Final = "rung.dev/placement"
"""Annotation of a workload: `binpack` keeps its pods on few nodes, `spread` on as many as there are."""
PLACEMENTS: Final = ("binpack", "spread")
SECURITY_MODES: Final = ("enforce", "audit", "warn")
RANK_TO_PRIORITY: Final = {
    "very-low": 80,
    "low": 90,
    "medium-low": 100,
    "medium": 110,
    "medium-high": 120,
    "high": 130,
    "very-high": 140,
}


def priority_class(priority: PriorityClassSpec, policy: str = "") -> Manifest:
    """scheduling.k8s.io/v1 PriorityClass, with this preemption policy instead of the entry's own.

    Never the global default: a pod that names none is not ours to rank.
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": owned(priority.name, owner=priority.owner, generation=priority.generation),
        "value": priority.value,
        "preemptionPolicy": policy or priority.preemption_policy,
        "globalDefault": False,
        "description": priority.description,
    }


def namespace(project: ProjectSpec) -> Manifest:
    """A project's namespace under the Pod Security level of its cluster."""
    labels = {**_pod_security(project.pod_security), "rung.dev/project": project.name}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": owned(project.namespace, owner=project.owner, generation=project.generation, labels=labels),
    }


def _pod_security(level: str) -> dict[str, str]:
    """What the level forbids is refused, and warned of and audited alike."""
    sides = (("", level), ("-version", "latest"))
    return {f"pod-security.kubernetes.io/{mode}{side}": text for mode in SECURITY_MODES for side, text in sides}


def shared_objects(state: DesiredState, *, policy: str = "") -> Iterator[Manifest]:
    """PriorityClasses, all of this preemption policy where one is given, and namespaces."""
    yield from (priority_class(priority, policy) for priority in state.priorities)
    yield from map(namespace, state.projects)


def topology(kind: Kind, name: str, pool: PoolSpec) -> Manifest:
    """A pool's levels, as both schedulers that have such an object take them."""
    levels = [{"nodeLabel": key} for key in levels_with_hostname(pool.topology_levels)]
    metadata = owned(name, owner=f"pool.{pool.name}", generation=0)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {"levels": levels}}


def queue_name(owner: str, pool: str) -> str:
    """`<owner>.<pool>`; pools hold no dot, so no two pairs share a name. Cut to a label's length with a digest."""
    name = f"{owner}.{pool}".lower()
    return name if len(name) <= 63 else f"{name[:52]}-{sha256(name.encode()).hexdigest()[:10]}"


def plain_number(number: float) -> int | float:
    """A whole number without its decimal point."""
    return int(number) if number == int(number) else number


def sum_or_unlimited(amounts: Iterable[int | None]) -> int | None:
    """The sum, or None (unlimited) as soon as one of them is."""
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LEVEL_KEY: Final = rf"({_LABEL}(\.{_LABEL})*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{{0,61}}[A-Za-z0-9])?"
LONGEST_LEVEL_KEY: Final = 253
MOST_LEVELS: Final = 8
"""Levels of one pool."""
HOSTNAME: Final = "kubernetes.io/hostname"


def levels_with_hostname(levels: Sequence[str]) -> tuple[str, ...]:
    """As schedulers get them: down to the single node, so that admitted pods are assigned to nodes."""
    return (*levels, *(() if HOSTNAME in levels else (HOSTNAME,)))


def invalid_levels(levels: Sequence[str], *, field: str) -> Iterator[Problem]:
    """What is wrong with them, at the pointer of each; nothing: they can be."""
    if len(levels) > MOST_LEVELS:
        yield Problem(field, "too_many", f"{len(levels)} levels; the maximum is {MOST_LEVELS}.")
    for index, key in enumerate(levels[: MOST_LEVELS + 1]):
        if code := _wrong(levels, index):
            yield Problem(f"{field}/{index}", code, _SAID[code].format(key=key[:80]))


def _wrong(levels: Sequence[str], index: int) -> str:
    key = levels[index]
    if len(key) > LONGEST_LEVEL_KEY or not re.fullmatch(LEVEL_KEY, key):
        return "invalid"
    if key in levels[:index]:
        return "repeated"
    return "not_last" if key == HOSTNAME and index + 1 < len(levels) else ""


_SAID: Final = {
    "invalid": "{key!r} is not a node label key, such as topology.kubernetes.io/zone.",
    "repeated": "Duplicate level {key}.",
    "not_last": "{key} identifies single nodes, so it must be the last level.",
}


_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_MICROS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
LONGEST_DURATION: Final = 64  # letters: longer texts are no duration


def go_duration(minutes: int) -> str:
    """Whole minutes, as Go reads them."""
    return f"{minutes}m"


def duration_micros(text: Any) -> int | None:
    """Microseconds; None when absent or not a duration of hours, minutes, seconds or milliseconds."""
    if not isinstance(text, str) or len(text) > LONGEST_DURATION or _PARTS.sub("", text) or not text:
        return 0 if text == "0" else None
    return sum(round(float(amount) * _MICROS[unit]) for amount, unit in _PARTS.findall(text))
