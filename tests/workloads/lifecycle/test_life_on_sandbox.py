"""From a submission to a running pod, and to an eviction with its record, on the embedded cluster."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from clusters.ports.objects import WORKLOAD_KINDS, ref_of
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.watch.models import ObservedPod
from clusters.watch.services.observations import Observation
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import User
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory, UserFactory
from tests.factories.workloads import (
    ObservedPodFactory,
    WorkloadFactory,
    bare_pod,
    deployment,
    job,
    pytorch_job,
    spec_of,
)
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import queue_position, why_waiting
from workloads.lifecycle.services.actions import delete, resume, stop
from workloads.lifecycle.services.observe import on_observation
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timeline, eviction_timelines, name_preemptors
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import entries_of, timeline

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["kai", "kube"])
def lab(request: pytest.FixtureRequest) -> Lab:
    """One node of 8 GPUs."""
    return Lab(request.param)


@pytest.fixture
def kai() -> Lab:
    """One node of 8 GPUs under KAI."""
    return Lab("kai")


def test_a_submitted_workload_runs_and_holds_what_it_asked_for(lab: Lab) -> None:
    workload = lab.submit(lab.project("llm-team"), "train", gpus=4)
    lab.settle()
    workload = fresh(workload)
    assert (workload.phase, workload.allocated_gpu_milli, workload.running_pods) == (Phase.RUNNING, 4000, 1)
    assert workload.pool_name == "h100"
    assert workload.started_at is not None
    assert workload.due_at is None
    assert timeline(entries_of(workload))[0].phase == Phase.RUNNING


def fails(name: str) -> dict[str, Any]:
    """A Job whose only try ends with exit code 1."""
    manifest = job(name)
    manifest["metadata"]["annotations"] = {"rung.dev/exit-code": "1"}
    manifest["spec"]["backoffLimit"] = 0
    return manifest


WHY = "Container main ended with exit code 1. Job has reached the specified backoff limit"


def test_a_failed_workload_says_how_its_container_ended(lab: Lab, client_of: Callable[[User], Client]) -> None:
    team = lab.project("llm-team")
    workload = lab.submit(team, "fails", manifest=fails("fails"), seconds="5")
    lab.settle(6, seconds=5)
    workload = fresh(workload)
    assert (workload.phase, workload.phase_message) == (Phase.FAILED, WHY)
    assert timeline(entries_of(workload))[0].message == WHY
    client = client_of(UserFactory(is_superuser=True))
    page = " ".join(client.get(f"/workloads/{workload.pk}/").content.decode().split())
    assert f'Failed: {WHY} <a href="?tab=logs">Logs</a>' in page
    pod = ObservedPod.objects.get(owner_id=str(workload.pk))
    assert pod.ended_at is not None
    page = client.get(f"/workloads/{workload.pk}/?tab=pods").content.decode()
    assert f'<time datetime="{pod.ended_at.isoformat()}"' in page


def test_a_container_whose_end_is_seen_after_that_of_its_job_is_named_as_well() -> None:
    """Once, and no container that was stopped because the job had failed."""
    limit = "Job has reached the specified backoff limit"
    workload = WorkloadFactory(phase=Phase.FAILED, phase_message=limit)
    now = timezone.now()
    stopped = {"deletion_at": now, "message": "Container main ended with exit code 143", "ended_at": now}
    ends = [stopped, {"message": "Container main ended with exit code 1", "ended_at": now - timedelta(seconds=5)}]
    for end in ends * 2:
        pod = ObservedPodFactory(workload=workload, phase="Failed", **end)
        on_observation(workload.project.cluster, Observation(now, pods=(pod,)))
    assert fresh(workload).phase_message == WHY


def test_a_stronger_workload_of_the_same_project_takes_over_and_the_record_says_so(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=16)
    victim = lab.submit(team, "low-train", gpus=8)
    lab.settle()
    preemptor = lab.submit(team, "high-train", gpus=8, priority="high")
    lab.settle(4)
    record = PreemptionRecord.objects.get()
    assert (record.victim, record.preemptor, record.cause) == (victim, preemptor, "preempt")
    assert (record.preemptor_priority, record.preemptor_value, record.node_name) == ("high", 125, "node-0")
    assert record.gpu_milli == 8000
    assert record.lost_gpu_seconds == record.ran_seconds * 8 or record.lost_gpu_seconds > 0
    assert fresh(victim).preempted_count == 1
    lab.settle(2, seconds=40)
    record.refresh_from_db()
    assert record.gone_at is not None
    assert fresh(preemptor).phase == Phase.RUNNING
    assert fresh(victim).phase == Phase.PENDING
    assert queue_position(fresh(victim)) == 1


def test_looking_again_writes_no_second_record(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    kai.submit(team, "low-train", gpus=8)
    kai.settle()
    kai.submit(team, "high-train", gpus=8, priority="high")
    kai.settle(4)
    kai.settle(6, seconds=30)
    assert PreemptionRecord.objects.count() == 1


def test_a_gangs_pods_have_one_record_each_and_one_story(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    gang = kai.submit(team, "gang", manifest=pytorch_job("gang", gpus=4, workers=1))
    kai.settle()
    kai.submit(team, "big", gpus=8, priority="high")
    kai.settle(4)
    assert PreemptionRecord.objects.filter(victim=gang).count() == 2
    assert fresh(gang).preempted_count == 1
    entries = timeline(entries_of(gang))
    assert [entry.type for entry in entries].count("preemption") == 1
    assert [entry.message.startswith("Preempted by big") for entry in entries].count(True) == 1
    [story] = eviction_timelines(fresh(gang), acting(UserFactory(is_superuser=True)))
    assert "on 8 GPUs in 2 pods" in story.sentence


def test_a_queue_takes_its_share_back_from_another_project(kai: Lab) -> None:
    borrower, owner = kai.project("borrower", deserved=0), kai.project("owner", deserved=8)
    loan = kai.submit(borrower, "loan", gpus=8, priority="medium")
    kai.settle()
    assert fresh(loan).phase == Phase.RUNNING
    kai.submit(owner, "mine", gpus=8, priority="very-low")
    kai.settle(4)
    record = PreemptionRecord.objects.get()
    assert (record.cause, record.preemptor_project) == ("reclaim", "owner")
    story = eviction_timeline([record], acting(UserFactory(is_superuser=True)))
    assert "It is waiting again, 1st in the queue." in story.sentence
    assert [line.split(" uses ")[0] for line in story.standings] == ["project borrower", "project owner"]


def test_somebody_elses_name_is_told_only_to_those_who_may_see_it(kai: Lab) -> None:
    borrower, owner = kai.project("borrower", deserved=0), kai.project("owner", deserved=8)
    loan = kai.submit(borrower, "loan", gpus=8, priority="medium")
    kai.settle()
    kai.submit(owner, "secret-plan", gpus=8)
    kai.settle(4)
    record = PreemptionRecord.objects.select_related("preemptor__project", "victim__project").get()
    outsider: Actor = acting(MembershipFactory(project=borrower).user)
    insider: Actor = acting(UserFactory(is_superuser=True))
    told = eviction_timeline([record], outsider)
    everything = told.sentence + " ".join(step.words for step in told.steps)
    assert "another project" in everything
    assert "secret-plan" not in everything
    assert "secret-plan" in eviction_timeline([record], insider).sentence
    for reader, named in ((outsider, False), (insider, True)):
        entries = entries_of(loan)
        name_preemptors(entries, reader)
        text = " ".join(entry.message for entry in timeline(entries))
        assert ("Reclaimed by secret-plan (" in text, "of project owner:" in text) == (named, named)
        assert ("Reclaimed by another project" in text, "secret-plan" in text) == (not named, named)
        assert text.count("Requeued.") == 1


def test_a_story_tells_every_step_that_has_happened(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    victim = kai.submit(team, "low-train", gpus=8)
    kai.settle()
    preemptor = kai.submit(team, "high-train", gpus=8, priority="high")
    kai.settle(4)
    kai.settle(2, seconds=40)
    stop(workload=fresh(preemptor), actor=acting(UserFactory(is_superuser=True)))
    kai.settle(4, seconds=40)
    record = PreemptionRecord.objects.select_related("preemptor__project", "victim__project").get()
    words = [step.words for step in eviction_timeline([record], acting(UserFactory(is_superuser=True))).steps]
    assert fresh(victim).phase == Phase.RUNNING
    assert words[0].startswith("Chosen")
    assert words[1].startswith("SIGTERM")
    assert {each.split()[0] for each in words[2:]} == {"Stopped", "Started:", "Requeued.", "Running"}
    assert words[-1] == "Running again."


def test_what_waits_says_why_with_numbers_and_what_would_help(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=4)
    kai.submit(team, "first", gpus=4, preemptibility="non-preemptible")
    kai.settle()
    second = kai.submit(team, "second", gpus=4, preemptibility="non-preemptible")
    kai.settle()
    waiting = fresh(second)
    headline = why_waiting(waiting)
    assert waiting.phase_reason == "NonPreemptibleOverQuota"
    assert headline is not None
    assert headline.source == "model"
    assert "needs 4 GPUs in h100; 0 of the 4 GPUs that project llm-team deserves are free" in headline.sentence
    assert "preemptible" in [way.preemptibility for way in waiting_alternatives(workload=waiting, actor=SYSTEM)]


def test_stop_frees_the_gpus_and_resume_takes_them_again(lab: Lab) -> None:
    admin = acting(UserFactory(is_superuser=True))
    workload = lab.submit(lab.project("llm-team"), "train", gpus=4)
    lab.settle()
    stop(workload=fresh(workload), actor=admin)
    lab.settle(2, seconds=40)
    assert (fresh(workload).phase, fresh(workload).allocated_gpu_milli) == (Phase.STOPPED, 0)
    resume(workload=fresh(workload), actor=admin)
    lab.settle(3)
    assert fresh(workload).phase == Phase.RUNNING


def test_delete_leaves_a_tombstone_and_no_object(lab: Lab) -> None:
    admin = acting(UserFactory(is_superuser=True))
    workload = lab.submit(lab.project("llm-team"), "train", gpus=4)
    lab.settle()
    delete(workload=fresh(workload), actor=admin)
    lab.settle(3, seconds=40)
    assert fresh(workload).deleted_at is not None
    assert fresh(workload).allocated_gpu_milli == 0


def test_an_object_that_vanished_is_recreated(lab: Lab) -> None:
    workload = lab.submit(lab.project("llm-team"), "train", gpus=4)
    lab.settle()
    gateway_delete(lab)
    lab.settle(4, seconds=40)
    assert fresh(workload).phase == Phase.RUNNING
    assert "Recreated" in [entry.reason for entry in timeline(entries_of(workload))]


def gateway_delete(lab: Lab) -> None:
    """Somebody takes the job's object away by hand."""
    kind = next(each for each in WORKLOAD_KINDS if each.key == "PyTorchJob.kubeflow.org")
    gateway = SandboxGateway(lab.cluster)
    for manifest in gateway.list(kind)[0]:
        gateway.delete(ref_of(manifest))


def test_what_cannot_be_suspended_is_taken_away_and_comes_back(lab: Lab) -> None:
    admin = acting(UserFactory(is_superuser=True))
    workload = lab.submit(lab.project("llm-team"), "serve", manifest=deployment("serve", gpus=4))
    lab.settle()
    stop(workload=fresh(workload), actor=admin)
    lab.settle(2, seconds=40)
    assert (fresh(workload).phase, fresh(workload).allocated_gpu_milli) == (Phase.STOPPED, 0)
    resume(workload=fresh(workload), actor=admin)
    lab.settle(3)
    assert fresh(workload).phase == Phase.RUNNING


def test_an_evicted_bare_pod_is_recreated_and_waits(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=16)
    bare = lab.submit(team, "bare", manifest=bare_pod("bare", gpus=8), priority="low")
    lab.settle()
    lab.submit(team, "high-train", gpus=8, priority="high")
    lab.settle(4)
    lab.settle(3, seconds=40)
    assert fresh(bare).phase == Phase.PENDING
    assert PreemptionRecord.objects.get().victim == bare


def test_a_finished_workload_is_completed(lab: Lab) -> None:
    workload = lab.submit(lab.project("llm-team"), "train", gpus=4, seconds="30")
    lab.settle()
    lab.settle(3, seconds=40)
    assert fresh(workload).phase == Phase.COMPLETED
    assert fresh(workload).completed_at is not None


def test_what_is_moved_together_is_told_before_and_after(kai: Lab) -> None:
    kai.node("node-1")
    team, other = kai.project("llm-team", deserved=16), kai.project("other", deserved=16)
    fill = []
    for number in range(4):
        fill.append(kai.submit(team, f"fill-{number}", gpus=4))
        kai.settle(2)
    for each in (fill[0], next(row for row in fill[1:] if nodes_of(row) != nodes_of(fill[0]))):
        delete(workload=fresh(each), actor=SYSTEM)
    kai.settle(4, seconds=40)
    wanted = pytorch_job("whole", gpus=8)
    spec = spec_of(wanted, namespace=other.namespace, priority="very-low")
    said = forecast(spec=spec, project=other, actor=SYSTEM)
    assert (said.verdict, [victim.moved for victim in said.victims]) == (Verdict.EVICTS, [True])
    assert "after moving 1 workload (4 GPUs)" in said.sentence
    whole = kai.submit(other, "whole", manifest=wanted, priority="very-low")
    kai.settle(3)
    record = PreemptionRecord.objects.get()
    moved = said.victims[0].workload
    assert (record.victim, record.preemptor) == (moved, None)
    [story] = eviction_timelines(fresh(record.victim), acting(UserFactory(is_superuser=True)))
    assert story.sentence.startswith("Moved ")
    assert "Moved" in [entry.reason for entry in timeline(entries_of(record.victim))]
    kai.settle(4, seconds=40)
    assert (fresh(whole).phase, fresh(record.victim).phase) == (Phase.RUNNING, Phase.RUNNING)
    assert PreemptionRecord.objects.count() == 1


def nodes_of(workload: Workload) -> set[str]:
    """Where its pods are."""
    return set(ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None).values_list("node_name", flat=True))


def test_semi_preemptible_work_of_a_low_priority_is_evicted_as_the_preview_says(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    elastic = kai.submit(team, "elastic", gpus=8, priority="low", preemptibility="semi-preemptible")
    kai.settle()
    spec = spec_of(pytorch_job("urgent", gpus=8), namespace=team.namespace, priority="high")
    assert forecast(spec=spec, project=team, actor=SYSTEM).verdict is Verdict.EVICTS
    kai.submit(team, "urgent", gpus=8, priority="high")
    kai.settle(4)
    assert PreemptionRecord.objects.get().victim == elastic


def test_where_no_pod_terminates_the_clusters_own_reason_is_shown_instead_of_a_place(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    kai.submit(team, "fixed", gpus=8, priority="low", preemptibility="non-preemptible")
    kai.settle()
    waiting = kai.submit(team, "urgent", gpus=8, priority="high")
    kai.settle(4)
    ObservedPod.objects.update(preemptible=True)  # so that the model differs from the cluster
    headline = why_waiting(fresh(waiting))
    assert headline
    assert "waits for evicted pods to stop" not in headline.sentence
    assert headline.source == "scheduler"
