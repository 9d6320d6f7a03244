"""What an estimate depends on and does not know: a stable code, a sentence, and what to check. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class DoubtCode(StrEnum):
    """Stored and sent: a code never changes its meaning."""

    NO_SNAPSHOT = "no_snapshot"
    STALE_SNAPSHOT = "stale_snapshot"
    RIVALS_FIRST = "rivals_first"
    COUNTS_ON_EVICTIONS = "counts_on_evictions"
    MORE_EVICTIONS = "more_evictions"
    EVICTED_NEXT = "evicted_next"
    EVICTS_AND_MOVES = "evicts_and_moves"
    PODS_PAUSED = "pods_paused"
    OTHER_POOLS_TURN = "other_pools_turn"
    ADMITTED_PODS_WAIT = "admitted_pods_wait"
    SCHEDULER_CONFIGURATION = "scheduler_configuration"
    SCHEDULER_SHARED = "scheduler_shared"
    KIND_ASSUMED = "kind_assumed"
    VOLUME_CLAIM = "volume_claim"
    TOPOLOGY_SPREAD = "topology_spread"
    EPHEMERAL_STORAGE = "ephemeral_storage"
    GPU_RESOURCES_MIXED = "gpu_resources_mixed"
    PODS_NOT_COUNTED = "pods_not_counted"
    DISRUPTION_BUDGETS = "disruption_budgets"
    DISRUPTION_BUDGETS_UNKNOWN = "disruption_budgets_unknown"
    NODES_SAMPLED = "nodes_sampled"
    QUEUES_OF_OTHERS = "queues_of_others"
    ADMISSION_CHECKS = "admission_checks"
    OUT_OF_TIME = "out_of_time"


C = DoubtCode
_CHECKS: Final = {
    C.NO_SNAPSHOT: "The cluster's page: is it connected, and when was it last observed?",
    C.STALE_SNAPSHOT: "The cluster's page: is it connected, and when was it last observed?",
    C.RIVALS_FIRST: "The waiting workloads of this node pool.",
    C.COUNTS_ON_EVICTIONS: "The workloads ahead of it in the queue.",
    C.MORE_EVICTIONS: "The deserved quota and the use of the project while the evicted pods stop.",
    C.EVICTED_NEXT: "The priorities of the workloads that wait.",
    C.EVICTS_AND_MOVES: "Submit it, and see whether it starts.",
    C.PODS_PAUSED: "The pages of these workloads: when does their controller retry?",
    C.OTHER_POOLS_TURN: "The pages of these workloads: which node pool is next?",
    C.ADMITTED_PODS_WAIT: "The admitted workloads whose pods have no node.",
    C.SCHEDULER_CONFIGURATION: "The cluster's page, Scheduler support.",
    C.SCHEDULER_SHARED: "The cluster's page, Scheduler support.",
    C.KIND_ASSUMED: "The cluster's page, Scheduler support.",
    C.VOLUME_CLAIM: "kubectl -n {namespace} get pvc {names}",
    C.TOPOLOGY_SPREAD: "The nodes with the label {key}, and how many pods each has free capacity for.",
    C.EPHEMERAL_STORAGE: "The ephemeral storage that pods on {node} request.",
    C.GPU_RESOURCES_MIXED: "The free devices per resource name: kubectl describe node {node}",
    C.PODS_NOT_COUNTED: "The GPUs in use on the nodes of {pool}.",
    C.DISRUPTION_BUDGETS: "kubectl get poddisruptionbudgets --all-namespaces",
    C.DISRUPTION_BUDGETS_UNKNOWN: "kubectl get poddisruptionbudgets --all-namespaces",
    C.NODES_SAMPLED: "The flag percentageOfNodesToScore of the kube-scheduler.",
    C.QUEUES_OF_OTHERS: "kubectl get clusterqueues,cohorts",
    C.ADMISSION_CHECKS: "kubectl describe clusterqueue {queue}",
    C.OUT_OF_TIME: "The waiting workloads of this cluster.",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an estimate may be wrong: `sentence` says what is not known, `check` what to look at."""

    code: DoubtCode
    sentence: str
    check: str


def doubt(code: DoubtCode, sentence: str, **values: str) -> Doubt:
    """With what to check for its code. KeyError: the check names a value that is missing."""
    return Doubt(code, sentence, _CHECKS[code].format(**values))
