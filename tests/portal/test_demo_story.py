"""The demo's story, on a cluster of its own."""

import pytest

from portal.demo.play import settle
from tests.workloads.sandbox_lab import Lab
from workloads.preemption.models import PreemptionRecord

pytestmark = pytest.mark.django_db


def test_an_evicted_pod_of_the_story_stops_when_its_grace_period_ends() -> None:
    lab = Lab("kai")
    team = lab.project("llm-team", deserved=16)
    lab.submit(team, "weak", gpus=8, priority="low")
    settle(lab.cluster)
    lab.submit(team, "strong", gpus=8, priority="high")
    settle(lab.cluster)
    record = PreemptionRecord.objects.get()
    assert record.grace_used_seconds is not None
    assert record.grace_seconds <= record.grace_used_seconds < record.grace_seconds + 10
