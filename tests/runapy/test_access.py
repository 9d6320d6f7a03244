"""Roles, permissions and access rules through Run:ai's own client."""

from collections.abc import Callable
from typing import Any

import pytest
from runai import models
from runai.exceptions import ConflictException, ForbiddenException, NotFoundException
from runai.runai_client import RunaiClient

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Membership, Role, User
from tenants.access.rules import Permission
from tenants.access.selectors import can
from tenants.access.services.access_rules import grant
from tenants.access.services.roles import create_role
from tenants.organisation.models import Department, Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory, ServiceAccountFactory, UserFactory
from tests.runapy.conftest import client_of

Maker = Callable[..., dict[str, Any]]


def access(client: RunaiClient) -> Any:
    """The groups of the client that are about access."""
    return client.authentication_and_authorization


@pytest.fixture
def role_ids(runai: RunaiClient) -> dict[str, int]:
    """Ids of the roles by their names, as a script looks them up."""
    return {each["name"]: each["id"] for each in access(runai).roles.get_roles_v1().data}


@pytest.fixture
def dana(db: None) -> User:
    return UserFactory(username="dana@rung.example")


@pytest.fixture
def give(runai: RunaiClient, role_ids: dict[str, int]) -> Maker:
    """Gives a role in a project."""

    def give(subject: str, project: Project, role: str = "L1 researcher", kind: str = "user") -> dict[str, Any]:
        fields = models.AccessRuleCreationFields(
            subject_id=subject,
            subject_type=kind,
            role_id=role_ids[role],
            scope_id=str(project.pk),
            scope_type="project",
            cluster_id=str(project.cluster_id),
        )
        answer = access(runai).access_rules.create_access_rule(fields)
        assert answer.status_code == 201
        found: dict[str, Any] = answer.data
        return found

    return give


def test_a_rule_is_made_read_typed_and_deleted(
    runai: RunaiClient, give: Maker, dana: User, research: Department, llm_team: Project
) -> None:
    rules, made = access(runai).access_rules, give(dana.username, llm_team)
    typed = models.AccessRule.from_dict(made)
    assert (typed.subject_id, typed.role_name, typed.scope_name) == (dana.username, "L1 researcher", "llm-team")
    assert (typed.created_by, typed.status.phase.value) == ("moving-script", "Ready")
    assert can(acting(dana), Permission.SUBMIT, project=llm_team)
    read = models.AccessRuleById.from_dict(rules.get_access_rule(typed.id).data)
    assert read.scope_path == "rung/lab/research/llm-team"
    assert rules.delete_access_rule(typed.id).status_code == 204
    assert not can(acting(dana), Permission.VIEW_PROJECT, project=llm_team)
    with pytest.raises(NotFoundException):
        rules.get_access_rule(typed.id)
    actions = AuditRecord.objects.filter(entity_type="membership", entity_id=str(typed.id))
    assert sorted(actions.values_list("action", flat=True)) == ["membership.grant", "membership.revoke"]


def test_groups_and_service_accounts_get_roles_wherever_there_is_a_scope(
    runai: RunaiClient, role_ids: dict[str, int], llm_team: Project
) -> None:
    account = ServiceAccountFactory(name="nightly")
    scopes = {
        "tenant": "1",
        "cluster": str(llm_team.cluster_id),
        "department": str(llm_team.department_id),
        "project": str(llm_team.pk),
    }
    for kind, subject in (("group", "ml-engineers"), ("service-account", account.client_id)):
        for scope, key in scopes.items():
            fields = models.AccessRuleCreationFields(
                subject_id=subject, subject_type=kind, role_id=role_ids["Viewer"], scope_id=key, scope_type=scope
            )
            typed = models.AccessRule.from_dict(access(runai).access_rules.create_access_rule(fields).data)
            assert (typed.subject_id, typed.scope_type.value, typed.scope_id) == (subject, scope, key)
    assert Membership.objects.filter(group__name="ml-engineers").count() == 4


def test_rules_are_listed_filtered_sorted_paged_and_counted(
    runai: RunaiClient, give: Maker, dana: User, llm_team: Project, vision_team: Project
) -> None:
    rules = access(runai).access_rules
    give(dana.username, llm_team)
    last = give("ml-engineers", vision_team, role="Viewer", kind="group")

    def found(**query: Any) -> list[str]:
        return [each["subjectId"] for each in rules.get_access_rules(**query).data["accessRules"]]

    everybody = found()
    assert everybody == ["moving-script", dana.username, "ml-engineers"]
    assert found(subject_type="group") == ["ml-engineers"]
    assert found(subject_type="app") == ["moving-script"]
    assert found(subject_id_filter="DANA") == [dana.username]
    assert found(subject_ids=[dana.username, "nobody"]) == [dana.username]
    assert found(cluster_id=str(llm_team.cluster_id)) == everybody[1:]
    assert found(scope_type="tenant") == found(scope_type="system") == everybody[:1]
    assert found(scope_type="project", scope_id=str(llm_team.pk)) == [dana.username]
    assert found(role_id=last["roleId"]) == ["ml-engineers"]
    assert found(last_updated=last["updatedAt"]) == ["ml-engineers"]
    assert found(search="vision") == ["ml-engineers"]
    assert found(include_deleted=True) == everybody
    assert found(sort_by=models.AccessRulesSortFilterFields.SUBJECTID, sort_order="desc") == sorted(everybody)[::-1]
    page = rules.get_access_rules(limit=1, offset=1).data
    assert (page["totalRecords"], page["displayRecords"]) == (3, 1)
    assert rules.count_access_rules().data == {"count": 3}
    assert rules.count_access_rules(filter_by=["scopeType==project", "roleName=@research"]).data == {"count": 1}
    assert rules.count_access_rules(search="nobody").data == {"count": 0}


def test_every_field_that_the_client_knows_sorts_and_filters(runai: RunaiClient) -> None:
    rules = access(runai).access_rules
    for field in models.AccessRulesSortFilterFields:
        (own,) = rules.get_access_rules(sort_by=field).data["accessRules"]
        value = {**own, "phase": own["status"]["phase"], "deletedAt": own["createdAt"]}[field.value]
        expected = 0 if field.value == "deletedAt" else 1
        assert rules.count_access_rules(filter_by=[f"{field.value}=={value}"]).data == {"count": expected}, field


def test_batches_tell_apart_what_fails(
    runai: RunaiClient, role_ids: dict[str, int], dana: User, llm_team: Project, vision_team: Project
) -> None:
    rules = access(runai).access_rules
    payload = models.AccessRulesBatchCreateFieldsPayload.from_dict(
        {
            "roleId": role_ids["Viewer"],
            "subjects": [
                {"subjectId": dana.username, "subjectType": "user"},
                {"subjectId": "nobody", "subjectType": "user"},
            ],
            "scopes": [{"scopeId": str(each.pk), "scopeType": "project"} for each in (llm_team, vision_team)],
        }
    )
    answer = rules.access_rules_batch_create(models.AccessRulesBatchCreateFields(payload=payload))
    typed = models.AccessRulesBatchCreateResponse.from_dict(answer.data)
    assert answer.status_code == 200
    assert [each.scope_name for each in typed.succeeded] == ["llm-team", "vision-team"]
    assert {(each.payload.subject_id, each.code) for each in typed.failed} == {("nobody", 404)}

    ids = [*(str(each.id) for each in typed.succeeded), "999999", "x"]
    for action, left in (("validate_delete", 2), ("delete", 0)):
        answer = rules.access_rules_batch(models.AccessRulesBatchFields(ids=ids, action=action))
        outcome = models.AccessRuleDeletionBatchResponse.from_dict(answer.data)
        assert (outcome.succeeded, [each.id for each in outcome.failed]) == (ids[:2], ids[2:])
        assert dana.memberships.count() == left


def test_the_roles_are_read_typed_with_what_they_allow(runai: RunaiClient) -> None:
    create_role(name="Auditor", permission_sets=["view-event-history"], description="Reads along", actor=SYSTEM)
    roles = [models.RoleV1.from_dict(each) for each in access(runai).roles.get_roles_v1().data]
    custom = {each.name: each.custom for each in roles}
    assert custom == {
        "Viewer": False,
        "L1 researcher": False,
        "Project administrator": False,
        "Department administrator": False,
        "System administrator": False,
        "Auditor": True,
    }
    one = models.RoleV1.from_dict(access(runai).roles.get_role_v1(roles[-1].id).data)
    assert (one.name, one.description, one.effective_enabled) == ("Auditor", "Reads along", True)
    assert {each.resource_type.value for each in one.permissions if "read" in each.actions} >= {"events-history"}
    with pytest.raises(NotFoundException):
        access(runai).roles.get_role_v1(999999)


def test_permissions_are_those_of_the_caller(live_server: object, runai: RunaiClient, llm_team: Project) -> None:
    everything = [models.Permission.from_dict(each) for each in access(runai).permissions.get_permissions().data]
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team)
    held = {each["resourceType"]: each["actions"] for each in access(member).permissions.get_permissions().data}
    assert {each.resource_type.value for each in everything} > set(held)
    assert (held["workloads"], held["project"]) == (["create", "read"], ["read"])
    assert "users" not in held


def test_permitted_scopes_are_the_places_of_the_roles(
    live_server: object, runai: RunaiClient, llm_team: Project, vision_team: Project
) -> None:
    requested = models.GetPermittedScopesRequest(resource_type="workloads", action="create")
    whole = models.PermittedScopesActions.from_dict(access(runai).permissions.get_permitted_scopes(requested).data)
    assert (whole.create.system, whole.create.tenants, whole.delete.projects) == (True, ["1"], [])
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team)
    grant(
        subject=Membership.objects.get(project=llm_team).service_account,
        role=Role.DEPARTMENT_ADMIN,
        cluster=llm_team.cluster,
        actor=SYSTEM,
    )
    typed = models.PermittedScopesActions.from_dict(access(member).permissions.get_permitted_scopes(requested).data)
    assert (typed.create.projects, typed.create.clusters) == ([str(llm_team.pk)], [str(llm_team.cluster_id)])
    assert (typed.delete.system, typed.delete.projects) == (False, [])
    absent = models.GetPermittedScopesRequest(resource_type="datavolumes")
    assert not any(any(each.values()) for each in access(member).permissions.get_permitted_scopes(absent).data.values())


def test_my_own_rules_come_doubly_nested(live_server: object, llm_team: Project, vision_team: Project) -> None:
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team)
    MembershipFactory(project=vision_team)
    answer = access(member).me.get_me_access_rules(limit=10).data
    typed = models.MeAccessRulesResponse.from_dict(answer).access_rules
    assert (typed.total_records, typed.display_records) == (1, 1)
    assert (typed.access_rules[0].role_name, typed.access_rules[0].scope_name) == ("L1 researcher", "llm-team")
    assert access(member).me.count_me_access_rules().data == {"count": 1}
    assert access(member).me.count_me_access_rules(search="vision").data == {"count": 0}
    assert access(member).me.get_me_access_rules(offset=1).data["accessRules"]["accessRules"] == []


def test_a_project_administrator_rules_over_the_project_and_sees_no_further(
    live_server: object, role_ids: dict[str, int], dana: User, llm_team: Project, vision_team: Project
) -> None:
    owner = access(client_of(live_server, "project-script", Role.OWNER, project=llm_team)).access_rules
    foreign = MembershipFactory(project=vision_team)

    def requested(role: str, project: Project) -> models.AccessRuleCreationFields:
        return models.AccessRuleCreationFields(
            subject_id=dana.username,
            subject_type="user",
            role_id=role_ids[role],
            scope_id=str(project.pk),
            scope_type="project",
        )

    made = owner.create_access_rule(requested("L1 researcher", llm_team)).data
    with pytest.raises(ConflictException):
        owner.create_access_rule(requested("L1 researcher", llm_team))
    second = owner.create_access_rule(requested("Viewer", llm_team)).data
    assert owner.delete_access_rule(second["id"]).status_code == 204
    with pytest.raises(NotFoundException):
        owner.create_access_rule(requested("Viewer", vision_team))
    with pytest.raises(NotFoundException):
        owner.delete_access_rule(foreign.pk)
    assert {each["scopeName"] for each in owner.get_access_rules().data["accessRules"]} == {"llm-team"}
    assert owner.delete_access_rule(made["id"]).status_code == 204
    member = access(client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team)).access_rules
    assert member.get_access_rules().data["totalRecords"] == 0
    with pytest.raises(ForbiddenException):
        member.create_access_rule(requested("Viewer", llm_team))


def test_the_last_platform_admin_stays(runai: RunaiClient) -> None:
    rules = access(runai).access_rules
    (own,) = rules.get_access_rules().data["accessRules"]
    with pytest.raises(ConflictException) as refused:
        rules.delete_access_rule(own["id"])
    assert refused.value.data["details"] == "last_platform_admin"
