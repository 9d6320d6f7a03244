"""What the routes of roles, permissions and access rules take and answer: for bodies and the OpenAPI document."""

from typing import Any

from rest_framework import serializers

from tenants.roles import ACTIONS, RESOURCES
from tenants.services.access_rules import SCOPE_TYPES, SUBJECT_TYPES

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


class ChosenSet(serializers.Serializer[Any]):
    """A permission set by its id; the name is not read."""

    id = serializers.CharField(max_length=100)
    name = serializers.CharField(max_length=200, required=False, allow_null=True, allow_blank=True)


class RoleV2Schema(RoleCommon):
    """A role with its permission sets, and the permissions that these come to."""

    permissionSets = ChosenSet(many=True)
    permissions = RolePermissionSchema(many=True)


class NewRole(serializers.Serializer[Any]):
    """A custom role."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=2000, allow_blank=True, required=False, default="")
    enabled = serializers.BooleanField(required=False, default=True, allow_null=True)
    permissionSets = ChosenSet(many=True)
    kubernetesPermissions = serializers.DictField(
        required=False, allow_null=True, help_text="Not supported: roles give no rights inside of a cluster. Leave out."
    )


class AskedScopes(serializers.Serializer[Any]):
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


class NewRule(SubjectSchema, ScopeSchema):
    """An access rule to be."""

    roleId = serializers.IntegerField(min_value=1, max_value=LARGEST_ID)
    clusterId = serializers.CharField(max_length=64, required=False, allow_null=True, allow_blank=True)


class RuleStatusSchema(serializers.Serializer[Any]):
    """Rules count from the subject's next request on."""

    phase = serializers.CharField()


class MeRuleSchema(SubjectSchema, ScopeSchema):
    """A rule about the caller; without id where it stands in no rule: superusers."""

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


class OneRuleSchema(RuleSchema):
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


class NestedMeRules(serializers.Serializer[Any]):
    """The same, one level down."""

    accessRules = MeRulesSchema()


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


class NewRules(serializers.Serializer[Any]):
    """Every subject gets the role in every scope."""

    roleId = serializers.IntegerField(min_value=1, max_value=LARGEST_ID)
    clusterId = serializers.CharField(max_length=64, required=False, allow_null=True, allow_blank=True)
    subjects = SubjectSchema(many=True)
    scopes = ScopeSchema(many=True)


class RulesCreation(serializers.Serializer[Any]):
    """What is to be made."""

    payload = NewRules()


class RefusedRule(serializers.Serializer[Any]):
    """A rule that was not made, and why."""

    payload = NewRule()
    code = serializers.IntegerField()
    message = serializers.CharField()


class RulesCreated(serializers.Serializer[Any]):
    """What became of each."""

    succeeded = RuleSchema(many=True)
    failed = RefusedRule(many=True)
