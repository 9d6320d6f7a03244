"""Request and response bodies of departments and projects. Unknown values are null or absent."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.db.models import Q
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import Average
from clusters.watch.selectors import averages_of
from portal.kit.api.lists import ListSchema
from portal.kit.api.parsers import rfc3339
from portal.kit.api.serializers import NamedId, TypedJson, TypedObject, schema
from scheduling.forecast.headroom import Bound, ScarceResource
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, Quota, RuntimeLimit, TimeLimit
from tenants.quotas.selectors.quota_rows import (
    DepartmentPool,
    PoolQuota,
    department_rows_of,
    quota_rows_of,
    startable_rows_of,
)
from tenants.quotas.serializers import MEGABYTE, QuotaAmountsSchema, QuotaWarningSchema, UseSchema, use_json
from tenants.quotas.services.pool_quotas import entry_json
from tenants.quotas.services.runtime_rules import RuleKey, rules_json
from tenants.usage.selectors import DEPARTMENT, PROJECT, Usage

NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class SchedulingRulesSchema(serializers.Serializer[Any]):
    """Limits in seconds; absent or null is none."""

    interactiveJobTimeLimitSeconds = serializers.IntegerField(required=False, allow_null=True)
    interactiveJobMaxIdleDurationSeconds = serializers.IntegerField(required=False, allow_null=True)
    interactiveJobPreemptIdleDurationSeconds = serializers.IntegerField(required=False, allow_null=True)
    trainingJobTimeLimitSeconds = serializers.IntegerField(required=False, allow_null=True)
    trainingJobMaxIdleDurationSeconds = serializers.IntegerField(required=False, allow_null=True)


class NodeTypesSchema(serializers.Serializer[Any]):
    """Kinds of nodes by the kind of workload."""

    training = serializers.ListField(child=serializers.CharField(), required=False)
    workspace = serializers.ListField(child=serializers.CharField(), required=False)
    names = serializers.DictField(child=serializers.CharField(), required=False, allow_null=True)


class RangeAverageSchema(serializers.Serializer[Any]):
    """Averages over one range of time. GPUs in devices."""

    averageGpuAllocation = serializers.FloatField(required=False, allow_null=True)
    averageGpuUtilization = serializers.FloatField(required=False, allow_null=True)
    averageGpuMemoryUtilization = serializers.FloatField(required=False, allow_null=True)
    updatedAt = serializers.DateTimeField(required=False, allow_null=True)


class OvertimeSchema(serializers.Serializer[Any]):
    """Averages over a day, a week and 30 days."""

    range24hData = RangeAverageSchema(required=False, allow_null=True)
    range7dData = RangeAverageSchema(required=False, allow_null=True)
    range30dData = RangeAverageSchema(required=False, allow_null=True)


class TotalResourcesSchema(serializers.Serializer[Any]):
    """Deserved quotas of all node pools: GPU devices, millicores, megabytes."""

    gpuQuota = serializers.FloatField()
    cpuQuota = serializers.FloatField()
    memoryQuota = serializers.FloatField()


class ScarceSchema(serializers.Serializer[Any]):
    """CPU or memory that ends before the GPUs do: millicores or megabytes that are left."""

    resource = serializers.CharField()
    left = serializers.FloatField()
    bound = serializers.CharField()


class StartableSchema(serializers.Serializer[Any]):
    """GPUs that could start now; null while they are unknown."""

    sentence = serializers.CharField(allow_blank=True)
    gpus = serializers.FloatField(allow_null=True)
    withinQuota = serializers.FloatField(allow_null=True)
    overQuota = serializers.FloatField(allow_null=True)
    nonPreemptible = serializers.FloatField(
        allow_null=True, help_text="Of `gpus`, those that non-preemptible workloads may use."
    )
    nonPreemptibleWorkload = serializers.FloatField(allow_null=True, help_text="At most, of one such workload.")
    largestPod = serializers.FloatField(allow_null=True)
    takeBack = serializers.FloatField(allow_null=True)
    bound = serializers.CharField(allow_null=True)
    scarce = ScarceSchema(many=True, allow_null=True)


class PoolUseSchema(UseSchema):
    """Use in one node pool, and beyond Run:ai what could start there now: in a list of projects, if asked for."""

    nodePoolName = serializers.CharField()
    nodePoolId = serializers.CharField()
    startable = TypedJson(as_=StartableSchema(), required=False)


class OrgUnitStatusSchema(serializers.Serializer[Any]):
    """Use as of the last observation, and of a project its namespace and phase."""

    quotaStatus = UseSchema()
    nodePoolQuotaStatuses = PoolUseSchema(many=True, required=False)
    namespace = serializers.CharField(required=False)
    phase = serializers.CharField(required=False)
    phaseMessage = serializers.CharField(required=False, allow_blank=True)
    lastUpdatedTime = serializers.DateTimeField(required=False, allow_null=True)


class EntrySchema(serializers.Serializer[Any]):
    """The quota in one node pool: GPUs in devices, CPU in millicores, memory in its `units`; -1 or null is no limit.

    Each resource has its own `overQuotaWeight`, which may be a fraction; CPU and memory default to that of the GPUs.
    """

    nodePool = TypedObject(as_=NamedId())
    gpu = TypedObject(as_=QuotaAmountsSchema(), required=False)
    cpu = TypedObject(as_=QuotaAmountsSchema(), required=False, allow_null=True)
    memory = TypedObject(as_=QuotaAmountsSchema(), required=False, allow_null=True)
    priority = serializers.CharField(required=False, allow_null=True, help_text="Older name of the rank.")
    rank = serializers.CharField(required=False, allow_null=True)
    warnings = QuotaWarningSchema(many=True, required=False, help_text="In answers to a change of quotas.")


@extend_schema_field(EntrySchema(many=True))
class QuotaEntries(serializers.ListField):
    """Quotas as they were sent; the service reads each of them."""

    child = serializers.DictField()


class OrgUnitChange(serializers.Serializer[Any]):
    """What may be changed of both. `resources` replaces every quota."""

    resources = QuotaEntries(help_text="One entry per node pool.")
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True, max_length=2000)
    schedulingRules = TypedObject(as_=SchedulingRulesSchema(), required=False, allow_null=True)
    defaultNodePools = serializers.ListField(
        child=serializers.CharField(max_length=63), required=False, allow_null=True, max_length=100
    )
    nodeTypes = TypedObject(
        as_=NodeTypesSchema(), required=False, allow_null=True, help_text="Not supported. Leave empty."
    )


class DepartmentCreate(OrgUnitChange):
    """A department."""

    name = serializers.RegexField(NAME, max_length=50)
    clusterId = serializers.UUIDField()
    overtimeData = TypedObject(as_=OvertimeSchema(), required=False, allow_null=True, help_text="Ignored.")


class ProjectChange(OrgUnitChange):
    """A project's change."""

    enforceRunaiScheduler = serializers.BooleanField(required=False, default=True, help_text="Always true.")


class ProjectCreate(ProjectChange):
    """A project; without `parentId` it goes into the only department of its cluster."""

    name = serializers.RegexField(NAME, max_length=50)
    clusterId = serializers.UUIDField()
    parentId = serializers.CharField(required=False, allow_null=True, max_length=20)
    requestedNamespace = serializers.CharField(required=False, allow_null=True, max_length=63)


class OrgUnitSchema(serializers.Serializer[Any]):
    """A department or a project; further fields as Run:ai has them."""

    id = serializers.CharField()
    name = serializers.CharField()
    clusterId = serializers.UUIDField()
    description = serializers.CharField(allow_blank=True)
    resources = EntrySchema(many=True)
    totalResources = TotalResourcesSchema()
    schedulingRules = SchedulingRulesSchema()
    status = OrgUnitStatusSchema()
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    warnings = QuotaWarningSchema(many=True, required=False, help_text="In answers to a change of quotas.")
    enforceDeserved = serializers.BooleanField(
        required=False, help_text="Of a department: do its projects have to deserve no more than it does?"
    )


ProjectsSchema = schema("ProjectsSchema", "One page.", ListSchema, projects=OrgUnitSchema(many=True))
DepartmentsSchema = schema("DepartmentsSchema", "One page.", ListSchema, departments=OrgUnitSchema(many=True))


KINDS: Final[tuple[type[RuntimeLimit], ...]] = (TimeLimit, IdleLimit)


def projects_json(projects: Sequence[Project], *, startable: bool = True) -> list[dict[str, Any]]:
    """Projects with their quotas, what holds after inheritance, and their use now, in a constant number of queries.

    startable: also what each could start now, for which every pod of their clusters is read. Needs cluster and
    department selected.
    """
    keys = [each.pk for each in projects]
    rows = startable_rows_of(projects) if startable else quota_rows_of(projects)
    averages = averages_of(PROJECT, keys)
    limits = _limits(Q(project__in=keys) | Q(department__in={each.department_id for each in projects}))
    return [
        _project(
            each,
            [_pool_use(row.pool, row.usage) | (startable_json(row) if startable else {}) for row in rows[each.pk]],
            rows[each.pk],
            limits[PROJECT, each.pk],
            limits[DEPARTMENT, each.department_id],
        )
        | _overtime(averages.get(str(each.pk)))
        for each in projects
    ]


def _project(
    project: Project,
    uses: Sequence[Mapping[str, Any]],
    pools: Sequence[PoolQuota],
    own: Mapping[RuleKey, int],
    above: Mapping[RuleKey, int],
) -> dict[str, Any]:
    """own, above: minutes of its limits and of its department's. The shorter one of a category holds."""
    effective = {key: min(own.get(key, minutes), minutes) for key, minutes in {**own, **above}.items()}
    return {
        **_described(project),
        "parentId": str(project.department_id),
        "parent": {"id": str(project.department_id), "name": project.department.name, "parent": None},
        "requestedNamespace": project.namespace,
        "enforceRunaiScheduler": True,
        "defaultNodePools": project.default_node_pools or None,
        "schedulingRules": rules_json(own),
        "resources": [entry_json(row.quota, row.pool) for row in pools],
        "totalResources": _totals(row.quota for row in pools),
        "effective": {
            "schedulingRules": rules_json(effective),
            "defaultNodePools": project.default_node_pools or [row.pool.name for row in pools],
            "nodeTypes": None,
        },
        "status": {
            "namespace": project.namespace,
            "phase": _phase(project.cluster),
            "phaseMessage": "",
            "lastUpdatedTime": rfc3339(project.cluster.synced_at),
            "quotaStatus": use_json(sum((row.usage for row in pools), Usage())),
            "nodePoolQuotaStatuses": uses,
        },
    }


def startable_json(row: PoolQuota) -> dict[str, Any]:
    """What could start now, in GPUs; beyond Run:ai. The sentence says it all, the rest is null while it is unknown."""
    found = row.headroom
    numbers = found and {
        "gpus": found.now / 1000,
        "withinQuota": found.inside / 1000,
        "overQuota": found.over / 1000,
        "nonPreemptible": found.fixed.all / 1000,
        "nonPreemptibleWorkload": found.fixed.each / 1000,
        "largestPod": found.largest / 1000,
        "takeBack": found.back / 1000,
        "bound": str(found.bound),
        "scarce": [_scarce(each) for each in found.scarce],
    }
    return {"startable": (numbers or dict.fromkeys(StartableSchema().fields)) | {"sentence": row.sentence}}


def _scarce(found: ScarceResource) -> dict[str, Any]:
    """CPU in millicores, memory in megabytes, as everywhere in quotas."""
    left = found.left if found.name == "cpu" else found.left / MEGABYTE
    bound = "FreeOnNodes" if found.bound is Bound.FREE else str(found.bound)
    return {"resource": found.name, "left": left, "bound": bound}


def departments_json(departments: Sequence[Department]) -> list[dict[str, Any]]:
    """Departments with quotas, projects, and what these deserve and use, in a constant number of queries."""
    rows, limits = department_rows_of(departments), _limits(Q(department__in=departments))
    children: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for pk, name, parent in Project.objects.filter(department__in=departments).values_list(
        "pk", "name", "department_id"
    ):
        children[parent].append({"id": str(pk), "name": name, "children": []})
    averages = averages_of(DEPARTMENT, [each.pk for each in departments])
    return [
        _department(each, rows[each.pk], limits[DEPARTMENT, each.pk], children[each.pk])
        | _overtime(averages.get(str(each.pk)))
        for each in departments
    ]


def _department(
    department: Department,
    pools: Sequence[DepartmentPool],
    own: Mapping[RuleKey, int],
    children: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        **_described(department),
        "children": children,
        "enforceDeserved": department.enforce_deserved,
        "defaultNodePools": None,
        "schedulingRules": rules_json(own),
        "resources": [entry_json(row.quota, row.pool) for row in pools],
        "totalResources": _totals(row.quota for row in pools),
        "projectsAggregatedResources": [_aggregated(row) for row in pools],
        "status": {"quotaStatus": use_json(sum((row.usage for row in pools), Usage()))},
    }


def _aggregated(row: DepartmentPool) -> dict[str, Any]:
    together = row.projects_deserved
    return {
        "nodePool": {"id": str(row.pool.pk), "name": row.pool.name},
        "gpu": {"deserved": together.gpu / 1000},
        "cpu": {"deserved": together.cpu},
        "memory": {"deserved": together.memory / MEGABYTE, "units": "MB"},
    }


def _overtime(average: Average | None) -> dict[str, Any]:
    """What was held on average, as far as it was sampled. Nothing measures utilization."""
    if average is None:
        return {"overtimeData": None}
    spans = {"range24hData": average.day, "range7dData": average.week, "range30dData": average.month}
    return {"overtimeData": {name: _range(held, average) for name, held in spans.items()}}


def _range(held: float | None, average: Average) -> dict[str, Any] | None:
    if held is None:
        return None
    return {
        "averageGpuAllocation": held / 1000,
        "averageGpuUtilization": None,
        "averageGpuMemoryUtilization": None,
        "updatedAt": rfc3339(average.at),
    }


def _limits(owned: Q) -> Mapping[tuple[str, int], Mapping[RuleKey, int]]:
    """Minutes of each limit by the kind of its owner and the owner's id. Two queries."""
    found: defaultdict[tuple[str, int], dict[RuleKey, int]] = defaultdict(dict)
    for kind in KINDS:
        rows = kind._default_manager.filter(owned).order_by()
        for project, department, category, minutes in rows.values_list("project", "department", "category", "minutes"):
            owner = (PROJECT, project) if project else (DEPARTMENT, department)
            found[owner][kind, category] = minutes
    return found


def _described(owner: Department | Project) -> dict[str, Any]:
    return {
        "id": str(owner.pk),
        "name": owner.name,
        "clusterId": str(owner.cluster_id),
        "description": owner.description,
        "nodeTypes": None,
        "createdAt": rfc3339(owner.created_at),
        "createdBy": owner.created_by,
        "updatedAt": rfc3339(owner.updated_at),
    }


def _phase(cluster: Cluster) -> str:
    """Updating until the cluster holds what was decided last."""
    return "Ready" if cluster.synced_generation >= cluster.generation else "Updating"


def _totals(quotas: Iterable[Quota]) -> Mapping[str, float]:
    rows = list(quotas)
    return {
        "gpuQuota": sum(row.gpu_deserved for row in rows) / 1000,
        "cpuQuota": sum(row.cpu_deserved or 0 for row in rows),
        "memoryQuota": sum(row.memory_deserved or 0 for row in rows) / MEGABYTE,
    }


def _pool_use(pool: NodePool, usage: Usage) -> dict[str, Any]:
    return {"nodePoolName": pool.name, "nodePoolId": str(pool.pk), **use_json(usage)}
