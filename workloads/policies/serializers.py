"""Policies as REST sends and accepts them. Keys are Run:ai's."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from rest_framework import serializers

from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import TypedObject, schema
from portal.kit.errors import Problem
from portal.kit.pages.api_snippets import ApiRequest
from workloads.policies.models import Owner, Policy
from workloads.policies.rules.documents import Document, merged_json, place_json
from workloads.policies.rules.merge import PolicyKind, Scope, contradiction
from workloads.policies.selectors import EffectivePolicy, merged_of, place_of

SCOPES = [str(each) for each in Scope]


class PolicyPlace(serializers.Serializer[Any]):
    """Which policy: its scope, the scope's id, and its name."""

    scope = serializers.ChoiceField(choices=SCOPES)
    name = serializers.CharField(max_length=100, required=False)
    projectId = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=10**15)
    departmentId = serializers.CharField(required=False, allow_null=True, max_length=20)
    clusterId = serializers.CharField(required=False, allow_null=True, max_length=36)


class PolicySourceSchema(serializers.Serializer[Any]):
    """The policy that a rule comes from."""

    scope = serializers.CharField()
    projectId = serializers.IntegerField(required=False, allow_null=True)
    departmentId = serializers.CharField(required=False, allow_null=True)
    clusterId = serializers.CharField(required=False, allow_null=True)
    isFallback = serializers.BooleanField(required=False, allow_null=True)


class PolicyOptionSchema(serializers.Serializer[Any]):
    """A value that a rule allows."""

    value = serializers.CharField(allow_null=True)
    displayed = serializers.CharField(required=False, allow_null=True)


class PolicyRuleSchema(serializers.Serializer[Any]):
    """What a submission may say of one field."""

    canEdit = serializers.BooleanField(required=False, allow_null=True)
    options = PolicyOptionSchema(many=True, required=False, allow_null=True)
    sourceOfRule = PolicySourceSchema(required=False, allow_null=True, read_only=True)

    def get_fields(self) -> dict[str, Any]:
        """With `required`, a name the class itself uses."""
        return {**super().get_fields(), "required": serializers.BooleanField(required=False, allow_null=True)}


class PairDefaultsSchema(serializers.Serializer[Any]):
    """Values that a submission gets where it says nothing."""

    priorityClass = serializers.CharField(required=False, allow_null=True)
    preemptibility = serializers.CharField(required=False, allow_null=True)


class PolicyDefaultsSchema(PairDefaultsSchema):
    """The same; of distributed kinds below `worker` and `master`."""

    worker = PairDefaultsSchema(required=False, allow_null=True)
    master = PairDefaultsSchema(required=False, allow_null=True)


class PairRulesSchema(serializers.Serializer[Any]):
    """Rules by the field."""

    priorityClass = PolicyRuleSchema(required=False, allow_null=True)
    preemptibility = PolicyRuleSchema(required=False, allow_null=True)


class PolicyRulesSchema(PairRulesSchema):
    """The same; of distributed kinds below `worker` and `master`."""

    worker = PairRulesSchema(required=False, allow_null=True)
    master = PairRulesSchema(required=False, allow_null=True)


class PolicyValidationSchema(serializers.Serializer[Any]):
    """Why the rules of all scopes together leave no value; null where they leave one."""

    errorMessage = serializers.CharField(allow_null=True)


class PolicyStatusSchema(serializers.Serializer[Any]):
    """Whether it can be met. Rung itself enforces it: no cluster has a part."""

    validation = PolicyValidationSchema()
    clusters = serializers.ListField(child=serializers.CharField(), required=False, help_text="Always empty.")


class PolicyDocumentSchema(serializers.Serializer[Any]):
    """Defaults and rules of priorityClass and preemptibility."""

    defaults = PolicyDefaultsSchema(required=False, allow_null=True)
    rules = PolicyRulesSchema(required=False, allow_null=True)
    status = PolicyStatusSchema(required=False, read_only=True)


class PolicyCreate(serializers.Serializer[Any]):
    """The whole policy."""

    meta = PolicyPlace()
    policy = TypedObject(as_=PolicyDocumentSchema())


class PolicyChange(serializers.Serializer[Any]):
    """What is to change; `reset` names fields whose default and rule are cleared first."""

    meta = PolicyPlace()
    policy = TypedObject(as_=PolicyDocumentSchema(), required=False, allow_null=True)
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
    policy = PolicyDocumentSchema(allow_null=True)
    effective = PolicyDocumentSchema(allow_null=True)
    effectiveUpdatedAt = serializers.DateTimeField(allow_null=True)


class PolicyEntrySchema(serializers.Serializer[Any]):
    """One policy in a list."""

    type = serializers.ChoiceField(choices=[str(each) for each in PolicyKind])
    meta = PolicyMetaSchema()
    status = PolicyStatusSchema()


PoliciesSchema = schema("PoliciesSchema", "Policies the caller may see.", policies=PolicyEntrySchema(many=True))


def effective_policy_json(holding: EffectivePolicy) -> dict[str, Any]:
    """`{meta, policy, effective, effectiveUpdatedAt}`; the first two are null where only wider scopes have policies."""
    own = holding.own
    effective = {**merged_json(holding.kind, holding.merged), "status": _status(contradiction(holding.merged))}
    return {
        "meta": meta_json(own) if own else None,
        "policy": {"defaults": {}, "rules": {}, **own.document} if own else None,
        "effective": effective,
        "effectiveUpdatedAt": rfc3339(holding.updated_at),
    }


def meta_json(row: Policy) -> dict[str, Any]:
    return {
        **place_json(row.place),
        "id": str(row.pk),
        "name": row.name,
        "tenantId": TENANT_ID,
        "createdBy": row.created_by,
        "createdAt": rfc3339(row.created_at),
        "updatedBy": row.updated_by,
        "updatedAt": rfc3339(row.updated_at),
    }


def entry_json(row: Policy, reaching: Iterable[Policy]) -> dict[str, Any]:
    """PolicyListEntry; `reaching`: all that hold there. Rung itself holds people to it: no cluster has a part."""
    status = {"clusters": [], **_status(contradiction(merged_of(reaching)))}
    return {"type": str(PolicyKind(row.kind)), "meta": meta_json(row), "status": status}


def _status(problem: str) -> dict[str, Any]:
    return {"validation": {"errorMessage": problem or None}}


POLICIES: Final[Mapping[PolicyKind, str]] = {
    PolicyKind.WORKSPACE: "workspaces",
    PolicyKind.TRAINING: "trainings",
    PolicyKind.DISTRIBUTED: "distributed",
    PolicyKind.INFERENCE: "inferences",
    PolicyKind.DISTRIBUTED_INFERENCE: "distributed-inferences",
    PolicyKind.NIM_SERVICE: "nim-services",
}
"""The word of each kind in the addresses of its policies."""


def policy_put_request(kind: PolicyKind, owner: Owner, name: str, document: Document) -> ApiRequest:
    """The policy of a kind at a scope, put in the place of the one that is there."""
    body = {"meta": {"name": name, **place_json(place_of(owner))}, "policy": document}
    return ApiRequest("PUT", f"/api/v2/policy/{POLICIES[kind]}", body)


def policy_delete_request(kind: PolicyKind, owner: Owner) -> ApiRequest:
    """The policy of a kind at a scope taken away."""
    query = urlencode(place_json(place_of(owner)))
    return ApiRequest("DELETE", f"/api/v2/policy/{POLICIES[kind]}?{query}")


class ComplianceIssueSchema(serializers.Serializer[Any]):
    """One refused field, in Run:ai's shape."""

    field = serializers.CharField()
    details = serializers.CharField()
    rule = serializers.CharField(required=False)


RULES: Final[Mapping[str, str]] = {
    "priority_unknown": "options",
    "preemptibility_unknown": "options",
    "not_allowed": "options",
    "registry_denied": "options",
    "pool_unknown": "options",
    "category_unknown": "options",
    "required": "required",
    "priority_required": "required",
}
"""Rung's codes in Run:ai's words, where it has one."""


def issue_json(problem: Problem) -> dict[str, str]:
    rule = RULES.get(problem.code)
    field = problem.pointer.lstrip("/").replace("/", ".")
    return {"field": field, "details": problem.message, **({"rule": rule} if rule else {})}
