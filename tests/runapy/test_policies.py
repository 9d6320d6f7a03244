"""Policies through Run:ai's own client: set at a scope, read with what holds, changed and taken away."""

from typing import Any

import pytest
from runai import models
from runai.exceptions import BadRequestException, ForbiddenException, NotFoundException, UnprocessableEntityException
from runai.runai_client import RunaiClient

from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Department, Project
from tests.runapy.conftest import client_of
from workloads.policies.models import Policy


def rules(*options: str, **more: Any) -> models.StringRules:
    return models.StringRules(options=[models.StringOption(value=each) for each in options] or None, **more)


@pytest.fixture
def everywhere(runai: RunaiClient) -> dict[str, Any]:
    """Training is medium or low everywhere, medium unless somebody chooses."""
    request = models.TrainingPolicyOverwriteRequestV2(
        meta=models.PolicyCreationFields(scope=models.ScopeType.TENANT, name="house rules"),
        policy=models.TrainingPolicyDefaultsAndRulesV2(
            defaults=models.TrainingPolicyDefaultsV2(priority_class="medium"),
            rules=models.TrainingPolicyRulesV2(priority_class=rules("low", "medium")),
        ),
    )
    answer = runai.policies.policy.overwrite_training_policy_v2(training_policy_overwrite_request_v2=request)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.data
    return found


def test_a_policy_comes_back_typed_with_what_holds(runai: RunaiClient, everywhere: dict[str, Any]) -> None:
    read = runai.policies.policy.get_training_policy_v2(scope="tenant").data
    assert read == everywhere
    policy = models.TrainingPolicyV2.from_dict(read)
    assert (policy.meta.name, policy.meta.tenant_id, policy.meta.created_by) == ("house rules", 1, "moving-script")
    assert policy.effective.defaults.priority_class == "medium"
    assert [each.value for each in policy.effective.rules.priority_class.options] == ["low", "medium"]
    assert policy.effective.rules.priority_class.source_of_rule.scope == "tenant"
    assert policy.effective_updated_at


def test_a_project_reads_what_wider_scopes_say_and_may_only_tighten_it(
    runai: RunaiClient, everywhere: dict[str, Any], llm_team: Project
) -> None:
    policies = runai.policies.policy
    inherited = policies.get_training_policy_v2(scope="project", project_id=str(llm_team.pk)).data
    assert (inherited["meta"], inherited["policy"]) == (None, None)
    assert inherited["effective"]["defaults"] == {"priorityClass": "medium"}

    meta = models.PolicyCreationFields(scope=models.ScopeType.PROJECT, project_id=llm_team.pk, name="tighter")
    wanted = models.TrainingPolicyRulesV2(priority_class=rules("low", "very-high", can_edit=False))
    request = models.TrainingPolicyOverwriteRequestV2(
        meta=meta, policy=models.TrainingPolicyDefaultsAndRulesV2(rules=wanted)
    )
    own = policies.overwrite_training_policy_v2(training_policy_overwrite_request_v2=request).data
    typed = models.TrainingPolicyV2.from_dict(own)
    assert typed.meta.project_id == llm_team.pk
    assert [each.value for each in typed.policy.rules.priority_class.options] == ["low", "very-high"]
    assert [each.value for each in typed.effective.rules.priority_class.options] == ["low"]
    assert typed.effective.rules.priority_class.can_edit is False
    assert typed.effective.rules.priority_class.source_of_rule.project_id == llm_team.pk
    assert "medium" in typed.effective.status.validation.error_message, "the default is no option any more"


def test_only_checking_keeps_nothing(runai: RunaiClient) -> None:
    body = {"meta": {"scope": "tenant", "name": "a"}, "policy": {"defaults": {"preemptibility": "preemptible"}}}
    answer = runai.policies.policy.overwrite_workspace_policy_v2(True, workspace_policy_overwrite_request_v2=body)
    assert answer.data["effective"]["defaults"] == {"preemptibility": "preemptible"}
    assert not Policy.objects.exists()
    assert not AuditRecord.objects.filter(action="policy.set").exists()


def test_a_patch_keeps_what_it_does_not_name_and_reset_clears(runai: RunaiClient, everywhere: dict[str, Any]) -> None:
    policies, meta = runai.policies.policy, {"scope": "tenant", "name": "house rules"}
    changed = policies.update_training_policy_v2(
        training_policy_change_request_v2={
            "meta": meta,
            "policy": {"defaults": {"preemptibility": "preemptible"}, "rules": {"priorityClass": {"required": True}}},
        }
    ).data["policy"]
    assert changed["defaults"] == {"priorityClass": "medium", "preemptibility": "preemptible"}
    assert changed["rules"]["priorityClass"]["required"] is True
    assert [each["value"] for each in changed["rules"]["priorityClass"]["options"]] == ["low", "medium"]
    request = models.TrainingPolicyChangeRequestV2(meta=meta, reset=["priorityClass"])
    cleared = policies.update_training_policy_v2(training_policy_change_request_v2=request).data["policy"]
    assert cleared == {"defaults": {"preemptibility": "preemptible"}, "rules": {}}


def test_of_a_distributed_job_the_worker_says_it_and_what_their_client_always_sends_is_no_wish(
    runai: RunaiClient, research: Department
) -> None:
    meta = models.PolicyCreationFields(scope="department", department_id=str(research.pk), name="gangs")
    worker = models.DistributedPolicyDefaultsV2Worker(priority_class="high", preemptibility="non-preemptible")
    request = models.DistributedPolicyOverwriteRequestV2(
        meta=meta,
        policy=models.DistributedPolicyDefaultsAndRulesV2(defaults=models.DistributedPolicyDefaultsV2(worker=worker)),
    )
    made = runai.policies.policy.overwrite_distributed_policy_v2(distributed_policy_overwrite_request_v2=request).data
    typed = models.DistributedPolicyV2.from_dict(made)
    assert typed.effective.defaults.worker.priority_class == "high"
    assert typed.meta.department_id == str(research.pk)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("workspace", models.WorkspacePolicyV2),
        ("inference", models.InferencePolicyV2),
        ("distributed_inference", models.DistributedInferencePolicyV2),
    ],
)
def test_every_kind_is_set_read_and_taken_away(runai: RunaiClient, kind: str, model: Any) -> None:
    policies = runai.policies.policy
    body = {"meta": {"scope": "tenant", "name": "x"}, "policy": {"rules": {"preemptibility": {"canEdit": False}}}}
    getattr(policies, f"overwrite_{kind}_policy_v2")(**{f"{kind}_policy_overwrite_request_v2": body})
    read = getattr(policies, f"get_{kind}_policy_v2")(scope="tenant").data
    assert model.from_dict(read).effective.rules.preemptibility.can_edit is False
    assert getattr(policies, f"delete_{kind}_policy")(scope="tenant").status_code == 204
    with pytest.raises(NotFoundException):
        getattr(policies, f"get_{kind}_policy_v2")(scope="tenant")


def test_nim_services_have_policies_too(runai: RunaiClient) -> None:
    policies = runai.policies.policy
    body = {"meta": {"scope": "tenant", "name": "x"}, "policy": {"defaults": {"priorityClass": "very-high"}}}
    policies.overwrite_nim_service_policy(nim_service_policy_overwrite_request=body)
    assert models.NimServicePolicy.from_dict(policies.get_nim_service_policy(scope="tenant").data).meta.name == "x"
    assert policies.delete_nim_service_policy(scope="tenant").status_code == 204


def test_the_list_is_narrowed_by_kind_scope_and_place(
    runai: RunaiClient, everywhere: dict[str, Any], llm_team: Project
) -> None:
    policies = runai.policies.policy
    body = {
        "meta": {"scope": "project", "projectId": llm_team.pk, "name": "own"},
        "policy": {"defaults": {"priorityClass": "low"}},
    }
    policies.overwrite_workspace_policy_v2(workspace_policy_overwrite_request_v2=body)

    def names(**query: Any) -> list[str]:
        found = models.PolicyListResponse.from_dict(policies.list_policies(**query).data).policies
        return sorted(each.meta.name for each in found)

    assert names() == ["house rules", "own"]
    assert names(workload_type="Training") == ["house rules"]
    assert names(scope="project") == names(project_id=str(llm_team.pk)) == ["own"]
    assert names(scope=models.ScopeType.TENANT, include_fallback_policies=True) == ["house rules"]


def test_a_member_reads_what_holds_and_sets_nothing(
    live_server: object, everywhere: dict[str, Any], llm_team: Project, vision_team: Project
) -> None:
    policies = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team).policies.policy
    assert policies.get_training_policy_v2(scope="project", project_id=str(llm_team.pk)).status_code == 200
    with pytest.raises(NotFoundException):
        policies.get_training_policy_v2(scope="project", project_id=str(vision_team.pk))
    for scope in ({"scope": "tenant"}, {"scope": "project", "projectId": llm_team.pk}):
        body = {"meta": {**scope, "name": "mine"}, "policy": {"defaults": {"priorityClass": "very-high"}}}
        with pytest.raises(ForbiddenException):
            policies.overwrite_training_policy_v2(training_policy_overwrite_request_v2=body)
    body["meta"]["projectId"] = vision_team.pk
    with pytest.raises(UnprocessableEntityException) as refused:
        policies.overwrite_training_policy_v2(training_policy_overwrite_request_v2=body)
    assert refused.value.data["errors"][0]["pointer"] == "/meta/projectId"


def test_a_submission_hears_typed_which_rule_it_breaks(
    runai: RunaiClient, everywhere: dict[str, Any], llm_team: Project
) -> None:
    spec = models.TrainingSpecSpec(image="docker.io/a/b:1", priority_class="very-high")
    request = models.TrainingCreationRequest(
        name="train", project_id=str(llm_team.pk), cluster_id=str(llm_team.cluster_id), spec=spec
    )
    with pytest.raises(BadRequestException) as refused:
        runai.workloads.trainings.create_training1(request)
    typed = models.ComplianceIssuesV2ComplianceIssuesInner.from_dict
    issues = [typed(each) for each in refused.value.data["complianceIssues"]]
    assert [(each.var_field, each.rule) for each in issues] == [("spec.priorityClass", "options")]
