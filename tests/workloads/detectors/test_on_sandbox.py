"""From evictions on the embedded cluster to findings."""

import pytest

from clusters.inventory.models import Cluster
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.detectors.models import Finding
from workloads.detectors.services import detect
from workloads.state.models import Phase

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_a_short_job_that_evicts_a_long_one_is_found_and_over_when_the_long_one_runs_again(flavour: str) -> None:
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=8)
    victim = lab.submit(team, "train", gpus=8)
    lab.settle()
    lab.settle(1, seconds=6 * 3600)
    lab.submit(team, "infer", gpus=8, priority="high", seconds="30")
    lab.settle(6, seconds=20)
    cluster = Cluster.objects.get(pk=lab.cluster.pk)
    detect(cluster, lab.now)
    row = Finding.objects.get(kind="short-evicts-long")
    assert row.workload == victim
    assert "{1} (high 125) evicted {0} (low 40)" in row.evidence[0]
    assert row.gpu_seconds >= 6 * 3600 * 8
    lab.settle(6, seconds=20)
    assert fresh(victim).phase == Phase.RUNNING
    detect(cluster, lab.now)
    row.refresh_from_db()
    assert row.ended_at is not None
