"""Pools that share one KAI scheduler, or have none: Rung's model goes pool by pool, so it says so."""

import pytest

from clusters.backends.memory import MemoryGateway, store_of
from clusters.connection.services.registration import register_cluster, try_stored
from clusters.connection.services.scheduler_config import (
    eviction_exemptions,
    guarantee_on,
    shard_forecast_warnings,
    shard_settings_warnings,
    shard_warnings,
    unserved_because,
)
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, Manifest, NotAuthorized
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause, EvictionExemptions
from tests.clusters.connection.answering import Answering, entered
from tests.factories.clusters import NodePoolFactory, build_cluster

pytestmark = pytest.mark.django_db

SHARD_LABEL = "kai.scheduler/node-pool"


@pytest.fixture
def kai(db: None) -> Cluster:
    """A KAI cluster of which nobody knows the schedulers."""
    return build_cluster(name="kai", flavour="kai")


def pool(cluster: Cluster, name: str, *, shard: bool = False) -> None:
    NodePoolFactory(cluster=cluster, name=name, label_key=SHARD_LABEL if shard else "rung.dev/node-pool")


def shards(*values: str) -> list[Manifest]:
    return [
        {
            "apiVersion": "kai.scheduler/v1",
            "kind": "SchedulingShard",
            "metadata": {"name": f"shard-{value or 'default'}"},
            "spec": {"partitionLabelValue": value} if value else {},
        }
        for value in values
    ]


def seen(cluster: Cluster, *values: str) -> Cluster:
    """The row after everything was looked at, with shards for these values."""
    gateway = MemoryGateway(store_of(str(cluster.pk)))
    for each in shards(*values):
        gateway.create(each)
    Cluster.objects.filter(pk=cluster.pk).update(resync_due_at=None)
    reconcile(Cluster.objects.get(pk=cluster.pk))
    return Cluster.objects.get(pk=cluster.pk)


def test_pools_of_one_scheduler_are_named(kai: Cluster) -> None:
    for name in ("h100", "a100"):
        pool(kai, name)
    pool(kai, "l40", shard=True)
    (warning,) = shard_warnings(kai)
    assert warning.startswith("One KAI Scheduler serves the node pools a100 and h100 and counts quotas")
    assert SHARD_LABEL in warning
    assert shard_forecast_warnings(kai, "h100")[0].startswith("One KAI Scheduler serves a100 and h100")
    assert shard_forecast_warnings(kai, "l40") == ()
    assert guarantee_on(kai, "quota_per_node_pool").enforced == "partly"


def test_a_shard_for_every_pool_keeps_them_apart(kai: Cluster) -> None:
    for name in ("h100", "a100"):
        pool(kai, name, shard=True)
    after = seen(kai, "h100", "a100")
    assert after.configured == {"shards": ["a100", "h100"]}
    assert (shard_warnings(after), shard_forecast_warnings(after, "h100"), unserved_because(after, "h100")) == (
        (),
        (),
        "",
    )
    assert guarantee_on(after, "quota_per_node_pool").enforced == "yes"


def test_a_pool_that_no_scheduler_takes_is_named(kai: Cluster) -> None:
    pool(kai, "h100", shard=True)
    pool(kai, "a100")
    after = seen(kai, "h100-new")
    assert [each.partition(". ")[0] for each in shard_warnings(after)] == [
        "No SchedulingShard of KAI Scheduler covers the nodes of a100",
        "No SchedulingShard of KAI Scheduler covers the nodes of h100",
    ]
    assert unserved_because(after, "h100").endswith("until one exists for kai.scheduler/node-pool=h100.")


@pytest.mark.parametrize("refused", [False, True], ids=["without the operator", "without the right"])
def test_nothing_is_said_of_schedulers_that_cannot_be_read(
    kai: Cluster, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool(kai, "h100", shard=True)
    real = MemoryGateway.list

    def listed(self: MemoryGateway, kind: Kind, **more: bool) -> tuple[list[Manifest], str]:
        if refused and kind.kind == "SchedulingShard":
            raise NotAuthorized("schedulingshards")
        return real(self, kind, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryGateway, "list", listed)
    after = seen(kai)
    assert (after.configured, shard_warnings(after), unserved_because(after, "h100")) == ({}, (), "")


def test_the_sandbox_has_a_scheduler_for_every_pool() -> None:
    cluster = build_cluster(name="sandbox", flavour="kai", backend="sandbox")
    for name in ("h100", "a100"):
        pool(cluster, name)
    assert (shard_warnings(cluster), shard_forecast_warnings(cluster, "h100")) == ((), ())


def test_a_connection_test_reads_them_again() -> None:
    answering = Answering(kinds=frozenset({"Queue.scheduling.run.ai", "Topology.kai.scheduler"}))
    cluster, _ = register_cluster(name="real", flavour="kai", source=entered(), actor=SYSTEM, opens=answering)
    pool(cluster, "h100", shard=True)
    assert try_stored(cluster, opens=answering).warnings == ()
    answering.shards = shards("h200")
    (warning,) = try_stored(cluster, opens=answering).warnings
    assert warning.startswith("No SchedulingShard of KAI Scheduler covers the nodes of h100")


def configured(cluster: Cluster, **settings: object) -> Cluster:
    """With shards for two pools, of which the one for h100 has these settings."""
    gateway = MemoryGateway(store_of(str(cluster.pk)))
    for shard in shards("h100", "a100"):
        more = settings if shard["spec"]["partitionLabelValue"] == "h100" else {}
        gateway.create({**shard, "spec": {**shard["spec"], **more}})
    reconcile(Cluster.objects.get(pk=cluster.pk))
    return Cluster.objects.get(pk=cluster.pk)


def test_what_a_shard_sets_otherwise_is_named_for_its_own_pool(kai: Cluster) -> None:
    for name in ("h100", "a100"):
        pool(kai, name, shard=True)
    after = configured(
        kai,
        actions={"reclaim": {"enabled": False}, "preempt": {"priority": 900}},
        usageDBConfig={"clientType": "prometheus"},
        plugins={"elastic": {"enabled": False}, "<b>": {}},
    )
    (said,) = shard_settings_warnings(after, "h100")
    for words in ("no reclaim", "time-based fair share", "another order of actions", "settings of the plugins elastic"):
        assert words in said
    assert "<b>" not in said
    assert shard_settings_warnings(after, "a100") == ()
    assert eviction_exemptions(after) == NO_EXEMPTIONS, "the other shard reclaims"


def test_what_no_shard_does_is_left_out_by_the_model(kai: Cluster) -> None:
    pool(kai, "h100", shard=True)
    gateway = MemoryGateway(store_of(str(kai.pk)))
    for shard in shards("h100"):
        off = {name: {"enabled": False} for name in ("consolidation", "reclaim")}
        gateway.create({**shard, "spec": {**shard["spec"], "actions": off}})
    reconcile(Cluster.objects.get(pk=kai.pk))
    after = Cluster.objects.get(pk=kai.pk)
    assert eviction_exemptions(after) == EvictionExemptions(frozenset({Cause.CONSOLIDATE, Cause.RECLAIM}))
    assert shard_settings_warnings(after, "h100") == ()
