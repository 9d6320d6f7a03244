"""Policies preset what nobody asked for and refuse what they rule out, for native submissions and for nothing else."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.audit.models import AuditRecord
from portal.kit.errors import Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from tenants.access.models import Role, User
from tenants.organisation.models import Department, Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory
from tests.factories.workloads import PolicyFactory, job, spec_of
from workloads.dictionary.services.changes import rename_priority
from workloads.forecast.selectors.preview import forecast
from workloads.intake import FormFields
from workloads.intake.services import read_fields
from workloads.lifecycle.services.actions import change_priority
from workloads.policies.models import Policy
from workloads.policies.rules.merge import PolicyKind
from workloads.policies.services import NotCompliant, PolicyTarget, change_policy, delete_policy, set_policy
from workloads.state.models import Workload
from workloads.submission.services import submit

IMAGE = "nvcr.io/nvidia/pytorch:24.05-py3"


def options(*values: str, field: str = "priorityClass", **more: Any) -> dict[str, Any]:
    """A document of one rule."""
    listed = {"options": [{"value": value} for value in values]} if values else {}
    return {"rules": {field: {**listed, **more}}}


def training(project: Project, actor: Actor, name: str = "train", **wishes: str) -> Workload:
    """A native training, submitted as a form does."""
    fields = FormFields(type="Training", name=name, image=IMAGE, gpus="1", **wishes)
    return submit(spec=read_fields(fields=fields, project=project, actor=actor), project=project, actor=actor)


def refused(project: Project, actor: Actor, **wishes: str) -> list[tuple[str, str, str]]:
    """Pointer, code and policy of every broken rule."""
    with pytest.raises(NotCompliant) as error:
        training(project, actor, **wishes)
    return [(each.pointer, each.code, each.numbers["policy"]) for each in error.value.problems]


def pair(workload: Workload) -> tuple[str, str, str, str]:
    return (
        workload.priority.name,
        workload.priority_source,
        workload.preemptibility,
        workload.preemptibility_source,
    )


def test_a_default_fills_what_nobody_asked_for_and_names_its_policy(
    research: Department, llm_team: Project, as_bob: Actor
) -> None:
    document = {"defaults": {"priorityClass": "high", "preemptibility": "preemptible"}}
    PolicyFactory(scope="department", department=research, document=document)
    workload = training(llm_team, as_bob)
    assert pair(workload) == ("high", "policy", "preemptible", "policy")
    said = [each["message"] for each in workload.warnings if each["code"] == "set_by_policy"]
    assert len(said) == 2
    assert all("policy of department research" in each for each in said)
    assert AuditRecord.objects.get(action="workload.submit").detail["priority_source"] == "policy"


def test_what_is_asked_for_beats_a_default_and_a_default_beats_the_threshold(llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document={"defaults": {"priorityClass": "medium", "preemptibility": "preemptible"}})
    assert pair(training(llm_team, as_bob, priority="high")) == ("high", "explicit", "preemptible", "policy")


def test_a_default_priority_leaves_the_types_preemptibility(llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document={"defaults": {"priorityClass": "very-high"}})
    assert pair(training(llm_team, as_bob)) == ("very-high", "policy", "preemptible", "type")


def test_the_nearest_default_counts(research: Department, llm_team: Project, as_bob: Actor) -> None:
    for place, name in (
        ({"scope": "project", "project": llm_team}, "medium-low"),
        ({"scope": "tenant"}, "high"),
        ({"scope": "department", "department": research}, "medium"),
        ({"scope": "cluster", "cluster": llm_team.cluster}, "very-high"),
    ):
        PolicyFactory(**place, document={"defaults": {"priorityClass": name}})
    for name in ("medium-low", "medium", "very-high", "high", "low"):
        workload = training(llm_team, as_bob, name=f"with-{name}")
        assert workload.priority.name == name
        Policy.objects.filter(document__defaults__priorityClass=name).delete()


def test_rules_of_all_scopes_hold_at_once(research: Department, llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document=options("low", "medium"))
    PolicyFactory(scope="project", project=llm_team, document=options("medium", "high"))
    assert refused(llm_team, as_bob, priority="high") == [("/priority", "policy_options", "the whole installation")]
    assert refused(llm_team, as_bob, priority="low") == [("/priority", "policy_options", "project llm-team")]
    assert training(llm_team, as_bob, priority="medium").priority.name == "medium"


def test_a_rule_is_checked_against_what_came_out_not_against_what_was_asked(llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document=options("preemptible", field="preemptibility"))
    assert refused(llm_team, as_bob, priority="high") == [
        ("/preemptibility", "policy_options", "the whole installation"),
    ]
    chosen = training(llm_team, as_bob, priority="high", preemptibility="preemptible")
    assert pair(chosen) == ("high", "explicit", "preemptible", "explicit")


def test_what_may_not_be_edited_stays_what_it_is_without_a_wish(llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document={**options(canEdit=False), "defaults": {"priorityClass": "medium"}})
    assert refused(llm_team, as_bob, priority="low") == [("/priority", "policy_canEdit", "the whole installation")]
    assert training(llm_team, as_bob, priority="medium").priority_source == "explicit"
    assert training(llm_team, as_bob, name="silent").priority_source == "policy"


def test_what_is_required_comes_from_a_person_or_a_default(llm_team: Project, as_bob: Actor) -> None:
    row = PolicyFactory(document=options(required=True))
    assert refused(llm_team, as_bob) == [("/priority", "policy_required", "the whole installation")]
    assert training(llm_team, as_bob, priority="low").priority.name == "low"
    row.document["defaults"] = {"priorityClass": "low"}
    row.save()
    assert training(llm_team, as_bob, name="filled").priority_source == "policy"


def test_partly_preemptible_needs_both_modes(llm_team: Project, as_bob: Actor) -> None:
    row = PolicyFactory(document=options("preemptible", field="preemptibility"))
    effective = {"preemptibility": Preemptibility.SEMI_PREEMPTIBLE.value}
    assert refused(llm_team, as_bob, **effective) == [("/preemptibility", "policy_options", "the whole installation")]
    row.document = options("preemptible", "non-preemptible", field="preemptibility")
    row.save()
    assert training(llm_team, as_bob, **effective).preemptibility == "semi-preemptible"


def test_manifests_are_exempt(llm_team: Project, as_bob: Actor) -> None:
    for kind in PolicyKind:
        PolicyFactory(kind=kind, document={**options("low", canEdit=False), "defaults": {"priorityClass": "low"}})
    workload = submit(spec=spec_of(job()), project=llm_team, actor=as_bob)
    assert pair(workload) == ("high", "type", "non-preemptible", "type")


def test_a_policy_is_about_its_own_kind_and_place(
    llm_team: Project, vision_team: Project, as_bob: Actor, as_charlie: Actor
) -> None:
    PolicyFactory(kind="workspace", document=options("low"))
    PolicyFactory(scope="project", project=vision_team, document=options("low"))
    assert training(llm_team, as_bob, priority="medium")
    assert refused(vision_team, as_charlie, priority="medium") == [
        ("/priority", "policy_options", "project vision-team")
    ]


def test_a_changed_policy_counts_for_the_next_submit_and_is_read_once(llm_team: Project, as_bob: Actor) -> None:
    row = PolicyFactory(document={"defaults": {"priorityClass": "medium"}})

    def submitted(name: str) -> tuple[str, int]:
        with CaptureQueriesContext(connection) as queries:
            workload = training(llm_team, as_bob, name=name)
        return workload.priority.name, sum("workloads_policy" in each["sql"] for each in queries)

    assert submitted("first") == ("medium", 1)
    assert submitted("second") == ("medium", 1)
    row.document = {"defaults": {"priorityClass": "medium-low"}}
    row.save()
    assert submitted("third") == ("medium-low", 1)
    row.delete()
    assert submitted("fourth")[0] == "low"


def test_a_refusal_leaves_one_record_and_names_the_rule(llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document=options("low"))
    with pytest.raises(NotCompliant) as error:
        training(llm_team, as_bob, priority="high")
    assert error.value.status == 400
    (issue,) = error.value.beside["complianceIssues"]
    assert (issue["field"], issue["rule"]) == ("spec.priorityClass", "options")
    assert AuditRecord.objects.get().result == "Denied"
    assert not Workload.objects.exists()


def test_a_preview_is_refused_as_the_submission_would_be(llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document=options("low"))
    fields = FormFields(type="Training", name="train", image=IMAGE, priority="high")
    spec = read_fields(fields=fields, project=llm_team, actor=as_bob)
    with pytest.raises(NotCompliant):
        forecast(spec=spec, project=llm_team, actor=as_bob)


def test_what_may_not_be_submitted_is_not_reached_by_a_later_change(llm_team: Project, as_bob: Actor) -> None:
    PolicyFactory(document=options("low", "medium"))
    workload = training(llm_team, as_bob)
    with pytest.raises(NotCompliant):
        change_priority(workload=workload, priority="high", actor=as_bob)
    assert change_priority(workload=workload, priority="medium", actor=as_bob).priority.name == "medium"


def test_a_renamed_priority_stays_an_option(llm_team: Project, as_bob: Actor, as_admin: Actor) -> None:
    PolicyFactory(document=options("low", "medium"))
    rename_priority(name="medium", new_name="normal", actor=as_admin)
    assert training(llm_team, as_bob, priority="normal").priority.name == "normal"


def test_setting_changing_and_lifting_leave_records_with_before_and_after(llm_team: Project, as_admin: Actor) -> None:
    target = PolicyTarget(PolicyKind.TRAINING, llm_team)
    set_policy(target=target, name="own", document=options("low"), actor=as_admin)
    change_policy(target=target, document={"rules": {"priorityClass": {"required": True}}}, actor=as_admin)
    delete_policy(target=target, actor=as_admin)
    records = AuditRecord.objects.order_by("id")
    assert [row.action for row in records] == ["policy.set", "policy.set", "policy.lift"]
    assert [row.project_id for row in records] == [str(llm_team.pk)] * 3
    assert records[1].detail["before"] == options("low")
    assert records[1].detail["after"]["rules"]["priorityClass"]["required"] is True
    with pytest.raises(NotFound):
        delete_policy(target=target, actor=as_admin)


def test_whoever_manages_a_department_sets_its_policies_and_no_wider_ones(
    research: Department, llm_team: Project, vision_team: Project, alice: User
) -> None:
    dana = acting(
        MembershipFactory(user__username="dana", project=None, department=research, role=Role.DEPARTMENT_ADMIN).user
    )
    for owner in (research, llm_team):
        set_policy(target=PolicyTarget(PolicyKind.WORKSPACE, owner), name="ours", document=options("low"), actor=dana)
    with pytest.raises(Forbidden):
        set_policy(target=PolicyTarget(PolicyKind.WORKSPACE), name="everybody's", document=options("low"), actor=dana)
    with pytest.raises(NotFound):
        set_policy(
            target=PolicyTarget(PolicyKind.WORKSPACE, vision_team), name="theirs", document=options("low"), actor=dana
        )
    with pytest.raises(Forbidden):
        set_policy(
            target=PolicyTarget(PolicyKind.WORKSPACE, llm_team),
            name="mine",
            document=options("low"),
            actor=acting(alice),
        )
    assert Policy.objects.count() == 2


@pytest.mark.parametrize(
    ("kind", "document", "pointer"),
    [
        ("training", {"defaults": {"priorityClass": "urgent"}}, "/policy/defaults/priorityClass"),
        ("training", {"defaults": {"preemptibility": "maybe"}}, "/policy/defaults/preemptibility"),
        ("training", {"defaults": {"image": "a"}}, "/policy/defaults/image"),
        ("training", {"rules": {"compute": {"gpuDevicesRequest": {"max": 2}}}}, "/policy/rules/compute"),
        ("training", {"imposedAssets": ["a"]}, "/policy/imposedAssets"),
        ("training", options(required="yes"), "/policy/rules/priorityClass/required"),
        ("training", options("high", "urgent"), "/policy/rules/priorityClass/options/1/value"),
        ("training", options("high", "high"), "/policy/rules/priorityClass/options"),
        ("training", {"rules": {"priorityClass": {"options": []}}}, "/policy/rules/priorityClass/options"),
        ("training", {"rules": {"priorityClass": {"min": 3}}}, "/policy/rules/priorityClass/min"),
        ("training", {**options("high"), "defaults": {"priorityClass": "low"}}, "/policy/defaults/priorityClass"),
        ("distributed", {"defaults": {"priorityClass": "low"}}, "/policy/defaults/priorityClass"),
        (
            "distributed",
            {"defaults": {"worker": {"priorityClass": "low"}, "master": {"priorityClass": "high"}}},
            "/policy/defaults/master/priorityClass",
        ),
        ("training", {"defaults": ["low"]}, "/policy/defaults"),
    ],
)
def test_what_would_not_be_enforced_is_refused_at_its_pointer(
    as_admin: Actor, kind: str, document: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(ValidationFailed) as error:
        set_policy(target=PolicyTarget(PolicyKind(kind)), name="bad", document=document, actor=as_admin)
    assert error.value.problems[0].pointer == pointer
    assert not Policy.objects.exists()


def test_empty_and_read_only_parts_are_no_wishes(as_admin: Actor) -> None:
    sent = {
        "defaults": {"priorityClass": "low", "image": None, "compute": {"gpu": None}},
        "rules": {"preemptibility": {"canEdit": False, "sourceOfRule": {"scope": "tenant"}}},
        "imposedAssets": [],
        "status": {"validation": {"errorMessage": None}},
    }
    row = set_policy(target=PolicyTarget(PolicyKind.TRAINING), name="x", document=sent, actor=as_admin)
    assert row.document == {
        "defaults": {"priorityClass": "low"},
        "rules": {"preemptibility": {"canEdit": False}},
    }


def test_a_distributed_jobs_policy_is_its_workers(llm_team: Project, as_bob: Actor, as_admin: Actor) -> None:
    document = {"defaults": {"worker": {"priorityClass": "medium"}, "master": {"priorityClass": "medium"}}}
    set_policy(target=PolicyTarget(PolicyKind.DISTRIBUTED), name="gangs", document=document, actor=as_admin)
    fields = FormFields(type="Distributed", name="gang", image=IMAGE, gpus="1", workers=2)
    spec = read_fields(fields=fields, project=llm_team, actor=as_bob)
    workload = submit(spec=spec, project=llm_team, actor=as_bob)
    assert (workload.priority.name, workload.priority_source) == ("medium", "policy")


def test_nothing_is_offered_that_a_policy_forbids(llm_team: Project, as_bob: Actor) -> None:
    fields = FormFields(type="Training", name="train", image=IMAGE, gpus="8", preemptibility="non-preemptible")
    spec = read_fields(fields=fields, project=llm_team, actor=as_bob)
    offered = {each.preemptibility for each in forecast(spec=spec, project=llm_team, actor=as_bob).alternatives}
    assert "preemptible" in offered
    PolicyFactory(document=options("non-preemptible", field="preemptibility"))
    offered = {each.preemptibility for each in forecast(spec=spec, project=llm_team, actor=as_bob).alternatives}
    assert "preemptible" not in offered
