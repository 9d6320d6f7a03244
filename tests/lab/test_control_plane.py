"""A real control plane comes up with GPU nodes and an account of few rights, and goes without a trace."""

from collections.abc import Callable
from pathlib import Path

import pytest
from urllib3.exceptions import HTTPError

from clusters.kinds_core import NODE, POD, ref_of
from clusters.ports import Manifest
from tests.support.kube import KubeClient, KubeError
from tests.support.lab import GPUS, NODES, Lab, LabCluster, programs


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
        assert len(lab.processes("once")) == 5
        assert "once up" in lab.run("list")
    finally:
        lab.run("down", "once")
    assert lab.processes("once") == {}
    assert list((tmp_path / "clusters").iterdir()) == []
    with pytest.raises(HTTPError):
        admin.call("GET", "/readyz")
