"""What the native routes take and answer. The fields of a spec come from intake's one table, with their standing."""

from functools import cache
from typing import Any

from rest_framework import serializers

from portal.core.bodies import ErrorSchema
from workloads.api.schemas import NAME
from workloads.api.submitting import RehearsedForecastSchema
from workloads.intake.native import CHANGEABLE, FIELDS, MASTER, Field
from workloads.models import DesiredPhase, Phase

TITLES = {
    "workspaces": "Workspace",
    "trainings": "Training",
    "distributed": "Distributed",
    "inferences": "Inference",
    "distributed-inferences": "DistributedInference",
    "nim-services": "NimService",
}
SAID = {"used": "Used.", "kept": "Kept and answered, without effect.", "refused": "Refused unless empty."}
Schema = type[serializers.Serializer[Any]]


def _documented(field: Field) -> serializers.JSONField:
    """Intake judges the value; here stands what becomes of it."""
    return serializers.JSONField(
        required=False, allow_null=True, help_text=f"{SAID[field.standing]} {field.note}".strip()
    )


def _schema(name: str, about: str, fields: dict[str, Any]) -> Schema:
    return type(name, (serializers.Serializer,), {**fields, "__doc__": about})


@cache
def spec_schema(kind: str) -> Schema:
    """The `spec` of a kind."""
    fields = {name: _documented(field) for name, field in FIELDS[kind].items()}
    return _schema(f"{TITLES[kind]}Spec", "What runs, how large, and with which priority.", fields)


MasterSpec = _schema("MasterSpec", "The leading pod.", {name: _documented(field) for name, field in MASTER.items()})


def _masters() -> dict[str, Any]:
    return {
        "masterSpec": MasterSpec(required=False, allow_null=True),
        "masterSpecSameAsWorker": serializers.BooleanField(required=False, allow_null=True),
    }


class NewNative(serializers.Serializer[Any]):
    """Where a native workload goes, and under which name."""

    name = serializers.RegexField(NAME, max_length=63)
    useGivenNameAsPrefix = serializers.BooleanField(required=False, allow_null=True, default=False)
    projectId = serializers.CharField(max_length=20)
    clusterId = serializers.UUIDField(required=False, help_text="That of the project.")
    templateId = serializers.UUIDField(
        required=False, allow_null=True, help_text="Of a template that holds in the project: it says what is left out."
    )


@cache
def new_schema(kind: str) -> Schema:
    """The body of a submission."""
    fields: dict[str, Any] = {"spec": spec_schema(kind)(required=False, allow_null=True)}
    if kind == "distributed":
        fields |= _masters()
    return type(f"New{TITLES[kind]}", (NewNative,), {**fields, "__doc__": NewNative.__doc__})


@cache
def change_schema(kind: str) -> Schema:
    """The body of a PATCH: the fields that may be named; what is absent stays."""
    fields = {name: _documented(field) for name, field in FIELDS[kind].items() if name in CHANGEABLE[kind]}
    spec = _schema(f"{TITLES[kind]}SpecChange", "What is to be another.", fields)
    about = "Replicas and priority at any time; what describes its pods only while it is suspended."
    return _schema(f"{TITLES[kind]}Change", about, {"spec": spec(required=False, allow_null=True)})


class NativeSchema(serializers.Serializer[Any]):
    """A native workload as it stands."""

    name = serializers.CharField()
    requestedName = serializers.CharField()
    workloadId = serializers.UUIDField()
    projectId = serializers.CharField()
    departmentId = serializers.CharField()
    clusterId = serializers.UUIDField()
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()
    deletedAt = serializers.DateTimeField(allow_null=True)
    desiredPhase = serializers.ChoiceField(choices=DesiredPhase.values)
    actualPhase = serializers.ChoiceField(choices=Phase.values)
    prioritySource = serializers.CharField(help_text="Beyond Run:ai: explicit, label, policy or type.")
    preemptibilitySource = serializers.CharField(help_text="Beyond Run:ai: explicit, label, policy, type or threshold.")
    discarded = serializers.ListField(child=serializers.DictField(), help_text="Beyond Run:ai: values that lost.")
    warnings = serializers.ListField(child=serializers.DictField(), help_text="Beyond Run:ai.")
    templateId = serializers.UUIDField(allow_null=True)
    templateSources = serializers.DictField(
        child=serializers.CharField(),
        help_text="Beyond Run:ai: by pointer, such as /spec/image, which template or asset said it.",
    )
    forecast = RehearsedForecastSchema(required=False)


@cache
def native_schema(kind: str) -> Schema:
    """The answer of a kind."""
    fields: dict[str, Any] = {"spec": spec_schema(kind)()}
    if kind == "distributed":
        fields |= _masters()
    return type(f"{TITLES[kind]}Workload", (NativeSchema,), {**fields, "__doc__": NativeSchema.__doc__})


class ComplianceIssueSchema(serializers.Serializer[Any]):
    """One refused field, as Run:ai tells it."""

    field = serializers.CharField()
    details = serializers.CharField()
    rule = serializers.CharField(required=False)


class SubmissionErrorSchema(ErrorSchema):
    """A refused native submission."""

    complianceIssues = ComplianceIssueSchema(many=True, required=False)
    forecast = RehearsedForecastSchema(required=False)


class NewNimMetadata(serializers.Serializer[Any]):
    """Where the service goes."""

    name = serializers.RegexField(NAME, max_length=63)
    useGivenNameAsPrefix = serializers.BooleanField(required=False, allow_null=True, default=False)
    projectId = serializers.CharField(max_length=20)


class NewNimService(serializers.Serializer[Any]):
    """A NIM service."""

    metadata = NewNimMetadata()
    spec = spec_schema("nim-services")()


class NimServiceSchema(serializers.Serializer[Any]):
    """A NIM service as it stands."""

    metadata = serializers.DictField()
    desiredPhase = serializers.ChoiceField(choices=["Running", "Stopped", "Deleted"])
    spec = spec_schema("nim-services")()
    forecast = RehearsedForecastSchema(required=False)
