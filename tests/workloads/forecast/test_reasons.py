"""Every reason that a model, a flavour or a node can give has its words, and its numbers a sentence."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters import flavours
from clusters.flavours.pod_status import QUEUED
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.ports.flavour import PodStatusReason
from scheduling.model.reasons import Reason
from workloads.forecast.rules.reasons import CODES, sentence, short
from workloads.preemption.services import POD_DELETED, POD_FAILED
from workloads.state.rules import HELD, NEXT_POOL, NO_CONTROLLER, REFUSED_PODS

FOLDER = Path(flavours.__file__).parent
NAMES = {"project.5.h100": "project llm-team", "project.5": "project llm-team"}
OF_PODS = {"Unschedulable", "SchedulingGated", "SchedulerError"}  # conditions of a pod, by Kubernetes' API
OF_DISRUPTIONS = {
    "PreemptionByScheduler",
    "EvictionByEvictionAPI",
    "DeletionByTaintManager",
    "DeletionByPodGC",
    "TerminationByKubelet",
}
OF_NODES = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "OOMKilled",
    "Error",
    "Completed",
}
OF_JOBS = {"CompletionsReached", "BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedCreate"}


def strings(node: ast.expr, module: object) -> Iterator[str]:
    """The texts that an expression may be, as far as it says so itself."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) if isinstance(found := getattr(module, name, None), str):
            yield found
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            found = getattr(getattr(module, owner, None), name, None)
            yield from [found] if isinstance(found, str) else []
        case ast.IfExp(body=first, orelse=second):
            yield from (*strings(first, module), *strings(second, module))
        case ast.BoolOp(values=values) | ast.Call(args=values):
            for each in values:
                yield from strings(each, module)
        case ast.Subscript(value=table):
            found = getattr(module, table.id, {}) if isinstance(table, ast.Name) else {}
            yield from found.values() if isinstance(found, dict) else []


def emitted() -> Iterator[str]:
    """First arguments of every `PodStatusReason` of a flavour, and the codes of its tables."""
    for file in sorted(FOLDER.rglob("*.py")):
        name = ".".join((flavours.__name__, *file.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
        module = importlib.import_module(name)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "PodStatusReason" and node.args:
                yield from strings(node.args[0], module)
            if isinstance(node, ast.keyword) and node.arg == "reason":
                yield from strings(node.value, module)
        for table in (getattr(module, "PENDING", ()), getattr(module, "QUOTA_REASONS", {}).items()):
            if not isinstance(table, str):
                yield from (row[1] if isinstance(row[1], str) else row[0] for row in table)


def test_every_code_that_can_be_given_has_words() -> None:
    codes = {*map(str, Reason), *emitted(), *REFUSED_PODS, *OF_PODS, *OF_DISRUPTIONS, *OF_NODES, *OF_JOBS}
    codes |= {*HELD, NO_CONTROLLER, NEXT_POOL, POD_DELETED, POD_FAILED, "HandedOver", "BetweenRuns", "Moved"}
    assert {"WaitingForQuota", "PreemptionPending", "Misconfigured", "NoMatchingFlavor", "OverPriorityCap"} <= codes
    assert codes - set(CODES) == set()
    assert all(words.short and words.short != code for code, words in CODES.items())


@pytest.mark.parametrize(
    ("flavour", "said", "words"),
    [
        pytest.param(
            "kai",
            "OverLimit: project.5.h100 quota has reached the allowable limit of GPUs. Limit is 12 GPUs, currently "
            "8 GPUs allocated and workload requested 8 GPUs.",
            "Needs 8 GPUs in h100; project llm-team uses 8 of its limit of 12 GPUs",
            id="KAI's limit",
        ),
        pytest.param(
            "kai",
            "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 8 GPUs, but "
            "project.5.h100 quota is 6 GPUs, while 4 GPUs are already allocated for non-preemptible pods.",
            "Needs 8 GPUs in h100; project llm-team deserves 6 GPUs, its non-preemptible workloads use 4, and "
            "non-preemptible workloads cannot go over quota",
            id="KAI's deserved quota",
        ),
        pytest.param(
            "kai",
            "Pod runai-a/train-0 was pipelined to node h100-06",
            "It waits for evicted pods to stop",
            id="KAI's victims",
        ),
        pytest.param(
            "kueue",
            "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, "
            "2 more needed",
            "Waits for quota: 2 GPUs more in h100",
            id="Kueue's unused quota",
        ),
        pytest.param(
            "kueue",
            "couldn't assign flavors to pod set main: insufficient unused quota. Pending the preemption of 1 "
            "workload(s)",
            "Is admitted when 1 evicted workload has stopped",
            id="Kueue's victims",
        ),
        pytest.param(
            "kueue",
            "ClusterQueue project.5.h100 is inactive",
            "Its queue is missing, stopped or inactive in the cluster: ClusterQueue project llm-team is inactive",
            id="Kueue's inactive queue",
        ),
        pytest.param(
            "kube",
            'pods "a-0" is forbidden: exceeded quota: rung-limit, requested: requests.nvidia.com/gpu=8, '
            "used: requests.nvidia.com/gpu=6, limited: requests.nvidia.com/gpu=12",
            "Needs 8 GPUs; 6 GPUs of the project limit of 12 GPUs in all pools are in use",
            id="a ResourceQuota",
        ),
    ],
)
def test_what_a_scheduler_says_is_a_sentence_with_its_numbers(flavour: str, said: str, words: str) -> None:
    reason = "FailedCreate" if flavour == "kube" else QUEUED
    reading = flavour_for(flavour).interpret({}, [{"reason": reason, "message": said}])
    assert sentence(reading, pool="h100", names=NAMES) == words


def condition(message: str, **status: str) -> dict[str, object]:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"status": {"conditions": [said], **status}}


def test_nodes_are_counted_by_what_they_lack() -> None:
    text = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu. preemption: none."
    reading = flavour_for("kube").interpret(condition(text), [])
    words = "None of 3 nodes fits it: 1 is cordoned, 2 have too few free GPUs"
    assert sentence(reading, pool="h100", names={}) == words


def test_a_volume_claim_that_does_not_exist_is_named() -> None:
    text = '0/3 nodes are available: persistentvolumeclaim "corpus" not found. preemption: 0/3 nodes are available.'
    reading = flavour_for("kube").interpret(condition(text), [])
    assert sentence(reading, pool="h100", names={}) == "The volume claim corpus does not exist"


@pytest.mark.parametrize("flavour", ["kube", "kueue"])
def test_a_pod_with_a_nominated_node_waits_for_the_grace_of_its_victims(flavour: str) -> None:
    pod = condition("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", nominatedNodeName="node-0")
    reading = flavour_for(flavour).interpret(pod, [])
    assert reading.reason == Reason.EVICTING
    assert sentence(reading, pool="h100", names={}).endswith("waits for evicted pods to stop")


def test_a_foreign_queue_is_not_named_and_an_unknown_code_is_split_into_words() -> None:
    assert (
        sentence(PodStatusReason("NewCode", "department.9.h100 is full."), pool="h100", names=NAMES)
        == "another queue is full"
    )
    assert short("NewCode") == "new code"
    assert sentence(PodStatusReason("NewCode"), pool="h100", names=NAMES) == "New code"


def test_every_flavour_has_its_words() -> None:
    assert set(FLAVOURS) >= {"kube", "kai", "kueue", "volcano"}
