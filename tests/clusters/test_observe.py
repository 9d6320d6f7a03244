"""What the observer makes of a cluster: rows, statuses, events, and a message to whoever registered."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from clusters import observation
from clusters.backends import sandbox as backend
from clusters.errors import ClusterBusy, ClusterChanged, ClusterRefused
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import POD, ref_of
from clusters.models import Cluster, ClusterEvent, Node, NodePool, ObservedPod, ObserverLease
from clusters.observation import Observation
from clusters.ports import Kind, Manifest
from clusters.sandbox import store as store_module
from clusters.services import observe
from clusters.services.observe import observe_cluster
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, job
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db


class Told:
    """A handler that remembers; it can be made to fail."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.broken = False

    def __call__(self, cluster: Cluster, seen: Observation) -> None:
        if self.broken:
            raise RuntimeError("handler")
        self.observations.append(seen)

    @property
    def last(self) -> Observation:
        return self.observations[-1]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    handler = Told()
    monkeypatch.setattr(observation, "_handlers", [handler])
    return handler


def row(name_start: str) -> ObservedPod:
    return ObservedPod.objects.get(name__startswith=name_start, gone_at__isnull=True)


def test_nodes_become_rows_in_the_pool_their_label_names() -> None:
    sandbox = Sandbox()
    pool = NodePool.objects.create(cluster=sandbox.cluster, name="a100", label_value="a100", is_default=True)
    NodePool.objects.create(cluster=sandbox.cluster, name="h100", label_value="h100")
    sandbox.node("plain", gpus=4)
    sandbox.node("big", gpus=8, pool="h100", **{"nvidia.com/gpu.product": "H100"})
    observe_cluster(sandbox.cluster)
    assert Node.objects.get(name="plain").pool == pool
    big = Node.objects.get(name="big")
    assert (big.pool and big.pool.name, big.gpu_milli, big.cpu_milli, big.gpu_type) == ("h100", 8000, 64000, "H100")
    assert big.memory_bytes == 512 * 2**30


def test_a_pool_defined_later_takes_its_nodes() -> None:
    sandbox = Sandbox()
    sandbox.node("big", pool="h100")
    observe_cluster(sandbox.cluster)
    assert Node.objects.get().pool is None
    NodePool.objects.create(cluster=sandbox.cluster, name="h100", label_value="h100")
    observe_cluster(sandbox.cluster)
    assert str(Node.objects.get().pool) == "h100"


def test_a_node_that_left_has_no_row() -> None:
    sandbox = Sandbox()
    sandbox.node("here")
    sandbox.node("gone")
    observe_cluster(sandbox.cluster)
    sandbox.remove_node("gone")
    observe_cluster(sandbox.cluster)
    assert [node.name for node in Node.objects.all()] == ["here"]


def test_a_pod_is_followed_from_creation_to_its_end(told: Told) -> None:
    sandbox = furnished()
    sandbox.create(job("train", workload="4f1c", gpus=2, seconds="60", priority="medium"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    pod = row("train-")
    assert (pod.owner_id, pod.phase, pod.node_name, pod.gpu_milli) == ("4f1c", "Pending", "node-0", 2000)
    assert (pod.priority_class, pod.priority, pod.preemptible, pod.queue) == ("medium", 80, True, "team")
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    started = row("train-")
    assert (started.phase, started.started_at) == ("Running", sandbox.now)
    sandbox.tick(after=61)
    observe_cluster(sandbox.cluster)
    assert (row("train-").phase, row("train-").reason) == ("Succeeded", "Completed")
    assert [status.phase for seen in told.observations for status in seen.jobs.values()][-1] == "succeeded"


def test_nothing_new_tells_nobody(told: Told) -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    count = len(told.observations)
    assert observe_cluster(sandbox.cluster).pods == ()
    assert len(told.observations) == count


def test_a_waiting_pod_carries_the_schedulers_reason() -> None:
    sandbox = Sandbox()
    sandbox.node()
    sandbox.levels()
    sandbox.namespace()
    sandbox.queue("team", limit=1)
    sandbox.create(job("waits", gpus=2))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    assert row("waits-").reason == "OverLimit"
    assert "Limit is 1 GPUs" in row("waits-").message


def test_an_eviction_is_recorded_with_its_time_and_its_culprit(told: Told) -> None:
    sandbox = furnished()
    sandbox.create(job("weak", gpus=8, priority="low"))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    sandbox.create(job("strong", gpus=8, priority="medium"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    victim = ObservedPod.objects.get(disrupted_at__isnull=False)
    assert (victim.disrupted_at, victim.disruption_reason) == (sandbox.now, "PreemptionByScheduler")
    assert victim.deletion_at is not None
    reading = told.last.readings[victim.uid]
    assert (reading.cause, reading.preemptor) == ("preempt", f"{TEAM}/strong")


def test_a_pod_that_left_keeps_its_row_with_the_time() -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", grace=1))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    sandbox.delete(created)
    sandbox.ticks(3)
    seen = observe_cluster(sandbox.cluster)
    pod = ObservedPod.objects.get()
    assert pod.gone_at == seen.at
    assert [each.pk for each in seen.pods] == [pod.pk]
    assert seen.jobs["train"].phase == "missing"


def test_a_deletion_between_two_lists_is_found(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", grace=1))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    sandbox.delete(created)
    sandbox.ticks(3)
    monkeypatch.setattr(store_module, "KEPT_VERSIONS", 0)
    monkeypatch.setattr(backend, "KEPT_VERSIONS", 0)
    sandbox.create(job("other"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get(name__startswith="train-").gone_at is not None
    assert told.last.jobs["train"].phase == "missing"
    assert row("other-").gone_at is None


def test_the_same_name_with_another_uid_is_another_pod() -> None:
    sandbox = furnished()
    first = sandbox.create(bare_pod("train", gpus=8))
    observe_cluster(sandbox.cluster)
    sandbox.delete(first)
    second = sandbox.create(bare_pod("train", gpus=4))
    observe_cluster(sandbox.cluster)
    old, new = ObservedPod.objects.order_by("created_at")
    assert (old.uid, old.gone_at is None) == (first["metadata"]["uid"], False)
    assert (new.uid, new.gone_at) == (second["metadata"]["uid"], None)


def test_a_name_taken_by_another_uid_ends_the_old_row_even_if_no_deletion_was_told() -> None:
    sandbox = furnished()
    observe_cluster(sandbox.cluster)
    created = sandbox.create(bare_pod("train"))
    ObservedPod.objects.create(
        cluster=sandbox.cluster, uid="old", namespace=TEAM, name="train", phase="Running",
        created_at=sandbox.now, observed_at=sandbox.now,
    )  # fmt: skip
    seen = observe_cluster(sandbox.cluster)
    assert {pod.uid for pod in seen.pods} == {"old", created["metadata"]["uid"]}
    assert ObservedPod.objects.get(uid="old").gone_at == seen.at


def test_an_older_version_of_a_pod_changes_nothing() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train"))
    observe_cluster(sandbox.cluster)
    ObservedPod.objects.update(resource_version="999999", phase="Running")
    sandbox.tick()
    assert observe_cluster(sandbox.cluster).pods == ()
    assert ObservedPod.objects.get().phase == "Running"


def test_a_list_older_than_what_was_seen_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train"))
    observe_cluster(sandbox.cluster)
    lease = ObserverLease.objects.get()
    lease.versions = {**lease.versions, POD.key: "999999", "newest": ""}
    lease.save()
    with pytest.raises(ClusterBusy, match="older than what was seen"):
        observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get().gone_at is None


def test_another_cluster_behind_the_same_address_is_not_observed() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train"))
    observe_cluster(sandbox.cluster)
    sandbox.cluster.uid = "somebody-else"
    ObserverLease.objects.update(versions={})
    with pytest.raises(ClusterChanged):
        observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get().gone_at is None


def test_a_handler_that_fails_sees_the_same_observation_again(told: Told) -> None:
    sandbox = furnished()
    sandbox.create(job("train", workload="4f1c"))
    sandbox.ticks(2)
    told.broken = True
    with pytest.raises(RuntimeError, match="handler"):
        observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.count() == 0
    told.broken = False
    observe_cluster(sandbox.cluster)
    assert [pod.owner_id for pod in told.last.pods] == ["4f1c"]
    assert told.last.events != ()


def test_the_slower_of_two_observers_changes_nothing(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.tick()
    listed = backend.SandboxGateway.list

    def overtaken(gateway: backend.SandboxGateway, kind: Kind, **asked: bool) -> tuple[list[Manifest], str]:
        if kind == POD:
            monkeypatch.setattr(backend.SandboxGateway, "list", listed)
            observe_cluster(sandbox.cluster)
        return listed(gateway, kind, **asked)

    monkeypatch.setattr(backend.SandboxGateway, "list", overtaken)
    assert observe_cluster(sandbox.cluster).pods == ()
    assert len(told.observations) == 1


def test_events_about_our_objects_are_kept_once() -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="1")
    sandbox.create(job("runs", workload="4f1c"))
    sandbox.create(job("refused", workload="77aa", gpus=2))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    observe_cluster(sandbox.cluster)
    told = list(ClusterEvent.objects.values_list("owner_id", "reason"))
    assert sorted(told) == [("4f1c", "Scheduled"), ("4f1c", "Started"), ("77aa", "FailedCreate")]


def test_a_job_whose_pods_are_refused_is_blocked_with_its_controllers_words(told: Told) -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="1")
    sandbox.create(job("refused", workload="77aa", gpus=2))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    status = told.last.jobs["77aa"]
    assert (status.phase, status.reason) == ("blocked", "FailedCreate")
    reading = flavour_for("kube").interpret({}, [{"reason": status.reason, "message": status.message}])
    assert (reading.reason, reading.numbers["limited"]) == ("OverLimit", "requests.nvidia.com/gpu=1")


def test_a_bare_pod_stands_for_itself(told: Told) -> None:
    sandbox = furnished()
    body = job("unused", workload="b0b0")["spec"]["template"]
    pod = {**bare_pod("train", seconds="5"), "spec": {**body["spec"]}}
    pod["metadata"]["labels"] |= body["metadata"]["labels"]
    sandbox.create(pod)
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["b0b0"].phase == "active"
    sandbox.tick(after=6)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["b0b0"].phase == "succeeded"
    sandbox.delete(pod)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["b0b0"].phase == "missing"


def test_foreign_pods_are_rows_without_an_owner() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("theirs", gpus=4))
    observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get().owner_id == ""


def test_a_registered_handler_is_called_once_however_often_it_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "_handlers", [])
    handler = Told()
    observation.register(handler)
    observation.register(handler)
    assert observation.handlers() == (handler,)


def test_a_suspended_job_says_so(told: Told) -> None:
    sandbox = furnished()
    created = sandbox.create(job("train", workload="4f1c", grace=1))
    sandbox.ticks(2)
    live = sandbox.get(created)
    assert live is not None
    live["spec"]["suspend"] = True
    sandbox.gateway.update(live, observed=live)
    sandbox.ticks(3)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["4f1c"].phase == "suspended"
    assert sandbox.pods("train") == []


def test_a_quiet_cluster_costs_few_queries(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    with django_assert_max_num_queries(10):
        observe_cluster(sandbox.cluster)


def test_many_pods_cost_no_more_queries_than_few(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    sandbox = furnished()
    sandbox.create(job("small"))
    sandbox.ticks(2)
    with CaptureQueriesContext(connection) as few:
        observe_cluster(sandbox.cluster)
    sandbox.create(job("large", parallelism=7, workload="other"))
    sandbox.ticks(2)
    with django_assert_max_num_queries(len(few)):
        observe_cluster(sandbox.cluster)


def test_a_memory_cluster_is_observed_too(told: Told) -> None:
    cluster = build_cluster()
    gateway = gateway_for(cluster)
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    manifest = bare_pod("train")
    gateway.create(manifest)
    observe_cluster(cluster)
    assert [pod.name for pod in told.last.pods] == ["train"]
    gateway.delete(ref_of(manifest))
    observe_cluster(cluster)
    assert ObservedPod.objects.get().gone_at is not None


def test_a_kind_the_cluster_does_not_serve_is_skipped(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    sandbox = furnished()
    sandbox.create(job("train", workload="4f1c"))
    sandbox.tick()
    listed = backend.SandboxGateway.list

    def without_ray(gateway: backend.SandboxGateway, kind: Kind, **asked: bool) -> tuple[list[Manifest], str]:
        if kind.group == "ray.io":
            raise ClusterRefused("the server could not find the requested resource")
        return listed(gateway, kind, **asked)

    monkeypatch.setattr(backend.SandboxGateway, "list", without_ray)
    observe_cluster(sandbox.cluster)
    assert told.last.jobs["4f1c"].phase == "active"


def test_a_cluster_that_refuses_its_pods_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_gateway: backend.SandboxGateway, _kind: Kind, **_asked: bool) -> tuple[list[Manifest], str]:
        raise ClusterRefused("forbidden")

    sandbox = furnished()
    monkeypatch.setattr(backend.SandboxGateway, "list", refuse)
    with pytest.raises(ClusterRefused):
        observe_cluster(sandbox.cluster)
    assert Cluster.objects.get().observed_at is None


def test_foreign_jobs_are_nobodys(told: Told) -> None:
    sandbox = furnished()
    observe_cluster(sandbox.cluster)
    theirs = job("theirs")
    theirs["metadata"]["labels"] = {}
    sandbox.create(theirs)
    sandbox.create(job("ours", workload="4f1c"))
    sandbox.tick()
    observe_cluster(sandbox.cluster)
    assert list(told.last.jobs) == ["4f1c"]


def test_an_event_about_a_job_not_seen_yet_finds_its_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="1")
    monkeypatch.setattr(observe, "JOB_KINDS", ())
    sandbox.create(job("refused", workload="77aa", gpus=2))
    gone = sandbox.create(job("gone", workload="88bb", gpus=2))
    sandbox.tick()
    sandbox.delete(gone)
    observe_cluster(sandbox.cluster)
    assert list(ClusterEvent.objects.values_list("owner_id", flat=True)) == ["77aa"]


def test_a_pods_pool_is_its_label_else_its_node_selector_else_the_default() -> None:
    sandbox = furnished()
    NodePool.objects.create(cluster=sandbox.cluster, name="a100", label_value="a100", is_default=True)
    NodePool.objects.create(cluster=sandbox.cluster, name="h100", label_key="pool", label_value="h")
    plain, selecting, labelled = bare_pod("plain"), bare_pod("selecting"), bare_pod("labelled")
    selecting["spec"]["nodeSelector"] = {"pool": "h"}
    labelled["metadata"]["labels"]["rung.dev/node-pool"] = "other"
    for pod in (plain, selecting, labelled):
        sandbox.create(pod)
    observe_cluster(sandbox.cluster)
    pools = dict(ObservedPod.objects.values_list("name", "pool_name"))
    assert pools == {"plain": "a100", "selecting": "h100", "labelled": "other"}
