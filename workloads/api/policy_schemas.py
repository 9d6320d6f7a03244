"""What the policies' routes take and answer. Shapes and keys are Run:ai's."""

from typing import Any

from rest_framework import serializers

from workloads.policy_rules import Kind, Scope

SCOPES = [str(each) for each in Scope]


class PolicyPlace(serializers.Serializer[Any]):
    """Which policy: its scope, the scope's id, and its name."""

    scope = serializers.ChoiceField(choices=SCOPES)
    name = serializers.CharField(max_length=100, required=False)
    projectId = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=10**15)
    departmentId = serializers.CharField(required=False, allow_null=True, max_length=20)
    clusterId = serializers.CharField(required=False, allow_null=True, max_length=36)


class NewPolicy(serializers.Serializer[Any]):
    """The whole policy."""

    meta = PolicyPlace()
    policy = serializers.DictField(help_text="defaults and rules of priorityClass and preemptibility.")


class PolicyChange(serializers.Serializer[Any]):
    """What is to change; `reset` names fields whose default and rule are cleared first."""

    meta = PolicyPlace()
    policy = serializers.DictField(required=False, allow_null=True)
    reset = serializers.ListField(child=serializers.CharField(max_length=100), required=False, max_length=20)


class PolicyMetaSchema(PolicyPlace):
    """Which policy, and who made it."""

    id = serializers.UUIDField()
    tenantId = serializers.IntegerField()
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()
    updatedBy = serializers.CharField()
    updatedAt = serializers.DateTimeField()


class PolicySchema(serializers.Serializer[Any]):
    """A scope's policy, and what holds there together with those of wider scopes."""

    meta = PolicyMetaSchema(allow_null=True)
    policy = serializers.DictField(allow_null=True)
    effective = serializers.DictField(allow_null=True)
    effectiveUpdatedAt = serializers.DateTimeField(allow_null=True)


class PolicyEntrySchema(serializers.Serializer[Any]):
    """One policy in a list."""

    type = serializers.ChoiceField(choices=[str(each) for each in Kind])
    meta = PolicyMetaSchema()
    status = serializers.DictField()


class PoliciesSchema(serializers.Serializer[Any]):
    """Policies the caller may see."""

    policies = PolicyEntrySchema(many=True)
