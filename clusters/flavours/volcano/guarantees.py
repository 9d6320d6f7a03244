"""What Volcano keeps of Rung's promises. Pure.

Source: Volcano 1.15 with the actions allocate, preempt, reclaim, backfill and the plugin capacity in place of
proportion; its decisions were seen on fake nodes. As shipped it neither preempts nor reclaims: the connection test
says so.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from clusters.flavours.volcano.config import CDP, SHIPPED, VolcanoConfig, conf_of
from clusters.ports.flavour import HELD_BY_RUNG, Enforced, Facts, Guarantee
from scheduling.model.decisions import Cause

CONFIGURE: Final = (
    'Give its scheduler the actions "allocate, preempt, reclaim, backfill" and the plugin capacity in place of '
    "proportion."
)

LAST: Final = (
    "Name the plugin cdp last in the tier with gang and, with enablePreemptable: false, last in the tier with capacity."
)
DOMAINS: Final = "Give its scheduler the plugin network-topology-aware."
TOPOLOGY_DRAWBACK: Final = (
    "It asks for one topology domain: Volcano preempts nobody for such a gang, whatever its priority. It reclaims "
    "for it without a look at domains: more may be evicted than it needs, or others for nothing."
)

GUARANTEES: Final = (
    Guarantee(
        "priority_inside_project",
        "Priority acts only inside the project",
        "yes",
        "The action preempt stays inside one queue; without it in the scheduler's configuration a higher priority only "
        "goes first. Between queues deserved quotas count: priority plays no part in reclaim.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods that are none of Rung's are left alone",
        "partly",
        "Pods of other schedulers are room that is taken. What others hand to Volcano in queues of their own, the "
        "default queue included, is reclaimed like any other work above its deserved quota.",
        "Give queues that are not Rung's a deserved quota, or set them to reclaimable: false.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "An entry with the policy Never evicts nobody",
        "yes",
        "Preempt and reclaim both pass over a pod whose preemptionPolicy is Never.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible work is never evicted",
        "yes",
        "Pods with the annotation volcano.sh/preemptable: false are victims of neither preempt nor reclaim. Node "
        "failures and drains still end them.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible work stays inside the deserved quota",
        "partly",
        "Rung refuses a workload that alone exceeds it. Volcano itself lets non-preemptible work use what is free up "
        "to the limit.",
        "Submit through Rung: work that reaches the cluster another way is not checked.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota use is lent out and reclaimed",
        "partly",
        "With the capacity plugin and the action reclaim a queue gets its deserved quota back from queues above "
        "theirs; as shipped Volcano has neither. A queue may fall below its deserved quota when one of its pods is "
        "larger than what it had too much, and one that deserves CPU or memory too may take GPUs beyond its own as "
        "long as it is within those. The over-quota weight counts for the proportion plugin only.",
        CONFIGURE,
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "partly",
        "The parent queue's capability is checked only where the capacity plugin has enableHierarchy: true. Reclaim "
        "does not look at it: somebody may be evicted for work that then still waits at its department's limit. Rung "
        "checks the sums when quotas are set and work is submitted.",
        "Set enableHierarchy: true at the capacity plugin.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for the surplus",
        "yes",
        "The queue's priority: a higher rank is served first, with guaranteed quota as well as surplus, and reclaimed "
        "from last.",
    ),
    Guarantee(
        "gang",
        "A distributed job starts whole or not at all",
        "yes",
        "A PodGroup starts with its minimum members or waits as a whole. A running gang is not protected: preempt and "
        "reclaim take single pods out of it. Kinds without pod templates of their own start one by one.",
    ),
    Guarantee(
        "topology",
        "A gang keeps to one domain of close nodes",
        "yes",
        "Rung writes a HyperNode for every domain of a pool's levels and names the tier that the gang may not leave: "
        "it runs in one domain, pods that come later too, or waits. The scheduler needs the plugin "
        "network-topology-aware for it, which is not in the shipped configuration; where it is known to lack it, "
        "asking for a domain is refused. Such a gang preempts nobody, whatever its priority. It does reclaim, without "
        "a look at domains and again until one has room: more may be evicted than it needs, or others for a gang that "
        "then still waits. Nodes without all labels of the levels take none of such gangs, and HyperNodes of others "
        "count by their tier beside Rung's: give them tiers from 10 on. A node that joins or moves counts once Rung "
        "has seen it; a gang that waits while levels of its pool change keeps the tier that it was given.",
        DOMAINS,
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas hold per node pool",
        "yes",
        "Each pool has its own queues, and pods carry the pool's node selector.",
    ),
    Guarantee(
        "min_runtime",
        "Young work is left alone for its min guaranteed runtime",
        "partly",
        "Pods carry the time for the plugin cdp, which is not in the shipped configuration: before it is over neither "
        "preempt nor reclaim takes one that runs. It counts from when the pod got its node; one that does not run yet "
        "may be preempted. There is one time for whoever wants the room: a project's own counts against other "
        "departments, too. Pods keep the time they were made with: a changed rule reaches what is submitted, or "
        "stopped and resumed, after it.",
        LAST,
    ),
)

ASSUMED: Final = "Assumed, since its configuration could not be read on this cluster: it is as shipped. "
READ: Final = "As its configuration on this cluster says. "
CONFIGURED: Final = (
    "priority_inside_project",
    "over_quota_and_reclaim",
    "department_limit",
    "gang",
    "topology",
    "min_runtime",
)
"""Promises that hang on the configuration."""


def guarantees_of(facts: Facts) -> tuple[Guarantee, ...]:
    """What Volcano keeps of Rung's promises where it is configured so; where nothing could be read, as shipped."""
    conf = conf_of(facts)
    source, lost = ASSUMED if conf is None else READ, dict(_lost(conf or SHIPPED))
    return tuple(_as_configured(each, source, lost) for each in GUARANTEES)


def _as_configured(promise: Guarantee, source: str, lost: dict[str, tuple[Enforced, str]]) -> Guarantee:
    """A promise that is kept as well as Volcano can needs no other configuration."""
    if promise.code in lost:
        enforced, why = lost[promise.code]
        return replace(promise, enforced=enforced, explanation=f"{source}{why}", remedy=promise.remedy or CONFIGURE)
    return replace(promise, remedy="") if promise.code in CONFIGURED else promise


def _lost(conf: VolcanoConfig) -> Iterator[tuple[str, tuple[Enforced, str]]]:
    """What a configuration keeps less of, by the code of the promise."""
    if found := _lost_order(conf):
        yield "priority_inside_project", found
    if missing := [why for why, so in _not_taken_back(conf).items() if so]:
        yield "over_quota_and_reclaim", ("no", " ".join(missing))
    if not conf.has_departments:
        why = "Only Rung checks the sums, when quotas are set and work is submitted: the scheduler does not."
        yield "department_limit", ("partly", why)
    if not conf.keeps_domains:
        why = (
            "Without the plugin network-topology-aware no gang is kept in one domain; where Rung has read so, asking "
            "for one is refused."
        )
        yield "topology", ("no", why)
    if found := _lost_time(conf):
        yield "min_runtime", found
    if "gang" not in conf.plugins:
        yield "gang", ("no", "Without the plugin gang a distributed job may start in parts.")


def _lost_order(conf: VolcanoConfig) -> tuple[Enforced, str] | None:
    if "priority" not in conf.plugins:
        why = "Without the plugin priority a higher priority neither goes first nor is it needed to evict anybody."
        return "no", why
    if Cause.PREEMPT in conf.opened:
        return "no", "The plugin cdp alone says in one tier who is preempted: what no priority allows, age does."
    if "preempt" not in conf.actions:
        why = "Without the action preempt a higher priority only goes first: nobody inside the project is evicted."
        return "partly", why
    why = "The plugin gang is asked about preemption: a higher priority takes only pods above a job's minimum."
    return ("partly", why) if conf.keeps_minimum else None


def _not_taken_back(conf: VolcanoConfig) -> dict[str, bool]:
    """Sentences about over-quota use, and whether they are true."""
    opened = Cause.RECLAIM in conf.opened
    return {
        "Without the action reclaim over-quota use is lent out and never taken back.": "reclaim" not in conf.actions,
        "Without the plugin capacity deserved quotas count for nothing.": not conf.has_deserved,
        "The plugin cdp alone says in one tier who is reclaimed: what no quota allows, age does.": opened,
    }


def _lost_time(conf: VolcanoConfig) -> tuple[Enforced, str] | None:
    """Of being left alone while young. What evicts nobody is not held back either."""
    actions = " and ".join(conf.unspared)
    if CDP not in conf.plugins:
        why = "Without the plugin cdp preempt and reclaim take work however short it has run"
        return ("partly", f"{why}, {HELD_BY_RUNG}") if actions else ("no", f"{why}.")
    if not actions:
        return None
    return (
        "partly",
        f"Where it stands the plugin cdp does not keep young work from the action {actions}, {HELD_BY_RUNG}",
    )
