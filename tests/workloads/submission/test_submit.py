"""Accepting a workload: everything or nothing, in one transaction."""

import pytest

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from portal.kit.errors import BadRequest, Conflict, NotFound, RungError, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor
from tenants.organisation.models import Project
from tenants.quotas.models import PriorityCap, ProjectQuota
from tests.factories.tenants import GPU, ProjectFactory
from tests.factories.workloads import WorkloadFactory, job, of_type, pytorch_job, spec_of
from workloads.dictionary.rules.resolution import Request
from workloads.state.models import IdempotencyKey, Phase, Workload, WorkloadEvent
from workloads.submission.services import submit, submit_all


def test_workload_first_event_audit_and_key_are_written_together(llm_team: Project, as_bob: Actor) -> None:
    workload = submit(spec=spec_of(pytorch_job()), project=llm_team, actor=as_bob, raw={"sent": 1}, key="k1")
    assert (workload.phase, workload.desired_phase, workload.generation) == (Phase.CREATING, "Running", 1)
    assert (workload.submitted_by, workload.channel, workload.raw) == ("bob", "api", {"sent": 1})
    assert workload.due_at is not None
    assert [event.reason for event in workload.timeline.all()] == ["", "Submitted"]
    audit = AuditRecord.objects.get(action="workload.submit")
    assert (audit.result, audit.entity_id, audit.project_id) == ("Succeeded", str(workload.pk), str(llm_team.pk))
    assert IdempotencyKey.objects.get().workload == workload


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        ({}, "low 40 (default for PyTorch training), preemptible (default for PyTorch training)."),
        ({"priority": "low"}, "low 40 (set explicitly), preemptible (because the priority is below 100)."),
    ],
)
def test_the_first_event_names_the_sources_of_its_values_as_the_page_does(
    llm_team: Project, requested: dict[str, str], said: str
) -> None:
    workload = submit(spec=spec_of(pytorch_job(), **requested), project=llm_team, actor=SYSTEM)
    assert workload.timeline.get(reason="Submitted").message == f"Submitted with priority {said}"


def test_a_refusal_leaves_one_audit_record_and_nothing_else(llm_team: Project, as_bob: Actor) -> None:
    with pytest.raises(ValidationFailed):
        submit(spec=spec_of(pytorch_job(), priority="urgent"), project=llm_team, actor=as_bob, key="k1")
    assert [row.result for row in AuditRecord.objects.all()] == ["Denied"]
    assert not Workload.objects.exists()
    assert not WorkloadEvent.objects.exists()
    assert not IdempotencyKey.objects.exists()


def test_somebody_elses_project_is_absent_and_leaves_no_trace(llm_team: Project, as_charlie: Actor) -> None:
    with pytest.raises(NotFound):
        submit(spec=spec_of(pytorch_job()), project=llm_team, actor=as_charlie)
    assert not AuditRecord.objects.exists()


def test_the_same_key_replays_the_first_answer(llm_team: Project, as_bob: Actor) -> None:
    first = submit(spec=spec_of(pytorch_job()), project=llm_team, actor=as_bob, key="k1")
    again = submit(spec=spec_of(pytorch_job()), project=llm_team, actor=as_bob, key="k1")
    assert again.pk == first.pk
    assert Workload.objects.count() == 1
    assert AuditRecord.objects.count() == 1


def test_the_same_key_with_another_payload_is_refused(llm_team: Project, as_bob: Actor) -> None:
    submit(spec=spec_of(pytorch_job()), project=llm_team, actor=as_bob, key="k1")
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(pytorch_job(gpus=2)), project=llm_team, actor=as_bob, key="k1")
    assert refusal.value.code == "idempotency_mismatch"


def test_a_key_belongs_to_its_project_and_subject(llm_team: Project, as_bob: Actor, as_alice: Actor) -> None:
    first = submit(spec=spec_of(pytorch_job("one")), project=llm_team, actor=as_bob, key="k1")
    second = submit(spec=spec_of(pytorch_job("two")), project=llm_team, actor=as_alice, key="k1")
    assert first.pk != second.pk


@pytest.mark.parametrize("key", ["", "x" * 10_000, "line\nbreak", "naïve"])
def test_t69_an_unusable_key_is_a_bad_request(key: str, llm_team: Project, as_bob: Actor) -> None:
    with pytest.raises(BadRequest):
        submit(spec=spec_of(pytorch_job()), project=llm_team, actor=as_bob, key=key)


def test_a_name_is_given_once_per_project(llm_team: Project, vision_team: Project, as_admin: Actor) -> None:
    submit(spec=spec_of(pytorch_job("train")), project=llm_team, actor=as_admin)
    submit(spec=spec_of(pytorch_job("train")), project=vision_team, actor=as_admin)
    with pytest.raises(RungError) as refusal:
        submit(spec=spec_of(pytorch_job("train")), project=llm_team, actor=as_admin)
    assert isinstance(refusal.value, Conflict)
    assert refusal.value.problems[0].pointer == "/metadata/name"


def test_a_generated_name_is_completed(llm_team: Project, as_bob: Actor) -> None:
    manifest = pytorch_job()
    manifest["metadata"] = {"generateName": "sweep-"}
    workloads = [submit(spec=spec_of(manifest), project=llm_team, actor=as_bob) for _ in range(2)]
    assert all(workload.name.startswith("sweep-") for workload in workloads)
    assert len({workload.name for workload in workloads}) == 2
    assert workloads[0].spec["manifest"]["metadata"]["name"] == workloads[0].name


def test_documents_of_one_file_are_taken_together_or_not_at_all(llm_team: Project, as_bob: Actor) -> None:
    specs = [spec_of(pytorch_job("one")), spec_of(pytorch_job("two"), priority="urgent")]
    with pytest.raises(ValidationFailed):
        submit_all(specs=specs, project=llm_team, actor=as_bob)
    assert not Workload.objects.exists()
    assert AuditRecord.objects.count() == 1
    both = submit_all(specs=[specs[0], spec_of(pytorch_job("two"))], project=llm_team, actor=as_bob, key="file")
    again = submit_all(specs=[specs[0], spec_of(pytorch_job("two"))], project=llm_team, actor=as_bob, key="file")
    assert [workload.pk for workload in again] == [workload.pk for workload in both]


def test_t39_non_preemptible_work_beyond_the_deserved_quota_is_refused_with_the_numbers(
    llm_team: Project, as_bob: Actor
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(job(gpus=5)), project=llm_team, actor=as_bob)
    problem = refusal.value.problems[0]
    assert (problem.code, problem.pointer) == ("NonPreemptibleOverQuota", "/spec/template")
    assert problem.numbers == {
        "pool": "h100",
        "needed": "5 GPU",
        "queue": "project llm-team",
        "allowed": "4 GPU",
        "missing": "1 GPU",
        "short": "gpu",
    }


def test_t39_the_departments_deserved_quota_counts_too(llm_team: Project, as_bob: Actor) -> None:
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=10 * GPU)
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(job(gpus=8, pods=2)), project=llm_team, actor=as_bob)
    ProjectQuota.objects.filter(project=llm_team).update(gpu_limit=None, gpu_deserved=16 * GPU)
    with pytest.raises(ValidationFailed) as at_department:
        submit(spec=spec_of(job(gpus=8, pods=2)), project=llm_team, actor=as_bob)
    assert refusal.value.code == "OverLimit"
    assert at_department.value.problems[0].numbers["queue"] == "department research"


def test_more_than_the_limit_is_refused_even_when_preemptible(llm_team: Project, as_bob: Actor) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(pytorch_job(gpus=8, workers=1)), project=llm_team, actor=as_bob)
    assert refusal.value.code == "OverLimit"
    assert refusal.value.problems[0].numbers["allowed"] == "12 GPU"


def test_t39_what_is_merely_in_use_now_is_accepted_and_waits(llm_team: Project, as_bob: Actor) -> None:
    first = submit(spec=spec_of(job("one", gpus=4)), project=llm_team, actor=as_bob)
    second = submit(spec=spec_of(job("two", gpus=4)), project=llm_team, actor=as_bob)
    assert {first.phase, second.phase} == {Phase.CREATING}


def test_preemptible_work_may_go_over_the_deserved_quota(llm_team: Project, as_bob: Actor) -> None:
    workload = submit(spec=spec_of(pytorch_job(gpus=8)), project=llm_team, actor=as_bob)
    assert workload.gpu_milli == 8 * GPU


def test_the_first_pool_that_could_ever_hold_it_is_taken(llm_team: Project, as_bob: Actor) -> None:
    workload = submit(spec=spec_of(job(gpus=4), node_pools=("a100", "h100")), project=llm_team, actor=as_bob)
    assert (workload.pool_name, workload.node_pools) == ("h100", ["a100", "h100"])


def test_an_unknown_pool_is_refused_naming_the_pools(llm_team: Project, as_bob: Actor) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(pytorch_job(), node_pools=("h100", "b200")), project=llm_team, actor=as_bob)
    problem = refusal.value.problems[0]
    assert (problem.pointer, problem.code, set(problem.allowed)) == ("/nodePools/1", "pool_unknown", {"a100", "h100"})


def test_a_cap_on_the_priority_is_kept(llm_team: Project, as_bob: Actor) -> None:
    PriorityCap.objects.create(project=llm_team, priority="medium", gpu_limit=2 * GPU)
    submit(spec=spec_of(pytorch_job("two", gpus=2), priority="medium"), project=llm_team, actor=as_bob)
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(pytorch_job("three", gpus=3), priority="medium"), project=llm_team, actor=as_bob)
    assert refusal.value.problems[0].numbers == {"needed": "3 GPU", "cap": "2 GPU", "priority": "medium"}


def test_what_the_clusters_scheduler_cannot_express_is_refused_with_its_name(llm_team: Project, as_bob: Actor) -> None:
    submit(spec=spec_of(pytorch_job(), preemptibility="semi-preemptible"), project=llm_team, actor=as_bob)
    llm_team.cluster.flavour = "kube"
    llm_team.cluster.save()
    spec = spec_of(pytorch_job("other"), preemptibility="semi-preemptible")
    project = Project.objects.get(pk=llm_team.pk)
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec, project=project, actor=as_bob)
    assert refusal.value.code == "preemptibility_unsupported"


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_t35_the_clusters_own_classes_are_refused(name: str, llm_team: Project, as_bob: Actor) -> None:
    for request in (Request(explicit_priority=name), Request(label_priority=name)):
        with pytest.raises(ValidationFailed) as refusal:
            submit(spec=of_type("PyTorchJob", request), project=llm_team, actor=as_bob)
        assert "very-high" in refusal.value.problems[0].allowed


@pytest.mark.parametrize("name", ["High", "PreemptHigherPriority", "urgent"])
def test_t37_an_unknown_name_is_refused_naming_the_allowed(name: str, llm_team: Project, as_bob: Actor) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(pytorch_job(), priority=name), project=llm_team, actor=as_bob)
    assert refusal.value.problems[0].allowed == (
        "very-low",
        "low",
        "medium-low",
        "medium",
        "medium-high",
        "high",
        "very-high",
    )


def test_t38_the_form_wins_and_audit_and_row_show_both(llm_team: Project, as_bob: Actor) -> None:
    spec = spec_of(pytorch_job(labels={"priorityClassName": "very-high"}), priority="low")
    workload = submit(spec=spec, project=llm_team, actor=as_bob)
    assert (workload.priority.name, workload.discarded[0]["value"]) == ("low", "very-high")
    assert AuditRecord.objects.get().detail["discarded"] == workload.discarded
    assert "priorityClassName" not in workload.spec["manifest"]["metadata"].get("labels", {})


def test_submitting_takes_the_same_number_of_queries_however_many_workloads_there_are(
    llm_team: Project, as_bob: Actor, django_assert_max_num_queries: object
) -> None:
    WorkloadFactory.create_batch(5, project=llm_team)
    with django_assert_max_num_queries(30):  # type: ignore[operator]  # the fixture has no public type
        submit(spec=spec_of(pytorch_job("another")), project=llm_team, actor=as_bob)


def test_a_project_without_quota_runs_preemptible_work_only(research: object, as_admin: Actor) -> None:
    project = ProjectFactory(department=research)
    submit(spec=spec_of(pytorch_job()), project=project, actor=as_admin)
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(job()), project=project, actor=as_admin)
    assert refusal.value.problems[0].numbers["allowed"] == "0 GPU"


@pytest.mark.parametrize(
    ("served", "pointer", "words"),
    [
        (["batch/v1 Job"], "/kind", "its operator is not installed"),
        (["batch/v1 Job", "kubeflow.org/v2 PyTorchJob"], "/apiVersion", "it serves PyTorchJob as kubeflow.org/v2"),
    ],
)
def test_a_kind_that_the_cluster_was_seen_not_to_serve_is_refused(
    llm_team: Project, served: list[str], pointer: str, words: str
) -> None:
    Cluster.objects.update(served_kinds=served)
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec_of(pytorch_job()), project=Project.objects.get(pk=llm_team.pk), actor=SYSTEM)
    (problem,) = refusal.value.problems
    assert (problem.pointer, problem.code) == (pointer, "kind_not_served")
    assert words in problem.message
    submit(spec=spec_of(job()), project=Project.objects.get(pk=llm_team.pk), actor=SYSTEM)
