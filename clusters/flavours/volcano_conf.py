"""What a cluster's own configuration of Volcano's scheduler keeps from happening, said as warnings. Pure.

Source: Volcano 1.15. As shipped, its actions neither preempt nor reclaim, and the proportion plugin knows no deserved
quota. The text is a stranger's: read strictly, within bounds, and nothing of it is repeated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.kinds_core import CONFIG_MAP
from clusters.ports import Configuration, Manifest, ObjectRef
from portal.core.strict.documents import Limits
from portal.core.strict.problems import DocumentRefused
from portal.core.strict.yaml_reader import documents_from_yaml
from scheduling.decisions import Cause

CONF: Final = ObjectRef(CONFIG_MAP, "volcano-scheduler-configmap", "volcano-system")
KEY: Final = "volcano-scheduler.conf"
LIMITS: Final = Limits(size=256 * 1024, depth=12, nodes=5_000, documents=1)
GOOD: Final = 'actions: "allocate, preempt, reclaim, backfill"'

UNREAD: Final = (
    f"Volcano's configuration (ConfigMap {CONF.namespace}/{CONF.name}, {KEY}) could not be read, so nobody knows "
    f"whether its scheduler preempts and reclaims. As shipped it does neither; it should say {GOOD}."
)
NO_PREEMPT: Final = (
    f"Volcano's configuration has no action preempt: a higher priority waits and evicts nobody. It should say {GOOD}."
)
NO_RECLAIM: Final = (
    "Volcano's configuration has no action reclaim: over-quota use is lent out and never taken back. It should say "
    f"{GOOD}."
)
ENQUEUE: Final = (
    "Volcano's configuration has the action enqueue: a job for which nothing is free may be held outside and then "
    "preempts and reclaims nothing."
)
NO_CAPACITY: Final = (
    "Volcano's configuration has no plugin capacity: deserved quotas count for nothing there. It takes the place of "
    "proportion."
)
NO_HIERARCHY: Final = (
    "Volcano's plugin capacity lacks enableHierarchy: true: the limits of departments are not kept by the scheduler, "
    "only by Rung at submission."
)


@dataclass(frozen=True, slots=True)
class Conf:
    """The part that decides who may be evicted: actions in their order, and options of each plugin."""

    actions: tuple[str, ...]
    plugins: Mapping[str, Mapping[str, Any]]


def warnings_of(found: Manifest | None) -> tuple[str, ...]:
    """What a ConfigMap means for priorities and quotas; `UNREAD` where there is none or it says nothing readable."""
    conf = conf_of(found)
    return (UNREAD,) if conf is None else tuple(_warnings(conf))


def conf_of(found: Manifest | None) -> Conf | None:
    """The configuration in a ConfigMap; None where there is none."""
    data = (found or {}).get("data")
    text = data.get(KEY) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return None
    try:
        documents = documents_from_yaml(text.encode(), LIMITS)
    except DocumentRefused:
        return None
    value = documents[0].value if documents else None
    return _conf(value) if isinstance(value, Mapping) else None


def _conf(value: Mapping[str, Any]) -> Conf | None:
    """Volcano starts with a configuration of its own where the text names no actions: that one does not evict."""
    actions, tiers = value.get("actions"), value.get("tiers")
    if not isinstance(actions, str):
        return None
    names = tuple(name.strip() for name in actions.split(","))
    return Conf(
        names, {str(each.get("name")): each for tier in _objects(tiers) for each in _objects(tier.get("plugins"))}
    )


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


def _warnings(conf: Conf) -> Iterator[str]:
    if "preempt" not in conf.actions:
        yield NO_PREEMPT
    if "reclaim" not in conf.actions:
        yield NO_RECLAIM
    if "enqueue" in conf.actions:
        yield ENQUEUE
    capacity = conf.plugins.get("capacity")
    if capacity is None:
        yield NO_CAPACITY
    elif capacity.get("enableHierarchy") is not True:
        yield NO_HIERARCHY


def leaves_out(found: Manifest | None) -> frozenset[str]:
    """Causes of evictions for which it has no action; where it says nothing readable, it is as shipped."""
    conf = conf_of(found)
    return frozenset({Cause.PREEMPT, Cause.RECLAIM} - set(conf.actions if conf else ()))


CONFIGURATION: Final = Configuration(CONF, "whether the scheduler preempts and reclaims", warnings_of, leaves_out)
