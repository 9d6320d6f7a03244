"""Refusals of the model in people's words, with their numbers; doubts with codes and what to check. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from portal.kit.pages.formatting import gpus_text
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import DIMENSIONS, MILLI, Limit, Resources, decimal_text
from scheduling.state.shortage import PODS

GIB: Final = 2**30
LEAST_IN_HOURS: Final = 360  # GPU-seconds: a tenth of a GPU-hour
MIB: Final = 2**20


def amount_text(amount: Resources, names: Collection[str] = (), *, up: bool = False) -> str:
    """Of these dimensions: "8 GPUs", "1 GPU and 64 CPUs". None named: the GPUs, or everything where there are none.

    Memory is rounded down, which is what can be had, or up, which is what has to be there.
    """
    names = names or (("gpu",) if amount.gpu else amount.dimensions or ("gpu",))
    return " and ".join(part_text(name, getattr(amount, name), up=up) for name in DIMENSIONS if name in names)


def part_text(name: str, amount: int, *, up: bool = False) -> str:
    """One dimension with its unit: "8 GPUs", "0.5 CPUs", "512 GiB"."""
    match name:
        case "gpu":
            return gpus_text(amount)
        case "cpu":
            return f"{decimal_text(amount)} {'CPU' if amount == MILLI else 'CPUs'}"
        case _:
            return memory_text(amount, up=up)


def memory_text(amount: int, *, up: bool = False) -> str:
    """In GiB, below one in MiB; to a tenth, rounded down or up."""
    unit, size = ("GiB", GIB) if amount >= GIB or not amount else ("MiB", MIB)
    tenths = -(-amount * 10 // size) if up else amount * 10 // size
    return f"{decimal_text(tenths, 10)} {unit}"


def gpu_time_text(gpu_seconds: float) -> str:
    """ "1.6 GPU-hours"; below a tenth of one in minutes, "1.6 GPU-minutes"."""
    if gpu_seconds >= LEAST_IN_HOURS:
        return f"{gpu_seconds / 3600:.1f} GPU-hours"
    minutes = round(gpu_seconds / 60, 1)
    return f"{minutes:g} GPU-minute{'' if minutes == 1 else 's'}"


def pend_sentence(pend: PendingReason, *, pool: str, labels: Mapping[str, str]) -> str:
    """Why it waits, as the rest of a sentence that begins with "it": what is short, how much of it there is.

    With what would keep it waiting even with enough quota, as far as that is known.
    """
    sentence = "; ".join(filter(None, _needs_and_why(pend, pool, labels)))
    if pend.then is None:
        return sentence
    lifted = "without that limit" if pend.reason is Reason.OVER_LIMIT and not pend.second else "with enough quota"
    needs, why = _needs_and_why(pend.then, pool, labels)
    return f"{sentence}. Even {lifted} it {f'waits: {why}' if why else needs}"


def _needs_and_why(pend: PendingReason, pool: str, labels: Mapping[str, str]) -> tuple[str, str]:
    """What it needs where, and what prevents that; the second is empty where the first says all."""
    short, who = _SHORT.get(pend.reason), labels.get(pend.queue or "", pend.queue or "its queue")
    if short:
        return short.format(pool=pool), ""
    if pend.reason not in _OF_QUEUES:
        return _by_nodes(pend, pool, labels)
    return f"needs {needed_text(pend)} in {pool}", _OF_QUEUES[pend.reason](pend, who, labels)


def _limit(pend: PendingReason, who: str, labels: Mapping[str, str]) -> str:
    used, second = amount_text(pend.used, _named(pend), up=True), pend.second
    more = f"; {_deserved(second, labels.get(second.queue or '', 'its queue'), labels)}" if second else ""
    return f"{who} uses {used} of its limit of {allowed_text(pend)}{more}"


def _most(pend: PendingReason, who: str, _labels: Mapping[str, str]) -> str:
    return f"{who} can use at most {allowed_text(pend)} there, including borrowed quota"


def _unused(pend: PendingReason, who: str, _labels: Mapping[str, str]) -> str:
    unused = amount_text(pend.needed - pend.missing, _named(pend))
    return f"{who} has {unused} of quota free, and {_spared(pend)}"


def _deserved(pend: PendingReason, who: str, _labels: Mapping[str, str]) -> str:
    left, allowed, verb = _left(pend)
    return (
        f"{left} of the {allowed} that {who} deserves {verb} free, and non-preemptible workloads cannot go over quota"
    )


_OF_QUEUES: Final[Mapping[Reason, Callable[[PendingReason, str, Mapping[str, str]], str]]] = {
    Reason.NON_PREEMPTIBLE_OVER_QUOTA: _deserved,
    Reason.OVER_LIMIT: _limit,
    Reason.EXCEEDS_MAX_QUOTA: _most,
    Reason.WAITING_FOR_QUOTA: _unused,
}


def _by_nodes(pend: PendingReason, pool: str, labels: Mapping[str, str]) -> tuple[str, str]:
    needs = f"needs {needed_text(pend)} in {pool}"
    if pend.topology is not None:
        return f"{needs} on nodes with the same {pend.topology}", _in_domains(pend, labels)
    if pend.reason is Reason.NEVER_FITS:
        return _never(pend, needed_text(pend), pool), ""
    if not pend.short:
        return f"{needs}, where no node that it may use is ready", ""
    return needs, f"{_free(pend)}, and {_unhelped(pend, labels)}"


def _unhelped(pend: PendingReason, labels: Mapping[str, str]) -> str:
    """Why nothing is evicted for it."""
    if not pend.behind:
        return _BECAUSE.get(pend.reason, _NO_EVICTIONS)
    first, more = labels.get(pend.behind[0], "another workload"), len(pend.behind) - 1
    who = f"{first} and {more} more in its queue, which wait too" if more else f"{first} in its queue, which waits too"
    return f"it is behind {who}. First in its queue, it would start after evictions"


_NO_EVICTIONS: Final = "the scheduler finds no evictions that would free enough for it"
"""True as well where nothing may be evicted for it: the model does not report which of both it is."""
_BECAUSE: Final = {Reason.PREEMPTION_NEVER: "its priority never evicts others"}

_SHORT: Final = {
    Reason.NO_SUCH_POOL: "waits for the node pool {pool}, which has no nodes",
    Reason.QUEUE_MISSING: "waits for its queue in {pool}, which does not exist in the cluster yet",
    Reason.GANG_INCOMPLETE: "waits for its other pods to be created",
    Reason.EVICTING: "has its place in {pool} and waits for evicted pods to stop",
}


def needed_text(pend: PendingReason) -> str:
    """What it asks for of what is short; where nothing is, its GPUs."""
    return amount_text(pend.needed, _named(pend), up=True)


def allowed_text(pend: PendingReason) -> str:
    """The bound, of what is short."""
    return amount_text(_amounts(pend.allowed), _named(pend) or ("gpu",))


def _named(pend: PendingReason) -> tuple[str, ...]:
    return tuple(name for name in pend.short if name != PODS)


def _amounts(bound: Limit) -> Resources:
    return Resources(bound.gpu or 0, bound.cpu or 0, bound.memory or 0)


def _left(pend: PendingReason) -> tuple[str, str, str]:
    """What is left of the bound, the bound, and the verb; the unit is said once where there is one."""
    names = _named(pend) or ("gpu",)
    left = (_amounts(pend.allowed) - pend.used).only(names).floor()
    if len(names) > 1 or names == ("memory",):
        return amount_text(left, names), allowed_text(pend), "are"
    count = decimal_text(getattr(left, names[0]))
    return count, allowed_text(pend), "is" if count == "1" else "are"


def _spared(pend: PendingReason) -> str:
    """Why no workload is evicted for it."""
    if Reason.LARGER_THAN_DESERVED in pend.also:
        return f"requests above the {allowed_text(pend)} that it deserves never evict others"
    return _NO_EVICTIONS


def _free(pend: PendingReason) -> str:
    """How much of what is short is free, in all and on one node."""
    names = _named(pend)
    if not names:
        return "the nodes with enough free GPUs are at their pod limit"
    free = f"{amount_text(pend.free, names)} free, at most {_on_one(pend)} on {_node(pend)}"
    return f"{free}; other nodes are at their pod limit" if PODS in pend.short else free


def _on_one(pend: PendingReason) -> str:
    """The unit of one dimension was said already, but that of memory may be another one."""
    names = _named(pend)
    if len(names) > 1 or names == ("memory",):
        return amount_text(pend.largest_free, names)
    return decimal_text(getattr(pend.largest_free, names[0]))


def _node(pend: PendingReason) -> str:
    return "a node that fits its other requests" if pend.beside else "one node"


def _in_domains(pend: PendingReason, labels: Mapping[str, str]) -> str:
    """What is free, and how much of it close together."""
    if not pend.domain:
        return "no ready node has this label"
    names = _named(pend)
    never = "no domain is large enough even when empty"
    stays = _unhelped(pend, labels) if pend.behind else "nothing is evicted for it"
    because = never if pend.never_fits else stays
    free, held = (amount_text(each, names) for each in (pend.free, pend.largest_domain))
    return f"{free} free, at most {held} in one domain ({pend.domain}), and {because}"


def _never(pend: PendingReason, needed: str, pool: str) -> str:
    names = _named(pend)
    if not names:
        what = (
            "more pods than its nodes allow"
            if pend.short
            else ("a node with labels and taints that do not exist there")
        )
        return f"needs {needed} in {pool}, and {what}"
    node = _node(pend) if pend.beside else "its largest node"
    free = amount_text(pend.free, names)
    too_much = not pend.needed.only(names).fits_in(pend.free.only(names))
    why = f"more than {pool} has" if too_much else f"which {pool} cannot place even if nothing else runs there"
    return f"needs {needed}, {why}: {free} in total, {_on_one(pend)} on {node}"


class DoubtCode(StrEnum):
    """What an estimate depends on and does not know. Stored and sent: a code never changes its meaning."""

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
    TIED_VICTIMS = "tied_victims"
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
    C.TIED_VICTIMS: "The priorities and start times of these workloads.",
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
