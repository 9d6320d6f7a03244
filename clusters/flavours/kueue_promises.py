"""What Kueue keeps of Rung's promises, and what one workload should be told of it. Pure.

Source: Kueue 0.19, as its controller was seen to decide.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from clusters.flavours.kueue_conf import outside
from clusters.ports import Facts, Promise
from clusters.promises import RUNG_HOLDS
from scheduling.priority import Preemptibility

EVICTABLE: Final = (
    "Kueue cannot protect it: a higher priority in the same project may evict it, and while the project borrows, any "
    "of its workloads may be reclaimed."
)


def cautions(*, preemptibility: str) -> Sequence[str]:
    """That non-preemptible work may be evicted."""
    return (EVICTABLE,) if preemptibility == Preemptibility.NON_PREEMPTIBLE else ()


NOT_ALL: Final = (
    "Kinds whose integration is off in Kueue's configuration run outside every quota; Rung refuses them: {kinds}."
)
NOT_KNOWN: Final = (
    "Kueue's configuration is not known: kinds whose integration is off there run outside every quota, unnoticed."
)
READ: Final = "Switch the integrations on, or let Rung's account read the configuration."
QUOTAS: Final = ("over_quota_and_reclaim", "department_limit", "quota_per_node_pool")
"""Promises that hold only for what Kueue manages."""


def promises_of(facts: Facts) -> tuple[Promise, ...]:
    """What Kueue keeps of Rung's promises where it is configured so."""
    off = outside(facts)
    if facts and not off:
        return PROMISES
    said = NOT_ALL.format(kinds=", ".join(off)) if facts else NOT_KNOWN
    return tuple(_partly(each, said) if each.code in QUOTAS else each for each in PROMISES)


def _partly(promise: Promise, said: str) -> Promise:
    remedy = " ".join(filter(None, (promise.remedy, READ)))
    return replace(promise, enforced="partly", explanation=f"{promise.explanation} {said}", remedy=remedy)


PROMISES: Final = (
    Promise(
        "priority_inside_project",
        "Priority acts only inside the project",
        "partly",
        "In its own queue a job evicts lower priorities. In other queues it reclaims what they have borrowed, whatever "
        "their priority. A job that asks for more than its project deserves evicts nobody, not even in its own queue. "
        "Pods that were admitted and find no node wait for one by priority, on the whole cluster, and evict nobody.",
        "Keep the sum of deserved quotas within the nodes of each pool, so that what is admitted finds room.",
    ),
    Promise(
        "foreign_pods_stay",
        "Pods that are none of Rung's are left alone",
        "yes",
        "Kueue evicts only workloads of its own queues, and Rung's PriorityClasses carry the policy Never there, so "
        "the kube-scheduler evicts nobody for their pods. What was admitted waits where foreign pods take its room.",
        "Give foreign pods nodes of their own, outside the pools.",
    ),
    Promise(
        "never_evicts_nobody",
        "An entry with the policy Never evicts nobody",
        "no",
        "Kueue's priority classes have no policy: such a job preempts like any other.",
        "Keep what should evict nobody on a low priority, or in a project of its own.",
    ),
    Promise(
        "non_preemptible_stays",
        "Non-preemptible work is never evicted",
        "no",
        "Kueue knows no preemptibility: a higher priority in the same queue evicts it, and while its project borrows, "
        "any of its workloads may be reclaimed.",
        "Give work that must stay the highest priority of its project, or choose KAI.",
    ),
    Promise(
        "non_preemptible_in_deserved",
        "Non-preemptible work stays inside the deserved quota",
        "partly",
        "Rung refuses a workload that alone exceeds it; beside others Kueue counts all work of a queue alike.",
        "Choose KAI where the cluster itself has to refuse it.",
    ),
    Promise(
        "over_quota_and_reclaim",
        "Over-quota use is lent out and reclaimed",
        "partly",
        "What others deserve and do not use is borrowed, up to the limit, and reclaimed from borrowers of any "
        "priority. The quotas are all there is to lend: nodes that no department deserves are never used.",
        "Let the departments deserve all of a pool between them.",
    ),
    Promise(
        "department_limit",
        "A department's limit caps its projects",
        "yes",
        "The Cohort's borrowing limit ends at the department's limit, for all its projects together.",
    ),
    Promise(
        "rank",
        "Rank orders projects for the surplus",
        "no",
        "Kueue has no rank of queues; with its fair sharing switched on, the over-quota weight counts.",
        "Choose KAI where rank matters.",
    ),
    Promise(
        "gang",
        "A distributed job starts whole or not at all",
        "partly",
        "A job is admitted with all its pods or waits with all of them. Whether its nodes have room is the "
        "kube-scheduler's affair, pod by pod, and kinds that Kueue does not know are queued pod by pod.",
        "Keep the sum of deserved quotas within the nodes of each pool, or give the pool topology levels: "
        "Kueue then admits only what finds its places on nodes.",
    ),
    Promise(
        "topology",
        "A gang keeps to one domain of close nodes",
        "yes",
        "The pool's levels become a Topology of Kueue's. A gang that names a level is admitted only where one "
        "domain has places for all its pods; with levels every other job of the pool is given places on nodes as "
        "well. Nodes without all labels of the levels take no jobs at all. Kueue brings two roles together at "
        "most, one of them of a single pod: others are refused.",
    ),
    Promise(
        "quota_per_node_pool",
        "Quotas hold per node pool",
        "yes",
        "Each pool is a flavor of the project's queue, with an amount of its own. Kinds that Kueue does not manage, as "
        "its configuration says, are refused.",
    ),
    Promise(
        "min_runtime",
        "Young work is left alone for its min guaranteed runtime",
        "partly",
        f"Kueue evicts lower priorities and borrowers however short they have run, {RUNG_HOLDS}",
        "Keep work that needs its time within the deserved quota and on a high priority, or choose KAI.",
    ),
)
