"""I1 to I10: what holds after every fault, asked of the API server by an admin and of the proxy's log."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf

from clusters.flavours.kube import GPU
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState
from clusters.ports.objects import NAMESPACE, OWNER, RESOURCE_QUOTA, generation_of, is_managed, owner_of
from clusters.sync.models import SyncRun, SyncState
from portal.audit.chain import seal, verify
from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.faults.grants import Sample
from tests.faults.rig import Rig
from tests.support.faults import Exchange
from tests.support.kube import KubeClient
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload
from workloads.state.rules import ENDED

PERIODS = 3


def assert_all(rig: Rig, samples: list[Sample]) -> None:
    """Bring everything to rest, then check what always holds. A paused cluster is at rest as it is."""
    cluster = Cluster.objects.get(pk=rig.cluster.pk)
    if cluster.state == ClusterState.ACTIVE:
        rig.settle()
        stays_converged(rig)
        grants_are_as_wanted(rig)
        each_workload_is_there_once(rig)
        nothing_is_there_without_a_row(rig)
        rig.look_at_rest()
        assert rig.troubles() == set(), "I10"
    writes_are_fenced(rig.proxy.log)
    nothing_was_granted_beyond(rig, samples)
    seal()
    assert verify() == [], "I6"
    states_changed_once()
    evictions_are_recorded_once()
    nothing_is_stuck(rig)


def each_workload_is_there_once(rig: Rig) -> None:
    """I1: one row, and exactly one live object or an end that is recorded."""
    for workload in Workload.objects.filter(project__cluster=rig.cluster):
        found = rig.object_of(workload)
        if workload.desired_phase == "deleted" or workload.phase == Phase.FAILED:
            continue
        assert found is not None or workload.phase in ENDED, f"I1: {workload} {workload.phase} {workload.apply_error}"


def nothing_is_there_without_a_row(rig: Rig) -> None:
    """I3: no managed object of nobody, no running row without an object."""
    cluster = Cluster.objects.get(pk=rig.cluster.pk)
    namespaces = set(Project.objects.filter(cluster=cluster).values_list("namespace", flat=True))
    for kind in flavour_for(cluster.flavour).kinds():
        for found in rig.admin.list(kind, labels="app.kubernetes.io/managed-by=rung"):
            if "deletionTimestamp" in found["metadata"]:
                continue  # an earlier test's
            inside = found["metadata"].get("namespace") or (kind == NAMESPACE and found["metadata"]["name"])
            assert not inside or inside in namespaces, f"I3: {kind.kind} {inside}/{found['metadata']['name']}"
    for workload in Workload.objects.filter(project__cluster=cluster, phase=Phase.RUNNING):
        assert rig.object_of(workload) is not None, f"I3: {workload} runs nowhere"


def writes_are_fenced(log: list[Exchange]) -> None:
    """I4: one effective create of each workload, and never a lower generation after a higher one."""
    created: Counter[str] = Counter()
    highest: dict[str, int] = defaultdict(int)
    done = sorted((each for each in log if each.is_write and 200 <= each.upstream < 300), key=lambda each: each.ended)
    for each in done:
        if each.method not in {"POST", "PUT"} or not is_managed(manifest := each.manifest):
            continue
        owner, generation = owner_of(manifest), generation_of(manifest)
        name = f"{manifest['kind']} {manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"
        assert generation >= highest[name], f"I4: {name} fell from generation {highest[name]} to {generation}"
        highest[name] = generation
        created[f"{owner} {name}"] += each.method == "POST" and owner.startswith("workload.")
    assert {name: count for name, count in created.items() if count > 1} == {}, "I4"


def nothing_was_granted_beyond(rig: Rig, samples: Iterable[Sample]) -> None:
    """I5: no hard quota was ever more than what was granted before the change under way, or by it."""
    for sample in samples:
        if sample.namespace in rig.ledger.last():
            assert sample.gpus <= rig.ledger.most(sample), f"I5: {sample}"


def grants_are_as_wanted(rig: Rig) -> None:
    """What the API server enforces is what was granted last."""
    enforced = quotas_of(rig.admin)
    for namespace, amounts in rig.ledger.last().items():
        wanted = {name: gpus for name, gpus in amounts.items() if gpus != inf}
        assert {name: gpus for (inside, name), gpus in enforced.items() if inside == namespace} == wanted, "I8"


def states_changed_once() -> None:
    """I6: one audit record for each workload that was submitted."""
    said = Counter(
        AuditRecord.objects.filter(action="workload.submit", result="Succeeded").values_list("entity_id", flat=True)
    )
    rows = {str(pk) for pk in Workload.objects.values_list("pk", flat=True)}
    assert set(said) == rows, "I6"
    assert set(said.values()) <= {1}, "I6"


def evictions_are_recorded_once() -> None:
    """I7."""
    seen = Counter(PreemptionRecord.objects.values_list("cluster_id", "pod_uid"))
    assert {key: count for key, count in seen.items() if count > 1} == {}, "I7"


def stays_converged(rig: Rig) -> None:
    """I8: further resyncs write nothing."""
    before = len(rig.proxy.writes())
    for _ in range(PERIODS):
        said = rig.resync()
        assert (said.state, said.written, said.failed) == (SyncState.SUCCEEDED, 0, 0), "I8"
    assert rig.proxy.writes()[before:] == [], "I8"


def nothing_is_stuck(rig: Rig) -> None:
    """I9: what is not done has a due time, or waits for a person who is told why."""
    cluster = Cluster.objects.get(pk=rig.cluster.pk)
    assert cluster.sync_due_at is not None, "I9"
    assert cluster.state == ClusterState.ACTIVE or cluster.paused_reason, "I9"
    assert not SyncRun.objects.filter(cluster=cluster, state=SyncState.RUNNING).exists(), "I9"
    for workload in Workload.objects.filter(project__cluster=cluster).exclude(phase__in=ENDED):
        # A change that would end running pods reaches the next run: the end of this one makes the row due.
        is_done = workload.applied_generation == workload.generation or workload.running_pods > 0
        assert workload.due_at is not None or is_done, f"I9: {workload}"


def quotas_of(admin: KubeClient) -> dict[tuple[str, str], int]:
    """GPUs of every hard quota of ours by namespace and name, as the API server holds them."""
    found = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"]["hard"]
        for each in admin.list(RESOURCE_QUOTA, labels=OWNER)
    }
    return {name: int(amounts[GPU]) for name, amounts in found.items() if GPU in amounts}


@contextmanager
def sampled(rig: Rig) -> Iterator[list[Sample]]:
    """Look at every quota again and again, by the admin's own way."""
    seen: list[Sample] = []
    stop = threading.Event()
    admin = KubeClient(rig.kubeconfig)

    def sample() -> None:
        while not stop.wait(0.1):
            begun = time.monotonic()
            found = quotas_of(admin)
            ended = time.monotonic()
            seen.extend(Sample(*name, gpus, begun, ended) for name, gpus in found.items())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        admin.close()
