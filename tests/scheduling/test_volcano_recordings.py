"""The model decides as Volcano was seen to decide: same kind, same victim groups, same nodes. See docs/model.md.

Pods of one group are equal to Volcano, and which of them goes is decided by their random ids: groups are compared.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode

FILE: Final = Path(__file__).parent / "truths" / "volcano.jsonl"
LAST: Final = 10**6

Line = dict[str, Any]

LINES: Final[list[Line]] = [json.loads(line) for line in FILE.read_text().splitlines()]


def some(chosen: list[Line]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("line", [pytest.param(line, id=str(line["seed"])) for line in chosen])


def queue(row: Line, created: int) -> Queue:
    return Queue(
        row["name"],
        deserved=Limit.of(gpu=row["deserved"]),
        limit=Limit.of(gpu=row["capability"]),
        rank=row["priority"],
        created=created,
        reclaimable=row["reclaimable"],
    )


def group(row: Line, pods: list[Pod], *, preemptible: bool) -> PodGroup:
    start = row.get("start")
    return PodGroup(
        name=row["name"],
        queue=row["queue"],
        namespace=row["queue"],
        priority=row["priority"],
        preemptible=preemptible,
        pods=tuple(pods),
        min_member=row["minMember"],
        started=start,
        created=LAST if start is None else start,
    )


def running(row: Line) -> PodGroup:
    pods = [Pod(pod["name"], Resources.of(gpu=row["gpus"]), pod["node"]) for pod in row["pods"]]
    return group(row, pods, preemptible=row["preemptable"])


def outcome(line: Line) -> Outcome:
    nodes = tuple(
        SnapshotNode(row["name"], "default", Resources.of(gpu=row["gpus"], cpu=192, memory="2Ti"), order=order)
        for order, row in enumerate(line["nodes"])
    )
    queues = tuple(queue(row, created) for created, row in enumerate(line["queues"]))
    candidate = line["candidate"]
    pods = [Pod(f"c{index}", Resources.of(gpu=candidate["gpus"])) for index in range(candidate["count"])]
    snapshot = Snapshot(nodes, queues, tuple(map(running, line["groups"])))
    return preview(snapshot, group(candidate, pods, preemptible=True), flavour="volcano")


@some(LINES)
def test_the_same_kind_and_victims(line: Line) -> None:
    found = outcome(line)
    groups = {pod["name"]: row["name"] for row in line["groups"] for pod in row["pods"]}
    said = sorted(evict.victim.name for evict in found.victims for _pod in evict.pods)
    assert (found.kind, said) == (line["outcome"]["kind"], sorted(groups[pod] for pod in line["outcome"]["victims"]))


@some([line for line in LINES if line["repeat"]["same_nodes"] and line["outcome"]["kind"] != "pending"])
def test_the_same_nodes(line: Line) -> None:
    assert sorted(outcome(line).placements.values()) == sorted(line["outcome"]["nodes"].values())


@some([line for line in LINES if line["outcome"]["kind"] == "pending"])
def test_who_waits_is_told_why(line: Line) -> None:
    found = outcome(line)
    assert found.pend is not None
    assert found.placements == {}
