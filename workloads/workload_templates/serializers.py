"""Templates and assets as REST sends and accepts them. Keys are Run:ai's; intake judges every `spec`."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from rest_framework import serializers

from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import TypedObject
from portal.kit.pages.api_snippets import ApiRequest
from workloads.intake.rules.native.objects import TYPES
from workloads.intake.serializers.native_parts import AssetSpec, TemplateSpec
from workloads.policies.models import Owner
from workloads.policies.rules.documents import place_json
from workloads.policies.rules.merge import Scope
from workloads.policies.selectors import place_of
from workloads.policies.serializers import SCOPES, ComplianceIssueSchema, PolicyPlace
from workloads.workload_templates.models import Asset, AssetKind, TemplateBase, TemplateKind, WorkloadTemplate
from workloads.workload_templates.selectors import merge_template
from workloads.workload_templates.services import TemplateDraft, runnable

LONGEST = 250
NOT_HERE = "Not supported. Leave it out or empty."
SPEC = "Fields of a submission's `spec` of this kind, validated in the same way, all optional."
SUPPORTED_TYPES = ["Workspace", "Training", "Distributed", "Inference"]


class NamedBody(serializers.Serializer[Any]):
    """Name and description."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=LONGEST, required=False, allow_null=True, allow_blank=True)


class AssetIds(serializers.Serializer[Any]):
    """Assets by their ids, of the template's scope or a wider one: they say what the template leaves out."""

    environment = serializers.UUIDField(required=False, allow_null=True)
    compute = serializers.UUIDField(required=False, allow_null=True)
    datasources = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True, max_length=0, help_text=NOT_HERE
    )
    workloadVolumes = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True, max_length=0, help_text=NOT_HERE
    )


class MasterSection(serializers.Serializer[Any]):
    """The leading pod of a distributed training."""

    spec = TypedObject(
        as_=TemplateSpec(), required=False, allow_null=True, help_text="Fields of a submission's `masterSpec`."
    )
    assets = AssetIds(required=False, allow_null=True)


class TemplateBody(serializers.Serializer[Any]):
    """What a template says."""

    spec = TypedObject(as_=TemplateSpec(), required=False, allow_null=True, help_text=SPEC)
    assets = AssetIds(required=False, allow_null=True)
    masterSpecSameAsWorker = serializers.BooleanField(required=False, allow_null=True)
    master = MasterSection(required=False, allow_null=True)


class TemplateCreateMeta(NamedBody):
    """Where a template holds, and under which name."""

    scopeType = serializers.ChoiceField(choices=SCOPES)
    scopeId = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=36,
        help_text="Absent for the whole installation.",
    )


class TemplateCreate(TemplateBody):
    """A template."""

    meta = TemplateCreateMeta()


class TemplateReplacement(TemplateBody):
    """New values of a template; its kind and scope stay."""

    meta = NamedBody()


class ChangedMeta(serializers.Serializer[Any]):
    """Name and description, as far as they are to change."""

    name = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(max_length=LONGEST, required=False, allow_null=True, allow_blank=True)


class TemplateChange(TemplateBody):
    """What is to change: absent stays, null takes away; `fieldsToClear` first, such as `spec.image`."""

    meta = ChangedMeta(required=False, allow_null=True)
    fieldsToClear = serializers.ListField(
        child=serializers.CharField(max_length=200), required=False, allow_null=True, max_length=100
    )


class TemplateMetaSchema(TemplateCreateMeta):
    """Where it holds, and who keeps it."""

    id = serializers.UUIDField()
    description = serializers.CharField(allow_null=True)
    workloadType = serializers.ChoiceField(choices=SUPPORTED_TYPES)
    clusterId = serializers.CharField(required=False)
    departmentId = serializers.CharField(required=False)
    projectId = serializers.IntegerField(required=False)
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()
    updatedBy = serializers.CharField()
    updatedAt = serializers.DateTimeField()


class RunnableSchema(serializers.Serializer[Any]):
    """Can it be submitted as it is?"""

    isRunnable = serializers.BooleanField()
    issue = serializers.CharField(allow_null=True)


class TemplateSchema(TemplateBody):
    """A template as it is kept, and what it says together with its assets."""

    meta = TemplateMetaSchema()
    runnable = RunnableSchema()
    combinedSpec = TypedObject(as_=TemplateSpec())
    combinedMasterSpec = TypedObject(as_=TemplateSpec(), required=False, allow_null=True)
    complianceIssues = ComplianceIssueSchema(
        many=True,
        required=False,
        help_text="With `complyToProject`: why a submission to this project would be rejected.",
    )


class PaginationSchema(serializers.Serializer[Any]):
    """Place of this page."""

    limit = serializers.IntegerField(help_text="Number of entries on this page.")
    offset = serializers.IntegerField()
    nextOffset = serializers.IntegerField(allow_null=True)
    nextAfter = serializers.CharField(allow_null=True, help_text="Beyond Run:ai: the cursor of the next page.")


class TemplatesSchema(serializers.Serializer[Any]):
    """One page of templates."""

    entries = TemplateSchema(many=True)
    pagination = PaginationSchema()


class SupportedTypes(serializers.Serializer[Any]):
    """Kinds of workloads an asset is meant for; nothing for all of them."""

    workspace = serializers.BooleanField(required=False, allow_null=True)
    training = serializers.BooleanField(required=False, allow_null=True)
    distributed = serializers.BooleanField(required=False, allow_null=True)
    inference = serializers.BooleanField(required=False, allow_null=True)
    distFramework = serializers.ChoiceField(
        choices=["MPI", "PyTorch", "TF", "XGBoost"], required=False, allow_null=True
    )


class AssetCreateMeta(PolicyPlace):
    """Where an asset holds, and under which name."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=LONGEST, required=False, allow_null=True, allow_blank=True)
    autoDelete = serializers.BooleanField(required=False, allow_null=True, help_text="Always false.")
    private = serializers.BooleanField(required=False, allow_null=True, help_text="Always false: see its scope.")
    workloadSupportedTypes = SupportedTypes(required=False, allow_null=True)


class AssetCreate(serializers.Serializer[Any]):
    """An asset; `spec` has the fields of Run:ai's ComputeAssetSpec or EnvironmentAssetSpec."""

    meta = AssetCreateMeta()
    spec = TypedObject(as_=AssetSpec(), required=False, allow_null=True)


class AssetReplacement(serializers.Serializer[Any]):
    """New values of an asset; its scope and supported kinds stay."""

    meta = NamedBody()
    spec = TypedObject(as_=AssetSpec(), required=False, allow_null=True)


class AssetMetaSchema(AssetCreateMeta):
    """Where it holds, and who keeps it."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=AssetKind.values)
    description = serializers.CharField(allow_null=True)
    tenantId = serializers.IntegerField()
    projectName = serializers.CharField(required=False)
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()
    updatedBy = serializers.CharField()
    updatedAt = serializers.DateTimeField()


class AssetRefSchema(serializers.Serializer[Any]):
    """A template that refers to it."""

    id = serializers.UUIDField()
    name = serializers.CharField()


class UsedBySchema(serializers.Serializer[Any]):
    """Who relies on it, as far as the reader may see."""

    templates = AssetRefSchema(many=True)


class AssetSchema(serializers.Serializer[Any]):
    """An asset."""

    meta = AssetMetaSchema()
    spec = TypedObject(as_=AssetSpec())
    usedBy = UsedBySchema(required=False, help_text="With `usageInfo=true`.")


class AssetsSchema(serializers.Serializer[Any]):
    """Assets, by name. At most 500 of a kind are kept in one scope."""

    entries = AssetSchema(many=True)


Body = dict[str, Any]


def template_json(row: WorkloadTemplate) -> Body:
    """WorkspaceTemplate, TrainingTemplate, DistributedTemplate or InferenceTemplate, by its kind."""
    full, issue = merge_template(row), runnable(row)
    body = template_body(row) | {
        "meta": _template_meta(row),
        "runnable": {"isRunnable": not issue, "issue": issue or None},
        "combinedSpec": full.spec,
    }
    return body | ({"combinedMasterSpec": full.master} if row.kind == TemplateKind.DISTRIBUTED else {})


def template_body(row: WorkloadTemplate) -> Body:
    """What it says, as it can be sent again."""
    body: Body = {
        "meta": {"name": row.name, "description": row.description or None},
        "spec": row.spec,
        "assets": _ids(row.environment_id, row.compute_id),
    }
    if row.kind == TemplateKind.DISTRIBUTED:
        assets = _ids(row.master_environment_id, row.master_compute_id)
        leads = row.master is not None or assets is not None
        body["masterSpecSameAsWorker"] = row.master_same
        body["master"] = {"spec": row.master, "assets": assets} if leads else None
    return body


def draft_of(body: Mapping[str, Any]) -> TemplateDraft:
    """A checked body as the services take it."""
    meta, master = body["meta"], body.get("master") or {}
    own, leading = body.get("assets") or {}, master.get("assets") or {}
    return TemplateDraft(
        name=meta["name"],
        description=meta.get("description") or "",
        spec=body.get("spec") or {},
        environment=own.get("environment"),
        compute=own.get("compute"),
        master=master.get("spec"),
        master_same=body.get("masterSpecSameAsWorker"),
        master_environment=leading.get("environment"),
        master_compute=leading.get("compute"),
    )


def asset_json(row: Asset, templates: Iterable[WorkloadTemplate] | None = None) -> Body:
    """ComputeAsset or EnvironmentAsset; `templates`: those that refer to it, if requested."""
    meta = {
        **place_json(row.place),
        **_authorship(row),
        "kind": row.kind,
        "tenantId": TENANT_ID,
        "autoDelete": False,
        "private": False,
        "workloadSupportedTypes": row.supports or None,
        **({"projectName": row.project.name} if row.project else {}),
    }
    body: Body = {"meta": meta, "spec": row.spec}
    if templates is not None:
        body["usedBy"] = {"templates": [{"id": str(each.pk), "name": each.name} for each in templates]}
    return body


def _template_meta(row: WorkloadTemplate) -> Body:
    place = row.place
    ids = {name: value for name, value in place_json(place).items() if name != "scope"}
    where = {"scopeType": str(place.scope), "scopeId": place.key or str(TENANT_ID), **ids}
    return {**where, **_authorship(row), "workloadType": TYPES[row.kind]}


def _authorship(row: TemplateBase) -> Body:
    return {
        "id": str(row.pk),
        "name": row.name,
        "description": row.description or None,
        "createdBy": row.created_by,
        "createdAt": rfc3339(row.created_at),
        "updatedBy": row.updated_by,
        "updatedAt": rfc3339(row.updated_at),
    }


def _ids(environment: UUID | None, compute: UUID | None) -> Body | None:
    named = {"environment": environment, "compute": compute}
    return {kind: str(key) for kind, key in named.items() if key} or None


TEMPLATES: Final = "/api/v1/workload-templates"


def template_create_request(kind: str, owner: Owner, draft: TemplateDraft) -> ApiRequest:
    place = place_of(owner)
    scope = {"scopeType": str(place.scope), **({} if place.scope is Scope.TENANT else {"scopeId": place.key})}
    return ApiRequest("POST", f"{TEMPLATES}/{kind}", _template(draft, scope))


def template_update_request(row: WorkloadTemplate, draft: TemplateDraft) -> ApiRequest:
    return ApiRequest("PUT", f"{TEMPLATES}/{row.kind}/{row.pk}", _template(draft, {}))


def template_delete_request(row: WorkloadTemplate) -> ApiRequest:
    return ApiRequest("DELETE", f"{TEMPLATES}/{row.kind}/{row.pk}")


def _template(draft: TemplateDraft, scope: Mapping[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {"meta": {"name": draft.name, "description": draft.description, **scope}, "spec": draft.spec}
    body |= _assets(draft.environment, draft.compute)
    if draft.master_same is not None:
        body["masterSpecSameAsWorker"] = draft.master_same
    if draft.master is not None:
        body["master"] = {"spec": draft.master, **_assets(draft.master_environment, draft.master_compute)}
    return body


def _assets(environment: UUID | None, compute: UUID | None) -> dict[str, Any]:
    named = {"environment": environment, "compute": compute}
    assets = {name: str(key) for name, key in named.items() if key}
    return {"assets": assets} if assets else {}
