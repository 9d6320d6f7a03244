"""What the routes of templates and assets take and answer. Shapes and keys are Run:ai's; intake judges every `spec`."""

from typing import Any

from rest_framework import serializers

from workloads.api.native_schemas import ComplianceIssueSchema
from workloads.api.policy_schemas import SCOPES, PolicyPlace
from workloads.models import AssetKind

LONGEST = 250
NOT_HERE = "Rung keeps none: leave it out or empty."
SPEC = "Fields of a submission's `spec` of this kind; checked as there, all optional."
TYPES = ["Workspace", "Training", "Distributed", "Inference"]


class NamedBody(serializers.Serializer[Any]):
    """Name and description."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=LONGEST, required=False, allow_null=True, allow_blank=True)


class AssetIds(serializers.Serializer[Any]):
    """Assets by their ids, of the template's scope or a wider one: they say what the template leaves out."""

    environment = serializers.UUIDField(required=False, allow_null=True)
    compute = serializers.UUIDField(required=False, allow_null=True)
    datasources = serializers.ListField(required=False, allow_null=True, max_length=0, help_text=NOT_HERE)
    workloadVolumes = serializers.ListField(required=False, allow_null=True, max_length=0, help_text=NOT_HERE)


class MasterSection(serializers.Serializer[Any]):
    """The leading pod of a distributed training."""

    spec = serializers.DictField(required=False, allow_null=True, help_text="Fields of a submission's `masterSpec`.")
    assets = AssetIds(required=False, allow_null=True)


class TemplateBody(serializers.Serializer[Any]):
    """What a template says."""

    spec = serializers.DictField(required=False, allow_null=True, help_text=SPEC)
    assets = AssetIds(required=False, allow_null=True)
    masterSpecSameAsWorker = serializers.BooleanField(required=False, allow_null=True)
    master = MasterSection(required=False, allow_null=True)


class NewTemplateMeta(NamedBody):
    """Where a template holds, and under which name."""

    scopeType = serializers.ChoiceField(choices=SCOPES)
    scopeId = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=36,
        help_text="Absent for the installation.",
    )


class NewTemplate(TemplateBody):
    """A template."""

    meta = NewTemplateMeta()


class TemplateReplacement(TemplateBody):
    """A template that is there, said anew; its kind and scope stay."""

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


class TemplateMetaSchema(NewTemplateMeta):
    """Where it holds, and who keeps it."""

    id = serializers.UUIDField()
    description = serializers.CharField(allow_null=True)
    workloadType = serializers.ChoiceField(choices=TYPES)
    clusterId = serializers.CharField(required=False)
    departmentId = serializers.CharField(required=False)
    projectId = serializers.IntegerField(required=False)
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()
    updatedBy = serializers.CharField()
    updatedAt = serializers.DateTimeField()


class RunnableSchema(serializers.Serializer[Any]):
    """Can it be submitted as it stands?"""

    isRunnable = serializers.BooleanField()
    issue = serializers.CharField(allow_null=True)


class TemplateSchema(TemplateBody):
    """A template as it is kept, and what it says together with its assets."""

    meta = TemplateMetaSchema()
    runnable = RunnableSchema()
    combinedSpec = serializers.DictField()
    combinedMasterSpec = serializers.DictField(required=False, allow_null=True)
    complianceIssues = ComplianceIssueSchema(
        many=True, required=False, help_text="With `complyToProject`: what a submission there would be refused for."
    )


class PaginationSchema(serializers.Serializer[Any]):
    """Where this page stands."""

    limit = serializers.IntegerField(help_text="How many entries this page has.")
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


class NewAssetMeta(PolicyPlace):
    """Where an asset holds, and under which name."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=LONGEST, required=False, allow_null=True, allow_blank=True)
    autoDelete = serializers.BooleanField(required=False, allow_null=True, help_text="Kept false.")
    private = serializers.BooleanField(required=False, allow_null=True, help_text="Kept false: see its scope.")
    workloadSupportedTypes = SupportedTypes(required=False, allow_null=True)


class NewAsset(serializers.Serializer[Any]):
    """An asset; `spec` has the fields of Run:ai's ComputeAssetSpec or EnvironmentAssetSpec."""

    meta = NewAssetMeta()
    spec = serializers.DictField(required=False, allow_null=True)


class AssetReplacement(serializers.Serializer[Any]):
    """An asset that is there, said anew; its scope and supported kinds stay."""

    meta = NamedBody()
    spec = serializers.DictField(required=False, allow_null=True)


class AssetMetaSchema(NewAssetMeta):
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
    spec = serializers.DictField()
    usedBy = UsedBySchema(required=False, help_text="With `usageInfo=true`.")


class AssetsSchema(serializers.Serializer[Any]):
    """Assets, by name. At most 500 of a kind are kept in one scope."""

    entries = AssetSchema(many=True)
