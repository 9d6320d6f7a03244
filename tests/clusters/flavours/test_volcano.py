"""Volcano's dialect: queues, workloads with their groups, and what it says."""

from dataclasses import replace
from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.flavours.volcano import NOT_TRIED
from clusters.ports.flavour import DesiredState, PodStatusReason
from clusters.ports.gateway import Manifest
from clusters.ports.objects import VOLCANO_QUEUE, stamped
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.workload_kinds import KINDS, kind_named
from clusters.sync.rules.changes import in_waves, is_lowering, is_raising
from clusters.sync.rules.diff import Change, Update, diff
from scheduling.model.resources import Limit
from tests.clusters.samples import sample
from tests.clusters.specs import job, job_manifest, project, queue, state, templates_in

VOLCANO = flavour_for("volcano")
QUEUE, PREEMPTABLE = "scheduling.volcano.sh/queue-name", "volcano.sh/preemptable"
MIN_RUNTIME = "volcano.sh/cooldown-time"


def queues(desired: DesiredState) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in VOLCANO.objects_for(desired) if each["kind"] == "Queue"}


def leaf(**fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = queues(state(replace(project("vision"), queues=(queue("project.1", **fields),))))
    found: dict[str, Any] = spec["project.1.a100"]
    return found


class TestQueues:
    """Departments above projects, per pool."""

    def test_a_projects_queue_hangs_below_its_departments(self) -> None:
        found = queues(state(project("vision"), departments=(queue("department.1", parent=None),)))
        assert found["project.1.a100"]["parent"] == "department.1.a100"
        assert "parent" not in found["department.1.a100"]

    def test_a_limit_names_every_resource_since_volcano_compares_each(self) -> None:
        found = leaf(deserved=2, limit=4)
        assert found["capability"] == {"nvidia.com/gpu": "4", "cpu": "1M", "memory": "1P"}
        assert found["deserved"] == {"nvidia.com/gpu": "2"}

    def test_a_project_without_any_limit_is_bounded_by_its_department_alone(self) -> None:
        found = queues(state(project("vision"), departments=(queue("department.1", parent=None),)))
        assert found["project.1.a100"]["capability"] == {}
        assert found["department.1.a100"]["capability"] == {"nvidia.com/gpu": "1G", "cpu": "1G", "memory": "1E"}

    def test_volcano_counts_whole_gpus(self) -> None:
        found = leaf(deserved="0.5", limit="2.5")
        assert (found["deserved"]["nvidia.com/gpu"], found["capability"]["nvidia.com/gpu"]) == ("0", "2")

    def test_cpu_that_is_not_counted_is_no_claim_to_other_queues_gpus(self) -> None:
        """Volcano lets a queue take from others while it is within its deserved in any one resource."""
        assert leaf(deserved=4, limit=None)["deserved"] == {"nvidia.com/gpu": "4"}
        counted = replace(queue("project.1"), deserved=Limit.of(4, "1.5", 2**40))
        found = queues(state(replace(project("vision"), queues=(counted,))))["project.1.a100"]
        assert found["deserved"] == {"nvidia.com/gpu": "4", "cpu": "1.5", "memory": str(2**40)}

    def test_what_is_deserved_without_bound_is_the_limit_where_there_is_one(self) -> None:
        bounded = replace(queue("project.1"), deserved=Limit(), limit=Limit.of(8, "1.5", 2**40))
        found = queues(state(replace(project("vision"), queues=(bounded,))))["project.1.a100"]
        assert found["capability"] == {"nvidia.com/gpu": "8", "cpu": "1.5", "memory": str(2**40)}
        assert found["deserved"] == {"nvidia.com/gpu": "8"}

    def test_a_departments_unbounded_amount_is_more_than_that_of_its_projects(self) -> None:
        found = queues(state(departments=(queue("department.1", parent=None, deserved=None),)))
        assert found["department.1.a100"]["deserved"] == {"nvidia.com/gpu": "1G"}
        assert found["department.1.a100"]["capability"] == {"nvidia.com/gpu": "1G", "cpu": "1G", "memory": "1E"}

    @pytest.mark.parametrize(("rank", "priority"), [("very-low", 80), ("medium-low", 100), ("very-high", 140)])
    def test_rank_becomes_the_queues_priority(self, rank: str, priority: int) -> None:
        assert leaf(rank=rank)["priority"] == priority

    @pytest.mark.parametrize(("weight", "written"), [(0, 1), (3, 3), (2.6, 3), (0.2, 1), (100_000, 65_535)])
    def test_a_weight_is_one_that_volcano_takes(self, weight: float, written: int) -> None:
        assert leaf(over_quota_weight=weight)["weight"] == written


def desired(**quota: Any) -> list[Manifest]:
    return [stamped(each) for each in VOLCANO.objects_for(state(project("vision", **quota)))]


def queues_in_turn(changes: list[Change]) -> list[list[str]]:
    waves = ([each.ref.name for each in wave if each.ref.kind == VOLCANO_QUEUE] for wave in in_waves(changes))
    return [wave for wave in waves if wave]


class TestChanges:
    """What a changed quota means for the order of writing."""

    def test_a_lower_limit_gives_back_and_none_at_all_takes(self) -> None:
        [lower] = diff(desired(limit=16), desired(limit=8))
        [none] = diff(desired(limit=16), desired(limit=None))
        assert (is_lowering(lower), is_raising(lower)) == (True, False)
        assert (is_lowering(none), is_raising(none)) == (False, True)

    def test_a_limit_set_by_hand_where_there_is_none_is_a_difference(self) -> None:
        theirs = desired(limit=None)
        theirs[-1]["spec"] = {**theirs[-1]["spec"], "capability": {"cpu": "4"}}
        [change] = diff(theirs, desired(limit=None))
        assert isinstance(change, Update)
        assert [each.path for each in change.changes] == ["/spec/capability/cpu"]

    def test_parents_come_first_and_go_last(self) -> None:
        whole = list(VOLCANO.objects_for(state(project("vision"), departments=(queue("department.1", parent=None),))))
        assert queues_in_turn(diff([], whole)) == [["department.1.a100"], ["project.1.a100"]]
        assert queues_in_turn(diff(whole, [])) == [["project.1.a100"], ["department.1.a100"]]


def rendered(body: Manifest, **fields: Any) -> list[Manifest]:
    return VOLCANO.render(job(body, **fields))


class TestWorkloads:
    """Scheduler, queue and preemptibility at every template; a gang's group before it."""

    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
    @pytest.mark.parametrize(("preemptibility", "said"), [("preemptible", "true"), ("non-preemptible", "false")])
    def test_every_template_says_queue_and_preemptibility(
        self, kind: WorkloadKind, preemptibility: str, said: str
    ) -> None:
        [manifest] = rendered(sample(kind), preemptibility=preemptibility)
        for metadata in (manifest["metadata"], *(each.template["metadata"] for each in templates_in(manifest, kind))):
            assert metadata["annotations"][QUEUE] == "project.1.a100"
            assert metadata["annotations"][PREEMPTABLE] == said
        assert {each.template["spec"]["schedulerName"] for each in templates_in(manifest, kind)} <= {"volcano"}

    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
    @pytest.mark.parametrize(("minutes", "said"), [(90, "90m"), (0, None)])
    def test_every_template_says_for_how_long_it_is_left_alone(
        self, kind: WorkloadKind, minutes: int, said: str | None
    ) -> None:
        [manifest] = rendered(sample(kind), min_runtime_minutes=minutes)
        for metadata in (manifest["metadata"], *(each.template["metadata"] for each in templates_in(manifest, kind))):
            assert metadata["annotations"].get(MIN_RUNTIME) == said

    def test_a_tenant_cannot_say_it(self) -> None:
        """A label of that name would go before the annotation."""
        body = job_manifest(annotations={MIN_RUNTIME: "9000h"})
        for metadata in (body["metadata"], body["spec"]["template"].setdefault("metadata", {})):
            metadata |= {"labels": {MIN_RUNTIME: "9000h"}, "annotations": {MIN_RUNTIME: "9000h"}}
        assert "9000h" not in str(rendered(body))

    @pytest.mark.parametrize("name", ["Job", "PyTorchJob", "JobSet", "RayCluster", "LeaderWorkerSet"])
    def test_a_gangs_group_comes_before_it_and_every_template_names_it(self, name: str) -> None:
        kind = kind_named(name)
        group, manifest = rendered(sample(kind), min_member=4)
        assert (group["kind"], group["apiVersion"]) == ("PodGroup", "scheduling.volcano.sh/v1beta1")
        assert group["spec"] == {"minMember": 4, "queue": "project.1.a100", "priorityClassName": "low"}
        assert group["metadata"]["annotations"][PREEMPTABLE] == "true"
        assert group["metadata"]["namespace"] == manifest["metadata"]["namespace"]
        for found in templates_in(manifest, kind):
            said = found.template["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
            assert said == group["metadata"]["name"]

    def test_a_submitter_that_comes_later_is_none_of_the_gang(self) -> None:
        _, manifest = rendered(sample(kind_named("RayJob")), min_member=2)
        joined = {
            found.role: "scheduling.k8s.io/group-name" in found.template["metadata"]["annotations"]
            for found in templates_in(manifest, kind_named("RayJob"))
        }
        assert joined == {"head": True, "first": True, "submitter": False}

    @pytest.mark.parametrize("name", ["Deployment", "DynamoGraphDeployment", "AMLJob"])
    def test_what_has_no_template_that_starts_together_has_no_group(self, name: str) -> None:
        assert len(rendered(sample(kind_named(name)), min_member=4)) == 1

    def test_a_tenant_cannot_join_anothers_group(self) -> None:
        theirs = {"scheduling.k8s.io/group-name": "of-somebody-else", QUEUE: "project.2.a100", PREEMPTABLE: "false"}
        [manifest] = rendered(job_manifest(annotations=theirs))
        assert "scheduling.k8s.io/group-name" not in manifest["metadata"]["annotations"]
        assert manifest["metadata"]["annotations"][QUEUE] == "project.1.a100"

    def test_a_suspended_kind_that_cannot_be_suspended_is_nothing_at_all(self) -> None:
        assert rendered(sample(kind_named("LeaderWorkerSet")), min_member=4, suspended=True) == []


def pod(*conditions: dict[str, str]) -> Manifest:
    return {"kind": "Pod", "status": {"conditions": list(conditions)}}


def condition(type_: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def event(message: str, reason: str = "Evict") -> Manifest:
    return {"kind": "Event", "reason": reason, "message": message}


class TestReadings:
    """The sentences are those of Volcano 1.15."""

    @pytest.mark.parametrize(("action", "reason"), [("preempt", "Preempted"), ("reclaim", "Reclaimed")])
    def test_an_eviction_says_how_and_names_nobody(self, action: str, reason: str) -> None:
        text = f"Pod is evicted, because of {action}"
        marked = VOLCANO.interpret(pod(condition("Ready", "False", "Evict", text)))
        assert marked == VOLCANO.interpret({}, [event(text)]) == PodStatusReason(reason, text, cause=action)

    def test_a_pod_that_is_just_not_ready_is_not_evicted(self) -> None:
        found = VOLCANO.interpret(
            pod(condition("Ready", "False", "ContainersNotReady", "containers with unready status"))
        )
        assert (found.cause, found.reason) == ("", "")

    def test_the_pods_own_words_count_the_nodes(self) -> None:
        text = (
            "pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable. Origin reason is c1: 0/3 "
            "nodes are unavailable: 3 Insufficient nvidia.com/gpu."
        )
        found = VOLCANO.interpret(pod(condition("PodScheduled", "False", "Unschedulable", text)))
        assert (found.reason, found.message) == ("Unschedulable", text)
        assert found.numbers == {"nodes": "3", "fitting": "0", "Insufficient nvidia.com/gpu": "3"}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (
                "Pod a/b can possibly be assigned to n0, once resource is released and minAvailable is satisfied",
                "Evicting",
            ),
            ("Pod a/b can possibly be assigned to n0, once minAvailable is satisfied", "GangIncomplete"),
        ],
    )
    def test_a_promise_says_for_whom_it_waits(self, text: str, reason: str) -> None:
        found = VOLCANO.interpret(pod(condition("PodScheduled", "False", "Unschedulable", text)))
        assert (found.reason, found.message) == (reason, text)

    def test_a_node_that_it_was_nominated_to_is_no_sign_of_victims(self) -> None:
        """Volcano 1.15.1 leaves it there when the victims have gone and the pod still does not fit."""
        text = "0/3 nodes are unavailable: 3 Insufficient nvidia.com/gpu."
        waiting = pod(condition("PodScheduled", "False", "Unschedulable", text))
        waiting["status"]["nominatedNodeName"] = "n0"
        assert VOLCANO.interpret(waiting).reason == "Unschedulable"

    def test_where_no_node_was_tried_the_queue_takes_no_more(self) -> None:
        text = "pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable"
        found = VOLCANO.interpret(pod(condition("PodScheduled", "False", "Unschedulable", text)))
        assert found.reason == "OverLimit"
        assert found.message == f"{NOT_TRIED} Message: {text}"

    def test_a_full_queue_is_a_limit(self) -> None:
        text = "queue resource quota insufficient: insufficient nvidia.com/gpu"
        assert VOLCANO.interpret({}, [event(text, "Unschedulable")]) == PodStatusReason("OverLimit", text)

    def test_a_pod_whose_group_the_queue_does_not_take_in_is_at_its_limit(self) -> None:
        text = (
            "pod group is not ready, 1 Pending, 1 minAvailable; Pending: 1 Unschedulable. Origin reason is queue "
            "resource quota insufficient: insufficient nvidia.com/gpu"
        )
        found = VOLCANO.interpret(pod(condition("PodScheduled", "False", "Unschedulable", text)))
        assert (found.reason, found.message) == ("OverLimit", text)
