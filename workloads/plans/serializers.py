"""Change plans as REST sends and accepts them. Amounts are GPUs."""

from typing import Any, Final

from rest_framework import serializers

from clusters.sync.selectors import SyncSince
from portal.kit.api.lists import ListSchema
from portal.kit.api.parsers import rfc3339
from portal.kit.api.serializers import TypedObject, schema
from tenants.quotas.serializers import GpuField

_TEXT: Final = serializers.CharField()
_PAIRS: Final = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
_CHANGED_PAIRS: Final = serializers.ListField(
    child=serializers.ListField(child=serializers.CharField()),
    required=False,
    help_text="Evict before and after; only preemptible workloads before, or only those after.",
)
_FIELD_CHANGES: Final = serializers.ListField(
    child=serializers.ListField(child=serializers.JSONField(allow_null=True)), help_text="[field, before, after]."
)

PlannedObjectSchema = schema(
    "PlannedObjectSchema",
    "A change of one object: + created, ~ changed, ± replaced, - deleted, … deleted later, ! conflict, = fenced.",
    mark=_TEXT,
    kind=_TEXT,
    namespace=serializers.CharField(allow_blank=True),
    name=_TEXT,
    fields=_FIELD_CHANGES,
    count=serializers.IntegerField(required=False, help_text="Number of objects in this row; absent: one."),
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
    more=serializers.IntegerField(help_text="How many are not among the examples."),
)
PlanSchedulerSchema = schema("PlanSchedulerSchema", "A cluster and its scheduler.", name=_TEXT, scheduler=_TEXT)
PlanPrioritySchema = schema(
    "PlanPrioritySchema",
    "A priority before or after.",
    name=_TEXT,
    value=serializers.IntegerField(),
    gone=serializers.BooleanField(),
)
PlanCellSchema = schema(
    "PlanCellSchema",
    "May workloads of the row's priority evict those of this one? + gained, - lost, ~ other workloads than before.",
    whom=_TEXT,
    before=serializers.CharField(required=False, help_text="As `evicts`, before the change."),
    evicts=serializers.CharField(allow_blank=True, help_text="all, preemptible or none."),
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
    reach_before=serializers.CharField(required=False, help_text="How far a higher priority evicts now."),
    reach=serializers.CharField(help_text="The same after the change."),
    foreign=serializers.CharField(allow_blank=True),
    assumption=serializers.CharField(
        allow_blank=True, required=False, help_text="What is assumed because the scheduler's configuration is unknown."
    ),
    priorities=PlanPrioritySchema(many=True),
    matrix=PlanMatrixRowSchema(many=True),
    rules=serializers.ListField(child=serializers.CharField()),
    new=_PAIRS,
    lost=_PAIRS,
    changed=_CHANGED_PAIRS,
    elsewhere=serializers.ListField(
        child=serializers.CharField(), required=False, help_text="What changes for victims in other projects."
    ),
)
PlanVictimsSchema = schema(
    "PlanVictimsSchema",
    "Pairs of priorities [who, whom] of which the first may evict the second from now on, no longer, or otherwise.",
    new=_PAIRS,
    lost=_PAIRS,
    changed=_CHANGED_PAIRS,
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
    "A changed workload type, and how many workloads of it have not ended.",
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
PlanStartSchema = schema(
    "PlanStartSchema",
    "A waiting workload that could start, by itself, with the planned quotas and not with those of now.",
    id=_TEXT,
    name=_TEXT,
    project=_TEXT,
    gpus=serializers.FloatField(),
    evicts=serializers.BooleanField(help_text="It evicts others for it."),
)
PlanStartsSchema = schema(
    "PlanStartsSchema",
    "What the model of the cluster's scheduler lets start because of planned quotas; an estimate.",
    estimated=serializers.BooleanField(
        help_text="False: no recent observation of the cluster, no model of its scheduler, or no time to ask it."
    ),
    tried=serializers.IntegerField(help_text="How many waiting workloads were tried, at most 25."),
    more=serializers.BooleanField(help_text="Others wait there that were not tried."),
    workloads=PlanStartSchema(many=True),
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


PlanReclaimSchema = schema(
    "PlanReclaimSchema",
    "GPUs that one project or department can take back from another, before and after. + new, - lost, ~ other GPUs.",
    cluster=_TEXT,
    pool=_TEXT,
    taker=_TEXT,
    giver=_TEXT,
    before=serializers.FloatField(),
    after=serializers.FloatField(),
    mark=_TEXT,
)


PlanSyncSchema = schema(
    "PlanSyncSchema",
    "Whether a cluster was synced after a plan was applied.",
    cluster=_TEXT,
    state=serializers.CharField(
        help_text="synced: `run` began after the plan was applied, and succeeded. running, failed: `run` is the newest "
        "since then. waiting, paused: none since. gone: the cluster is no longer connected."
    ),
    run=serializers.IntegerField(allow_null=True, help_text="Id of the cluster's sync."),
    finishedAt=serializers.DateTimeField(allow_null=True),
    nextAt=serializers.DateTimeField(allow_null=True, help_text="When the next sync run is due."),
)


def sync_json(each: SyncSince) -> dict[str, Any]:
    """As `PlanSyncSchema`."""
    run = each.run
    return {
        "cluster": each.cluster,
        "state": each.state,
        "run": run.pk if run else None,
        "finishedAt": rfc3339(run.finished_at) if run and run.finished_at else None,
        "nextAt": rfc3339(each.next_at) if each.next_at else None,
    }


class PlanRowSchema(serializers.Serializer[Any]):
    """A plan in a list."""

    id = serializers.UUIDField()
    kind = serializers.CharField(help_text="quotas, project_quota, department_quota, or another kind of `create_plan`.")
    title = serializers.CharField()
    sentence = serializers.CharField()
    reason = serializers.CharField(allow_blank=True, help_text="As the author gave it; empty: none.")
    state = serializers.CharField(help_text="open, expired, applied or discarded.")
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    expiresAt = serializers.DateTimeField()
    needsApproval = serializers.BooleanField(help_text="A second admin has to approve it before it can be applied.")
    approvedAt = serializers.DateTimeField(allow_null=True)
    approvedBy = serializers.CharField(allow_blank=True)
    appliedAt = serializers.DateTimeField(allow_null=True)
    appliedBy = serializers.CharField(allow_blank=True)
    rollsBack = serializers.UUIDField(allow_null=True, help_text="The plan that this one rolls back.")


class PlanSchema(PlanRowSchema):
    """What the change does: objects per cluster, workloads, quotas and sums, who may evict whom, types, warnings."""

    settings = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Each setting that changes: name, before, after.",
    )
    objects = PlannedClusterSchema(many=True)
    workloads = serializers.DictField(child=PlanGroupSchema(), help_text="By group: count, and up to 20 examples.")
    gpuHoursAtRisk = serializers.FloatField(help_text="Of workloads that become reclaimable.")
    starts = PlanStartsSchema(
        allow_null=True, help_text="Of quotas: the first in the queues whose quota is not only lowered. Else null."
    )
    victims = PlanVictimsSchema()
    reclaims = PlanReclaimSchema(many=True, help_text="Changed reclaims of a plan of quotas, the largest 100.")
    types = PlanTypeSchema(many=True)
    quotas = PlanQuotaSchema(many=True)
    sums = PlanSumSchema(many=True)
    warnings = serializers.ListField(child=serializers.CharField())
    outOfDate = serializers.CharField(
        allow_blank=True,
        help_text="Of an open plan: what has changed since it was created, so that it cannot be applied.",
    )
    syncs = PlanSyncSchema(many=True, help_text="Once applied: of each cluster in `objects`. Else empty.")


class PlansSchema(ListSchema):
    """One page of plans, newest first."""

    plans = PlanRowSchema(many=True)


class PlannedAmountsSchema(serializers.Serializer[Any]):
    """One resource of a quota; what is absent stays, null is no limit. GPUs in devices, CPU in millicores."""

    deserved = serializers.FloatField(required=False, allow_null=True)
    limit = serializers.FloatField(required=False, allow_null=True)
    overQuotaWeight = serializers.FloatField(required=False, allow_null=True)
    units = serializers.CharField(required=False, max_length=3, help_text="Of memory: Mib, MB or GB.")


class PlannedQuotaSchema(serializers.Serializer[Any]):
    """The quota of one project or department in one node pool, all by name."""

    project = serializers.CharField(required=False, max_length=50)
    department = serializers.CharField(required=False, max_length=50)
    cluster = serializers.CharField(
        required=False, max_length=63, help_text="Where departments of several clusters share a name."
    )
    nodePool = serializers.CharField(max_length=63)
    gpu = PlannedAmountsSchema(required=False)
    cpu = PlannedAmountsSchema(required=False)
    memory = PlannedAmountsSchema(required=False)
    rank = serializers.CharField(required=False, max_length=20)
    remove = serializers.BooleanField(required=False, default=False, help_text="Nothing deserved, no limit.")


PlannedChangeSchema = schema(
    "PlannedChangeSchema",
    "Of `quotas`: `quotas` and `reason`. Of `priority` and `type`: `op`, `name` and what is to change. Of "
    "`preset`: `preset` and `preemptibilities`. Of limits, caps, minimum runtimes, policies and "
    "`approval`: `project`, `department` or `cluster` by name, and the values; null or `remove` takes "
    "them away. Of `node_pool`: `op` create, change or delete, `cluster`, `pool` and what is to change. "
    "Of `scheduler`: `cluster` and `flavour`. Of `enforce_deserved`: `department` and `enforceDeserved`. "
    "Of `defer_preemptors`: `cluster` and `deferPreemptors`. Of `quota_request`, its approval: `request`, "
    "and as the approval has them `gpus`, `until` and `reason`.",
    quotas=PlannedQuotaSchema(many=True, required=False),
    reason=serializers.CharField(required=False, default="", allow_blank=True, max_length=300),
    op=serializers.CharField(
        required=False, max_length=10, help_text="add, change, rename, retire; type, withdraw or offer."
    ),
    name=serializers.CharField(required=False, max_length=63),
    newName=serializers.CharField(required=False, max_length=63),
    value=serializers.IntegerField(required=False),
    preemptionPolicy=serializers.CharField(required=False, max_length=20),
    description=serializers.CharField(required=False, allow_blank=True, max_length=500),
    aliasOf=serializers.CharField(required=False, allow_blank=True, max_length=63),
    priority=serializers.CharField(required=False, max_length=63),
    preemptibility=serializers.CharField(required=False, max_length=30),
    category=serializers.CharField(required=False, max_length=40),
    preset=serializers.CharField(required=False, max_length=63),
    preemptibilities=serializers.DictField(child=serializers.CharField(max_length=30), required=False),
    project=serializers.CharField(required=False, max_length=50),
    department=serializers.CharField(required=False, max_length=50),
    cluster=serializers.CharField(required=False, max_length=63),
    gpuLimit=GpuField(required=False, allow_null=True),
    minutes=serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=527040),
    noticeMinutes=serializers.IntegerField(required=False, min_value=0, max_value=527040),
    pool=serializers.CharField(required=False, max_length=63),
    labelKey=serializers.CharField(required=False, max_length=317),
    labelValue=serializers.CharField(required=False, max_length=63),
    gpuPlacement=serializers.CharField(required=False, max_length=10),
    topologyLevels=serializers.ListField(child=serializers.CharField(max_length=317), required=False, max_length=20),
    isDefault=serializers.BooleanField(required=False),
    default=serializers.CharField(
        required=False, allow_null=True, max_length=63, help_text="A pool to be the default before the change."
    ),
    flavour=serializers.CharField(required=False, max_length=20),
    workloadKind=serializers.CharField(required=False, max_length=24, help_text="Of a policy: training, …"),
    policy=TypedObject(
        as_={"$ref": "#/components/schemas/PolicyDocumentSchemaRequest"},  # of a feature above this one
        required=False,
        allow_null=True,
        help_text="Defaults and rules; null removes it.",
    ),
    request=serializers.UUIDField(required=False, format="hex_verbose"),
    gpus=serializers.FloatField(required=False, min_value=0),
    until=serializers.DateField(required=False),
    required=serializers.BooleanField(required=False, help_text="Of `approval`: does a second admin approve?"),
    enforceDeserved=serializers.BooleanField(
        required=False, help_text="Do the projects of the department have to deserve no more than it does?"
    ),
    deferPreemptors=serializers.BooleanField(
        required=False, help_text="Does Rung defer workloads that would evict a run inside its minimum runtime?"
    ),
)


KINDS: Final = (
    *("quotas", "priority_cap", "time_limit", "idle_limit", "min_runtime", "policy", "node_pool", "scheduler"),
    *("enforce_deserved", "defer_preemptors", "approval", "quota_request", "priority", "type", "preset"),
)


class PlanCreate(serializers.Serializer[Any]):
    """A change to plan. It is not made."""

    kind = serializers.ChoiceField(choices=KINDS)
    change = PlannedChangeSchema()


class ApprovalSchema(serializers.Serializer[Any]):
    """A place whose plans a second admin has to approve."""

    departmentId = serializers.CharField(allow_null=True, help_text="Null: the whole installation.")
    departmentName = serializers.CharField(allow_null=True)
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()


class ApprovalsSchema(serializers.Serializer[Any]):
    """The places that the caller may see."""

    approvals = ApprovalSchema(many=True)


ApprovalWrite = schema(
    "ApprovalWrite",
    "Whether plans for a place need the approval of a second admin.",
    departmentId=serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=10**15),
    required=serializers.BooleanField(),
)
