"""What people see: their own workloads, in a constant number of queries, and the dictionary with its clusters."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.sync.models import Drift
from clusters.watch.models import ClusterEvent
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from scheduling.model.resources import Resources
from tenants.organisation.models import Project
from tenants.usage import selectors as usage_selectors
from tests.factories.clusters import ObservedPodFactory as ForeignPodFactory
from tests.factories.clusters import build_cluster
from tests.factories.tenants import ProjectFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.dictionary.models import Priority
from workloads.dictionary.selectors import dictionary_rows, type_rows
from workloads.forecast.selectors.waiting import queue_position, why_waiting
from workloads.state.models import DesiredPhase, Phase
from workloads.state.selectors.workloads import (
    entries_of,
    events_of,
    logs,
    pods_of,
    timeline,
    visible_workloads,
    workload_or_404,
)


def test_people_see_the_workloads_of_their_projects(
    llm_team: Project, vision_team: Project, as_bob: Actor, as_charlie: Actor, as_admin: Actor
) -> None:
    ours, theirs = WorkloadFactory(project=llm_team), WorkloadFactory(project=vision_team)
    assert list(visible_workloads(as_bob)) == [ours]
    assert list(visible_workloads(as_charlie)) == [theirs]
    assert set(visible_workloads(as_admin)) == {ours, theirs}


def test_deleted_ones_are_listed_apart_and_still_found(llm_team: Project, as_bob: Actor) -> None:
    gone = WorkloadFactory(project=llm_team, deleted_at=timezone.now(), phase=Phase.DELETING)
    assert list(visible_workloads(as_bob)) == []
    assert list(visible_workloads(as_bob, deleted=True)) == [gone]
    assert workload_or_404(as_bob, gone.pk) == gone


@pytest.mark.parametrize("wanted", ["not-a-uuid", "%2e%2e", "9" * 30, "00000000-0000-0000-0000-000000000000"])
def test_t68_what_is_no_id_of_a_workload_is_absent(wanted: str, llm_team: Project, as_bob: Actor) -> None:
    with pytest.raises(NotFound):
        workload_or_404(as_bob, wanted)


def test_a_foreign_workload_is_absent(llm_team: Project, as_charlie: Actor) -> None:
    with pytest.raises(NotFound):
        workload_or_404(as_charlie, WorkloadFactory(project=llm_team).pk)


def test_a_list_takes_two_queries_however_long_it_is(
    llm_team: Project, as_bob: Actor, django_assert_num_queries: Any
) -> None:
    WorkloadFactory.create_batch(20, project=llm_team)
    with django_assert_num_queries(2):
        shown = [
            (row.name, row.project.department.name, row.project.cluster.name, row.type.title, row.priority.name)
            for row in visible_workloads(as_bob)
        ]
    assert len(shown) == 20


def test_the_dictionary_shows_defaults_and_every_clusters_state(
    cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(synced_at=timezone.now(), synced_generation=cluster.generation)
    Drift.objects.create(
        cluster=cluster, category="changed", kind="PriorityClass.scheduling.k8s.io", name="high", seen_at=timezone.now()
    )
    with django_assert_max_num_queries(4):
        rows = {row.name: row for row in dictionary_rows()}
    assert list(rows) == ["very-high", "high", "medium-high", "medium", "medium-low", "low", "very-low"]
    assert "Workspace" in rows["high"].types
    assert rows["high"].dots[0].state == "drifted"
    assert rows["low"].dots[0].state == "synced"


def test_a_cluster_that_is_behind_is_changing(cluster: Cluster) -> None:
    assert {dot.state for row in dictionary_rows() for dot in row.dots} == {"changing"}


def test_of_many_clusters_those_that_differ_are_shown_and_the_rest_is_counted(cluster: Cluster) -> None:
    now = timezone.now()
    for number in range(9):
        build_cluster(name=f"c{number}", synced_at=now, synced_generation=10)
    last = Cluster.objects.get(name="c8")
    Drift.objects.create(
        cluster=last, category="changed", kind="PriorityClass.scheduling.k8s.io", name="high", seen_at=now
    )
    row = next(each for each in dictionary_rows() if each.name == "high")
    assert [(dot.cluster, dot.state) for dot in row.dots[:3]] == [
        ("c8", "drifted"),
        ("lab", "changing"),
        ("c0", "synced"),
    ]
    assert len(row.dots) + row.more == 10


def test_types_are_counted_by_the_workloads_that_have_not_ended(llm_team: Project) -> None:
    WorkloadFactory(project=llm_team)
    WorkloadFactory(project=llm_team, phase="Running", running_pods=1)
    WorkloadFactory(project=llm_team, phase="Completed")
    WorkloadFactory(project=llm_team, deleted_at=timezone.now())
    used = {row.type.name: (row.active, row.running) for row in type_rows()[0]}
    assert (used["PyTorchJob"], used["Job"]) == ((2, 1), (0, 0))


def test_what_the_scheduler_said_about_others_is_kept_from_those_who_may_not_see_them(
    llm_team: Project, vision_team: Project, as_bob: Actor, as_admin: Actor
) -> None:
    workload = WorkloadFactory(project=llm_team)
    said = "Pod runai-llm-team/mine was preempted by workload runai-vision-team/secret-plan."
    ObservedPodFactory(workload=workload, disruption_message=said)
    ClusterEvent.objects.create(
        cluster=llm_team.cluster,
        uid="1",
        namespace=llm_team.namespace,
        owner_id=str(workload.pk),
        kind="Pod",
        name="mine",
        reason="Evict",
        message=said,
        at=timezone.now(),
    )
    for actor, secret in ((None, False), (as_bob, False), (as_admin, True)):
        texts = pods_of(workload, actor)[0].disruption_message + events_of(workload, actor)[0].message
        assert ("secret-plan" in texts) is secret
        assert "runai-llm-team/mine" in texts


def test_logs_are_of_ones_own_pods_only(llm_team: Project) -> None:
    mine, other = WorkloadFactory(project=llm_team), WorkloadFactory(project=llm_team)
    ObservedPodFactory(workload=other, name="other-pod")
    assert logs(mine, "other-pod").lines == ()


def test_the_place_in_the_queue_counts_priority_then_age(llm_team: Project) -> None:
    now = timezone.now()
    mine = WorkloadFactory(project=llm_team)
    WorkloadFactory(project=llm_team, priority=Priority.objects.get(name="medium-high"))
    WorkloadFactory(project=llm_team, created_at=now - timedelta(hours=1))
    WorkloadFactory(project=llm_team, priority=Priority.objects.get(name="very-low"))
    WorkloadFactory(project=llm_team, priority_value=125, phase=Phase.RUNNING)
    assert queue_position(mine) == 3
    assert queue_position(WorkloadFactory(project=llm_team, phase=Phase.RUNNING)) is None


def test_what_is_not_meant_to_run_does_not_wait(llm_team: Project) -> None:
    assert why_waiting(WorkloadFactory(project=llm_team, phase=Phase.RUNNING)) is None
    assert why_waiting(WorkloadFactory(project=llm_team, desired_phase=DesiredPhase.STOPPED)) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"phase": Phase.CREATING}, "Rung is sending it to lab", id="not handed over yet"),
        pytest.param(
            {"phase": Phase.CREATING, "apply_error": "no route"}, "lab has not accepted it yet: no route", id="away"
        ),
        pytest.param(
            {"phase_message": "0/3 nodes are available"}, "0/3 nodes are available", id="the scheduler's word"
        ),
        pytest.param(
            {"phase_message": "exceeded quota: rung-limit", "phase_reason": "OverLimit"},
            "exceeded quota: rung-limit. This is the last response. The controller retries at growing intervals "
            "(up to 1 min for a Job, 15 min for a Deployment), so it does not use freed quota immediately",
            id="a quota's refusal",
        ),
    ],
)
def test_without_a_fresh_look_the_reason_is_what_is_known(given: dict[str, Any], words: str, llm_team: Project) -> None:
    headline = why_waiting(WorkloadFactory(project=llm_team, **given))
    assert headline is not None
    assert headline.sentence == f"Waiting 0 s: {words}."


def test_a_paused_cluster_is_the_reason(llm_team: Project) -> None:
    Cluster.objects.filter(pk=llm_team.cluster_id).update(state="paused", paused_reason="another uid")
    headline = why_waiting(WorkloadFactory(project=Project.objects.get(pk=llm_team.pk)))
    assert headline is not None
    assert "lab is paused: another uid" in headline.sentence


def test_a_cluster_that_takes_no_work_is_the_reason_of_what_it_was_not_given(llm_team: Project) -> None:
    Cluster.objects.filter(pk=llm_team.cluster_id).update(breaker_reason="Unauthorized")
    project = Project.objects.get(pk=llm_team.pk)
    headline = why_waiting(WorkloadFactory(project=project, phase=Phase.CREATING))
    assert headline is not None
    assert headline.sentence == "Waiting 0 s: lab does not accept work now and is retried: Unauthorized."
    starting = why_waiting(WorkloadFactory(project=project, phase=Phase.INITIALIZING, phase_message="pulling"))
    assert starting is not None
    assert "takes no work" not in starting.sentence


def test_use_is_told_to_the_quotas_per_project_and_pool(llm_team: Project, vision_team: Project) -> None:
    fixed = WorkloadFactory(project=llm_team, preemptibility="non-preemptible", gpu_milli=2000, phase=Phase.RUNNING)
    ObservedPodFactory(workload=fixed, gpu_milli=2000)
    ObservedPodFactory(workload=WorkloadFactory(project=llm_team, phase=Phase.RUNNING))
    WorkloadFactory(project=llm_team, gpu_milli=4000)
    WorkloadFactory(project=llm_team, phase=Phase.COMPLETED)
    held = usage_selectors.usage_of(llm_team, "h100")
    assert (held.allocated.gpu, held.non_preemptible.gpu, held.requested.gpu) == (3000, 2000, 7000)
    assert usage_selectors.usage_of(vision_team, "h100").allocated == Resources()
    assert usage_selectors.live_workloads([llm_team.pk, vision_team.pk]) == 3
    assert "medium" in usage_selectors.priority_names()


def test_use_of_many_projects_and_of_whole_pools_are_the_same_figures(llm_team: Project, vision_team: Project) -> None:
    for project in (llm_team, vision_team, ProjectFactory()):
        workload = WorkloadFactory(project=project, gpu_milli=4000, phase=Phase.RUNNING)
        ObservedPodFactory(workload=workload, gpu_milli=2000, preemptible=False)
        ObservedPodFactory(workload=workload, gpu_milli=1000)
    ForeignPodFactory(
        cluster=llm_team.cluster, namespace="kube-system", node_name="n", pool_name="h100", gpu_milli=8000
    )
    use = usage_selectors.usage_by_queue([llm_team.pk, vision_team.pk])
    assert set(use) == {(llm_team.pk, "h100"), (vision_team.pk, "h100")}
    assert usage_selectors.allocated_by_queue(Project.objects.filter(pk__in=[llm_team.pk, vision_team.pk])) == {
        queue: replace(amounts, requested=Resources()) for queue, amounts in use.items()
    }
    cluster = llm_team.cluster_id
    assert usage_selectors.usage_by_pool([cluster]) == {(cluster, "h100"): sum(use.values(), usage_selectors.Usage())}


def test_the_timeline_is_newest_first(llm_team: Project) -> None:
    assert timeline(entries_of(WorkloadFactory(project=llm_team))) == []
