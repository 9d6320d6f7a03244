"""What the plain kube-scheduler keeps of Rung's promises, and what one workload should be told of it. Pure.

Source: kube-scheduler 1.36, its default preemption and the PriorityClass scope of resource quotas.
"""

from collections.abc import Sequence
from typing import Final

from clusters.ports import Promise
from clusters.promises import RUNG_HOLDS
from scheduling.priority import THRESHOLD, Preemptibility

EVICTABLE: Final = "kube-scheduler cannot protect it: any pod of a higher priority, in any namespace, may evict it."
COUNTED: Final = (
    "Preemptible with a priority of 100 or more: the cluster's deserved quota sees the class only, so this counts as "
    "deserved and may wait for it."
)
UNCOUNTED: Final = (
    "Non-preemptible with a priority below 100: the cluster's deserved quota sees the class only and does not count "
    "this. Rung holds it back while its pool's deserved quota is in use."
)


def cautions(*, value: int, preemptibility: str) -> Sequence[str]:
    """Where the two sides of 100 disagree, and that non-preemptible work may be evicted."""
    if preemptibility == Preemptibility.NON_PREEMPTIBLE:
        return (EVICTABLE,) if value >= THRESHOLD else (EVICTABLE, UNCOUNTED)
    return (COUNTED,) if value >= THRESHOLD else ()


PROMISES: Final = (
    Promise(
        "priority_inside_project",
        "Priority acts only inside the project",
        "no",
        "A higher priority evicts lower ones on the whole cluster, in any namespace. Which victims fall is decided by "
        "their numbers and start times alone, never by project, quota or GPU hours.",
        "Give entries that should evict nobody the preemption policy Never, or choose a flavour with queues.",
    ),
    Promise(
        "foreign_pods_stay",
        "Pods that are none of Rung's are left alone",
        "no",
        "A pod that names no PriorityClass has priority 0, so even very-low (25) evicts it, in any namespace.",
        "Give those pods a class, give Rung's lowest entries the policy Never, or a negative value.",
    ),
    Promise(
        "never_evicts_nobody",
        "An entry with the policy Never evicts nobody",
        "yes",
        "The kube-scheduler keeps preemptionPolicy: such a pod waits for room. It may still be evicted itself, since "
        "the policy says what a class does to others, not what is done to it.",
    ),
    Promise(
        "non_preemptible_stays",
        "Non-preemptible work is never evicted",
        "no",
        "The kube-scheduler knows no preemptibility: any lower priority may be evicted by a higher one.",
        "Give work that must stay the highest priority in use, or choose KAI.",
    ),
    Promise(
        "non_preemptible_in_deserved",
        "Non-preemptible work stays inside the deserved quota",
        "partly",
        "In the cluster a quota over the classes of 100 and more counts it, for all node pools together. Where that "
        "would let more start than a pool's deserved quota, or does not count the class, Rung holds the rest back; "
        "what others create there is not checked.",
        "Submit through Rung.",
    ),
    Promise(
        "over_quota_and_reclaim",
        "Over-quota use is lent out and reclaimed",
        "no",
        "A ResourceQuota is a hard cap: nothing is borrowed, nothing is reclaimed, and a smaller quota evicts nobody.",
        "Set the limit to what a project may use at most, or choose KAI.",
    ),
    Promise(
        "department_limit",
        "A department's limit caps its projects",
        "partly",
        "Kubernetes has no departments; Rung checks the sums when quotas are set and work is submitted.",
        "Set limits on the projects so that they add up.",
    ),
    Promise(
        "rank",
        "Rank orders projects for the surplus",
        "no",
        "The kube-scheduler has one order for all pods: priority, then age.",
        "Choose KAI where rank matters.",
    ),
    Promise(
        "gang",
        "A distributed job starts whole or not at all",
        "no",
        "Pods are placed one by one: a job may hold GPUs while the rest of it waits.",
        "Choose KAI for distributed jobs.",
    ),
    Promise(
        "topology",
        "A gang keeps to one domain of close nodes",
        "no",
        "The kube-scheduler places pods one by one and is told of no domain: asking for one is refused at submission.",
        "Choose KAI, Kueue or kube-scheduler with gangs.",
    ),
    Promise(
        "quota_per_node_pool",
        "Quotas hold per node pool",
        "no",
        "A ResourceQuota counts the namespace as a whole: the quotas of all pools are added up.",
        "Choose KAI where pools have quotas of their own.",
    ),
    Promise(
        "min_runtime",
        "Young work is left alone for its min guaranteed runtime",
        "partly",
        f"The kube-scheduler evicts a lower priority however short it has run, {RUNG_HOLDS}",
        "Give work that must not go at all a higher priority, or choose KAI.",
    ),
)
