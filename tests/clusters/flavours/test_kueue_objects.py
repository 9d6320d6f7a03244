"""What Kueue is given: a queue per project, a cohort per department, a flavor per pool, jobs that only it lets go."""

from dataclasses import replace
from typing import Any

import pytest

from clusters.flavours.kueue import Kueue
from clusters.ports.flavour import NOTHING, DesiredState, PoolSpec, ProjectSpec
from clusters.ports.gateway import Manifest
from clusters.ports.objects import stamped
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.workload_kinds import KINDS, kind_named
from clusters.sync.rules.changes import with_pods_hash, writable
from clusters.sync.rules.diff import diff
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import Limit
from tests.clusters.samples import sample
from tests.clusters.specs import POOL, in_order, job, job_manifest, priority, project, queue, state, templates_in

H100 = PoolSpec("h100", "rung.dev/node-pool", "h100")
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def found(desired: DesiredState, kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in Kueue().objects_for(desired) if each["kind"] == kind}


def gpus(manifest: Manifest) -> dict[str, tuple[str, str | None]]:
    """By flavor: nominal quota and borrowing limit of GPUs."""
    (group,) = manifest["spec"]["resourceGroups"]
    first = {flavor["name"]: flavor["resources"][0] for flavor in group["flavors"]}
    return {name: (entry["nominalQuota"], entry.get("borrowingLimit")) for name, entry in first.items()}


def of_project(**bounds: Any) -> tuple[str, str | None]:
    return gpus(found(state(project("vision", **bounds)), "ClusterQueue")["project.1"])["a100"]


def of_department(*, promised: Limit = NOTHING, **bounds: Any) -> tuple[str, str | None]:
    parent = queue("department.1", parent=None, promised=promised, **bounds)
    return gpus(found(state(departments=(parent,)), "Cohort")["department.1"])["a100"]


class TestProjects:
    """A ClusterQueue, and a LocalQueue per pool."""

    @pytest.mark.parametrize(
        ("deserved", "limit", "quota"),
        [
            (4, None, ("4", None)),
            (4, 16, ("4", "12")),
            (4, 4, ("4", "0")),
            (4, 2, ("2", "0")),
            (0, None, ("0", None)),
            (None, 8, ("8", "0")),
            (None, None, ("1000000", None)),
            ("1.5", 2, ("1500m", "500m")),
        ],
    )
    def test_deserved_is_its_own_and_the_rest_up_to_the_limit_is_borrowed(
        self, deserved: Any, limit: Any, quota: tuple[str, str | None]
    ) -> None:
        assert of_project(deserved=deserved, limit=limit) == quota

    def test_each_pool_has_an_amount_of_its_own(self) -> None:
        leaves = (queue("project.1", deserved=4), queue("project.1", pool=H100, deserved=2, limit=3))
        desired = state(replace(project("vision"), queues=leaves))
        assert gpus(found(desired, "ClusterQueue")["project.1"]) == {"a100": ("4", None), "h100": ("2", "1")}
        assert set(found(desired, "LocalQueue")) == {"project.1.a100", "project.1.h100"}

    def test_it_takes_work_of_its_own_namespace_only(self) -> None:
        spec = found(state(project("vision")), "ClusterQueue")["project.1"]["spec"]
        assert spec["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "runai-vision"}}
        (local,) = found(state(project("vision")), "LocalQueue").values()
        assert (local["metadata"]["namespace"], local["spec"]) == ("runai-vision", {"clusterQueue": "project.1"})

    def test_preemption_is_switched_on_since_it_is_off_unless_written(self) -> None:
        spec = found(state(project("vision")), "ClusterQueue")["project.1"]["spec"]
        assert spec["queueingStrategy"] == "BestEffortFIFO"
        assert spec["preemption"] == {
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "Never"},
        }

    def test_it_hangs_below_its_department(self) -> None:
        queues = found(state(project("vision"), project("alone", owner="project.2", parent=None)), "ClusterQueue")
        assert queues["project.1"]["spec"]["cohortName"] == "department.1"
        assert "cohortName" not in queues["project.2"]["spec"]

    def test_one_without_a_pool_yet_has_no_amounts(self) -> None:
        bare = ProjectSpec("vision", "runai-vision", (), {}, "project.1", 1)
        spec = found(state(bare), "ClusterQueue")["project.1"]["spec"]
        assert {"resourceGroups", "cohortName", "fairSharing"} & set(spec) == set()


class TestDepartments:
    """A Cohort, whose quota is added to its projects'."""

    @pytest.mark.parametrize(
        ("deserved", "limit", "promised", "quota"),
        [
            (8, None, 6, ("2", None)),
            (8, 12, 6, ("2", "4")),
            (8, 12, 10, ("0", "2")),
            (8, 8, 8, ("0", "0")),
            (None, None, 6, ("1000000", None)),
            (8, 12, None, ("0", "0")),
        ],
    )
    def test_its_quota_is_what_its_projects_do_not_deserve(
        self, deserved: Any, limit: Any, promised: Any, quota: tuple[str, str | None]
    ) -> None:
        assert of_department(deserved=deserved, limit=limit, promised=Limit.of(gpu=promised)) == quota

    def test_all_of_them_lend_to_each_other_below_one_root(self) -> None:
        assert (
            found(state(departments=(queue("department.1", parent=None),)), "Cohort")["department.1"]["spec"][
                "parentName"
            ]
            == "rung"
        )


def test_a_pool_is_a_flavor_of_its_node_label() -> None:
    desired = DesiredState(pools=(POOL,))
    assert found(desired, "ResourceFlavor")["a100"]["spec"] == {"nodeLabels": {"rung.dev/node-pool": "a100"}}


def test_a_priority_is_a_class_for_pods_and_one_for_queues() -> None:
    desired = state(priorities=(priority("high", 125, policy="Never"),))
    assert found(desired, "PriorityClass")["high"]["value"] == 125
    assert found(desired, "WorkloadPriorityClass")["high"]["value"] == 125


def test_pods_never_preempt_whatever_the_entry_says_since_kueue_alone_evicts() -> None:
    """Kueue admits a preemptor while its victims end: pods that preempt too would evict others on the nodes."""
    desired = state(priorities=(priority("high", 125, policy="PreemptLowerPriority"),))
    assert found(desired, "PriorityClass")["high"]["preemptionPolicy"] == "Never"


def test_queues_stand_on_what_they_name_and_shrink_before_others_grow() -> None:
    def objects(one: int, two: int) -> list[Manifest]:
        projects = [project("a", deserved=one), project("b", owner="project.2", deserved=two)]
        parent = queue("department.1", parent=None, deserved=9, promised=Limit.of(gpu=one + two))
        desired = state(*projects, departments=(parent,), priorities=(priority("high", 125),))
        return list(Kueue().objects_for(replace(desired, pools=(POOL,))))

    made = [change.ref.kind.kind for change in in_order(diff([], objects(4, 4)))]
    assert list(dict.fromkeys(made)) == [
        "PriorityClass",
        "Namespace",
        "WorkloadPriorityClass",
        "ResourceFlavor",
        "Cohort",
        "ClusterQueue",
        "LocalQueue",
    ]
    changes = in_order(diff(map(stamped, objects(4, 4)), objects(6, 2)))
    assert [change.ref.name for change in changes] == ["project.2", "project.1"]


def test_a_change_that_lowers_one_amount_and_raises_another_is_done_in_two_steps() -> None:
    def objects(one: int, two: int) -> list[Manifest]:
        leaves = (queue("project.1", deserved=one), queue("project.1", pool=H100, deserved=two))
        return [
            each
            for each in Kueue().objects_for(state(replace(project("a"), queues=leaves)))
            if each["kind"] == "ClusterQueue"
        ]

    first, second = in_order(diff(map(stamped, objects(4, 4)), objects(2, 6)))
    assert [gpus(step.desired)[pool][0] for step in (first, second) for pool in ("a100", "h100")] == list("2426")


@pytest.mark.parametrize(("held", "same"), [("1k", True), ("1000", True), ("1001", False)])
def test_an_amount_in_another_notation_is_the_same(held: str, same: bool) -> None:
    (desired,) = found(state(project("vision", deserved=1000)), "ClusterQueue").values()
    live = stamped(desired)
    groups = [
        {**group, "flavors": [dict(each) for each in group["flavors"]]} for group in live["spec"]["resourceGroups"]
    ]
    first, *rest = groups[0]["flavors"][0]["resources"]
    groups[0]["flavors"][0]["resources"] = [{**first, "nominalQuota": held}, *rest]
    changes = diff([{**live, "spec": {**live["spec"], "resourceGroups": groups}}], [desired])
    assert (changes == []) is same


class TestTopology:
    """One domain for all pods of a gang, where the pool has a topology."""

    REQUIRED, GROUP = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-group-name"

    def test_a_pools_flavor_names_its_topology(self) -> None:
        pools = (H100, replace(POOL, topology_levels=("example.com/rack",)))
        flavors = found(DesiredState(pools=pools), "ResourceFlavor")
        assert {name: each["spec"].get("topologyName") for name, each in flavors.items()} == {
            "h100": None,
            "a100": "a100",
        }

    def test_other_levels_make_another_flavor_of_the_same_nodes(self) -> None:
        """Kueue never lets a flavor change its topology, nor its labels while it has one."""
        pool = replace(POOL, topology_levels=("example.com/row",), topology_revision=2)
        leaf = queue("project.1", pool=pool)
        desired = state(replace(project("vision"), queues=(leaf,)), pools=(pool,))
        (flavor,) = found(desired, "ResourceFlavor").values()
        assert (flavor["metadata"]["name"], flavor["spec"]["topologyName"]) == ("a100.2", "a100.2")
        assert flavor["spec"]["nodeLabels"] == {POOL.label_key: POOL.label_value}
        assert set(found(desired, "Topology")) == {"a100.2"}
        assert set(gpus(found(desired, "ClusterQueue")["project.1"])) == {"a100.2"}

    @pytest.mark.parametrize(("name", "shared"), [("Job", None), ("JobSet", None), ("PyTorchJob", "all")])
    def test_every_pod_wants_the_same_one(self, name: str, shared: str | None) -> None:
        body = sample(kind_named(name))
        body["metadata"]["annotations"] = {"rung.dev/topology-key": "example.com/rack"}
        if roles := body["spec"].get("pytorchReplicaSpecs"):
            (role, *_others) = roles.values()
            body["spec"]["pytorchReplicaSpecs"] = {"Master": role, "Worker": role}
        (manifest,) = Kueue().render(job(body))
        notes = [each.template["metadata"]["annotations"] for each in templates_in(manifest, kind_named(name))]
        assert {(each[self.REQUIRED], each.get(self.GROUP)) for each in notes} == {("example.com/rack", shared)}

    @every_kind
    def test_who_asks_for_none_is_told_nothing(self, kind: WorkloadKind) -> None:
        (manifest,) = Kueue().render(job(sample(kind)))
        assert "topology" not in str(manifest)

    def test_in_a_pool_with_levels_who_asks_for_none_wants_places_anywhere(self) -> None:
        """A queue that has a pool without levels, too, lets nobody else into the flavor with the topology."""
        pool = replace(POOL, topology_levels=("example.com/rack",))
        for name in ("Job", "PyTorchJob", "Notebook"):
            (manifest,) = Kueue().render(replace(job(sample(kind_named(name))), pool=pool))
            notes = [each.template["metadata"]["annotations"] for each in templates_in(manifest, kind_named(name))]
            assert {each["kueue.x-k8s.io/podset-unconstrained-topology"] for each in notes} == {"true"}
            assert not any(self.REQUIRED in each for each in notes)


class TestJobs:
    """What a tenant submits, in its queue."""

    @every_kind
    def test_every_kind_is_put_into_its_queue_with_its_priority(self, kind: WorkloadKind) -> None:
        (manifest,) = Kueue().render(job(sample(kind)))
        assert manifest["metadata"]["labels"][QUEUE] == "project.1.a100"
        assert manifest["metadata"]["labels"][PRIORITY] == "low"

    def test_pods_are_queued_one_by_one_only_where_kueue_does_not_know_the_kind(self) -> None:
        labelled = {}
        for name in ("Job", "PyTorchJob", "Notebook"):
            (manifest,) = Kueue().render(job(sample(kind_named(name))))
            labels = [each.template["metadata"]["labels"] for each in templates_in(manifest, kind_named(name))]
            labelled[name] = all(QUEUE in each for each in labels)
        assert labelled == {"Job": False, "PyTorchJob": False, "Notebook": True}

    @every_kind
    def test_holding_back_and_letting_go_is_kueues_own(self, kind: WorkloadKind) -> None:
        body = sample(kind)
        (manifest,) = Kueue().render(job(body))
        assert "suspend" not in str(manifest["spec"])
        assert Kueue().render(job(body, suspended=True)) == []

    @pytest.mark.parametrize("held", [True, False])
    @pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
    def test_a_later_write_leaves_it_as_kueue_has_it(self, kind: str, held: bool) -> None:
        (manifest,) = Kueue().render(job(job_manifest() if kind == "Job" else sample(kind_named(kind))))
        desired = with_pods_hash(manifest)
        observed = with_pods_hash(manifest)
        place = observed["spec"] if kind == "Job" else observed["spec"].setdefault("runPolicy", {})
        place["suspend"] = held
        body = writable(observed, desired, pods_run=False)
        assert (body["spec"] if kind == "Job" else body["spec"]["runPolicy"])["suspend"] is held

    @pytest.mark.parametrize(
        ("preemptibility", "warned"), [(Preemptibility.NON_PREEMPTIBLE, True), (Preemptibility.PREEMPTIBLE, False)]
    )
    def test_people_are_told_that_nothing_protects_what_they_call_non_preemptible(
        self, preemptibility: str, warned: bool
    ) -> None:
        assert bool(Kueue().cautions(value=125, preemptibility=preemptibility)) is warned
