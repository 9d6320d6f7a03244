"""F12, F14, F15: watches that expire, repeat themselves, go back or break off; lists from the past; same names."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from clusters.ports.gateway import Manifest, ObjectRef, TransientClusterError
from clusters.ports.objects import NAMESPACE, POD
from clusters.watch.models import ObservedPod
from tests.factories.workloads import job
from tests.faults.rig import LOW, SEEDS, Rig
from tests.support.faults import (
    Duplicated,
    Expired,
    Fault,
    Reordered,
    Stale,
    Status,
    Truncated,
    WithoutBookmarks,
)
from workloads.state.models import Phase

pytestmark = pytest.mark.parametrize("seed", SEEDS)
GONE = Status(410, "Expired", message="too old resource version")


def pod(name: str, namespace: str) -> Manifest:
    """Somebody's own pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "any"}]},
    }


def stir(rig: Rig, namespace: str, random: Random) -> None:
    """Pods come and go."""
    for number in range(4):
        name = f"{number}-{random.randint(0, 3)}"
        ref = ObjectRef(POD, name, namespace)
        if rig.admin.get(ref) is None:
            rig.admin.create(pod(name, namespace))
        elif random.random() < 0.6:
            rig.admin.delete(ref, grace=0)


def known(rig: Rig, namespace: str) -> set[str]:
    """Which pods are there, as Rung's rows say."""
    rows = ObservedPod.objects.filter(cluster=rig.cluster, namespace=namespace, gone_at__isnull=True)
    return set(rows.values_list("uid", flat=True))


def live(rig: Rig, namespace: str) -> set[str]:
    return {each["metadata"]["uid"] for each in rig.admin.list(POD, namespace=namespace)}


def try_look(rig: Rig) -> None:
    with suppress(TransientClusterError):
        rig.look()


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """Somebody's namespace whose pods were seen once."""
    name = rig.admin.namespace(f"somebody-{rig.mark}")
    stir(rig, name, rig.random)
    rig.look()
    yield name
    rig.proxy.heal()
    rig.admin.delete(ObjectRef(NAMESPACE, name))


@pytest.mark.parametrize("said", [GONE, Expired(0), Expired(1)], ids=["as a status", "in the stream", "after an event"])
def test_f12_what_went_while_the_version_expired_is_found_gone(rig: Rig, namespace: str, said: Fault) -> None:
    with rig.proxy.broken(said, path="/pods", watch=True, times=1), rig.proxy.broken(WithoutBookmarks()):
        for each in rig.admin.list(POD, namespace=namespace):
            rig.admin.delete(ObjectRef(POD, each["metadata"]["name"], namespace), grace=0)
        rig.admin.create(pod("new", namespace))
        try_look(rig)
    rig.look()
    assert known(rig, namespace) == live(rig, namespace) != set()


def test_f14_nothing_older_is_believed_and_nothing_is_lost(rig: Rig, namespace: str) -> None:
    faults: list[Fault] = [Truncated(1), Duplicated(), Reordered(), Stale(), Truncated(0)]
    rig.random.shuffle(faults)
    seen: dict[str, int] = {}
    for fault in faults:
        rig.proxy.breaks(fault, path="/pods", chance=0.9)
        stir(rig, namespace, rig.random)
        try_look(rig)
        for uid, version in ObservedPod.objects.values_list("uid", "resource_version"):
            assert int(version or 0) >= seen.get(uid, 0)
            seen[uid] = int(version or 0)
        rig.proxy.heal()
    rig.look()
    assert known(rig, namespace) == live(rig, namespace)


def test_f15_an_object_recreated_under_the_same_name_is_another_one(rig: Rig, namespace: str) -> None:
    name = rig.admin.list(POD, namespace=namespace)[0]["metadata"]["name"]
    before = known(rig, namespace)
    rig.admin.delete(ObjectRef(POD, name, namespace), grace=0)
    rig.admin.create(pod(name, namespace))
    rig.look()
    assert known(rig, namespace) == live(rig, namespace) != before


def test_f15_a_quota_recreated_by_another_hand_is_not_taken_for_ours(rig: Rig) -> None:
    namespace = rig.projects(1)[0].namespace
    rig.reconcile()
    quota = next(each for each in rig.quotas(namespace) if each["metadata"]["name"] == "rung-deserved")
    rig.admin.delete(rig.admin.ref(quota))
    rig.admin.create({**quota, "metadata": {"name": "rung-deserved", "namespace": namespace}})
    rig.attempt()
    found = rig.admin.must(rig.admin.ref(quota))
    assert "labels" not in found["metadata"]
    assert rig.conflicts() == ["rung-deserved"]
    rig.admin.delete(rig.admin.ref(quota))


def test_f15_a_job_recreated_by_another_hand_does_not_pass_for_the_workload(rig: Rig) -> None:
    project = rig.grant(rig.project("train"), 4)
    rig.reconcile()
    workload = rig.submit(project, job(), **LOW)
    rig.until(workload, lambda row: row.phase == Phase.RUNNING)
    ours = rig.object_of(workload)
    assert ours is not None
    rig.admin.delete(ref := rig.admin.ref(ours), grace=0)
    rig.admin.wait_gone(ref)
    template = {"metadata": {}, "spec": ours["spec"]["template"]["spec"]}
    theirs = {**ours, "metadata": {"name": ref.name, "namespace": ref.namespace}, "spec": {"template": template}}
    rig.admin.create(theirs)
    assert rig.until(workload, lambda row: row.phase != Phase.RUNNING)
