"""A HyperNode for every domain of a pool: made of nodes as they were seen, kept with them, and named by gangs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from clusters.flavours.objects import MOST_LEVELS
from clusters.flavours.registry import flavour_for
from clusters.flavours.volcano import CEILING, pod_group_events
from clusters.inventory.models import Cluster, DirtyOwner, NodePool
from clusters.inventory.selectors import domains_of
from clusters.inventory.services.inventory import update_node_pool
from clusters.ports.flavour import PoolSpec, TopologyDomain
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import VOLCANO_HYPER_NODE, VOLCANO_POD_GROUP
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.sync.selectors import desired_state
from clusters.sync.services.reconcile import reconcile
from clusters.watch.services.informers import observe_cluster
from portal.kit.security.actors import SYSTEM
from tests.clusters.sandboxes import Sandbox
from tests.clusters.specs import POOL, job, job_manifest, state
from tests.factories.clusters import NodePoolFactory

VOLCANO = flavour_for("volcano")
ZONE, RACK = "example.com/zone", "example.com/rack"
LEVELS = (ZONE, RACK)
DOMAINS = (
    TopologyDomain(("a", "1"), ("n1", "n2")),
    TopologyDomain(("a", "2"), ("n3",)),
    TopologyDomain(("b", "1"), ("n4",)),
)
RACKED = replace(POOL, topology_levels=LEVELS, domains=DOMAINS)


def hyper_nodes(*pools: PoolSpec) -> list[Manifest]:
    return [each for each in VOLCANO.objects_for(state(pools=pools)) if each["kind"] == "HyperNode"]


def members(manifest: Manifest) -> list[tuple[str, str]]:
    found: Sequence[Mapping[str, Any]] = manifest["spec"]["members"]
    return [(each["type"], each["selector"]["exactMatch"]["name"]) for each in found]


def in_tiers(found: Sequence[Manifest]) -> dict[int, list[list[str]]]:
    """Nodes of each domain by tier, whatever the domains are called."""
    by_name = {each["metadata"]["name"]: each for each in found}

    def nodes(name: str) -> list[str]:
        inside = members(by_name[name])
        return sorted(each for kind, name in inside for each in ([name] if kind == "Node" else nodes(name)))

    tiers: dict[int, list[list[str]]] = {}
    for name, each in by_name.items():
        if name != CEILING:
            tiers.setdefault(each["spec"]["tier"], []).append(nodes(name))
    return {tier: sorted(inside) for tier, inside in sorted(tiers.items())}


class TestObjects:
    """What Volcano is told of the domains."""

    def test_every_domain_of_every_level_is_one_the_narrowest_of_tier_1(self) -> None:
        assert in_tiers(hyper_nodes(RACKED)) == {
            1: [["n1", "n2"], ["n3"], ["n4"]],
            2: [["n1", "n2", "n3"], ["n4"]],
        }

    def test_one_value_in_two_domains_above_is_two_domains_since_none_may_have_two_parents(self) -> None:
        found = hyper_nodes(RACKED)
        inside = [name for each in found for kind, name in members(each) if kind == "HyperNode"]
        assert len(inside) == len(set(inside)) == 3

    def test_above_all_levels_stands_one_without_nodes_whatever_the_pools_are(self) -> None:
        """Without it Volcano's own root would be of the tier that a gang may use, and the gang anywhere."""
        for pools in ((), (POOL,), (RACKED,)):
            [ceiling] = [each for each in hyper_nodes(*pools) if each["metadata"]["name"] == CEILING]
            assert ceiling["spec"]["tier"] == MOST_LEVELS + 1
            assert members(ceiling) == [("Node", "rung.nobody")]

    def test_two_pools_share_no_name_though_their_values_are_the_same(self) -> None:
        found = hyper_nodes(RACKED, replace(RACKED, name="h100"))
        names = [each["metadata"]["name"] for each in found]
        assert len(names) == len(set(names)) == 11

    @pytest.mark.parametrize("values", [("A", "a"), ("a_b", "a-b"), ("x" * 63, "x" * 62 + "y"), ("_", ".")])
    def test_a_name_is_one_that_kubernetes_takes_and_another_for_every_value(self, values: tuple[str, str]) -> None:
        domains = tuple(TopologyDomain((value,), (f"n{number}",)) for number, value in enumerate(values))
        names = {
            each["metadata"]["name"] for each in hyper_nodes(replace(POOL, topology_levels=(RACK,), domains=domains))
        }
        assert len(names) == 3
        assert max(map(len, names)) <= 63


def group_of(key: str, pool: PoolSpec | None = RACKED) -> Manifest:
    body = job_manifest(annotations={"rung.dev/topology-key": key} if key else {})
    group, manifest = VOLCANO.render(job(body, pool=pool, min_member=2))
    template = manifest["spec"]["template"]["metadata"]["annotations"]
    assert template.get("rung.dev/topology-key", "") == key
    assert group["metadata"]["annotations"].get("rung.dev/topology-key", "") == key
    return group


class TestGangs:
    """The tier that a gang may not leave."""

    @pytest.mark.parametrize(
        ("key", "tier"),
        [
            pytest.param(RACK, 1, id="the narrowest"),
            pytest.param(ZONE, 2, id="the widest"),
            pytest.param("example.com/row", 0, id="none any more: nowhere, rather than anywhere"),
        ],
    )
    def test_a_gang_names_the_tier_of_the_level_it_asks_for(self, key: str, tier: int) -> None:
        assert group_of(key)["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": tier}

    def test_who_asks_for_none_names_none_and_without_a_pool_it_is_nowhere(self) -> None:
        assert "networkTopology" not in group_of("")["spec"]
        assert group_of(RACK, None)["spec"]["networkTopology"]["highestTierAllowed"] == 0


NOT_READY = "pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable"


class TestReadings:
    """Volcano 1.15 says nothing of domains: it counts no nodes for such a gang."""

    def test_a_pod_waits_for_a_domain_where_its_gang_asked_for_one(self) -> None:
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NOT_READY}
        notes = {"annotations": {"rung.dev/topology-key": RACK}}
        found = VOLCANO.interpret({"kind": "Pod", "metadata": notes, "status": {"conditions": [said]}})
        assert found.reason == "NoDomain"
        assert found.message.startswith(f"No single {RACK} fits")
        assert found.message.endswith(f"Message: {NOT_READY}")

    def test_so_does_its_group(self) -> None:
        message = f"2/2 tasks in gang unschedulable: {NOT_READY}"
        waits = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": message}
        notes = {"annotations": {"rung.dev/topology-key": RACK}, "labels": {"rung.dev/owner": "workload.1"}}
        metadata = {"name": "g", "namespace": "a", "uid": "1", "resourceVersion": "7", **notes}
        group = {
            "apiVersion": VOLCANO_POD_GROUP.api_version,
            "kind": "PodGroup",
            "metadata": metadata,
            "status": {"phase": "Inqueue", "conditions": [waits]},
        }
        _, told = pod_group_events(group)
        assert (told["reason"], told["message"].partition(" fits ")[0]) == ("NoDomain", f"No single {RACK}")


class Estate:
    """A sandbox with Volcano, a pool of racks, and two looks: Rung's at the nodes, ours at what it wrote."""

    def __init__(self) -> None:
        self.sandbox = Sandbox()
        Cluster.objects.update(flavour="volcano")
        self.pool: NodePool = NodePoolFactory(
            cluster=self.sandbox.cluster, name="h100", is_default=True, topology_levels=[RACK]
        )

    @property
    def cluster(self) -> Cluster:
        return Cluster.objects.get(pk=self.sandbox.cluster.pk)

    def node(self, name: str, **labels: str) -> None:
        self.sandbox.node(name, **labels)

    def look(self) -> bool:
        """Whether that made a reconcile due."""
        DirtyOwner.objects.all().delete()
        observe_cluster(self.cluster)
        return DirtyOwner.objects.filter(owner="").exists()

    def written(self) -> dict[int, list[list[str]]]:
        assert reconcile(self.cluster).failed == 0
        assert reconcile(self.cluster).written == 0
        return in_tiers(SandboxGateway(self.cluster).list(VOLCANO_HYPER_NODE)[0])


@pytest.fixture
def estate(db: None) -> Estate:
    return Estate()


def racked(rack: str) -> dict[str, str]:
    return {RACK: rack}


def test_domains_follow_the_nodes_that_come_move_and_go(estate: Estate) -> None:
    for name, rack in (("n1", "1"), ("n2", "1"), ("n3", "2")):
        estate.node(name, **racked(rack))
    estate.node("bare")
    assert estate.look()
    assert estate.written() == {1: [["n1", "n2"], ["n3"]]}
    estate.node("n4", **racked("2"))
    assert estate.look()
    assert estate.written() == {1: [["n1", "n2"], ["n3", "n4"]]}
    estate.sandbox.remove_node("n3")
    estate.sandbox.remove_node("n4")
    assert estate.look()
    assert estate.written() == {1: [["n1", "n2"]]}


def test_what_says_nothing_of_domains_makes_nothing_due(estate: Estate) -> None:
    estate.node("n1", **racked("1"))
    assert estate.look()
    estate.node("bare")
    assert not estate.look()
    Cluster.objects.update(flavour="kai")
    estate.node("n2", **racked("1"))
    assert not estate.look()


def test_levels_that_change_write_other_domains_and_none_any_more_leave_only_the_ceiling(estate: Estate) -> None:
    estate.node("n1", **racked("1"), **{ZONE: "a"})
    estate.node("n2", **racked("1"), **{ZONE: "b"})
    estate.look()
    assert estate.written() == {1: [["n1", "n2"]]}
    update_node_pool(pool=NodePool.objects.get(), topology_levels=[ZONE, RACK], actor=SYSTEM)
    assert estate.written() == {1: [["n1"], ["n2"]], 2: [["n1"], ["n2"]]}
    update_node_pool(pool=NodePool.objects.get(), topology_levels=[], actor=SYSTEM)
    assert estate.written() == {}


def test_a_node_whose_pool_takes_another_label_is_in_none_of_its_domains(estate: Estate) -> None:
    estate.node("n1", pool="h100", **racked("1"))
    NodePoolFactory(cluster=estate.cluster, name="other", label_value="other")
    estate.look()
    assert estate.written() == {1: [["n1"]]}
    NodePool.objects.filter(name="h100").update(is_default=False, label_value="elsewhere")
    assert estate.look()
    assert estate.written() == {}


def test_one_changed_by_hand_is_put_right_and_a_foreign_one_is_left_alone(estate: Estate) -> None:
    estate.node("n1", **racked("1"))
    estate.look()
    estate.written()
    gateway = SandboxGateway(estate.cluster)
    theirs = {"apiVersion": VOLCANO_HYPER_NODE.api_version, "kind": "HyperNode", "metadata": {"name": "theirs"}}
    gateway.create({**theirs, "spec": {"tier": 10, "members": []}})
    [ours] = [each for each in gateway.list(VOLCANO_HYPER_NODE)[0] if each["metadata"]["name"] != CEILING]
    gateway.update({**ours, "spec": {**ours["spec"], "tier": 5}}, observed=ours)
    assert estate.written() == {1: [["n1"]]}
    assert gateway.get(ObjectRef(VOLCANO_HYPER_NODE, "theirs")) is not None


def test_domains_are_read_in_one_query_per_pool_and_only_for_who_makes_objects_of_them(
    estate: Estate, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        estate.node(f"n{number}", **racked(str(number % 3)))
    estate.look()
    pool = NodePool.objects.get()
    with django_assert_num_queries(1):
        found = domains_of(pool)
    assert [each.values for each in found] == [("0",), ("1",), ("2",)]
    assert desired_state(estate.cluster).pools[0].domains == found
    assert desired_state(estate.cluster, owner="pool.h100").pools[0].domains == found
    assert desired_state(estate.cluster, owner="project.1").pools[0].domains == ()
    assert desired_state(estate.cluster, domains=False).pools[0].domains == ()
    Cluster.objects.update(flavour="kai")
    assert desired_state(estate.cluster).pools[0].domains == ()
