"""What Volcano keeps of Rung's guarantees. Pure.

Source: Volcano 1.15 with the actions allocate, preempt, reclaim, backfill and the plugin capacity in place of
proportion; its decisions were seen on fake nodes. As shipped it neither preempts nor reclaims: the connection test
says so.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from clusters.flavours.volcano_config import CDP, SHIPPED, VolcanoConfig, conf_of
from clusters.ports.flavour import HELD_BY_RUNG, Enforced, Facts, Guarantee
from scheduling.model.preemptibility import Cause

CONFIGURE: Final = (
    'Configure the actions "allocate, preempt, reclaim, backfill" and the plugin capacity instead of proportion.'
)

LAST: Final = (
    "Add the plugin cdp last in the tier with gang and, with enablePreemptable: false, last in the tier with capacity."
)
DOMAINS: Final = "Add the plugin network-topology-aware."
TOPOLOGY_DRAWBACK: Final = (
    "It requires one topology domain: Volcano never preempts for such gangs, regardless of priority. It reclaims "
    "without considering domains, so more may be evicted than needed, or in vain."
)

GUARANTEES: Final = (
    Guarantee(
        "priority_inside_project",
        "Priority applies only within the project",
        "yes",
        "The action preempt is limited to one queue; without it a higher priority only goes first. Between queues "
        "deserved quotas count; reclaim ignores priority.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods not managed by Rung are not evicted",
        "partly",
        "Pods of other schedulers count as used capacity. Workloads in other Volcano queues, including the "
        "default queue, are reclaimed like any others above their deserved quota.",
        "Give queues not managed by Rung a deserved quota, or set reclaimable: false.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "Priorities with the policy Never do not evict",
        "yes",
        "Preempt and reclaim skip pods with preemptionPolicy Never.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible workloads are never evicted",
        "yes",
        "Preempt and reclaim never evict pods with the annotation volcano.sh/preemptable: false. Node failures "
        "and drains still end them.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible workloads stay within the deserved quota",
        "partly",
        "Rung rejects a workload that alone exceeds it. Volcano itself allows non-preemptible workloads up to the "
        "limit.",
        "Submit through Rung: other workloads are not checked.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota capacity is lent and reclaimed",
        "partly",
        "With the capacity plugin and the action reclaim, a queue gets its deserved quota back from queues above "
        "theirs. The default configuration has neither. A queue may fall below its deserved quota when an evicted "
        "pod is larger than its excess. A queue that also deserves CPU or memory may exceed its GPUs while it is "
        "within those. The over-quota weight only counts with the proportion plugin.",
        CONFIGURE,
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "partly",
        "The limit of the parent queue is checked only if the capacity plugin has enableHierarchy: true. Reclaim "
        "ignores it, so it may evict for a workload that then waits at its department's limit. Rung checks the "
        "sums when quotas are set and workloads are submitted.",
        "Set enableHierarchy: true on the capacity plugin.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for surplus capacity",
        "yes",
        "Rank becomes the queue's priority: a higher rank is served first, for deserved quota and surplus, and "
        "reclaimed from last.",
    ),
    Guarantee(
        "gang",
        "Distributed jobs start all pods together",
        "yes",
        "A PodGroup starts with its minimum members or waits. A running gang is not protected: preempt and "
        "reclaim may evict single pods of it. Kinds without pod templates start pods one by one.",
    ),
    Guarantee(
        "topology",
        "A gang stays in one topology domain",
        "yes",
        "Rung creates a HyperNode for every domain of a pool's levels and sets the tier for the gang: it runs in "
        "one domain or waits. This requires the plugin network-topology-aware, which the default configuration "
        "lacks; if it is known to be missing, requests for a domain are rejected. Such a gang never preempts, "
        "regardless of priority. It does reclaim, without considering domains and until one fits, so more may be "
        "evicted than needed, or in vain. Nodes without the labels of all levels are not used for such gangs. "
        "HyperNodes of others count by their tier: give them tiers from 10. New or moved nodes count when Rung "
        "has observed them. A waiting gang keeps its tier when the levels of its pool change.",
        DOMAINS,
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas apply per node pool",
        "yes",
        "Each pool has its own queues, and pods have the pool's node selector.",
    ),
    Guarantee(
        "min_runtime",
        "Workloads are protected for their minimum runtime",
        "partly",
        "Pods have the minimum runtime as an annotation for the plugin cdp, which the default configuration "
        "lacks: until it ends, preempt and reclaim do not evict a running pod. It counts from when the pod gets "
        "its node; a pod that is not running yet may be preempted. The project's rule also counts against other "
        "departments. A changed rule applies to workloads submitted, or stopped and resumed, after the change.",
        LAST,
    ),
)

ASSUMED: Final = "Assumption: default configuration, because it cannot be read on this cluster. "
READ: Final = "According to its configuration on this cluster. "
CONFIGURED: Final = (
    "priority_inside_project",
    "over_quota_and_reclaim",
    "department_limit",
    "gang",
    "topology",
    "min_runtime",
)
"""Guarantees that hang on the configuration."""


def guarantees_of(facts: Facts) -> tuple[Guarantee, ...]:
    """What Volcano keeps of Rung's guarantees where it is configured so; where nothing could be read, as shipped."""
    conf = conf_of(facts)
    source, lost = ASSUMED if conf is None else READ, dict(_lost(conf or SHIPPED))
    return tuple(_as_configured(each, source, lost) for each in GUARANTEES)


def _as_configured(guarantee: Guarantee, source: str, lost: dict[str, tuple[Enforced, str]]) -> Guarantee:
    """A guarantee that is kept as well as Volcano can needs no other configuration."""
    if guarantee.code in lost:
        enforced, why = lost[guarantee.code]
        return replace(guarantee, enforced=enforced, explanation=f"{source}{why}", remedy=guarantee.remedy or CONFIGURE)
    return replace(guarantee, remedy="") if guarantee.code in CONFIGURED else guarantee


def _lost(conf: VolcanoConfig) -> Iterator[tuple[str, tuple[Enforced, str]]]:
    """What a configuration keeps less of, by the code of the guarantee."""
    if found := _lost_order(conf):
        yield "priority_inside_project", found
    if missing := [why for why, so in _not_taken_back(conf).items() if so]:
        yield "over_quota_and_reclaim", ("no", " ".join(missing))
    if not conf.has_departments:
        why = "Only Rung checks the sums, when quotas are set and workloads are submitted."
        yield "department_limit", ("partly", why)
    if not conf.keeps_domains:
        why = (
            "Without the plugin network-topology-aware gangs are not kept in one domain, so requests for a domain "
            "are rejected."
        )
        yield "topology", ("no", why)
    if found := _lost_time(conf):
        yield "min_runtime", found
    if "gang" not in conf.plugins:
        yield "gang", ("no", "Without the plugin gang distributed jobs may start partially.")


def _lost_order(conf: VolcanoConfig) -> tuple[Enforced, str] | None:
    if "priority" not in conf.plugins:
        why = "Without the plugin priority higher priorities do not go first, and evictions ignore priority."
        return "no", why
    if Cause.PREEMPT in conf.opened:
        return "no", (
            "The plugin cdp is the only plugin of a tier for preemption, so victims are chosen by "
            "runtime instead of priority."
        )
    if "preempt" not in conf.actions:
        why = "Without the action preempt a higher priority only goes first. Nothing in the project is evicted."
        return "partly", why
    why = "The plugin gang limits preemption: a higher priority only evicts pods above a job's minimum."
    return ("partly", why) if conf.keeps_minimum else None


def _not_taken_back(conf: VolcanoConfig) -> dict[str, bool]:
    """Sentences about over-quota use, and whether they are true."""
    opened = Cause.RECLAIM in conf.opened
    return {
        "Without the action reclaim over-quota capacity is lent but never reclaimed.": "reclaim" not in conf.actions,
        "Without the plugin capacity deserved quotas are ignored.": not conf.has_deserved,
        "The plugin cdp is the only plugin of a tier for reclaim, so runtime instead of quota decides.": opened,
    }


def _lost_time(conf: VolcanoConfig) -> tuple[Enforced, str] | None:
    """Of minimum runtimes. Actions that evict nothing need no guarantee."""
    actions = " and ".join(conf.unspared)
    if CDP not in conf.plugins:
        why = "Without the plugin cdp preempt and reclaim evict workloads regardless of their runtime"
        return ("partly", f"{why}, {HELD_BY_RUNG}") if actions else ("no", f"{why}.")
    if not actions:
        return None
    return (
        "partly",
        f"At its position the plugin cdp does not protect the minimum runtime from the action {actions}, "
        f"{HELD_BY_RUNG}",
    )
