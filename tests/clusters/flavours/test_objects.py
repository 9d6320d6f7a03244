"""What each scheduler is given for priorities, projects and quotas."""

from dataclasses import replace
from typing import Any, Final

import jsonschema
import pytest

from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.ports.flavour import DesiredState, PoolSpec
from clusters.ports.gateway import Manifest
from clusters.ports.objects import stamped
from clusters.sync.rules.diff import Replace, diff
from scheduling.model.resources import Limit
from tests.clusters.schemas import QUEUES
from tests.clusters.specs import POOL, job, job_manifest, priority, project, queue, state
from tests.support import kubernetes_schema

PRIORITIES = (priority("high", 125), priority("low", 40), priority("build", 100))
H100 = PoolSpec("h100", "kai.scheduler/node-pool", "h100-nodes")
RICH = state(
    project("vision", deserved=4, limit=16, caps={"high": 4000, "unknown": 1}),
    priorities=PRIORITIES,
    departments=(queue("department.1", parent=None, deserved=8),),
    pools=(replace(POOL, topology_levels=("example.com/rack",)),),
)


def objects(flavour: str, desired: DesiredState, kind: str) -> dict[str, Manifest]:
    found = flavour_for(flavour).objects_for(desired)
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def specs(flavour: str, desired: DesiredState, kind: str) -> dict[str, Any]:
    return {name: each["spec"] for name, each in objects(flavour, desired, kind).items()}


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_every_built_in_object_is_valid_and_ours(flavour: str) -> None:
    for manifest in flavour_for(flavour).objects_for(RICH):
        assert manifest["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "rung"
        assert manifest["metadata"]["labels"]["rung.dev/owner"]
        assert manifest["metadata"]["annotations"]["rung.dev/generation"].isdecimal()
        if manifest["kind"] == "Queue":
            jsonschema.validate(manifest, QUEUES[manifest["apiVersion"]])
        elif manifest["apiVersion"].partition("/")[0] not in SEEN_IN_REALITY:
            kubernetes_schema.validate(manifest)


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_only_listed_kinds_are_written(flavour: str) -> None:
    listed = {(kind.api_version, kind.kind) for kind in flavour_for(flavour).kinds()}
    assert {(each["apiVersion"], each["kind"]) for each in flavour_for(flavour).objects_for(RICH)} == listed


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_a_priority_class_carries_value_and_policy_and_is_never_the_default(flavour: str) -> None:
    found = objects(flavour, state(priorities=(priority("low", 40, policy="Never"),)), "PriorityClass")["low"]
    assert (found["value"], found["preemptionPolicy"], found["globalDefault"]) == (40, "Never", False)


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_a_namespace_admits_only_restricted_pods(flavour: str) -> None:
    labels = objects(flavour, RICH, "Namespace")["runai-vision"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


class TestKube:
    """ResourceQuotas: hard caps of a namespace."""

    def test_the_limit_counts_everything(self) -> None:
        assert specs("kube", RICH, "ResourceQuota")["rung-limit"] == {"hard": {"requests.nvidia.com/gpu": "16"}}

    def test_the_deserved_quota_counts_classes_of_a_hundred_and_more(self) -> None:
        scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["build", "high"]}
        assert specs("kube", RICH, "ResourceQuota")["rung-deserved"] == {
            "hard": {"requests.nvidia.com/gpu": "4"},
            "scopeSelector": {"matchExpressions": [scope]},
        }

    def test_a_cap_counts_one_class_and_only_a_known_one(self) -> None:
        found = specs("kube", RICH, "ResourceQuota")
        assert set(found) == {"rung-limit", "rung-deserved", "rung-cap-high"}
        assert found["rung-cap-high"]["hard"] == {"requests.nvidia.com/gpu": "4"}
        assert found["rung-cap-high"]["scopeSelector"]["matchExpressions"][0]["values"] == ["high"]

    def test_no_limit_means_no_quota(self) -> None:
        assert "rung-limit" not in specs("kube", state(project("vision"), priorities=PRIORITIES), "ResourceQuota")

    def test_without_non_preemptible_classes_there_is_nothing_to_scope(self) -> None:
        desired = state(project("vision"), priorities=(priority("low", 40),))
        assert specs("kube", desired, "ResourceQuota") == {}

    def test_pools_are_added_up(self) -> None:
        pools = (queue("project.1", deserved=4, limit=8), queue("project.1", pool=H100, deserved=2, limit=4))
        desired = state(replace(project("vision"), queues=pools), priorities=PRIORITIES)
        found = specs("kube", desired, "ResourceQuota")
        assert found["rung-limit"]["hard"] == {"requests.nvidia.com/gpu": "12"}
        assert found["rung-deserved"]["hard"] == {"requests.nvidia.com/gpu": "6"}

    def test_one_unlimited_pool_makes_the_whole_unlimited(self) -> None:
        pools = (queue("project.1", limit=8), queue("project.1", pool=H100, limit=None))
        desired = state(replace(project("vision"), queues=pools), priorities=PRIORITIES)
        assert "rung-limit" not in specs("kube", desired, "ResourceQuota")

    @pytest.mark.parametrize(
        ("limit", "hard"),
        [
            (Limit.of(cpu="1.5"), {"requests.cpu": "1500m"}),
            (Limit.of(cpu=96, memory="1Gi"), {"requests.cpu": "96", "requests.memory": "1073741824"}),
            (Limit.of(gpu=0), {"requests.nvidia.com/gpu": "0"}),
        ],
    )
    def test_amounts_are_exact(self, limit: Limit, hard: dict[str, str]) -> None:
        desired = state(replace(project("vision"), queues=(replace(queue("project.1"), limit=limit),)))
        assert specs("kube", desired, "ResourceQuota")["rung-limit"]["hard"] == hard

    def test_pods_without_requests_get_some(self) -> None:
        (limits,) = specs("kube", RICH, "LimitRange")["rung-defaults"]["limits"]
        assert limits["defaultRequest"] == {"cpu": "100m", "memory": "128Mi"}


SEEN_IN_REALITY: Final = {"kueue.x-k8s.io", "kai.scheduler", "topology.volcano.sh"}
"""Groups of kinds that a real API server is asked about: see tests/real."""
KNOWING: Final = [
    name for name, found in FLAVOURS.items() if found.traits.topologies and not found.traits.names_domains
]
"""Schedulers that are told of levels and find the domains themselves."""


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
class TestTopologies:
    """Levels of a pool, where the scheduler has an object for them; nothing of them elsewhere."""

    def test_a_pools_levels_are_told_down_to_the_node(self, flavour: str) -> None:
        pools = (replace(POOL, topology_levels=("example.com/block", "example.com/rack")), H100)
        found = specs(flavour, state(pools=pools), "Topology")
        levels = [{"nodeLabel": key} for key in ("example.com/block", "example.com/rack", "kubernetes.io/hostname")]
        assert found == ({"a100": {"levels": levels}} if flavour in KNOWING else {})

    def test_the_node_as_a_level_is_told_once(self, flavour: str) -> None:
        pools = (replace(POOL, topology_levels=("kubernetes.io/hostname",)),)
        found = specs(flavour, state(pools=pools), "Topology")
        assert [len(each["levels"]) for each in found.values()] == [1] * (flavour in KNOWING)

    def test_only_who_asks_for_a_domain_is_told_of_it(self, flavour: str) -> None:
        pool = replace(POOL, topology_levels=("example.com/rack",))
        plain = flavour_for(flavour).render(job(pool=pool, min_member=2))
        asking = job_manifest(annotations={"rung.dev/topology-key": "example.com/rack"})
        near = flavour_for(flavour).render(job(asking, pool=pool, min_member=2))
        assert "example.com/rack" not in str(plain)
        assert (str(near).count("example.com/rack") > 1) is flavour_for(flavour).traits.knows_domains


class TestKai:
    """Queues: departments above projects, per pool."""

    def test_all_three_limits_are_always_written(self) -> None:
        resources = specs("kai", RICH, "Queue")["department.1.a100"]["resources"]
        unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 2}
        assert resources == {"gpu": {**unlimited, "quota": 8}, "cpu": unlimited, "memory": unlimited}

    def test_each_resource_has_its_own_weight(self) -> None:
        weights = state(project("vision", over_quota_weight=2.5, cpu_weight=3.0, memory_weight=0.5))
        resources = specs("kai", weights, "Queue")["project.1.a100"]["resources"]
        assert [repr(resources[name]["overQuotaWeight"]) for name in ("gpu", "cpu", "memory")] == ["2.5", "3", "0.5"]

    def test_a_gang_names_the_pools_topology_and_its_level_where_the_pod_grouper_reads_them(self) -> None:
        asking = job_manifest(annotations={"rung.dev/topology-key": "example.com/rack"})
        (manifest,) = flavour_for("kai").render(job(asking, pool=replace(POOL, topology_levels=("example.com/rack",))))
        notes = manifest["metadata"]["annotations"]
        assert notes["kai.scheduler/topology"] == "a100"
        assert notes["kai.scheduler/topology-required-placement"] == "example.com/rack"

    def test_levels_that_change_are_a_topology_recreated(self) -> None:
        def topology(*levels: str) -> Manifest:
            return objects("kai", state(pools=(replace(POOL, topology_levels=levels),)), "Topology")["a100"]

        live = stamped(topology("example.com/rack"))
        for levels in (("example.com/row",), ("example.com/row", "example.com/rack")):
            (change,) = diff([live], [topology(*levels)])
            assert isinstance(change, Replace)

    def test_a_projects_queue_hangs_below_its_departments(self) -> None:
        found = specs("kai", RICH, "Queue")
        assert found["project.1.a100"]["parentQueue"] == "department.1.a100"
        assert "parentQueue" not in found["department.1.a100"]

    def test_units_are_devices_millicores_and_megabytes(self) -> None:
        shares = replace(queue("project.1"), deserved=Limit.of("0.5", "1.5", 2_500_000), limit=Limit.of(2, 4, 10**9))
        found = specs("kai", state(replace(project("vision"), queues=(shares,))), "Queue")["project.1.a100"][
            "resources"
        ]
        assert [(share["quota"], share["limit"]) for share in found.values()] == [(0.5, 2), (1500, 4000), (2.5, 1000)]

    @pytest.mark.parametrize(("rank", "priority"), [("very-low", 80), ("medium-low", 100), ("very-high", 140)])
    def test_rank_becomes_the_queues_priority(self, rank: str, priority: int) -> None:
        desired = state(replace(project("vision"), queues=(replace(queue("project.1"), rank=rank),)))
        assert specs("kai", desired, "Queue")["project.1.a100"]["priority"] == priority

    def test_a_queue_names_its_pool_and_the_shard_that_serves_it(self) -> None:
        desired = state(replace(project("vision"), queues=(queue("project.1"), queue("project.1", pool=H100))))
        found = objects("kai", desired, "Queue")
        assert found["project.1.a100"]["metadata"]["labels"]["rung.dev/node-pool"] == POOL.name
        assert "kai.scheduler/node-pool" not in found["project.1.a100"]["metadata"]["labels"]
        assert found["project.1.h100"]["metadata"]["labels"]["kai.scheduler/node-pool"] == "h100-nodes"


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_queue_names_are_deterministic_distinct_and_fit_a_label(flavour: str) -> None:
    name = flavour_for(flavour).queue_name
    long = [name("project.1", "p" * 63), name("project.2", "p" * 63), name("project.1", "p" * 62 + "q")]
    assert name("project.1", "a100") == name("project.1", "a100") == "project.1.a100"
    assert len({name("project.1", "a"), name("department.1", "a"), *long}) == 5
    assert max(map(len, long)) == 63


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_every_flavour_says_the_same_promises_and_a_remedy_for_each_it_breaks(flavour: str) -> None:
    codes = [guarantee.code for guarantee in FLAVOURS["kai"].guarantees()]
    guarantees = flavour_for(flavour).guarantees()
    assert [guarantee.code for guarantee in guarantees] == codes
    assert all(guarantee.remedy for guarantee in guarantees if guarantee.enforced != "yes")


def test_only_queues_keep_non_preemptible_work_running() -> None:
    kept = {name: {each.code: each.enforced for each in found.guarantees()} for name, found in FLAVOURS.items()}
    assert kept["kai"]["non_preemptible_stays"] == "yes"
    assert kept["kube"]["non_preemptible_stays"] == "no"


@pytest.mark.parametrize(
    ("value", "preemptibility", "words"),
    [
        (40, "preemptible", ()),
        (125, "preemptible", ("counts against the deserved quota",)),
        (40, "non-preemptible", ("may evict it", "does not count the workload")),
        (125, "non-preemptible", ("may evict it",)),
    ],
)
def test_kube_warns_where_the_two_sides_of_a_hundred_disagree(
    value: int, preemptibility: str, words: tuple[str, ...]
) -> None:
    said = flavour_for("kube").cautions(value=value, preemptibility=preemptibility)
    assert [part in text for part, text in zip(words, said, strict=True)] == [True] * len(words)
    assert flavour_for("kai").cautions(value=value, preemptibility=preemptibility) == ()


@pytest.mark.parametrize(("value", "taken"), [(99, "is preemptible"), (100, "is non-preemptible")])
def test_kai_warns_that_its_version_knows_no_half_preemptible_work(value: int, taken: str) -> None:
    (said,) = flavour_for("kai").cautions(value=value, preemptibility="semi-preemptible")
    assert taken in said
