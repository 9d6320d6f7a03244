"""Stopping, resuming, deleting, cloning and re-prioritising."""

from collections.abc import Callable

import pytest

from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, RungError, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory, job, spec_of
from workloads.dictionary.models import Priority, WorkloadType
from workloads.lifecycle.services.actions import change_priority, clone_spec, delete, resume, retry, stop
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import ENDED, RETRIES, TRANSITIONS, PodCounts, next_phase
from workloads.submission.services import submit


@pytest.fixture
def running(llm_team: Project, as_bob: Actor) -> Workload:
    """Bob's training, running on one GPU with priority low."""
    own = {"submitted_by": "bob", "submitted_by_kind": "user", "submitted_by_id": as_bob.id}
    workload: Workload = WorkloadFactory(project=llm_team, phase=Phase.RUNNING, running_pods=1, **own)
    ObservedPodFactory(workload=workload)
    return workload


def test_stop_and_resume_change_what_is_wanted_and_make_it_due(running: Workload, as_bob: Actor) -> None:
    stop(workload=running, actor=as_bob)
    assert (running.desired_phase, running.phase, running.generation) == (DesiredPhase.STOPPED, Phase.STOPPING, 2)
    assert running.due_at is not None
    resume(workload=running, actor=as_bob)
    assert (running.desired_phase, running.phase, running.generation) == (DesiredPhase.RUNNING, Phase.RESUMING, 3)
    actions = list(AuditRecord.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["workload.stop", "workload.resume"]


def test_a_resumed_workload_has_the_present_value_of_its_priority(running: Workload, as_bob: Actor) -> None:
    stop(workload=running, actor=as_bob)
    Priority.objects.filter(name="low").update(value=41)
    resume(workload=Workload.objects.select_related("priority").get(pk=running.pk), actor=as_bob)
    assert Workload.objects.get(pk=running.pk).priority_value == 41


def test_what_has_ended_is_not_resumed(llm_team: Project, as_alice: Actor) -> None:
    finished = WorkloadFactory(project=llm_team, phase=Phase.COMPLETED)
    with pytest.raises(Conflict) as refusal:
        resume(workload=finished, actor=as_alice)
    assert refusal.value.code == "not_resumable"
    assert [row.result for row in AuditRecord.objects.all()] == ["Denied"]


MET = [
    pytest.param(stop, Phase.STOPPED, DesiredPhase.STOPPED, id="stop of a stopped one"),
    pytest.param(stop, Phase.STOPPING, DesiredPhase.STOPPED, id="stop of a stopping one"),
    pytest.param(stop, Phase.COMPLETED, DesiredPhase.RUNNING, id="stop of one that has ended"),
    pytest.param(resume, Phase.RUNNING, DesiredPhase.RUNNING, id="resume of one that runs"),
    pytest.param(resume, Phase.PENDING, DesiredPhase.RUNNING, id="resume of one that waits"),
]


@pytest.mark.parametrize(("verb", "phase", "desired"), MET)
def test_what_is_met_already_succeeds_and_writes_nothing(
    verb: Callable[..., Workload], phase: Phase, desired: DesiredPhase, llm_team: Project, as_alice: Actor
) -> None:
    workload = WorkloadFactory(project=llm_team, phase=phase, desired_phase=desired)
    before = Workload.objects.values().get()
    verb(workload=workload, actor=as_alice)
    assert Workload.objects.values().get() == before
    assert not AuditRecord.objects.exists()
    assert not workload.timeline.exists()


def test_an_intent_is_decided_on_the_row_as_it_is_and_the_instance_follows(running: Workload, as_bob: Actor) -> None:
    stale = Workload.objects.get(pk=running.pk)
    stop(workload=running, actor=as_bob)
    change_priority(workload=stale, priority="medium", actor=as_bob)
    assert (stale.phase, stale.desired_phase, stale.generation) == (Phase.STOPPING, DesiredPhase.STOPPED, 3)
    assert Workload.objects.get(pk=running.pk).priority.name == stale.priority.name == "medium"


def test_the_same_priority_twice_is_once(running: Workload, as_bob: Actor) -> None:
    for _ in range(2):
        change_priority(workload=running, priority="high", actor=as_bob)
    assert AuditRecord.objects.filter(action="workload.change_priority").count() == 1
    assert running.timeline.count() == 1


def test_delete_is_a_tombstone_that_nothing_undoes(running: Workload, as_bob: Actor) -> None:
    delete(workload=running, actor=as_bob)
    delete(workload=running, actor=as_bob)
    for verb in (stop, resume, retry):
        with pytest.raises(Conflict):
            verb(workload=running, actor=as_bob)
    assert (running.phase, running.desired_phase) == (Phase.DELETING, DesiredPhase.DELETED)
    assert AuditRecord.objects.filter(action="workload.delete", result="Succeeded").count() == 1


def test_another_priority_leaves_the_preemptibility_and_says_what_pods_keep(running: Workload, as_bob: Actor) -> None:
    change_priority(workload=running, priority="high", actor=as_bob)
    running.refresh_from_db()
    assert (running.priority.name, running.priority_value, running.priority_source) == ("high", 125, "explicit")
    assert (running.preemptibility, running.preemptibility_source) == ("preemptible", "type")
    assert {warning["code"] for warning in running.warnings} == {"threshold_disagrees", "new_pods_only"}
    assert running.warnings[1]["message"].startswith("From 40 to 125: Takes effect when the workload restarts")


def test_an_unknown_priority_is_refused_naming_the_allowed(running: Workload, as_bob: Actor) -> None:
    with pytest.raises(RungError) as refusal:
        change_priority(workload=running, priority="urgent", actor=as_bob)
    assert isinstance(refusal.value, ValidationFailed)
    assert refusal.value.problems[0].pointer == "/priority"
    assert "medium" in refusal.value.problems[0].allowed


def test_nvcf_workloads_are_left_as_they_are(llm_team: Project, as_alice: Actor) -> None:
    nvcf = WorkloadFactory(
        project=llm_team,
        type=WorkloadType.objects.get(name="NVCF"),
        priority=Priority.objects.get(name="very-high"),
        phase=Phase.RUNNING,
    )
    with pytest.raises(RungError) as refusal:
        change_priority(workload=nvcf, priority="low", actor=as_alice)
    assert refusal.value.code == "priority_fixed"
    for verb in (stop, resume):
        with pytest.raises(ValidationFailed):
            verb(workload=nvcf, actor=as_alice)


def test_a_member_manages_their_own_and_an_owner_everybodys(
    running: Workload, llm_team: Project, as_bob: Actor, as_alice: Actor
) -> None:
    others = WorkloadFactory(project=llm_team, phase=Phase.RUNNING)
    with pytest.raises(Forbidden):
        stop(workload=others, actor=as_bob)
    stop(workload=others, actor=as_alice)
    stop(workload=running, actor=as_alice)


def test_somebody_elses_workload_is_absent(running: Workload, as_charlie: Actor) -> None:
    for verb in (stop, resume, retry, delete):
        with pytest.raises(NotFound):
            verb(workload=running, actor=as_charlie)
    with pytest.raises(NotFound):
        clone_spec(workload=running, actor=as_charlie)
    assert not AuditRecord.objects.exists()


def test_a_clone_asks_for_the_same_under_a_name_of_its_own(llm_team: Project, as_bob: Actor) -> None:
    first = submit(spec=spec_of(job(gpus=2), priority="medium"), project=llm_team, actor=as_bob)
    change_priority(workload=first, priority="low", actor=as_bob)
    second = submit(spec=clone_spec(workload=first, actor=as_bob), project=llm_team, actor=as_bob)
    assert second.name.startswith("train-copy-")
    assert (second.priority.name, second.gpu_milli) == ("low", first.gpu_milli)


@pytest.mark.parametrize(
    ("current", "desired", "standing", "following"),
    [
        pytest.param("Creating", "Running", PodCounts(1, waiting=1), "Pending", id="its pod waits"),
        pytest.param("Pending", "Running", PodCounts(2, 2, starting=2), "Initializing", id="its pods have nodes"),
        pytest.param("Initializing", "Running", PodCounts(2, 2, running=1, starting=1), "Initializing", id="half up"),
        pytest.param("Initializing", "Running", PodCounts(2, 2, running=2), "Running", id="all up"),
        pytest.param("Running", "Running", PodCounts(2, 2, running=1, waiting=1), "Degraded", id="one of a gang lost"),
        pytest.param("Running", "Running", PodCounts(3, 1, running=2, waiting=1), "Running", id="above its minimum"),
        pytest.param("Degraded", "Running", PodCounts(2, 2, running=2), "Running", id="whole again"),
        pytest.param("Running", "Running", PodCounts(1, leaving=1), "Pending", id="evicted"),
        pytest.param("Running", "Running", PodCounts(1, job="succeeded"), "Completed", id="done"),
        pytest.param("Pending", "Running", PodCounts(1, job="failed"), "Failed", id="failed before it ran"),
        pytest.param("Stopping", "Stopped", PodCounts(1, leaving=1), "Stopping", id="its pod still ends"),
        pytest.param("Stopping", "Stopped", PodCounts(1), "Stopped", id="its pod is gone"),
        pytest.param("Stopped", "Stopped", PodCounts(1, running=1), "Stopped", id="no resurrection by a late look"),
        pytest.param("Completed", "Running", PodCounts(1, running=1), "Completed", id="what has ended stays ended"),
        pytest.param("Deleting", "Deleted", PodCounts(1, running=1), "Deleting", id="what is deleted stays deleted"),
        pytest.param("Running", "Running", PodCounts(2, 2, running=1, succeeded=1), "Running", id="one is done early"),
    ],
)
def test_the_next_phase_follows_from_what_the_pods_do(
    current: str, desired: str, standing: PodCounts, following: str
) -> None:
    assert next_phase(current, desired, standing) == following


MOVES = {
    "Creating": "Pending Initializing Running Degraded Updating Unknown Completed Failed Stopping Deleting",
    "Pending": "Creating Initializing Running Degraded Updating Unknown Completed Failed Stopping Deleting",
    "Initializing": "Creating Pending Running Degraded Updating Unknown Completed Failed Stopping Deleting",
    "Running": "Creating Pending Initializing Degraded Updating Unknown Completed Failed Stopping Deleting",
    "Degraded": "Creating Pending Initializing Running Updating Unknown Completed Failed Stopping Deleting",
    "Updating": "Pending Initializing Running Degraded Unknown Completed Failed Stopping Deleting",
    "Unknown": "Creating Pending Initializing Running Degraded Updating Completed Failed Stopping Deleting",
    "Resuming": "Pending Initializing Running Degraded Updating Unknown Completed Failed Stopping Deleting",
    "Stopping": "Resuming Stopped Completed Failed Deleting",
    "Stopped": "Resuming Deleting",
    "Completed": "Deleting",
    "Failed": "Deleting",
    "Terminating": "Stopped Completed Failed Deleting",
    "Deleting": "",
}


@pytest.mark.parametrize("phase", Phase.values)
def test_a_phase_is_followed_by_these_and_no_others(phase: str) -> None:
    assert TRANSITIONS[phase] == set(MOVES[phase].split())


def test_only_a_retry_leads_out_of_a_failure() -> None:
    assert dict(RETRIES) == {"Failed": {"Creating"}}


def test_no_look_at_a_cluster_leads_out_of_an_end() -> None:
    assert {(end, target) for end in ENDED for target in TRANSITIONS[end]} == {(end, "Deleting") for end in ENDED}
