"""Why a workload waits, said once in people's words: every code of the model and the flavours, and their numbers. Pure.

Lists have the short form, everything else the sentence: page, Home, timeline, REST, CLI and mails. Queues are named by
whose they are; what a scheduler wrote itself stays in its events and its pods.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clusters.flavours.pod_status import VOLUME_CLAIM
from clusters.ports.flavour import PodStatusReason

SCHEDULER_MESSAGE: Final = "said"
"""The key of a reading's numbers under which the scheduler's own words are kept."""
RAW: Final = " Message: "  # a flavour's own words before it, the scheduler's behind
_QUEUE: Final = re.compile(r"\b(?:project|department)\.\d+(?:\.[a-z0-9-]+)?")
_PAIR: Final = re.compile(r"(?:requests\.|limits\.)?(?P<resource>[\w./-]+)=(?P<amount>[^,\s]+)")
_CODE: Final = re.compile(r"^[A-Z][A-Za-z]{5,40}: ")
_LACKS: Final = re.compile(r"Insufficient (?P<resource>\S+)")
_GPUS: Final = re.compile(r"gpu", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ReasonText:
    """A code in a list, and as a sentence without its end; none where the message is a sentence of Rung's.

    `whole`: the sentence says all, the message adds nothing.
    """

    short: str
    sentence: str = ""
    whole: bool = False


CODES: Final[Mapping[str, ReasonText]] = {
    # of the model and of several schedulers
    "OverLimit": ReasonText("over the limit", "Its queue is at its limit"),
    "NonPreemptibleOverQuota": ReasonText(
        "non-preemptible, over the deserved quota",
        "Its project's deserved quota is in use, and non-preemptible workloads cannot go over quota",
    ),
    "NoRoom": ReasonText("no room", "Not enough free resources"),
    "NeverFits": ReasonText("fits on no node", "It requests more than any node has"),
    "NoSuchPool": ReasonText("no such node pool", "Its node pool has no nodes", whole=True),
    "QueueMissing": ReasonText(
        "its queue is not synced yet", "Its queue does not exist in the cluster yet", whole=True
    ),
    "PreemptionNever": ReasonText(
        "its priority never evicts others", "There is no room, and its priority never evicts others"
    ),
    "NoDomain": ReasonText("no single topology domain fits it", "No single topology domain fits all of its pods"),
    "GangIncomplete": ReasonText("waits for its other pods", "It waits for its other pods", whole=True),
    "Evicting": ReasonText("waits for evicted pods to stop", "It waits for evicted pods to stop", whole=True),
    "WaitingForQuota": ReasonText("waits for quota", "Its queue has too little unused quota"),
    "ExceedsMaxQuota": ReasonText("larger than its queue's quota", "It requests more than its queue can ever have"),
    "LargerThanDeserved": ReasonText(
        "larger than its deserved quota", "It asks for more than its queue deserves, so nothing is evicted for it"
    ),
    # of KAI
    "PreemptionDelayNotElapsed": ReasonText(
        "in its preemption delay", "It may not evict others yet: its preemption delay is running", whole=True
    ),
    "BindingError": ReasonText("could not be bound to its node", "The scheduler could not bind it to its node"),
    # of Kueue
    "PreemptionPending": ReasonText(
        "waits for evicted pods to stop", "It is admitted when evicted pods have stopped", whole=True
    ),
    "Misconfigured": ReasonText("its queue is not working", "Its queue is missing, stopped or inactive in the cluster"),
    "NoMatchingFlavor": ReasonText("its nodes have no quota", "Its queue has no quota for the nodes that it may use"),
    "LeftOut": ReasonText(
        "left out of its queue",
        "Kueue withdrew its admission before the pod started and does not queue it again. A new pod is queued",
        whole=True,
    ),
    "Queued": ReasonText("queued", "The scheduler holds it in a queue"),
    "Admitted": ReasonText("let in", "The scheduler admitted it", whole=True),
    # of kube-scheduler, quotas and controllers
    "Unschedulable": ReasonText("no node fits it", "No node fits it"),
    "SchedulingGated": ReasonText("blocked by a scheduling gate", "A scheduling gate blocks its pods"),
    "SchedulerError": ReasonText("scheduler error", "The scheduler failed with an error"),
    "OverPriorityCap": ReasonText("over its priority's cap", "Its project's cap for this priority is in use"),
    "ExceededQuota": ReasonText("over a quota", "A quota of its namespace is reached"),
    "FailedCreate": ReasonText("its pods are rejected", "The controller could not create its pods"),
    "BetweenRuns": ReasonText("waiting for the next run"),
    # of evictions
    "Preempted": ReasonText("evicted"),
    "Reclaimed": ReasonText("evicted: share reclaimed"),
    "Moved": ReasonText("moved to another node"),
    "Consolidated": ReasonText("moved to another node", "It is moved to consolidate free GPUs", whole=True),
    "Evicted": ReasonText("evicted", "It was evicted"),
    "PreemptionByScheduler": ReasonText("evicted", "The scheduler evicted it"),
    "EvictionByEvictionAPI": ReasonText("evicted by an admin or a drain", "Its pod was evicted by an admin or a drain"),
    "DeletionByTaintManager": ReasonText("its node was tainted", "Its node got a taint that it does not tolerate"),
    "DeletionByPodGC": ReasonText("its node is gone", "Its node is gone"),
    "TerminationByKubelet": ReasonText("ended by its node", "Its node ended it"),
    # of Rung
    "HeldBack": ReasonText("deferred: it would evict a workload inside its minimum runtime"),
    "HeldForQuota": ReasonText("deferred: the deserved quota of its node pool is in use"),
    "NoController": ReasonText("no controller for its kind"),
    "HandedOver": ReasonText("queued in the cluster"),
    "NextPool": ReasonText("moved to its next node pool"),
    "PodFailed": ReasonText("a pod failed"),
    "PodDeleted": ReasonText("its pod was deleted"),
    # of kubelets
    "ErrImagePull": ReasonText("its image cannot be pulled", "Its image cannot be pulled"),
    "ImagePullBackOff": ReasonText("its image cannot be pulled", "Its image cannot be pulled; the node tries again"),
    "ErrImageNeverPull": ReasonText(
        "its image is not on the node", "Its image is not on the node, and pulling is disabled"
    ),
    "InvalidImageName": ReasonText("its image's name is invalid", "The name of its image is invalid"),
    "CrashLoopBackOff": ReasonText("its container keeps crashing", "Its container keeps crashing"),
    "CreateContainerConfigError": ReasonText(
        "invalid container configuration", "The node rejects its container configuration"
    ),
    "CreateContainerError": ReasonText("its container cannot be created", "Its container cannot be created"),
    "RunContainerError": ReasonText("its container cannot be started", "Its container cannot be started"),
    # of ends
    "CompletionsReached": ReasonText("completed", "All pods completed"),
    "BackoffLimitExceeded": ReasonText("failed: backoff limit reached", "It reached its backoff limit"),
    "DeadlineExceeded": ReasonText("exceeded its time limit", "It exceeded its time limit"),
    "PodFailurePolicy": ReasonText("failed by its failure policy", "Its pod failure policy ended it"),
    "OOMKilled": ReasonText("out of memory", "A container used more memory than its limit"),
    "Error": ReasonText("failed", "A container exited with an error"),
    "Completed": ReasonText("completed", "It completed"),
}


SHORT_OF_QUOTA: Final = frozenset(
    {
        "OverLimit",
        "NonPreemptibleOverQuota",
        "WaitingForQuota",
        "ExceedsMaxQuota",
        "LargerThanDeserved",
        "ExceededQuota",
        "HeldForQuota",
    }
)
"""Codes of which more quota is the remedy: where one is shown, a link to it is beside it."""
THEN: Final = "then"
"""The key of a reason's numbers under which a code says why it would wait even with enough quota."""
DEPARTMENT: Final = "department "
"""How the label of a department's queue begins."""


def short_of_quota(code: str, numbers: Mapping[str, str]) -> bool:
    """Would more quota help? Not where the model says what it would wait for then."""
    return code in SHORT_OF_QUOTA and THEN not in numbers


def short_of_department_quota(code: str, numbers: Mapping[str, str]) -> bool:
    """Is it a department's quota? More quota of the project, which is all that can be requested, does not help then."""
    return short_of_quota(code, numbers) and numbers.get("queue", "").startswith(DEPARTMENT)


def short(code: str) -> str:
    """A code as a list says it; one that nothing here knows is split into its words."""
    return CODES[code].short if code in CODES else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", code).lower()


def sentence(reading: PodStatusReason, *, pool: str, names: Mapping[str, str]) -> str:
    """The reading as one sentence without its end; `names`: whose queues are, by their names on the cluster."""
    for code, key, say in _WITH_NUMBERS:
        if code in {"", reading.reason} and key in reading.numbers:
            return say(reading.numbers, pool, names)
    message = _plain(named(reading.message, names).partition(RAW)[0])
    words = CODES.get(reading.reason, ReasonText(short(reading.reason)))
    if message and not words.whole:
        return f"{words.sentence}: {message}" if words.sentence else message
    return words.sentence or words.short.capitalize()


def named(text: str, names: Mapping[str, str]) -> str:
    """A scheduler's text with people's names in the place of the queues'."""
    return _QUEUE.sub(lambda match: names.get(match[0], "another queue"), text)


def _plain(text: str) -> str:
    """Its lines as one, without the code that KAI writes before each of them."""
    lines = (_CODE.sub("", line.strip()).rstrip(".") for line in text.splitlines())
    return "; ".join(filter(None, lines))


Numbers = Mapping[str, str]
Names = Mapping[str, str]


def _kai_limit(numbers: Numbers, pool: str, names: Names) -> str:
    what, who = numbers["resource"], _who(numbers, names)
    return (
        f"Needs {_amount(numbers['requested'], what)} in {pool}; {who} uses {_bare(numbers['used'])} of its limit "
        f"of {_amount(numbers['limit'], what)}"
    )


def _kai_deserved(numbers: Numbers, pool: str, names: Names) -> str:
    what, who = numbers["resource"], _who(numbers, names)
    return (
        f"Needs {_amount(numbers['requested'], what)} in {pool}; {who} deserves "
        f"{_amount(numbers['deserved'], what)}, its non-preemptible workloads use {_bare(numbers['used'])}, and "
        "non-preemptible workloads cannot go over quota"
    )


def _kube_quota(what: str) -> Callable[[Numbers, str, Names], str]:
    def say(numbers: Numbers, _pool: str, _names: Names) -> str:
        requested, used, limited = (_pairs(numbers[key]) for key in ("requested", "used", "limited"))
        return f"Needs {requested}; {used} of {what.format(limited)} are in use"

    return say


def _kueue_quota(numbers: Numbers, _pool: str, _names: Names) -> str:
    return f"Waits for quota: {_amount(numbers['missing'], numbers['resource'])} more in {numbers['flavor']}"


def _kueue_capacity(numbers: Numbers, _pool: str, _names: Names) -> str:
    what = numbers["resource"]
    requested, most = _amount(numbers["requested"], what), _amount(numbers["limit"], what)
    return f"Needs {requested} in {numbers['flavor']}; its queue can use at most {most} there, including borrowed quota"


def _kueue_preemption(numbers: Numbers, _pool: str, _names: Names) -> str:
    count = numbers["workloads"]
    return f"Is admitted when {count} evicted {'workload has' if count == '1' else 'workloads have'} stopped"


def _kai_pods(numbers: Numbers, _pool: str, _names: Names) -> str:
    return f"Waits for {numbers['minimum']} of its pods; {numbers['existing']} exist now"


def _kai_domain(numbers: Numbers, pool: str, _names: Names) -> str:
    return f"No single {numbers['level']} in {pool} fits all of its pods"


def _kueue_domain(numbers: Numbers, pool: str, _names: Names) -> str:
    return f"No single topology domain of {pool} fits it: {numbers['fitting']} of {numbers['pods']} pods would fit"


def _nodes(numbers: Numbers, _pool: str, _names: Names) -> str:
    if VOLUME_CLAIM in numbers:
        return f"The volume claim {numbers[VOLUME_CLAIM]} does not exist"
    causes = {key: count for key, count in numbers.items() if key not in {"nodes", "fitting", SCHEDULER_MESSAGE}}
    listed = ", ".join(f"{count} {_cause(cause, single=count == '1')}" for cause, count in causes.items())
    return f"None of {numbers['nodes']} nodes fits it" + (f": {listed}" if listed else "")


_WITH_NUMBERS: Final[tuple[tuple[str, str, Callable[[Numbers, str, Names], str]], ...]] = (
    ("NonPreemptibleOverQuota", "deserved", _kai_deserved),
    ("OverLimit", "flavor", _kueue_capacity),
    ("OverLimit", "queue", _kai_limit),
    ("OverLimit", "limited", _kube_quota("the project limit of {} in all pools")),
    ("NonPreemptibleOverQuota", "limited", _kube_quota("the deserved quota of {} for non-preemptible workloads")),
    ("OverPriorityCap", "limited", _kube_quota("the project's cap of {} at this priority")),
    ("ExceededQuota", "limited", _kube_quota("the namespace quota of {}")),
    ("WaitingForQuota", "missing", _kueue_quota),
    ("PreemptionPending", "workloads", _kueue_preemption),
    ("GangIncomplete", "minimum", _kai_pods),
    ("NoDomain", "level", _kai_domain),
    ("NoDomain", "fitting", _kueue_domain),
    ("Unschedulable", "nodes", _nodes),
)
"""The code, a number that goes with it, and the sentence of both."""


def _who(numbers: Numbers, names: Names) -> str:
    """Only its own queue and the one above it say no to it."""
    return names.get(numbers["queue"].strip(), "its department")


def _amount(number: str, resource: str) -> str:
    """ "8 GPUs", "1 CPU", "512Gi memory"."""
    bare = _bare(number)
    if _GPUS.search(resource):
        return f"{bare} GPU" if bare == "1" else f"{bare} GPUs"
    if resource.lower().startswith(("cpu", "requests.cpu")):
        return f"{bare} CPU" if bare == "1" else f"{bare} CPUs"
    unit = " GB" if bare.replace(".", "").isdigit() and len(bare) < _BYTES else ""
    return f"{bare}{unit} of {resource.removeprefix('requests.')}"


_BYTES: Final = 9  # so many digits of a number without a unit are bytes


def _bare(number: str) -> str:
    """ "8" of "8.0"."""
    return re.sub(r"\.0+$", "", number)


def _pairs(text: str) -> str:
    """ "8 GPUs and 4 CPUs" of `requests.nvidia.com/gpu=8,requests.cpu=4`."""
    return " and ".join(_amount(each["amount"], each["resource"]) for each in _PAIR.finditer(text)) or text


def _cause(cause: str, *, single: bool) -> str:
    if lacks := _LACKS.match(cause):
        return f"{'has' if single else 'have'} too few free {_resource(lacks['resource'])}"
    for part, words in _NODE_CAUSES.items():
        if part in cause:
            return f"{'is' if single else 'are'} {words}"
    return cause


def _resource(name: str) -> str:
    if _GPUS.search(name):
        return "GPUs"
    return {"cpu": "CPUs"}.get(name, name)


_NODE_CAUSES: Final = {
    "node affinity/selector": "not allowed by its node selector",
    "untolerated taint": "tainted",
    "unschedulable": "cordoned",
}
