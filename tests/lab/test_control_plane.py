"""A real control plane comes up with GPU nodes and an account of few rights, and goes without a trace."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from urllib3.exceptions import HTTPError

from clusters.ports.gateway import Manifest
from clusters.ports.objects import NODE, POD, ref_of
from tests.support.kube import KubeClient, KubeError
from tests.support.lab import GPUS, NODES, Lab, LabCluster, programs
from tests.support.processes import eventually


def pod(namespace: str, **annotations: str) -> Manifest:
    container = {"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    metadata = {"name": "train", "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def test_it_is_a_kubernetes_of_this_year_with_ready_gpu_nodes(lab_cluster: LabCluster) -> None:
    assert lab_cluster.admin.call("GET", "/version")["gitVersion"].startswith("v1.36.")
    nodes = lab_cluster.admin.list(NODE, labels="rung.dev/node-pool=lab")
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == [str(GPUS)] * NODES


def test_a_pod_is_placed_runs_writes_and_succeeds(lab_cluster: LabCluster, unique: Callable[[str], str]) -> None:
    admin = lab_cluster.admin
    train = pod(admin.namespace(unique("work")), **{"lab.rung.dev/run-for": "1s"})
    ref = ref_of(admin.create(train))
    running = admin.wait_until(ref, lambda found: found["status"]["phase"] in {"Running", "Succeeded"})
    assert running["spec"]["nodeName"].startswith("lab-")
    assert "\x1b[32mepoch 1\x1b[0m" in admin.logs(ref, tailLines="20")
    admin.wait_until(ref, lambda found: found["status"]["phase"] == "Succeeded")


def test_the_account_may_do_what_rung_needs_and_no_more(lab_cluster: LabCluster, unique: Callable[[str], str]) -> None:
    rung = KubeClient(lab_cluster.kubeconfig, token=lab_cluster.token)
    space = unique("granted")
    rung.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    assert rung.list(POD, namespace=space) == []
    with pytest.raises(KubeError, match="403"):
        rung.call("GET", f"/api/v1/namespaces/{space}/secrets")
    rung.close()


@pytest.mark.enable_socket
def test_a_killed_start_does_not_stop_the_next_and_nothing_is_left_behind(tmp_path: Path) -> None:
    lab = Lab(tmp_path, programs())
    with lab.starting("once"):
        pass  # killed as soon as its etcd runs
    try:
        kubeconfig = lab.start("once")
        admin = KubeClient(kubeconfig)
        assert admin.call("GET", "/readyz") == "ok"
        assert len(lab.processes("once")) == 6  # five programs and what starts them again
        assert "once up" in lab.run("list")
    finally:
        lab.end("once")
    assert lab.processes("once") == {}
    assert list((tmp_path / "clusters").iterdir()) == []
    with pytest.raises(HTTPError):
        admin.call("GET", "/readyz")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, KubeClient]]:
    """A cluster whose programs are ended, and its admin's client; every program runs again after each test."""
    lab = Lab(tmp_path_factory.mktemp("lab"), programs())
    try:
        admin = KubeClient(lab.start("own"))
        admin.gpu_nodes(1, GPUS, "lab")
        yield lab, admin
        admin.close()
    finally:
        lab.end("own")
        assert lab.processes("own") == {}


def pid_of(lab: Lab, name: str, program: str) -> int:
    found = [pid for pid, path in lab.processes(name).items() if path.endswith(f"/{program}")]
    assert len(found) <= 1, f"{program} runs {len(found)} times"
    return found[0] if found else 0


def is_ready(admin: KubeClient) -> bool:
    try:
        return bool(admin.call("GET", "/readyz") == "ok")
    except (HTTPError, KubeError):
        return False


@pytest.mark.enable_socket
def test_scheduler_and_controller_manager_are_started_again_when_they_die(own: tuple[Lab, KubeClient]) -> None:
    lab, admin = own
    for program in ("kube-scheduler", "kube-controller-manager"):
        eventually(lambda p=program: pid_of(lab, "own", p), seconds=20)  # it may have ended while the server was away
        before = pid_of(lab, "own", program)
        os.kill(before, signal.SIGKILL)
        eventually(lambda p=program, b=before: pid_of(lab, "own", p) not in {0, b}, seconds=20)
    ref = ref_of(admin.create(pod(admin.namespace("work"))))
    admin.wait_until(ref, lambda found: found["status"]["phase"] == "Running", seconds=60)


@pytest.mark.enable_socket
def test_no_other_cluster_takes_the_port_of_a_program_that_is_down(own: tuple[Lab, KubeClient], tmp_path: Path) -> None:
    lab, admin = own
    other = Lab(tmp_path, programs())  # clusters of another folder know nothing of this one
    lab.run("stop", "own", "kube-scheduler")
    try:
        other.start("other")
        lab.run("start", "own", "kube-scheduler")
        ref = ref_of(admin.create(pod(admin.namespace("meanwhile"))))
        admin.wait_until(ref, lambda found: found["status"]["phase"] == "Running", seconds=60)
    finally:
        other.end("other")


@pytest.mark.enable_socket
def test_a_stopped_program_stays_away_until_it_is_started_on_the_same_port(own: tuple[Lab, KubeClient]) -> None:
    lab, admin = own
    for program in ("kube-apiserver", "kube-scheduler"):
        lab.run("stop", "own", program)
        assert pid_of(lab, "own", program) == 0
    with pytest.raises(HTTPError):
        admin.call("GET", "/readyz")
    assert lab.start("own").exists()
    assert "own up" in lab.run("list")
    assert pid_of(lab, "own", "kube-apiserver") == pid_of(lab, "own", "kube-scheduler") == 0
    for program in ("kube-apiserver", "kube-scheduler"):
        lab.run("start", "own", program)
    eventually(lambda: is_ready(admin), seconds=30)
    before = pid_of(lab, "own", "etcd")
    lab.run("restart", "own", "etcd", "TERM")
    assert pid_of(lab, "own", "etcd") not in {0, before}
    eventually(lambda: is_ready(admin), seconds=30)
    with pytest.raises(AssertionError, match="no program kubelet in cluster own; there are: etcd kube-apiserver"):
        lab.run("restart", "own", "kubelet")


@pytest.mark.enable_socket
def test_a_program_that_does_not_end_when_asked_is_killed_before_another_starts(
    own: tuple[Lab, KubeClient],
) -> None:
    lab, admin = own
    before = pid_of(lab, "own", "etcd")
    os.kill(before, signal.SIGSTOP)
    lab.run("restart", "own", "etcd", "TERM")
    assert pid_of(lab, "own", "etcd") not in {0, before}
    eventually(lambda: is_ready(admin), seconds=30)
