"""Who gives way to whom in the sandbox, when, and what is written about it."""

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import PodStatusReason
from clusters.ports.gateway import Manifest
from clusters.ports.pods import condition, moment_of
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, job, owner_name, priority_class

pytestmark = pytest.mark.django_db


def reading_of(sandbox: Sandbox, pod: Manifest) -> PodStatusReason:
    return flavour_for(sandbox.cluster.flavour).interpret(pod)


def disrupted(sandbox: Sandbox) -> list[Manifest]:
    return [pod for pod in sandbox.pods() if condition(pod, "DisruptionTarget")]


def two_projects(sandbox: Sandbox) -> None:
    """Two leaf queues of one department with four deserved GPUs each, on eight."""
    sandbox.node()
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.namespace("runai-other")
    sandbox.queue("department", deserved=8)
    sandbox.queue("team", deserved=4, parent="department")
    sandbox.queue("other", deserved=4, parent="department")


@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_a_higher_priority_takes_the_place_of_a_lower_one_after_its_grace(flavour: str) -> None:
    sandbox = furnished(flavour)
    sandbox.create(job("weak", gpus=8, priority="low", grace=30))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    assert sandbox.tick().evicted == 1
    [victim] = disrupted(sandbox)
    assert victim["status"]["phase"] == "Running"
    assert sandbox.phases("strong") == ["Pending"]
    ends = moment_of(victim["metadata"]["deletionTimestamp"])
    assert ends is not None
    assert (ends - sandbox.now).total_seconds() == pytest.approx(30)
    sandbox.tick(after=29)
    assert sandbox.phases("strong") == ["Pending"]
    sandbox.ticks(2)
    assert sandbox.phases("strong") == ["Running"]


def test_the_grace_that_is_granted_is_the_one_that_passes() -> None:
    """A reader takes the granted seconds from deletionTimestamp to know when the deletion was asked for."""
    sandbox = furnished(speed=30)
    sandbox.create(job("weak", gpus=8, priority="low", grace=60))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    assert sandbox.tick().evicted == 1
    [leaving] = disrupted(sandbox)
    ends = moment_of(leaving["metadata"]["deletionTimestamp"])
    assert ends is not None
    assert (ends - sandbox.now).total_seconds() == pytest.approx(2)
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 2


def test_the_victims_job_gets_a_new_pod_that_waits() -> None:
    sandbox = furnished()
    sandbox.create(job("weak", gpus=8, priority="low"))
    sandbox.ticks(2)
    [victim] = sandbox.pods("weak")
    sandbox.create(job("strong", gpus=8, priority="medium"))
    sandbox.ticks(2)
    sandbox.tick(after=40)
    sandbox.tick()
    [successor] = sandbox.pods("weak")
    assert successor["metadata"]["uid"] != victim["metadata"]["uid"]
    assert successor["status"]["phase"] == "Pending"


def test_a_bare_pod_that_was_evicted_is_gone_for_good() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("weak", gpus=8, priority="low", grace=5))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    sandbox.ticks(10)
    assert [owner_name(pod) for pod in sandbox.pods()] == ["strong"]


def test_nobody_is_evicted_twice_for_the_same_newcomer() -> None:
    sandbox = furnished()
    for name in ("first", "second"):
        sandbox.create(job(name, gpus=4, priority="low"))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=4, priority="medium"))
    assert sum(sandbox.tick().evicted for _ in range(10)) == 1


def test_kai_names_the_preemptor_on_its_victim() -> None:
    sandbox = furnished()
    sandbox.create(job("weak", gpus=8, priority="low"))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    sandbox.tick()
    reading = reading_of(sandbox, disrupted(sandbox)[0])
    assert (reading.cause, reading.preemptor) == ("preempt", f"{TEAM}/strong")
    [message] = sandbox.events("Evict")
    assert message.endswith(f"was preempted by higher priority workload {TEAM}/strong")


def test_kube_names_the_preemptors_pod_by_its_uid() -> None:
    sandbox = furnished("kube")
    sandbox.create(job("weak", gpus=8, priority="low"))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    sandbox.tick()
    [preemptor] = sandbox.pods("strong")
    reading = reading_of(sandbox, disrupted(sandbox)[0])
    assert (reading.cause, reading.preemptor) == ("preempt", f"uid:{preemptor['metadata']['uid']}")
    assert sandbox.events("Preempted") == [f"Preempted by pod {preemptor['metadata']['uid']} on node node-0"]
    assert preemptor["status"]["nominatedNodeName"] == "node-0"


def test_reclaim_takes_from_the_queue_above_its_quota_whatever_the_priorities() -> None:
    sandbox = Sandbox()
    two_projects(sandbox)
    for name in ("lent-1", "lent-2"):
        sandbox.create(job(name, gpus=4, priority="very-high", queue="other", preemptibility="preemptible"))
        sandbox.ticks(2)
    sandbox.create(job("mine", gpus=4, priority="very-low"))
    sandbox.tick()
    [victim] = disrupted(sandbox)
    assert owner_name(victim) == "lent-2"
    reading = reading_of(sandbox, victim)
    assert (reading.cause, reading.preemptor) == ("reclaim", f"{TEAM}/mine")
    assert (
        "other uses <GPU: 8, CPU: 0 (cores), memory: 0 (GB)> with a quota of <GPU: 4, CPU: Unlimited" in reading.message
    )
    sandbox.tick(after=31)
    sandbox.tick()
    assert sandbox.phases("mine") == ["Running"]


def test_non_preemptible_work_is_no_victim_in_kai() -> None:
    sandbox = furnished()
    sandbox.create(job("stays", gpus=8, priority="low", preemptibility="non-preemptible"))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="very-high", preemptibility="preemptible"))
    assert sandbox.tick().evicted == 0


def test_kube_scheduler_evicts_it_all_the_same() -> None:
    sandbox = furnished("kube")
    sandbox.create(job("stays", gpus=8, priority="low", preemptibility="non-preemptible"))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="high"))
    assert sandbox.tick().evicted == 1


def test_a_class_that_never_preempts_waits_in_kube() -> None:
    sandbox = furnished("kube")
    sandbox.create(priority_class("polite", 200, "Never"))
    sandbox.create(job("weak", gpus=8, priority="low"))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="polite"))
    assert sandbox.tick().evicted == 0
    [waiting] = sandbox.pods("strong")
    assert "preemptionPolicy=Never" in reading_of(sandbox, waiting).message


@pytest.mark.parametrize(("priority", "evicted"), [("low", 4), ("high", 0)])
def test_the_priority_decides_whether_semi_preemptible_work_may_be_evicted(priority: str, evicted: int) -> None:
    sandbox = furnished()
    manifest = job("elastic", parallelism=4, gpus=2, priority=priority, preemptibility="semi-preemptible")
    manifest["spec"]["template"]["metadata"]["annotations"]["rung.dev/min-member"] = "2"
    sandbox.create(manifest)
    sandbox.ticks(3)
    assert sandbox.phases("elastic") == ["Running"] * 4
    sandbox.create(job("strong", gpus=8, priority="very-high", preemptibility="preemptible"))
    assert sandbox.tick().evicted == evicted


def test_over_the_limit_waits_with_its_numbers() -> None:
    sandbox = Sandbox()
    sandbox.node()
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.queue("team", deserved=2, limit=4)
    sandbox.create(job("runs", gpus=3))
    sandbox.ticks(2)
    sandbox.create(job("waits", gpus=2))
    sandbox.tick()
    [pod] = sandbox.pods("waits")
    reading = reading_of(sandbox, pod)
    assert reading.reason == "OverLimit"
    assert reading.numbers == {"queue": "team", "resource": "GPUs", "limit": "4", "used": "3", "requested": "2"}


def test_non_preemptible_work_over_the_deserved_quota_waits_with_its_numbers() -> None:
    sandbox = furnished(deserved=4)
    sandbox.create(job("runs", gpus=3, priority="high"))
    sandbox.ticks(2)
    sandbox.create(job("waits", gpus=2, priority="high"))
    sandbox.tick()
    [pod] = sandbox.pods("waits")
    reading = reading_of(sandbox, pod)
    assert reading.reason == "NonPreemptibleOverQuota"
    assert reading.numbers == {"queue": "team", "resource": "GPUs", "deserved": "4", "used": "3", "requested": "2"}


def test_a_queue_that_was_not_synced_schedules_nothing() -> None:
    sandbox = furnished()
    sandbox.create(job("lost", queue="nowhere"))
    assert sandbox.tick().started == 0
    assert reading_of(sandbox, sandbox.pods("lost")[0]).message.startswith("QueueDoesNotExist")


def test_kube_counts_the_nodes_per_cause() -> None:
    sandbox = furnished("kube", gpus=4)
    sandbox.node("node-1", gpus=2)
    sandbox.create(job("huge", gpus=6))
    sandbox.tick()
    reading = reading_of(sandbox, sandbox.pods("huge")[0])
    assert reading.reason == "Unschedulable"
    assert reading.numbers["nodes"] == "2"
    assert "2 Insufficient nvidia.com/gpu" in reading.message


def test_a_cordoned_node_and_a_foreign_pool_are_counted_as_such() -> None:
    sandbox = furnished("kube", gpus=4)
    sandbox.node("node-1", gpus=8, pool="other")
    cordoned = sandbox.node("node-2", gpus=8)
    cordoned["spec"] = {"unschedulable": True}
    sandbox.gateway.update(cordoned, observed=cordoned)
    manifest = job("choosy", gpus=8)
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {"rung.dev/node-pool": "mine"}
    sandbox.create(manifest)
    sandbox.tick()
    message = reading_of(sandbox, sandbox.pods("choosy")[0]).message
    assert "2 node(s) didn't match Pod's node affinity/selector" in message
    assert "1 node(s) were unschedulable" in message


def test_kai_looks_for_room_in_the_queues_own_pool_only() -> None:
    sandbox = Sandbox()
    sandbox.node("here", gpus=2, pool="small")
    sandbox.node("there", gpus=8, pool="large")
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.queue("team", deserved=8, **{"rung.dev/node-pool": "small"})
    sandbox.create(job("fits", gpus=2))
    sandbox.create(job("waits", gpus=4))
    sandbox.tick()
    [fitting] = sandbox.pods("fits")
    assert fitting["spec"]["nodeName"] == "here"
    assert "node-pool is topped at 2" in reading_of(sandbox, sandbox.pods("waits")[0]).message


def test_no_room_at_the_moment_is_said_with_the_number_of_nodes() -> None:
    sandbox = furnished()
    sandbox.create(job("runs", gpus=8))
    sandbox.ticks(2)
    sandbox.create(job("waits", gpus=8))
    sandbox.tick()
    message = reading_of(sandbox, sandbox.pods("waits")[0]).message
    assert "1 node(s) didn't have enough resources: GPUs." in message


def test_while_its_victims_end_the_newcomer_says_where_it_will_run() -> None:
    sandbox = furnished()
    sandbox.create(job("weak", gpus=8, priority="low"))
    sandbox.ticks(2)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    sandbox.tick()
    [waiting] = sandbox.pods("strong")
    assert waiting["status"]["nominatedNodeName"] == "node-0"
    assert "is nominated to node node-0" in reading_of(sandbox, waiting).message


def test_over_the_limit_and_too_big_are_both_said() -> None:
    sandbox = Sandbox()
    sandbox.node(gpus=4)
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.queue("team", deserved=2, limit=4)
    sandbox.create(job("both", gpus=6))
    sandbox.tick()
    message = reading_of(sandbox, sandbox.pods("both")[0]).message
    assert message.startswith("Unable to schedule podgroup: OverLimit")
    assert "node-pool is topped at 4" in message


def test_a_limit_on_cpu_is_said_in_cores() -> None:
    sandbox = furnished()
    sandbox.create(
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": "narrow"},
            "spec": {"resources": {"gpu": {"quota": 1, "limit": -1}, "cpu": {"limit": 1500}, "memory": {"limit": -1}}},
        }
    )
    manifest = job("waits", queue="narrow")
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2"}
    sandbox.create(manifest)
    sandbox.tick()
    assert reading_of(sandbox, sandbox.pods("waits")[0]).numbers["limit"] == "1.5"
