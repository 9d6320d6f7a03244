"""What a cluster's Volcano configuration means: actions, plugins and the victims they protect. Pure.

Source: Volcano 1.15, `Session.Preemptable` and `Session.Reclaimable`. The first tier that leaves anybody decides. One
that leaves no victim decides nothing: the next gets all candidates again, so that a veto holds only where it is
made in every tier that is asked. Inside a tier only who is in the lists of all plugins goes; but where two lists have
no victim in common, the next plugin's counts alone, so that a veto is safe only when it is the last.

Source: Volcano 1.15. As shipped, its actions neither preempt nor reclaim, and the proportion plugin knows no deserved
quota. The text is a stranger's: read strictly, within bounds; only words that are known here are kept of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.pod_status import config_document
from clusters.ports.flavour import Facts
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import CONFIG_MAP
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import MIN_RUNTIME_CAUSES, Cause, EvictionExemptions

CDP: Final = "cdp"
VOTE_SWITCHES: Final = {Cause.PREEMPT: "enablePreemptable", Cause.RECLAIM: "enableReclaimable"}
"""What keeps a plugin from being asked about an action."""
_BOTH: Final = frozenset({"gang", "conformance", "drf", "pdb", "extender", CDP})
VOTERS: Final = {
    Cause.PREEMPT: _BOTH | {"priority", "tdm"},
    Cause.RECLAIM: _BOTH | {"capacity", "proportion"},
}
LENIENT: Final = frozenset({CDP, "conformance"})
"""They ask neither for priority nor for quotas."""

Tier = Sequence[Mapping[str, Any]]


def spared_from(tiers: Sequence[Tier]) -> Iterator[Cause]:
    """The actions that never take what cdp spares."""
    for action in VOTERS:
        requested = list(_voters(tiers, action))
        if requested and all(map(_has_the_last_word, requested)):
            yield action


def opened_to(tiers: Sequence[Tier]) -> Iterator[Cause]:
    """Actions that evict any old enough workload, whatever its priority or quota, if earlier tiers name none."""
    for action in VOTERS:
        if any(CDP in voters and LENIENT.issuperset(voters) for voters in _voters(tiers, action)):
            yield action


def _voters(tiers: Iterable[Tier], action: Cause) -> Iterator[list[str]]:
    """The plugins of each tier that have a say, in their order."""
    for tier in tiers:
        named = [str(each.get("name")) for each in tier if each.get(VOTE_SWITCHES[action]) is not False]
        if voters := [name for name in named if name in VOTERS[action]]:
            yield voters


def _has_the_last_word(voters: Sequence[str]) -> bool:
    """Of two the first is as good: no plugin follows the second."""
    return voters[-1] == CDP or (len(voters) == 2 and voters[0] == CDP)


CONF: Final = ObjectRef(CONFIG_MAP, "volcano-scheduler-configmap", "volcano-system")
KEY: Final = "volcano-scheduler.conf"
ACTIONS: Final = ("enqueue", "allocate", "preempt", "reclaim", "backfill")
TOPOLOGY: Final = "network-topology-aware"
SWITCHES: Final = {
    "priority": (),
    "gang": ("enablePreemptable",),
    "capacity": ("enableHierarchy",),
    TOPOLOGY: ("enabledHyperNodeGradient",),
    CDP: (),
}
"""Plugins that Rung's words need, and the options of each that decide about them."""
GOOD: Final = 'actions: "allocate, preempt, reclaim, backfill"'

UNREAD: Final = (
    f"Volcano's configuration (ConfigMap {CONF.namespace}/{CONF.name}, {KEY}) cannot be read, so it is unknown "
    f"whether Volcano preempts and reclaims. By default it does neither. Recommended: {GOOD}."
)
NO_PREEMPT: Final = (
    f"Volcano's configuration lacks the action preempt: higher priorities do not evict. Recommended: {GOOD}."
)
NO_RECLAIM: Final = (
    "Volcano's configuration lacks the action reclaim: over-quota capacity is lent but never reclaimed. "
    f"Recommended: {GOOD}."
)
ENQUEUE: Final = (
    "Volcano's configuration has the action enqueue: jobs may be held in the queue when nothing is free and then "
    "neither preempt nor reclaim."
)
NO_PRIORITY: Final = (
    "Volcano's configuration lacks the plugin priority: higher priorities do not go first, and evictions ignore "
    "priority."
)
NO_GANG: Final = "Volcano's configuration lacks the plugin gang: distributed jobs may start partially."
ONLY_ABOVE: Final = (
    "Volcano's plugin gang lacks enablePreemptable: false: a higher priority only evicts pods above a job's "
    "minimum, and never single pods."
)
NO_CAPACITY: Final = (
    "Volcano's configuration lacks the plugin capacity: deserved quotas are ignored. Use it instead of proportion."
)
NO_HIERARCHY: Final = (
    "Volcano's plugin capacity lacks enableHierarchy: true: department limits are checked only by Rung at submission."
)
NO_DOMAINS: Final = (
    f"Volcano's configuration lacks the plugin {TOPOLOGY}: gangs that require a topology domain would be spread "
    "over any nodes, so Rung rejects them."
)
NOT_SPARED: Final = (
    f"Volcano's plugin {CDP} does not protect workloads inside their minimum runtime from the action {{actions}}: "
    "a tier that it empties leaves the choice to the next, and a plugin after it may add "
    "victims that it spared. It must be last in every tier whose plugins are asked."
)
OPENED: Final = (
    f"Volcano's plugin {CDP} alone chooses in one tier the victims of the action {{actions}}: where the tiers before "
    "it leave none, any workload past its minimum runtime is evicted, whatever its priority or quota. Disable it there "
    "for that action."
)

ANYWHERE: Final = f"its configuration lacks the plugin {TOPOLOGY}, so the gang would be spread"
ASSUMED_DOMAINS: Final = (
    "It may be spread over any nodes: Volcano's configuration cannot be read, and by default it lacks the plugin "
    f"{TOPOLOGY}."
)
NO_EVICTIONS_ASSUMED: Final = (
    "Assumption: Volcano neither preempts nor reclaims, which is its default. Its configuration on this cluster is "
    "unknown."
)
ASSUMED: Final = (
    "Assumption: nothing is evicted for it. Volcano's configuration cannot be read, and by default it lacks the "
    "actions preempt and reclaim."
)
WITHOUT: Final = {
    (Cause.PREEMPT, Cause.RECLAIM): "Nothing is evicted for it: Volcano's configuration on this cluster lacks the "
    "actions preempt and reclaim.",
    (Cause.PREEMPT,): "No lower priority of its project is evicted for it: Volcano's configuration on this "
    "cluster lacks the action preempt.",
    (Cause.RECLAIM,): "Nothing is reclaimed for it from other projects: Volcano's configuration on this cluster "
    "lacks the action reclaim.",
}
GANG_LIMITS: Final = "Volcano's plugin gang limits preemption on this cluster: pods that a job needs are never evicted."


@dataclass(frozen=True, slots=True)
class VolcanoConfig:
    """The part that decides who may be evicted: known actions, and the switches of known plugins."""

    actions: tuple[str, ...]
    plugins: Mapping[str, Mapping[str, bool]]
    spares: tuple[str, ...] = ()  # actions that never take what cdp spares
    opens: tuple[str, ...] = ()  # actions in which cdp alone says who goes

    @property
    def unspared(self) -> tuple[str, ...]:
        """Actions that evict workloads inside their minimum runtime in spite of the plugin cdp."""
        takers = (each for each in (Cause.PREEMPT, Cause.RECLAIM) if each in self.actions)
        return tuple(each for each in takers if each not in self.spares)

    @property
    def opened(self) -> tuple[str, ...]:
        """Actions for which neither priority nor quota counts in the end."""
        return tuple(each for each in self.opens if each in self.actions)

    @property
    def keeps_minimum(self) -> bool:
        """The plugin gang is asked about preemption, which is the default."""
        return "gang" in self.plugins and self.plugins["gang"].get("enablePreemptable") is not False

    @property
    def has_deserved(self) -> bool:
        return "capacity" in self.plugins

    @property
    def keeps_domains(self) -> bool:
        """A gang that asks for a domain is looked for room in one domain at a time, unless that is switched off."""
        return TOPOLOGY in self.plugins and self.plugins[TOPOLOGY].get("enabledHyperNodeGradient") is not False

    @property
    def has_departments(self) -> bool:
        """Queues above a project's queue count."""
        return self.has_deserved and self.plugins["capacity"].get("enableHierarchy") is True


SHIPPED: Final = VolcanoConfig(
    ("enqueue", "allocate", "backfill"), {"priority": {}, "gang": {"enablePreemptable": False}}
)


RECOMMENDED: Final[Facts] = {
    "actions": ["allocate", "preempt", "reclaim", "backfill"],
    "plugins": {
        "priority": {},
        "gang": {"enablePreemptable": False},
        "capacity": {"enableHierarchy": True},
        TOPOLOGY: {},
        CDP: {},
    },
    "spares": [Cause.PREEMPT, Cause.RECLAIM],
    "opens": [],
}
"""The facts of the configuration in docs/clusters.md."""


def facts_of(found: Manifest | None) -> Facts:
    """What is kept of a ConfigMap; empty where there is none or it says nothing readable."""
    value = config_document(found, KEY)
    return {} if value is None else _facts(value)


def _facts(value: Mapping[str, Any]) -> Facts:
    """Volcano starts with a configuration of its own where the text names no actions: that one does not evict."""
    actions = value.get("actions")
    if not isinstance(actions, str):
        return {}
    named = {name.strip() for name in actions.split(",")}
    tiers = [list(_objects(tier.get("plugins"))) for tier in _objects(value.get("tiers"))]
    plugins = {str(each.get("name")): each for tier in tiers for each in tier if str(each.get("name")) in SWITCHES}
    return {
        "actions": [action for action in ACTIONS if action in named],
        "plugins": {name: dict(_switches(name, plugins[name])) for name in SWITCHES if name in plugins},
        **({"spares": list(spared_from(tiers)), "opens": list(opened_to(tiers))} if CDP in plugins else {}),
    }


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


def _switches(name: str, options: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    return ((key, options[key]) for key in SWITCHES[name] if isinstance(options.get(key), bool))


def conf_of(facts: Facts) -> VolcanoConfig | None:
    """The facts as they were kept; None: nothing could be read."""
    if not facts:
        return None
    spares, opens = facts.get("spares", ()), facts.get("opens", ())
    return VolcanoConfig(tuple(facts["actions"]), facts["plugins"], tuple(spares), tuple(opens))


def admin_warnings(facts: Facts) -> tuple[str, ...]:
    """What a configuration means for priorities and quotas; `UNREAD` where nothing could be read."""
    conf = conf_of(facts)
    return (UNREAD,) if conf is None else tuple(_warnings(conf))


def _warnings(conf: VolcanoConfig) -> Iterator[str]:
    misses = {
        NO_PREEMPT: "preempt" not in conf.actions,
        NO_RECLAIM: "reclaim" not in conf.actions,
        ENQUEUE: "enqueue" in conf.actions,
        NO_PRIORITY: "priority" not in conf.plugins,
        NO_GANG: "gang" not in conf.plugins,
        ONLY_ABOVE: conf.keeps_minimum,
        NO_CAPACITY: not conf.has_deserved,
        NO_HIERARCHY: conf.has_deserved and not conf.has_departments,
        NO_DOMAINS: not conf.keeps_domains,
        NOT_SPARED.format(actions=" and ".join(conf.unspared)): CDP in conf.plugins and bool(conf.unspared),
        OPENED.format(actions=" and ".join(conf.opened)): bool(conf.opened),
    }
    return (sentence for sentence, so in misses.items() if so)


def exemptions(facts: Facts) -> EvictionExemptions:
    """What it never evicts; where nothing could be read, it is as shipped."""
    conf = conf_of(facts) or SHIPPED
    return EvictionExemptions(
        causes=frozenset({Cause.PREEMPT, Cause.RECLAIM} - set(conf.actions)),
        inside_min_runtime=MIN_RUNTIME_CAUSES & frozenset(conf.spares),
        below_minimum=conf.keeps_minimum,
    )


def assumption(facts: Facts) -> str:
    """What `exemptions` rests on where nothing could be read; empty: on what was read."""
    return NO_EVICTIONS_ASSUMED if conf_of(facts) is None else ""


def forecast_warnings(facts: Facts, outcome: str) -> tuple[str, ...]:
    """Notes for owners of workloads that wait or evict others."""
    conf = conf_of(facts)
    if outcome == OutcomeKind.PLACED:
        return ()
    if conf is None:
        return (ASSUMED,)
    return tuple(_why_none(conf) if outcome == OutcomeKind.PENDING else _doubts(conf))


def _why_none(conf: VolcanoConfig) -> Iterator[str]:
    missing = tuple(cause for cause in (Cause.PREEMPT, Cause.RECLAIM) if cause not in conf.actions)
    if missing:
        yield WITHOUT[missing]
    if conf.keeps_minimum and Cause.PREEMPT not in missing:
        yield GANG_LIMITS


def _doubts(conf: VolcanoConfig) -> Iterator[str]:
    """The estimate counts priorities and deserved quotas, and takes every job in."""
    doubtful = {
        ENQUEUE: "enqueue" in conf.actions,
        NO_PRIORITY: "priority" not in conf.plugins,
        NO_CAPACITY: not conf.has_deserved,
        OPENED.format(actions=" and ".join(conf.opened)): bool(conf.opened),
    }
    return (f"This estimate is uncertain. {sentence}" for sentence, so in doubtful.items() if so)


def ignores_domains(facts: Facts) -> str:
    """Why a gang that asks for one domain would be put anywhere; empty: it is not, or nothing could be read."""
    conf = conf_of(facts)
    return "" if conf is None or conf.keeps_domains else ANYWHERE


def domain_warnings(facts: Facts) -> tuple[str, ...]:
    """Notes for owners of gangs that ask for one domain."""
    return () if facts else (ASSUMED_DOMAINS,)
