"""A job's life in the sandbox, from its manifest to its end."""

import pytest

from clusters.ports.pods import condition_is_true
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services import controllers
from tests.clusters.sandboxes import Sandbox, furnished, job, owner_name

pytestmark = pytest.mark.django_db


def test_a_job_gets_its_pods_runs_for_its_time_and_succeeds() -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", parallelism=2, gpus=2, seconds="600"))
    sandbox.tick()
    assert [pod["spec"]["nodeName"] for pod in sandbox.pods("train")] == ["node-0", "node-0"]
    sandbox.tick()
    assert sandbox.phases("train") == ["Running", "Running"]
    sandbox.tick(after=590)
    assert sandbox.phases("train") == ["Running", "Running"]
    sandbox.tick(after=10)
    assert sandbox.phases("train") == ["Succeeded", "Succeeded"]
    ended = sandbox.get(created)
    assert ended is not None
    assert condition_is_true(ended, "Complete")
    assert sandbox.events("Completed") != []


@pytest.mark.parametrize("speed", [1, 60])
def test_durations_pass_as_fast_as_the_clock_is_set(speed: int) -> None:
    sandbox = furnished(speed=speed)
    sandbox.create(job("train", seconds="600"))
    sandbox.ticks(2, after=0.001)
    sandbox.tick(after=600 / speed - 1)
    assert sandbox.phases() == ["Running"]
    sandbox.tick(after=2)
    assert sandbox.phases() == ["Succeeded"]


def test_what_fits_no_node_waits_and_says_so() -> None:
    sandbox = furnished(gpus=4)
    sandbox.create(job("huge", gpus=5))
    result = sandbox.tick()
    assert (result.started, result.waiting) == (0, 1)
    [pod] = sandbox.pods()
    assert pod["status"]["phase"] == "Pending"
    assert "Max GPU resources available" in pod["status"]["conditions"][0]["message"]


def test_a_quiet_tick_writes_nothing() -> None:
    sandbox = furnished(gpus=4)
    sandbox.create(job("runs", gpus=4))
    sandbox.create(job("waits", gpus=4))
    sandbox.ticks(4)
    assert sandbox.tick().written == 0


def test_a_gang_starts_whole_or_not_at_all() -> None:
    sandbox = furnished(gpus=4)
    sandbox.create(job("gang", parallelism=5, gpus=1))
    sandbox.ticks(2)
    assert set(sandbox.phases("gang")) == {"Pending"}


def test_without_a_gang_scheduler_some_pods_start_alone() -> None:
    sandbox = furnished("kube", gpus=4)
    sandbox.create(job("gang", parallelism=5, gpus=1))
    sandbox.ticks(2)
    assert sorted(sandbox.phases("gang")) == ["Pending", *["Running"] * 4]


def test_a_lost_node_takes_its_pods_and_the_job_gets_new_ones() -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.ticks(2)
    [before] = sandbox.pods("train")
    sandbox.remove_node("node-0")
    sandbox.tick()
    [after] = sandbox.pods("train")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["phase"] == "Pending"


def test_a_failing_job_is_tried_again_until_its_backoff_limit() -> None:
    sandbox = furnished()
    manifest = job("crash", seconds="10", exit_code="1")
    manifest["spec"]["backoffLimit"] = 1
    created = sandbox.create(manifest)
    sandbox.ticks(8, after=10)
    assert sandbox.phases("crash") == ["Failed", "Failed"]
    ended = sandbox.get(created)
    assert ended is not None
    assert condition_is_true(ended, "Failed")


def test_more_completions_than_pods_at_a_time() -> None:
    sandbox = furnished()
    manifest = job("sweep", seconds="10")
    manifest["spec"] |= {"parallelism": 2, "completions": 3}
    sandbox.create(manifest)
    sandbox.ticks(2)
    assert sandbox.phases("sweep") == ["Running", "Running"]
    sandbox.ticks(4, after=10)
    assert sandbox.phases("sweep") == ["Succeeded"] * 3


def test_a_cluster_without_nodes_lets_everything_wait() -> None:
    sandbox = Sandbox("kube")
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.create(job("train"))
    assert sandbox.tick().waiting == 1


def test_pods_of_ended_jobs_are_kept_for_their_logs_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "KEPT_PODS", 3)
    sandbox = furnished()
    for number in range(5):
        sandbox.create(job(f"short-{number}", seconds="5"))
        sandbox.ticks(3, after=6)
    sandbox.ticks(3)
    assert [owner_name(pod) for pod in sandbox.pods()] == ["short-2", "short-3", "short-4"]


def test_an_object_that_makes_no_sense_holds_up_no_other_one() -> None:
    sandbox = furnished()
    odd = job("odd")
    odd["spec"]["backoffLimit"] = "six"
    sandbox.create(odd)
    sandbox.create(job("train"))
    sandbox.ticks(2)
    assert sandbox.phases("train") == ["Running"]
    assert sandbox.pods("odd") == []


def test_a_pod_whose_grace_is_left_empty_gets_the_usual_one() -> None:
    sandbox = furnished()
    manifest = job("train")
    manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = None
    created = sandbox.create(manifest)
    sandbox.ticks(2)
    sandbox.delete(created)
    sandbox.tick()
    [leaving] = sandbox.pods()
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30


def test_what_ran_before_the_clock_was_sped_up_keeps_its_age() -> None:
    sandbox = furnished()
    sandbox.create(job("train", seconds="3600"))
    sandbox.ticks(2, after=0.001)
    sandbox.tick(after=600)
    SandboxClock.objects.update(speed=60, speed_since=sandbox.now)
    sandbox.tick(after=49)
    assert sandbox.phases() == ["Running"]
    sandbox.tick(after=2)
    assert sandbox.phases() == ["Succeeded"]
