"""What an admin may do to a sandbox: add nodes, set its speed. And the logs it makes up."""

from datetime import timedelta

import pytest

from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import ClusterRefused, ObjectRef
from clusters.ports.objects import NODE, POD
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services import kubelet
from clusters.sandbox.services.simulation import create_sandbox_nodes, set_speed
from portal.audit.models import AuditRecord
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished

pytestmark = pytest.mark.django_db


def a_pool(cluster: Cluster, **fields: str) -> NodePool:
    return NodePool.objects.create(cluster=cluster, name="a100", label_value="a100", **fields)


def test_new_nodes_carry_their_pools_label_and_amounts() -> None:
    sandbox = Sandbox()
    pool = a_pool(sandbox.cluster, label_key="cloud.example/pool")
    names = create_sandbox_nodes(cluster=sandbox.cluster, pool=pool, count=2, gpus=4, gpu_type="A100", actor=SYSTEM)
    assert names == ["a100-01", "a100-02"]
    [node, _] = sandbox.gateway.list(NODE, managed_only=False)[0]
    assert node["metadata"]["labels"]["cloud.example/pool"] == "a100"
    assert node["metadata"]["labels"]["rung.dev/node-pool"] == "a100"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"


def test_more_nodes_take_the_next_free_names() -> None:
    sandbox = Sandbox()
    pool = a_pool(sandbox.cluster)
    create_sandbox_nodes(cluster=sandbox.cluster, pool=pool, count=3, actor=SYSTEM)
    sandbox.remove_node("a100-02")
    assert create_sandbox_nodes(cluster=sandbox.cluster, pool=pool, count=2, actor=SYSTEM) == ["a100-02", "a100-04"]


@pytest.mark.parametrize("count", [0, 1001])
def test_no_senseless_number_of_nodes(count: int) -> None:
    sandbox = Sandbox()
    with pytest.raises(ValidationFailed):
        create_sandbox_nodes(cluster=sandbox.cluster, pool=a_pool(sandbox.cluster), count=count, actor=SYSTEM)


def test_a_real_cluster_gets_no_invented_nodes() -> None:
    cluster = Cluster.objects.create(name="real", flavour="kai", backend="memory")
    with pytest.raises(ValidationFailed, match="is a real cluster"):
        create_sandbox_nodes(cluster=cluster, pool=a_pool(cluster), count=1, actor=SYSTEM)


def test_the_speed_is_set_and_recorded() -> None:
    sandbox = Sandbox()
    set_speed(cluster=sandbox.cluster, speed=60, actor=SYSTEM)
    assert SandboxClock.objects.get(cluster=sandbox.cluster).speed == 60
    assert AuditRecord.objects.filter(action="sandbox.set_speed").count() == 1


@pytest.mark.parametrize("speed", [0, 3601])
def test_time_neither_stops_nor_races(speed: int) -> None:
    with pytest.raises(ValidationFailed):
        set_speed(cluster=Sandbox().cluster, speed=speed, actor=SYSTEM)


def logs(sandbox: Sandbox, name: str, **requested: int) -> list[str]:
    return list(sandbox.gateway.logs(ObjectRef(POD, name, TEAM), **requested))


def test_training_logs_say_that_they_are_simulated_and_tell_steps_and_checkpoints() -> None:
    sandbox = furnished()
    pod = bare_pod("train", seconds="600")
    pod["metadata"]["annotations"]["rung.dev/checkpoint-interval"] = "4m"
    sandbox.create(pod)
    sandbox.ticks(2)
    sandbox.tick(after=601)
    lines = logs(sandbox, "train", tail=400)
    assert lines[0].startswith("# Simulated")
    assert len(lines) == 302
    assert " step 0 loss " in lines[1]
    assert [line.split()[-1] for line in lines if "saved checkpoint" in line] == ["step-120", "step-240"]
    assert lines[-1].endswith("training finished")
    assert lines == logs(sandbox, "train", tail=400)


def test_work_that_does_not_say_that_it_saves_itself_logs_no_checkpoint() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train", seconds="6000"))
    sandbox.ticks(2)
    sandbox.tick(after=6001)
    assert not any("checkpoint" in line for line in logs(sandbox, "train", tail=4000))


def test_only_the_last_lines_are_made() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train", seconds="600", exit_code="137"))
    sandbox.ticks(2)
    sandbox.tick(after=601)
    lines = logs(sandbox, "train", tail=3)
    assert len(lines) == 3
    assert "step 299 " in lines[1]
    assert lines[2].endswith("RuntimeError: process exited with code 137")


def test_a_server_logs_requests() -> None:
    sandbox = furnished()
    pod = bare_pod("serve", seconds="")
    pod["spec"]["restartPolicy"] = "Always"
    sandbox.create(pod)
    sandbox.ticks(2)
    [served] = sandbox.pods()
    made = kubelet.lines(served, now=sandbox.now + timedelta(seconds=20), clock=SandboxClock(), tail=50)
    assert len(made) == 11
    assert " GET /" in made[-1]


def test_a_pod_that_waits_has_only_the_header() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("waits", gpus=99))
    sandbox.tick()
    assert len(logs(sandbox, "waits")) == 1


def test_logs_of_nobody_are_refused() -> None:
    with pytest.raises(ClusterRefused, match="not found"):
        logs(furnished(), "nobody")


def test_logs_of_an_unknown_container_are_refused() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train"))
    with pytest.raises(ClusterRefused, match="container sidecar is not valid"):
        sandbox.gateway.logs(ObjectRef(POD, "train", TEAM), container="sidecar")
