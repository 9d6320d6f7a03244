"""The model decides as real schedulers were seen to decide: same kind, same victims. See docs/model.md."""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome
from scheduling.model.preemptibility import Cause, EvictionExemptions
from scheduling.model.reasons import Reason
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode

TRUTHS = Path(__file__).parent / "truths"
QUEUES_BY_AGE = ("dep", "dep2", "qa", "qb", "qc")
LAST = 10**6

Line = dict[str, Any]


def lines(file: str) -> list[Line]:
    return [json.loads(line) for line in (TRUTHS / file).read_text().splitlines()]


def nodes(line: Line) -> tuple[SnapshotNode, ...]:
    return tuple(
        SnapshotNode(node["name"], "default", Resources.of(gpu=node["gpus"]), order=order)
        for order, node in enumerate(line["nodes"])
    )


def group(pod: Line, queue: str, *, preemptible: bool) -> PodGroup:
    return PodGroup(
        name=pod["name"],
        queue=queue,
        namespace=queue,
        priority=pod["priority"],
        preemptible=preemptible,
        pods=(Pod(pod["name"], Resources.of(gpu=pod["gpus"]), pod.get("node")),),
        started=pod.get("start"),
        created=pod.get("start", LAST),
        never_preempts=pod.get("never", False),
    )


def by_kube(line: Line) -> Outcome:
    groups = tuple(group(pod, pod["ns"], preemptible=True) for pod in line["pods"])
    candidate = group(line["candidate"], line["candidate"]["ns"], preemptible=True)
    return preview(Snapshot(nodes(line), (), groups), candidate, flavour="kube")


def by_kai(line: Line) -> Outcome:
    queues = tuple(
        Queue(
            queue["name"],
            queue["parent"],
            deserved=Limit.of(gpu=queue["quota"]),
            limit=Limit.of(gpu=queue["limit"]),
            weight=queue["weight"],
            rank=queue["priority"],
            created=QUEUES_BY_AGE.index(queue["name"]),
        )
        for queue in line["queues"]
    )
    groups = tuple(group(pod, pod["queue"], preemptible=pod["preemptible"]) for pod in line["pods"])
    candidate = group(line["candidate"], line["candidate"]["queue"], preemptible=line["candidate"]["preemptible"])
    exempt = EvictionExemptions(frozenset({Cause.CONSOLIDATE} if line["actions"] == "no-consolidation" else ()))
    return preview(Snapshot(nodes(line), queues, groups, exempt=exempt), candidate, flavour="kai")


def said(outcome: Outcome) -> tuple[str, list[str]]:
    return outcome.kind, sorted(pod for evict in outcome.victims for pod in evict.pods)


def seen(line: Line) -> tuple[str, list[str]]:
    return line["outcome"]["kind"], sorted(line["outcome"]["victims"])


def reasons(line: Line) -> set[str]:
    return {reason["reason"] for said in line["outcome"]["conditions"] for reason in said["reasons"]}


def of_kai(actions: str) -> list[Line]:
    return [line for line in lines("kai.jsonl") if line["actions"] == actions]


@pytest.mark.parametrize("line", [pytest.param(line, id=str(line["seed"])) for line in lines("kube.jsonl")])
def test_kube_scheduler(line: Line) -> None:
    assert said(by_kube(line)) == seen(line)


@pytest.mark.parametrize("line", [pytest.param(line, id=str(line["seed"])) for line in of_kai("no-consolidation")])
def test_kai_without_consolidation(line: Line) -> None:
    assert said(by_kai(line)) == seen(line)


@pytest.mark.parametrize("line", [pytest.param(line, id=str(line["seed"])) for line in of_kai("default")])
def test_kai_as_shipped(line: Line) -> None:
    assert said(by_kai(line)) == seen(line)


def test_kai_writes_the_same_reason_for_limits_and_quotas() -> None:
    words = {Reason.OVER_LIMIT, Reason.NON_PREEMPTIBLE_OVER_QUOTA}
    pending = [line for line in lines("kai.jsonl") if line["outcome"]["kind"] == "pending"]
    assert len(pending) > 30
    for line in pending:
        pend = by_kai(line).pend
        expected = reasons(line) & words
        if pend is not None:
            assert {pend.reason, *pend.also} & words == expected, line["seed"]


def test_kai_puts_the_candidate_on_the_same_node() -> None:
    found = [line for line in lines("kai.jsonl") if line["repeat"]["same_nodes"] and line["outcome"]["node"]]
    assert len(found) > 40
    for line in found:
        assert set(by_kai(line).placements.values()) == {line["outcome"]["node"]}, line["seed"]
