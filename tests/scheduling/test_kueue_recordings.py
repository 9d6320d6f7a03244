"""The model decides as Kueue was seen to decide: same kind, same victims, for the same cause. See docs/model.md."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.reasons import Reason
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot

FILE: Final = Path(__file__).parent / "truths" / "kueue.jsonl"
LAST: Final = 10**6
CAUSES: Final = {"InClusterQueue": "preempt", "InCohortReclamation": "reclaim"}

Line = dict[str, Any]

LINES: Final[list[Line]] = [json.loads(line) for line in FILE.read_text().splitlines()]
every_line = pytest.mark.parametrize("line", [pytest.param(line, id=str(line["seed"])) for line in LINES])


def queue(row: Line) -> Queue:
    nominal, borrowing, policies = row["nominalQuota"], row["borrowingLimit"], row["preemption"]
    return Queue(
        row["name"],
        row["cohort"],
        deserved=Limit.of(gpu=nominal),
        limit=Limit.of(gpu=None if borrowing is None else nominal + borrowing),
        preempts=QueuePreemptionPolicy(policies["withinClusterQueue"]),
        reclaims=QueuePreemptionPolicy(policies["reclaimWithinCohort"]),
        reclaims_over_quota=QueuePreemptionPolicy(policies["borrowWithinCohort"]["policy"]),
    )


def group(job: Line) -> PodGroup:
    start = job.get("start")
    return PodGroup(
        name=job["name"],
        queue=job["queue"],
        namespace=job["queue"],
        priority=job["priority"],
        preemptible=True,
        pods=tuple(Pod(f"{job['name']}-{number}", Resources.of(gpu=job["gpus"])) for number in range(job["pods"])),
        min_member=job["pods"],
        started=start,
        created=LAST if start is None else start,
    )


def outcome(line: Line) -> Outcome:
    queues, jobs = tuple(map(queue, line["queues"])), tuple(map(group, line["jobs"]))
    return preview(Snapshot(queues=queues, groups=jobs), group(line["candidate"]), flavour="kueue")


@every_line
def test_the_same_kind_and_victims(line: Line) -> None:
    found = outcome(line)
    said = (found.kind, sorted(evict.victim.name for evict in found.victims))
    assert said == (line["outcome"]["kind"], sorted(line["outcome"]["victims"]))


@every_line
def test_every_victim_goes_for_the_same_cause(line: Line) -> None:
    recorded = {each["job"]: CAUSES[each["preempted_reason"]] for each in line["outcome"]["evictions"]}
    assert {evict.victim.name: evict.cause for evict in outcome(line).victims} == recorded


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=str(line["seed"])) for line in LINES if line["outcome"]["kind"] == "pending"]
)
def test_who_waits_is_short_of_as_much_for_the_same_reason(line: Line) -> None:
    message, pend = line["outcome"]["quota_reserved"]["message"], outcome(line).pend
    assert pend is not None
    if "maximum capacity" in message:
        assert (pend.reason, f"({pend.allowed})".replace(" GPU", "")) == (
            Reason.EXCEEDS_MAX_QUOTA,
            message.rpartition("maximum capacity ")[2],
        )
    else:
        more = message.rpartition(", ")[2].removesuffix(" more needed")
        assert (pend.reason, pend.missing) == (Reason.WAITING_FOR_QUOTA, Resources.of(gpu=more))
