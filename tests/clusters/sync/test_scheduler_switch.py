"""A living cluster gets another scheduler: what is told before, what is written in which order, what stays."""

from collections.abc import Iterable

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import Cluster
from clusters.inventory.services import workload_hooks
from clusters.inventory.services.inventory import mark_dirty, pause
from clusters.inventory.services.workload_hooks import HeldOtherwise, SwitchEffect, WorkloadSample
from clusters.ports.flavour import SchedulerFlavour
from clusters.ports.gateway import ClusterError, ClusterRefused, Kind, Manifest, ObjectRef
from clusters.ports.objects import KAI_QUEUE, NAMESPACE, PRIORITY_CLASS, RESOURCE_QUOTA, is_managed
from clusters.sync.models import FormerFlavour, OrphanedObject
from clusters.sync.services.reconcile import reconcile
from clusters.sync.services.scheduler_switch import SwitchPlan, plan_switch, switch_flavour
from clusters.watch.models import ObserverLease
from clusters.watch.services.informers import observe_cluster
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import SYSTEM
from tests.clusters.specs import Wanted
from tests.clusters.synced import outcomes

VOLCANO = next(kind for kind in FLAVOURS["volcano"].kinds() if kind.kind == "Queue")
OTHERS = sorted(set(FLAVOURS) - {"kai"})


class Workers:
    """Says of itself which workloads there are."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.waiting: set[str] = set()

    def work_in(self, cluster: Cluster, after: SchedulerFlavour, /) -> SwitchEffect:
        return SwitchEffect(WorkloadSample(len(self.running)), WorkloadSample(len(self.waiting)), WorkloadSample())

    def begin(self, cluster: Cluster, /) -> Iterable[str]:
        return self.running | self.waiting

    def tend(self, ids: frozenset[str], /) -> Iterable[str]:
        return ids & (self.running | self.waiting)

    def held_otherwise(self, cluster: Cluster, /) -> Iterable[HeldOtherwise]:
        return ()


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    """The only ones who know the work."""
    found = Workers()
    monkeypatch.setattr(workload_hooks, "_workforces", [found])
    return found


def switch(cluster: Cluster, flavour: str) -> SwitchPlan:
    plan = plan_switch(cluster=cluster, flavour=flavour)
    switch_flavour(cluster=cluster, flavour=flavour, generation=plan.generation, actor=SYSTEM)
    return plan


def held(gateway: MemoryGateway, kind: Kind) -> list[str]:
    return sorted(each["metadata"]["name"] for each in gateway.list(kind)[0])


def foreign_queue(name: str) -> Manifest:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": {}}


def counts(plan: SwitchPlan) -> dict[str, tuple[int, int, int, int]]:
    return {each.kind: (each.create, each.delete, each.kept, each.conflict) for each in plan.kinds}


def test_a_plan_counts_what_is_made_and_what_goes(synced: Cluster, store: MemoryStore) -> None:
    before = len(store.writes)
    plan = plan_switch(cluster=synced, flavour="kube")
    assert counts(plan) == {
        "LimitRange": (1, 0, 0, 0),
        "Queue.scheduling.run.ai": (0, 2, 0, 0),
        "ResourceQuota": (1, 0, 0, 0),
    }
    assert plan.unchanged == 3
    assert next(each.samples for each in plan.kinds if "Queue" in each.kind) == ("department.1.a100", "project.1.a100")
    assert len(store.writes) == before
    assert Cluster.objects.get().flavour == "kai"


@pytest.mark.parametrize("flavour", OTHERS)
def test_what_was_planned_is_what_the_next_run_does(synced: Cluster, gateway: MemoryGateway, flavour: str) -> None:
    plan = switch(synced, flavour)
    run = reconcile(synced)
    planned = sum(each.create + each.delete + each.replace for each in plan.kinds)
    assert (run.state, run.written) == ("succeeded", planned)
    assert held(gateway, KAI_QUEUE) == []
    assert reconcile(synced).written == 0


@pytest.mark.parametrize("flavour", OTHERS)
def test_everything_new_stands_before_anything_old_goes(synced: Cluster, store: MemoryStore, flavour: str) -> None:
    switch(synced, flavour)
    begin = len(store.writes)
    reconcile(synced)
    verbs = [verb for verb, ref in store.writes[begin:] if ref.kind != PRIORITY_CLASS]
    assert set(verbs) == {"ADDED", "DELETED"}
    assert verbs == sorted(verbs)


@pytest.mark.parametrize("flavour", OTHERS)
def test_switching_back_brings_back_what_was_there(synced: Cluster, gateway: MemoryGateway, flavour: str) -> None:
    before = {kind.key: held(gateway, kind) for each in FLAVOURS.values() for kind in each.kinds()}
    switch(synced, flavour)
    reconcile(synced)
    switch(synced, "kai")
    reconcile(synced)
    after = {kind.key: held(gateway, kind) for each in FLAVOURS.values() for kind in each.kinds()}
    assert after == before


def test_while_something_new_cannot_be_made_everything_old_stays(
    synced: Cluster, store: MemoryStore, gateway: MemoryGateway
) -> None:
    def refuse_quotas(verb: str, ref: ObjectRef) -> ClusterError | None:
        return ClusterRefused("No quotas today.") if ref.kind == RESOURCE_QUOTA else None

    switch(synced, "kube")
    store.faults.append(refuse_quotas)
    run = reconcile(synced)
    assert held(gateway, KAI_QUEUE) == ["department.1.a100", "project.1.a100"]
    assert set(run.outcomes.filter(action="delete").values_list("code", flat=True)) == {"waits_for_successor"}
    store.faults.clear()
    reconcile(synced)
    assert held(gateway, KAI_QUEUE) == []


def test_a_dry_run_after_a_switch_tells_the_same_order(synced: Cluster, store: MemoryStore) -> None:
    switch(synced, "kube")
    before = len(store.writes)
    run = reconcile(synced, dry_run=True)
    assert [action for action, _, _ in outcomes(run)] == ["create", "create", "delete", "delete"]
    assert len(store.writes) == before


def test_queues_stay_while_workloads_made_for_them_live(
    synced: Cluster, gateway: MemoryGateway, workers: Workers
) -> None:
    workers.running = {"one"}
    plan = switch(synced, "kube")
    assert counts(plan)["Queue.scheduling.run.ai"] == (0, 0, 2, 0)
    reconcile(synced)
    assert len(held(gateway, KAI_QUEUE)) == 2
    assert not synced.drifts.exists()
    workers.running = set()
    for _ in range(2):
        reconcile(synced)
    assert held(gateway, KAI_QUEUE) == []
    assert not OrphanedObject.objects.exists()


def test_what_the_api_server_itself_enforces_never_stays(
    plain: Cluster, wanted: Wanted, synced: Cluster, workers: Workers
) -> None:
    reconcile(plain)
    workers.running = {"one"}
    plan = switch(plain, "kai")
    assert counts(plan)["ResourceQuota"] == (0, 1, 0, 0)
    reconcile(plain)
    kinds = set(plain.sync_runs.first().outcomes.filter(action="delete").values_list("kind", flat=True))  # type: ignore[union-attr]  # there is a run
    assert kinds == {"ResourceQuota", "LimitRange"}


def test_a_former_scheduler_is_looked_for_until_nothing_of_it_is_left(synced: Cluster) -> None:
    switch(synced, "kube")
    reconcile(synced)
    assert FormerFlavour.objects.get().cleared_at is None
    reconcile(synced)
    assert FormerFlavour.objects.get().cleared_at is not None


def test_one_that_shares_every_kind_is_cleared_at_once(plain: Cluster, wanted: Wanted, synced: Cluster) -> None:
    reconcile(plain)
    switch(plain, "kube-gangs")
    assert reconcile(plain).written == 0
    assert FormerFlavour.objects.get().cleared_at is not None


def test_objects_of_others_are_never_touched(synced: Cluster, store: MemoryStore, gateway: MemoryGateway) -> None:
    theirs = [gateway.create(foreign_queue(name)) for name in ("department.1.a100", "default")]
    plan = switch(synced, "volcano")
    assert counts(plan)["Queue.scheduling.volcano.sh"] == (1, 0, 0, 1)
    assert plan.conflicts == ("Queue department.1.a100 exists and is not managed by Rung.",)
    reconcile(synced)
    now = gateway.list(VOLCANO, managed_only=False)[0]
    assert [each for each in now if not is_managed(each)] == theirs
    assert len(held(gateway, KAI_QUEUE)) == 2  # what is new is not all there


def test_a_plan_that_is_no_longer_true_is_refused(synced: Cluster) -> None:
    plan = plan_switch(cluster=synced, flavour="kube")
    mark_dirty(synced)
    with pytest.raises(Conflict, match="changed after this plan was created"):
        switch_flavour(cluster=synced, flavour="kube", generation=plan.generation, actor=SYSTEM)
    assert Cluster.objects.get().flavour == "kai"
    assert AuditRecord.objects.get(action="cluster.switch").result == "Denied"


@pytest.mark.parametrize(("flavour", "said"), [("slurm", "is not a scheduler"), ("kai", "already has this scheduler")])
def test_what_is_no_other_scheduler_is_refused(synced: Cluster, flavour: str, said: str) -> None:
    with pytest.raises(ValidationFailed, match=said):
        plan_switch(cluster=synced, flavour=flavour)


def test_a_paused_cluster_is_left_alone(synced: Cluster) -> None:
    pause(cluster=synced, reason="Not now.", actor=SYSTEM)
    with pytest.raises(Conflict, match="is paused"):
        plan_switch(cluster=synced, flavour="kube")


def test_a_kind_that_is_not_served_forbids_it(synced: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryGateway, "serves", lambda _self, kind: kind.group != VOLCANO.group)
    plan = plan_switch(cluster=synced, flavour="volcano")
    assert not plan.possible
    assert VOLCANO in plan.hindrances.unserved
    with pytest.raises(Conflict, match="does not serve Queue of scheduling"):
        switch_flavour(cluster=synced, flavour="volcano", generation=plan.generation, actor=SYSTEM)
    assert not FormerFlavour.objects.exists()


def test_promises_that_change_are_told_losses_first(synced: Cluster) -> None:
    changed = plan_switch(cluster=synced, flavour="kube").guarantees
    words = {each.after.code: (each.before.enforced, each.after.enforced) for each in changed}
    assert words["rank"] == ("yes", "no")
    assert words["never_evicts_nobody"] == ("no", "yes")
    worse = [each.is_worse for each in changed]
    assert worse == sorted(worse, reverse=True)


def test_it_is_audited_and_everything_is_looked_at_again(synced: Cluster) -> None:
    observe_cluster(synced)
    generation = Cluster.objects.get().generation
    switch(synced, "kube")
    assert AuditRecord.objects.get(action="cluster.switch").detail["after"] == "kube"
    assert synced.generation > generation
    assert ObserverLease.objects.get().versions == {}


def test_a_run_that_began_before_the_switch_settles_nothing_after_it(synced: Cluster, store: MemoryStore) -> None:
    late = Cluster.objects.get()
    switch(synced, "kube")
    with pytest.raises(ClusterError, match="changed in the meantime"):
        reconcile(late)
    synced.refresh_from_db()
    assert synced.synced_generation < synced.generation
    assert reconcile(synced).written == 4


def test_classes_and_namespaces_are_the_same_objects_afterwards(synced: Cluster, gateway: MemoryGateway) -> None:
    shared = uids(gateway, PRIORITY_CLASS, NAMESPACE)
    switch(synced, "kube")
    reconcile(synced)
    assert uids(gateway, PRIORITY_CLASS, NAMESPACE) == shared


def test_classes_are_replaced_where_the_new_scheduler_lets_no_pod_preempt(
    synced: Cluster, gateway: MemoryGateway
) -> None:
    before = {each["metadata"]["name"]: each["value"] for each in gateway.list(PRIORITY_CLASS)[0]}
    namespaces = uids(gateway, NAMESPACE)
    plan = switch(synced, "kueue")
    assert next(each.replace for each in plan.kinds if each.kind == "PriorityClass.scheduling.k8s.io") == len(before)
    reconcile(synced)
    after = gateway.list(PRIORITY_CLASS)[0]
    assert {each["metadata"]["name"]: each["value"] for each in after} == before
    assert {each["preemptionPolicy"] for each in after} == {"Never"}
    assert uids(gateway, NAMESPACE) == namespaces


def uids(gateway: MemoryGateway, *kinds: Kind) -> list[str]:
    return [each["metadata"]["uid"] for kind in kinds for each in gateway.list(kind)[0]]
