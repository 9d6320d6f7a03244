"""The model decides as kube-scheduler with its own gangs was seen to: same kind, same victims. See docs/model.md.

`victims` of a line are all pods evicted until the whole candidate was placed. A decision covers the pods beyond the
gang's minimum as well, so it is compared with all of them. `later_victims` are those of a later attempt.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode

TRUTHS = Path(__file__).parent / "truths" / "gang.jsonl"
LAST = 10**6
MOMENTS = {2004}
"""Decided by the moment at which the first victims were gone: explained in docs/model.md."""

Line = dict[str, Any]

LINES: list[Line] = [json.loads(line) for line in TRUTHS.read_text().splitlines()]
EVERY_LINE = [pytest.param(line, id=str(line["seed"])) for line in LINES]


def nodes(line: Line) -> tuple[SnapshotNode, ...]:
    return tuple(
        SnapshotNode(
            name=node["name"],
            pool="default",
            capacity=Resources.of(gpu=node["gpus"]),
            labels={"rack": node["rack"], "kubernetes.io/hostname": node["name"]},
            order=order,
        )
        for order, node in enumerate(line["nodes"])
    )


def running_pods(line: Line, name: str | None) -> list[Line]:
    return [pod for pod in line["pods"] if pod["group"] == name]


def running(name: str, pods: list[Line], gang: Line | None) -> PodGroup:
    return PodGroup(
        name=name,
        queue="team",
        namespace="team",
        priority=(gang or pods[0])["priority"],
        preemptible=True,
        pods=tuple(Pod(p["name"], Resources.of(gpu=p["gpus"]), p["node"], started=p["start"]) for p in pods),
        min_member=gang["minCount"] if gang else 1,
        started=min(pod["start"] for pod in pods),
        gang=gang is not None,
        whole=gang is not None and gang["mode"] == "PodGroup",
    )


def candidate(line: Line, count: int) -> PodGroup:
    wanted = line["candidate"]
    return PodGroup(
        name="candidate",
        queue="team",
        namespace="team",
        priority=wanted["priority"],
        preemptible=True,
        pods=tuple(Pod(f"c{index}", Resources.of(gpu=wanted["gpus"])) for index in range(count)),
        min_member=wanted["minCount"] or 1,
        created=LAST,
        never_preempts=wanted["never"],
        gang=not wanted["single"],
        topology=wanted["topology"],
    )


def decided(line: Line, count: int | None = None) -> Outcome:
    """What the model says; `count`: as if the candidate had only so many pods."""
    gangs = [running(gang["name"], running_pods(line, gang["name"]), gang) for gang in line["groups"]]
    singles = [running(pod["name"], [pod], None) for pod in running_pods(line, None)]
    snapshot = Snapshot(nodes(line), (), (*gangs, *singles))
    return preview(snapshot, candidate(line, count or line["candidate"]["count"]), flavour="kube-gangs")


def said(outcome: Outcome) -> tuple[OutcomeKind, set[str]]:
    return outcome.kind, {pod for evict in outcome.victims for pod in evict.pods}


def seen(line: Line) -> tuple[str, set[str]]:
    return line["outcome"]["kind"], set(line["outcome"]["victims"])


@pytest.mark.parametrize("line", EVERY_LINE)
def test_same_kind_and_same_victims(line: Line) -> None:
    if line["seed"] in MOMENTS:
        later = set(line["outcome"]["later_victims"])
        assert said(decided(line)) == (seen(line)[0], seen(line)[1] - later)
    else:
        assert said(decided(line)) == seen(line)


def test_at_most_one_line_in_fifty_is_left_to_the_moment() -> None:
    assert {line["seed"] for line in LINES} >= MOMENTS
    assert len(MOMENTS) * 50 <= len(LINES)


def test_the_minimum_alone_takes_whom_the_first_attempt_took() -> None:
    found = [line for line in LINES if line["outcome"]["later_victims"]]
    assert len(found) == 5
    for line in found:
        first = seen(line)[1] - set(line["outcome"]["later_victims"])
        assert said(decided(line, count=line["candidate"]["minCount"])) == (OutcomeKind.PREEMPTS, first), line["seed"]


def test_a_group_is_evicted_in_one_decision() -> None:
    for line in LINES:
        names = [evict.victim.name for evict in decided(line).victims]
        assert len(set(names)) == len(names), line["seed"]


def test_what_never_preempts_for_its_topology_key_says_so() -> None:
    found = [line for line in LINES if line["outcome"]["kind"] == "pending" and line["candidate"]["topology"]]
    assert len(found) > 10
    for line in found:
        pend = decided(line).pend
        assert pend is not None
        assert pend.reason in {Reason.NO_DOMAIN, Reason.NEVER_FITS}, line["seed"]


def test_a_gang_with_a_topology_key_lands_in_a_domain_with_room_for_all_that_were_placed() -> None:
    found = [line for line in LINES if line["outcome"]["kind"] == "placed" and line["candidate"]["topology"]]
    assert len(found) > 5
    for line in found:
        racks = {node.name: node.labels[line["candidate"]["topology"]] for node in nodes(line)}
        placements = decided(line).placements
        assert len({racks[node] for node in placements.values()}) == 1, line["seed"]
        assert len(placements) == sum(node is not None for node in line["outcome"]["nodes"].values()), line["seed"]
