"""What a scheduler is configured to do is kept with its cluster: read, read again, and forgotten."""

from typing import Final

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore, store_of
from clusters.connection.services.scheduler_config import (
    budgets_in,
    eviction_exemptions,
    guarantees_on,
    other_queues_in,
)
from clusters.flavours.registry import flavour_for
from clusters.flavours.volcano_config import CONF, KEY, NO_PREEMPT, UNREAD
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ClusterError, ClusterUnreachable, Kind, Manifest, NotAuthorized, ObjectRef
from clusters.ports.objects import BUDGET, KUEUE_COHORT, KUEUE_QUEUE, MANAGED_BY, MANAGER
from clusters.sync.services.reconcile import reconcile
from clusters.sync.services.scheduler_switch import plan_switch, switch_flavour
from portal.kit.security.actors import SYSTEM
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause, EvictionExemptions
from tests.clusters.specs import Wanted
from tests.factories.clusters import build_cluster

BOTH: Final = EvictionExemptions(frozenset({Cause.PREEMPT, Cause.RECLAIM}))
ALL: Final = "allocate, preempt, reclaim, backfill"


@pytest.fixture
def volcano(db: None, wanted: Wanted) -> Cluster:
    """A Volcano cluster in memory that nobody has looked at."""
    return build_cluster(name="vulcan", flavour="volcano")


def configure_volcano(store: MemoryStore, actions: str) -> None:
    """Write Volcano's configuration there."""
    gateway = MemoryGateway(store)
    data = {KEY: f'actions: "{actions}"\ntiers: [{{plugins: [{{name: priority}}]}}]\n'}
    if found := gateway.get(CONF):
        gateway.update({**found, "data": data}, observed=found)
        return
    metadata = {"name": CONF.name, "namespace": CONF.namespace}
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CONF.namespace}})
    gateway.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def seen(cluster: Cluster) -> Cluster:
    """The row after everything was looked at."""
    Cluster.objects.filter(pk=cluster.pk).update(resync_due_at=None)
    reconcile(Cluster.objects.get(pk=cluster.pk))
    return Cluster.objects.get(pk=cluster.pk)


def test_it_is_as_shipped_until_a_reconcile_has_read_it(volcano: Cluster) -> None:
    configure_volcano(store_of(str(volcano.pk)), ALL)
    assert eviction_exemptions(volcano) == BOTH
    assert "Assumption: default configuration" in next(each.explanation for each in guarantees_on(volcano))
    assert eviction_exemptions(seen(volcano)) == NO_EXEMPTIONS


def test_a_change_is_seen_by_the_next_full_look_and_what_is_gone_is_assumed_again(volcano: Cluster) -> None:
    store = store_of(str(volcano.pk))
    configure_volcano(store, ALL)
    seen(volcano)
    configure_volcano(store, "allocate, preempt")
    assert eviction_exemptions(seen(volcano)) == EvictionExemptions(frozenset({Cause.RECLAIM}))
    MemoryGateway(store).delete(CONF)
    assert seen(volcano).configured == {}


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(ClusterUnreachable("no route"), NO_EXEMPTIONS, id="what does not answer has said nothing else"),
        pytest.param(NotAuthorized("configmaps"), BOTH, id="what refuses may have been changed unseen"),
    ],
)
def test_a_cluster_that_does_not_let_it_be_read(
    volcano: Cluster, monkeypatch: pytest.MonkeyPatch, error: ClusterError, left: EvictionExemptions
) -> None:
    configure_volcano(store_of(str(volcano.pk)), ALL)
    seen(volcano)
    real = MemoryGateway.get

    def get(self: MemoryGateway, ref: ObjectRef) -> Manifest | None:
        if ref == CONF:
            raise error
        return real(self, ref)

    monkeypatch.setattr(MemoryGateway, "get", get)
    after = seen(volcano)
    assert eviction_exemptions(after) == left
    assert after.synced_at is not None


def test_another_scheduler_knows_nothing_of_it(volcano: Cluster) -> None:
    configure_volcano(store_of(str(volcano.pk)), ALL)
    before = seen(volcano)
    assert before.configured
    plan = plan_switch(cluster=before, flavour="kai")
    switch_flavour(cluster=before, flavour="kai", generation=plan.generation, actor=SYSTEM)
    after = Cluster.objects.get(pk=volcano.pk)
    assert (after.configured, eviction_exemptions(after)) == ({}, NO_EXEMPTIONS)
    assert list(guarantees_on(after))


def test_a_plan_of_a_switch_promises_what_the_configuration_there_keeps(cluster: Cluster, wanted: Wanted) -> None:
    unread = plan_switch(cluster=cluster, flavour="volcano")
    configure_volcano(store_of(str(cluster.pk)), "allocate, reclaim")
    read = plan_switch(cluster=cluster, flavour="volcano")
    assert unread.hindrances.warnings == (UNREAD,)
    assert NO_PREEMPT in read.hindrances.warnings
    found = {each.after.code: each.after.explanation for each in read.guarantees}
    assert "Without the action preempt" in found["priority_inside_project"]
    assumed = {each.after.code: each.after.explanation for each in unread.guarantees}
    assert assumed["priority_inside_project"].startswith("Assumption: default configuration")


class _Budgets:
    """A gateway that lists these disruption budgets, or may not."""

    def __init__(self, *found: Manifest, refused: bool = False) -> None:
        self.found, self.refused = list(found), refused

    def list(self, kind: Kind, *, managed_only: bool = True) -> tuple[list[Manifest], str]:
        if self.refused:
            raise NotAuthorized("poddisruptionbudgets is forbidden")
        return self.found if kind == BUDGET and not managed_only else [], ""


def budget(namespace: str, allowed: object) -> Manifest:
    return {"metadata": {"name": "b", "namespace": namespace}, "status": {"disruptionsAllowed": allowed}}


def test_of_disruption_budgets_the_strictest_of_a_namespace_is_kept() -> None:
    listed = _Budgets(budget("a", 2), budget("a", 0), budget("b", 1), budget("c", "many"))
    assert budgets_in(listed, flavour_for("kube")) == {"budgets": {"a": 0, "b": 1, "c": 0}}
    assert budgets_in(listed, flavour_for("kai")) == {}, "KAI ignores them"


def test_budgets_that_may_not_be_read_are_not_known_and_nothing_else_is_lost() -> None:
    assert budgets_in(_Budgets(refused=True), flavour_for("kube")) == {}
    assert budgets_in(_Budgets(), flavour_for("kube")) == {"budgets": {}}


class _Queues:
    """A gateway that lists these queues and cohorts of Kueue."""

    def __init__(self, queues: list[Manifest], cohorts: list[Manifest]) -> None:
        self.found = {KUEUE_QUEUE: queues, KUEUE_COHORT: cohorts}

    def list(self, kind: Kind, *, managed_only: bool = True) -> tuple[list[Manifest], str]:
        assert not managed_only
        return self.found[kind], ""


def queue(name: str, *, ours: bool = False, **spec: object) -> Manifest:
    labels = {MANAGED_BY: MANAGER} if ours else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def test_kueues_queues_of_others_count_where_they_share_a_tree_with_ours() -> None:
    lends = [{"flavors": [{"resources": [{"name": "nvidia.com/gpu", "lendingLimit": "1"}]}]}]
    cohorts = [queue("root"), queue("research", ours=True, parentName="root"), queue("guests", parentName="root")]
    ours = queue("project.1", ours=True, cohortName="research", admissionChecks=["capacity"])
    stray = queue("stray", cohortName="elsewhere", resourceGroups=lends)
    said = {"members": 1, "lending": False, "checks": ["project.1"]}
    assert other_queues_in(_Queues([ours, stray], cohorts), flavour_for("kueue")) == {"other_queues": said}
    guest = queue("guest", cohortName="guests", resourceGroups=lends)
    found = other_queues_in(_Queues([ours, stray, guest], cohorts), flavour_for("kueue"))["other_queues"]
    assert found == {"members": 2, "lending": True, "checks": ["project.1"]}
    assert other_queues_in(_Queues([ours], cohorts), flavour_for("kai")) == {}
