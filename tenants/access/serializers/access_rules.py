"""Request and response bodies of roles, permissions and access rules, as Run:ai names them."""

from collections.abc import Iterable
from typing import Any, Final

from rest_framework import serializers

from clusters.inventory.models import Cluster
from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import TypedObject, schema
from tenants.access.models import AccessRole, Membership
from tenants.access.rules import ACTIONS, PREDEFINED, RESOURCES, SETS, Permissions, PermissionSet, allowed_actions
from tenants.access.selectors import INSTALLATION, Grant
from tenants.access.services.access_rules import SCOPE_TYPES, SUBJECT_TYPES

LARGEST_ID = 2**31 - 1
MOST = 100
"""Rules of one batch."""
BATCH_ACTIONS = ("delete", "validate_delete")


class PermissionSchema(serializers.Serializer[Any]):
    """A resource type and what may be done to it."""

    resourceType = serializers.CharField()
    displayName = serializers.CharField()
    groupId = serializers.CharField()
    actions = serializers.ListField(child=serializers.ChoiceField(choices=ACTIONS))


class RolePermissionSchema(serializers.Serializer[Any]):
    """A resource type and what may be done to it."""

    resourceType = serializers.CharField()
    actions = serializers.ListField(child=serializers.ChoiceField(choices=ACTIONS))


class PermissionSetSchema(serializers.Serializer[Any]):
    """What goes together in a role."""

    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    permissions = RolePermissionSchema(many=True)


class RoleCommon(serializers.Serializer[Any]):
    """What both versions say of a role."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    custom = serializers.BooleanField()
    enabled = serializers.BooleanField()
    effectiveEnabled = serializers.BooleanField()
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(allow_blank=True)
    updatedAt = serializers.DateTimeField()


class RoleV1Schema(RoleCommon):
    """A role with its permissions."""

    permissions = PermissionSchema(many=True)


class PermissionSetRef(serializers.Serializer[Any]):
    """A permission set by its id; the name is not read."""

    id = serializers.CharField(max_length=100)
    name = serializers.CharField(max_length=200, required=False, allow_null=True, allow_blank=True)


class RoleV2Schema(RoleCommon):
    """A role with its permission sets, and the permissions that these come to."""

    permissionSets = PermissionSetRef(many=True)
    permissions = RolePermissionSchema(many=True)


class KubernetesPermissions(serializers.Serializer[Any]):
    """A role inside the clusters."""

    predefinedRole = serializers.CharField(required=False, allow_null=True)


class RoleCreate(serializers.Serializer[Any]):
    """A custom role."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=2000, allow_blank=True, required=False, default="")
    enabled = serializers.BooleanField(required=False, default=True, allow_null=True)
    permissionSets = PermissionSetRef(many=True)
    kubernetesPermissions = TypedObject(
        as_=KubernetesPermissions(),
        required=False,
        allow_null=True,
        help_text="Not supported: roles give no rights inside of a cluster. Leave out.",
    )


class ScopesQuery(serializers.Serializer[Any]):
    """Of what the permitted scopes are asked."""

    resourceType = serializers.CharField(max_length=100, help_text=", ".join(each.type for each in RESOURCES))
    action = serializers.ChoiceField(choices=ACTIONS, required=False, allow_null=True)


class ScopesSchema(serializers.Serializer[Any]):
    """Where an action is permitted; a scope includes what is below it."""

    system = serializers.BooleanField()
    tenants = serializers.ListField(child=serializers.CharField())
    tenant = serializers.CharField(required=False)
    clusters = serializers.ListField(child=serializers.CharField())
    departments = serializers.ListField(child=serializers.CharField())
    projects = serializers.ListField(child=serializers.CharField())


class PermittedScopesSchema(serializers.Serializer[Any]):
    """Where each action is permitted."""

    create = ScopesSchema()  # type: ignore[assignment]  # Run:ai's word hides a method of the class
    read = ScopesSchema()
    update = ScopesSchema()  # type: ignore[assignment]
    delete = ScopesSchema()


class SubjectSchema(serializers.Serializer[Any]):
    """Who: a user by name, a group by name, a service account by client id."""

    subjectId = serializers.CharField(max_length=254)
    subjectType = serializers.ChoiceField(choices=SUBJECT_TYPES)


class ScopeSchema(serializers.Serializer[Any]):
    """Where: a project, a department or a cluster by id; the whole installation by its tenant id or an empty id."""

    scopeId = serializers.CharField(max_length=64, allow_blank=True)
    scopeType = serializers.ChoiceField(choices=SCOPE_TYPES)


class RuleCreate(SubjectSchema, ScopeSchema):
    """An access rule to be."""

    roleId = serializers.IntegerField(min_value=1, max_value=LARGEST_ID)
    clusterId = serializers.CharField(max_length=64, required=False, allow_null=True, allow_blank=True)


class RuleStatusSchema(serializers.Serializer[Any]):
    """Rules count from the subject's next request on."""

    phase = serializers.CharField()


class MeRuleSchema(SubjectSchema, ScopeSchema):
    """A rule about the caller; without id where no rule exists: superusers."""

    id = serializers.IntegerField(required=False)
    roleId = serializers.IntegerField()
    roleName = serializers.CharField()
    scopeName = serializers.CharField()
    clusterId = serializers.UUIDField(required=False)
    tenantId = serializers.IntegerField()


class RuleSchema(MeRuleSchema):
    """An access rule."""

    id = serializers.IntegerField()
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(allow_blank=True)
    updatedAt = serializers.DateTimeField()
    status = RuleStatusSchema()


class RuleDetailSchema(RuleSchema):
    """An access rule with the names above its scope."""

    scopePath = serializers.CharField()


class RulesSchema(serializers.Serializer[Any]):
    """One page. `totalRecords`: all that the filter finds; `displayRecords`: those of this page."""

    totalRecords = serializers.IntegerField()
    displayRecords = serializers.IntegerField()
    accessRules = RuleSchema(many=True)


class MeRulesSchema(serializers.Serializer[Any]):
    """One page of the caller's own."""

    totalRecords = serializers.IntegerField()
    displayRecords = serializers.IntegerField()
    accessRules = MeRuleSchema(many=True)


NestedMeRules = schema("NestedMeRules", "The same, one level down.", accessRules=MeRulesSchema())


class RuleBatch(serializers.Serializer[Any]):
    """Rules by id; `validate_delete` says what a deletion would say and deletes nothing."""

    ids = serializers.ListField(child=serializers.CharField(max_length=20), min_length=1, max_length=MOST)
    action = serializers.ChoiceField(choices=BATCH_ACTIONS)


class FailedRule(serializers.Serializer[Any]):
    """A rule that was not deleted, and why."""

    id = serializers.CharField()
    code = serializers.IntegerField()
    message = serializers.CharField()


class RuleBatchResult(serializers.Serializer[Any]):
    """What became of each."""

    id = serializers.UUIDField()
    succeeded = serializers.ListField(child=serializers.CharField())
    failed = FailedRule(many=True)


class RulesCreate(serializers.Serializer[Any]):
    """Every subject gets the role in every scope."""

    roleId = serializers.IntegerField(min_value=1, max_value=LARGEST_ID)
    clusterId = serializers.CharField(max_length=64, required=False, allow_null=True, allow_blank=True)
    subjects = SubjectSchema(many=True)
    scopes = ScopeSchema(many=True)


RulesCreation = schema("RulesCreation", "What is to be made.", payload=RulesCreate())


class RejectedRule(serializers.Serializer[Any]):
    """A rule that was not made, and why."""

    payload = RuleCreate()
    code = serializers.IntegerField()
    message = serializers.CharField()


class RulesCreated(serializers.Serializer[Any]):
    """What became of each."""

    succeeded = RuleSchema(many=True)
    failed = RejectedRule(many=True)


ROOT: Final = "rung"


def permissions_json(permissions: Permissions, everywhere: Permissions | None = None) -> list[dict[str, Any]]:
    """Resource types with the actions that these permissions allow, some of them in the whole installation only."""
    return [
        {"resourceType": each.type, "displayName": each.title, "groupId": each.group, "actions": actions}
        for each, actions in allowed_actions(permissions, everywhere)
    ]


def plain_permissions(permissions: Permissions) -> list[dict[str, Any]]:
    """The same without titles."""
    return [{"resourceType": each.type, "actions": actions} for each, actions in allowed_actions(permissions)]


def set_json(each: PermissionSet) -> dict[str, Any]:
    """A permission set with what it comes to."""
    named = {"id": each.id, "name": each.name, "description": each.description}
    return {**named, "permissions": plain_permissions(each.permissions)}


def role_v1(role: AccessRole) -> dict[str, Any]:
    return {**_role(role), "permissions": permissions_json(role.permissions), "kubernetesPermissions": None}


def role_v2(role: AccessRole) -> dict[str, Any]:
    """As Run:ai's second version says it."""
    sets = PREDEFINED.get(role.key, tuple(role.permission_sets))
    chosen = [{"id": each, "name": SETS[each].name} for each in sets if each in SETS]
    return {**_role(role), "permissionSets": chosen, "permissions": plain_permissions(role.permissions)}


def _role(role: AccessRole) -> dict[str, Any]:
    return {
        "id": role.pk,
        "name": role.name,
        "description": role.description,
        "custom": role.custom,
        "enabled": role.enabled,
        "effectiveEnabled": role.enabled,
        "createdAt": rfc3339(role.created_at),
        "createdBy": role.created_by,
        "updatedAt": rfc3339(role.updated_at),
    }


def own_rule(rule: Membership) -> dict[str, Any]:
    cluster = _cluster_of(rule)
    return {
        "id": rule.pk,
        **_subject(rule),
        "roleId": rule.role.pk,
        "roleName": rule.role.name,
        **_scope(rule),
        "tenantId": TENANT_ID,
        **({"clusterId": str(cluster.pk)} if cluster else {}),
    }


def rule_json(rule: Membership) -> dict[str, Any]:
    return {
        **own_rule(rule),
        "createdAt": rfc3339(rule.created_at),
        "createdBy": rule.created_by,
        "updatedAt": rfc3339(rule.updated_at),
        "status": {"phase": "Ready"},
    }


def superusers_rule(name: str, role: AccessRole) -> dict[str, Any]:
    """A superuser may do everything without a rule that says so."""
    return {
        "subjectId": name,
        "subjectType": "user",
        "roleId": role.pk,
        "roleName": role.name,
        "scopeId": str(TENANT_ID),
        "scopeType": "tenant",
        "scopeName": INSTALLATION,
        "tenantId": TENANT_ID,
    }


def path_of(rule: Membership) -> str:
    """The names from the installation down to the scope."""
    cluster, department = _cluster_of(rule), rule.department or (rule.project and rule.project.department)
    return "/".join([ROOT, *(each.name for each in (cluster, department, rule.project) if each)])


def _subject(rule: Membership) -> dict[str, str]:
    if rule.user is not None:
        return {"subjectId": rule.user.username, "subjectType": "user"}
    if rule.group is not None:
        return {"subjectId": rule.group.name, "subjectType": "group"}
    return {
        "subjectId": rule.service_account.client_id if rule.service_account else "",
        "subjectType": "service-account",
    }


def _scope(rule: Membership) -> dict[str, str]:
    for kind, place in (("project", rule.project), ("department", rule.department), ("cluster", rule.cluster)):
        if place is not None:
            return {"scopeId": str(place.pk), "scopeType": kind, "scopeName": place.name}
    return {"scopeId": str(TENANT_ID), "scopeType": "tenant", "scopeName": INSTALLATION}


def _cluster_of(rule: Membership) -> Cluster | None:
    inside = rule.project or rule.department
    return inside.cluster if inside is not None else rule.cluster


def scopes_json(grants: Iterable[Grant]) -> dict[str, Any]:
    """The places of grants: the smallest one that each names."""
    found: dict[str, list[str]] = {"projects": [], "departments": [], "clusters": []}
    everywhere = False
    for grant in grants:
        if grant.everywhere:
            everywhere = True
            continue
        kind, place = next((kind, place) for kind, place in zip(found, grant.place, strict=True) if place is not None)
        if str(place) not in found[kind]:
            found[kind].append(str(place))
    whole = {"tenant": str(TENANT_ID)} if everywhere else {}
    return {"system": everywhere, "tenants": [str(TENANT_ID)] if everywhere else [], **whole, **found}
