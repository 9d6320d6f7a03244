"""What a plan does, as the OpenAPI document describes it. Amounts are GPUs."""

from typing import Final

from rest_framework import serializers

from portal.kit.api.serializers import schema

_TEXT: Final = serializers.CharField()
_PAIRS: Final = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
_FIELD_CHANGES: Final = serializers.ListField(
    child=serializers.ListField(child=serializers.JSONField(allow_null=True)), help_text="[field, before, after]."
)

PlannedObjectSchema = schema(
    "PlannedObjectSchema",
    "A change of one object: + created, ~ changed, ± replaced, - deleted, ! conflict, = fenced.",
    mark=_TEXT,
    kind=_TEXT,
    namespace=serializers.CharField(allow_blank=True),
    name=_TEXT,
    fields=_FIELD_CHANGES,
)
PlannedClusterSchema = schema(
    "PlannedClusterSchema",
    "What a plan changes on one cluster.",
    cluster=_TEXT,
    simulated=serializers.BooleanField(),
    changes=PlannedObjectSchema(many=True),
)
PlanExampleSchema = schema(
    "PlanExampleSchema",
    "A workload that a plan affects.",
    id=_TEXT,
    name=_TEXT,
    project=_TEXT,
    priority=_TEXT,
    value=serializers.IntegerField(),
)
PlanGroupSchema = schema(
    "PlanGroupSchema",
    "Workloads that a plan affects alike.",
    count=serializers.IntegerField(),
    examples=PlanExampleSchema(many=True),
)
PlanSchedulerSchema = schema("PlanSchedulerSchema", "A cluster and its scheduler.", name=_TEXT, scheduler=_TEXT)
PlanLevelSchema = schema(
    "PlanLevelSchema",
    "A priority before or after.",
    name=_TEXT,
    value=serializers.IntegerField(),
    gone=serializers.BooleanField(),
)
PlanCellSchema = schema(
    "PlanCellSchema",
    "May workloads of the row's priority evict those of this one? + gained, - lost.",
    whom=_TEXT,
    evicts=serializers.CharField(allow_blank=True),
    mark=serializers.CharField(allow_blank=True),
)
PlanMatrixRowSchema = schema(
    "PlanMatrixRowSchema",
    "Whom one priority may evict.",
    who=_TEXT,
    value=serializers.IntegerField(),
    cells=PlanCellSchema(many=True),
)
PlanVictimScopeSchema = schema(
    "PlanVictimScopeSchema",
    "Clusters where evictions are alike.",
    clusters=PlanSchedulerSchema(many=True),
    reach=_TEXT,
    foreign=serializers.CharField(allow_blank=True),
    levels=PlanLevelSchema(many=True),
    matrix=PlanMatrixRowSchema(many=True),
    rules=serializers.ListField(child=serializers.CharField()),
    new=_PAIRS,
    lost=_PAIRS,
)
PlanVictimsSchema = schema(
    "PlanVictimsSchema",
    "Pairs of priorities [who, whom] of which the first may evict the second from now on, or no longer.",
    new=_PAIRS,
    lost=_PAIRS,
    scopes=PlanVictimScopeSchema(many=True),
)
PlanTypeValuesSchema = schema(
    "PlanTypeValuesSchema",
    "The defaults of a workload type.",
    category=serializers.CharField(allow_null=True, allow_blank=True),
    priority=serializers.CharField(allow_null=True, allow_blank=True),
    preemptibility=serializers.CharField(allow_null=True, allow_blank=True),
)
PlanTypeSchema = schema(
    "PlanTypeSchema",
    "A changed workload type, and how many workloads have it.",
    name=_TEXT,
    before=PlanTypeValuesSchema(),
    after=PlanTypeValuesSchema(),
    used_by=serializers.IntegerField(),
    running=serializers.IntegerField(),
    withdrawn=serializers.BooleanField(),
    turned=serializers.BooleanField(),
)
PlanOverQuotaSchema = schema(
    "PlanOverQuotaSchema",
    "Allocated GPUs above the deserved quota.",
    before=serializers.FloatField(),
    after=serializers.FloatField(),
)
PlanQuotaSchema = schema(
    "PlanQuotaSchema",
    "A changed quota, and the use that it is to hold.",
    of=_TEXT,
    cluster=_TEXT,
    pool=_TEXT,
    fields=_FIELD_CHANGES,
    allocated=serializers.FloatField(),
    non_preemptible=serializers.FloatField(),
    requested=serializers.FloatField(),
    over_quota=PlanOverQuotaSchema(),
)
PlanSumSchema = schema(
    "PlanSumSchema",
    "Deserved GPUs that are bounded together; `most` is null where no node was observed.",
    of=_TEXT,
    cluster=_TEXT,
    pool=_TEXT,
    before=serializers.FloatField(),
    after=serializers.FloatField(required=False),
    bound=_TEXT,
    most=serializers.FloatField(allow_null=True),
)
