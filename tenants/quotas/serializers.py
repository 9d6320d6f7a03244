"""Request and response bodies of quotas per node pool and of ranks."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from rest_framework import serializers

from clusters.inventory.models import NodePool
from portal.kit.api.lists import ListSchema
from portal.kit.api.parsers import rfc3339
from portal.kit.api.serializers import NamedId, TypedObject, schema
from portal.kit.db.validation import MAX_REASON_LENGTH
from portal.kit.errors import Problem
from scheduling.model.resources import Resources
from tenants.organisation.models import Department, Project
from tenants.quotas.models import LONGEST_MINUTES, ProjectQuota
from tenants.quotas.selectors.quota_tree import Branch, PoolTotals, QuotaLine, key_of, over
from tenants.quotas.services.pool_quotas import PoolWarnings, entry_json
from tenants.quotas.services.quotas import QuotaWarning
from tenants.quotas.services.what_if import WhatIf, rule_of, values_of
from tenants.usage.selectors import Usage

MEGABYTE: Final = 10**6
MOST_GPUS: Final = 10**9


def use_json(usage: Usage) -> dict[str, Any]:
    return {
        "allocated": amounts_json(usage.allocated),
        "allocatedNonPreemptible": amounts_json(usage.non_preemptible),
        "requested": amounts_json(usage.requested),
    }


def amounts_json(amounts: Resources) -> dict[str, float]:
    """Devices, millicores and megabytes."""
    return {"gpu": amounts.gpu / 1000, "cpu": amounts.cpu, "memory": amounts.memory / MEGABYTE}


class AmountsSchema(serializers.Serializer[Any]):
    """GPU devices, millicores and megabytes."""

    gpu = serializers.FloatField()
    cpu = serializers.FloatField()
    memory = serializers.FloatField()


class UseSchema(serializers.Serializer[Any]):
    """As of the last observation."""

    allocated = AmountsSchema()
    allocatedNonPreemptible = AmountsSchema()
    requested = AmountsSchema()


class QuotaAmountsSchema(serializers.Serializer[Any]):
    """One resource of a quota; `units` of memory: Mib, MB or GB."""

    deserved = serializers.FloatField(required=False, allow_null=True)
    limit = serializers.FloatField(required=False, allow_null=True, help_text="-1 or null is no limit.")
    overQuotaWeight = serializers.FloatField(required=False, allow_null=True)
    units = serializers.CharField(required=False, allow_null=True)


class HeldBySchema(serializers.Serializer[Any]):
    """A workload and what it holds."""

    id = serializers.CharField()
    name = serializers.CharField()
    held = AmountsSchema()


class QuotaWarningSchema(serializers.Serializer[Any]):
    """What a change of a quota brings with it, as the console warns before it saves. Beyond Run:ai."""

    code = serializers.CharField(
        help_text="becomes_reclaimable, limit_below_use, over_physical, over_department_limit, sum_over_department, "
        "one_weight or whole_weight."
    )
    message = serializers.CharField()
    nodePool = NamedId()
    pointer = serializers.CharField(help_text="Within the pool's entry, such as /gpu/deserved.")
    numbers = serializers.DictField(child=serializers.CharField())
    workloads = HeldBySchema(many=True, help_text="Those that others may reclaim from.")


def warnings_json(warnings: PoolWarnings) -> list[dict[str, Any]]:
    """`QuotaWarningSchema` of every warning."""
    return [_warning(pool, each) for pool, found in warnings.items() for each in found]


def warned_entries(entries: Iterable[Mapping[str, Any]], warnings: PoolWarnings) -> list[dict[str, Any]]:
    """Quota entries, each with the warnings of its pool."""
    found = warnings_json(warnings)
    return [
        {**entry, "warnings": [each for each in found if each["nodePool"]["id"] == entry["nodePool"]["id"]]}
        for entry in entries
    ]


def _warning(pool: NodePool, problem: Problem) -> dict[str, Any]:
    work = problem.work if isinstance(problem, QuotaWarning) else ()
    return {
        "code": problem.code,
        "message": str(problem.message),
        "nodePool": {"id": str(pool.pk), "name": pool.name},
        "pointer": problem.pointer,
        "numbers": problem.numbers,
        "workloads": [{"id": each.workload_id, "name": each.label, "held": amounts_json(each.held)} for each in work],
    }


class QuotaOfPoolSchema(serializers.Serializer[Any]):
    """A department's or project's quota, use and share in one node pool."""

    kind = serializers.CharField(help_text="department or project.")
    id = serializers.CharField()
    name = serializers.CharField()
    department = serializers.CharField()
    cluster = serializers.CharField()
    nodePool = NamedId()
    gpu = QuotaAmountsSchema()
    cpu = QuotaAmountsSchema(allow_null=True)
    memory = QuotaAmountsSchema(allow_null=True)
    rank = serializers.CharField()
    use = UseSchema()
    share = serializers.FloatField(
        allow_null=True, help_text="GPUs by `rule` of its pool; null where the scheduler has none, or without nodes."
    )
    projectsDeserve = serializers.FloatField(allow_null=True, help_text="GPUs of its projects; null for a project.")
    overCommitted = serializers.FloatField(allow_null=True, help_text="GPUs that its projects deserve above its own.")
    mayChange = serializers.BooleanField()


class SharingRuleSchema(serializers.Serializer[Any]):
    """How a scheduler shares: fair_share, deserved or none."""

    code = serializers.CharField()
    text = serializers.CharField()


class PoolSumsSchema(serializers.Serializer[Any]):
    """All quotas of a node pool together, beside the GPUs of its nodes as last observed."""

    cluster = serializers.CharField()
    nodePool = NamedId()
    observedAt = serializers.DateTimeField(allow_null=True)
    physicalGpus = serializers.FloatField(allow_null=True, help_text="Null while no node was observed.")
    departmentsDeserve = serializers.FloatField()
    projectsDeserve = serializers.FloatField()
    departmentsOverCommitted = serializers.FloatField()
    projectsOverCommitted = serializers.FloatField()
    use = UseSchema()
    rule = SharingRuleSchema()


class QuotasPageSchema(serializers.Serializer[Any]):
    """One page of quotas, departments before their projects; `next` is the offset of the following one."""

    quotas = QuotaOfPoolSchema(many=True)
    pools = PoolSumsSchema(many=True)
    next = serializers.IntegerField(allow_null=True)


class QuotaValuesSchema(serializers.Serializer[Any]):
    """A quota in one node pool."""

    gpu = QuotaAmountsSchema(required=False)
    cpu = QuotaAmountsSchema(required=False, allow_null=True)
    memory = QuotaAmountsSchema(required=False, allow_null=True)
    rank = serializers.CharField(required=False, allow_null=True)


class QuotaEditSchema(serializers.Serializer[Any]):
    """Another quota of a department or a project; name one of them. Absent values stay."""

    department = serializers.CharField(required=False, max_length=50)
    project = serializers.CharField(required=False, max_length=50)
    values = TypedObject(as_=QuotaValuesSchema(), help_text="As in the resources of a project.")


class WhatIfRequest(serializers.Serializer[Any]):
    """Quotas to compare with the present ones, all in one node pool."""

    cluster = serializers.CharField(required=False, max_length=63)
    pool = serializers.CharField(max_length=63)
    quotas = QuotaEditSchema(many=True)


class ShareChangeSchema(serializers.Serializer[Any]):
    """The share of an owner in GPUs."""

    kind = serializers.CharField(help_text="department or project.")
    name = serializers.CharField()
    before = serializers.FloatField()
    after = serializers.FloatField()


class OverhangSchema(serializers.Serializer[Any]):
    """What an owner holds above its deserved quota, in GPUs."""

    kind = serializers.CharField(help_text="department or project.")
    name = serializers.CharField()
    held = serializers.FloatField()
    deserved = serializers.FloatField()
    over = serializers.FloatField()


class OwnerWarningSchema(QuotaWarningSchema):
    """A warning about the quota of an owner."""

    kind = serializers.CharField(help_text="department or project.")
    name = serializers.CharField()


class WhatIfSchema(serializers.Serializer[Any]):
    """What these quotas would do. GPUs; owners have `kind` and `name`."""

    before = PoolSumsSchema()
    after = PoolSumsSchema()
    shares = ShareChangeSchema(many=True, help_text="Of those that you may see, where they differ.")
    elsewhere = serializers.FloatField(help_text="Change of the shares of projects that you may not see, in total.")
    overhangs = OverhangSchema(many=True, help_text="Non-preemptible use above the new deserved quota.")
    refusals = OwnerWarningSchema(many=True, help_text="Why setting them would be refused.")
    warnings = OwnerWarningSchema(many=True)


def quota_json(line: QuotaLine, branch: Branch, pool: NodePool, share: int | None) -> dict[str, Any]:
    """`QuotaOfPoolSchema` of a line."""
    entry = entry_json(ProjectQuota(**values_of(line.quota).as_fields()), pool)
    heads = line.key.kind == "department"
    return {
        "kind": line.key.kind,
        "id": str(line.key.pk),
        "name": line.owner.name,
        "department": branch.department.name,
        "cluster": pool.cluster.name,
        **{name: entry[name] for name in ("nodePool", "gpu", "cpu", "memory", "rank")},
        "use": use_json(line.usage),
        "share": None if share is None else share / 1000,
        "projectsDeserve": branch.projects_deserved / 1000 if heads else None,
        "overCommitted": branch.over_committed / 1000 if heads else None,
        "mayChange": line.may_change,
    }


def sums_json(sums: PoolTotals) -> dict[str, Any]:
    """`PoolSumsSchema` of a pool."""
    pool, rule = sums.pool, rule_of(sums.pool.cluster)
    return {
        "cluster": pool.cluster.name,
        "nodePool": {"id": str(pool.pk), "name": pool.name},
        "observedAt": rfc3339(pool.cluster.observed_at),
        "physicalGpus": None if sums.physical is None else sums.physical / 1000,
        "departmentsDeserve": sums.departments / 1000,
        "projectsDeserve": sums.projects / 1000,
        "departmentsOverCommitted": over(sums.departments, sums.physical) / 1000,
        "projectsOverCommitted": over(sums.projects, sums.physical) / 1000,
        "use": use_json(sums.usage),
        "rule": {"code": rule.code, "text": str(rule.text)},
    }


def what_if_json(found: WhatIf) -> dict[str, Any]:
    """`WhatIfSchema` of an answer."""
    pool = found.before.pool
    return {
        "before": sums_json(found.before.sums),
        "after": sums_json(found.after.sums),
        "shares": [
            {**_owner(each.owner), "before": each.before / 1000, "after": each.after / 1000} for each in found.shares
        ],
        "elsewhere": found.elsewhere / 1000,
        "overhangs": [
            {**_owner(each.owner), "held": each.held / 1000, "deserved": each.deserved / 1000, "over": each.over / 1000}
            for each in found.overhangs
        ],
        "refusals": [{**_owner(each.owner), **_warning(pool, each.problem)} for each in found.refusals],
        "warnings": [{**_owner(each.owner), **_warning(pool, each.problem)} for each in found.warnings],
    }


def _owner(owner: Department | Project) -> dict[str, str]:
    return {"kind": key_of(owner).kind, "name": owner.name}


class RankSchema(serializers.Serializer[Any]):
    """A rank of queues."""

    name = serializers.CharField()
    value = serializers.IntegerField()
    isDefault = serializers.BooleanField()


RanksSchema = schema("RanksSchema", "Ranks, the lowest first.", priorities=RankSchema(many=True))


class PoolResourcesSchema(serializers.Serializer[Any]):
    """A department's or project's quota and use in one node pool."""

    id = serializers.CharField()
    orgUnitId = serializers.CharField()
    orgUnitName = serializers.CharField()
    parentId = serializers.CharField(allow_null=True)
    clusterId = serializers.UUIDField()
    nodePoolId = serializers.CharField()
    nodePoolName = serializers.CharField()
    rank = serializers.CharField()
    resources = QuotaValuesSchema()
    quotaStatus = UseSchema()


class PoolResourcesPageSchema(serializers.Serializer[Any]):
    """One page; `next` is the offset of the following one."""

    nodePoolResources = PoolResourcesSchema(many=True)
    next = serializers.IntegerField(allow_null=True)


class PriorityCapSchema(serializers.Serializer[Any]):
    """At most this many GPUs of one priority in one project at a time."""

    projectId = serializers.CharField()
    projectName = serializers.CharField()
    priority = serializers.CharField(help_text="Name of a priority.")
    gpuLimit = serializers.FloatField(help_text="GPU devices.")


class ReasonWrite(serializers.Serializer[Any]):
    """What every change may say besides."""

    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_REASON_LENGTH, help_text="Kept in the history."
    )


class GpuField(serializers.DecimalField):
    """GPUs with at most three decimals."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            max_digits=None, decimal_places=3, min_value=0, max_value=MOST_GPUS, coerce_to_string=False, **kwargs
        )

    def validate_precision(self, value: Decimal) -> Decimal:
        """The library rounds before it compares with the bounds, and a number of too many digits breaks that."""
        if value > MOST_GPUS:
            self.fail("max_value", max_value=MOST_GPUS)
        return super().validate_precision(value)


class PriorityCapWrite(ReasonWrite):
    """A cap."""

    gpuLimit = GpuField(help_text="GPU devices.")


class RuntimeLimitSchema(serializers.Serializer[Any]):
    """After how long a run of a category, or its idleness, ends, as set at one project or department."""

    orgUnitType = serializers.ChoiceField(["project", "department"])
    orgUnitId = serializers.CharField()
    orgUnitName = serializers.CharField()
    category = serializers.CharField(help_text="Name of a workload category.")
    minutes = serializers.IntegerField(help_text="Until the workload is stopped.")
    noticeMinutes = serializers.IntegerField(help_text="Notice before the workload is stopped.")


class RuntimeLimitWrite(ReasonWrite):
    """A limit. Without a notice: 15 minutes, or less where the limit is shorter."""

    minutes = serializers.IntegerField(min_value=1, max_value=LONGEST_MINUTES)
    noticeMinutes = serializers.IntegerField(required=False, min_value=0, max_value=LONGEST_MINUTES)


class MinRuntimeSchema(serializers.Serializer[Any]):
    """For how long preemptible runs are left alone after their start, as set at one project or department."""

    orgUnitType = serializers.ChoiceField(["project", "department"])
    orgUnitId = serializers.CharField()
    orgUnitName = serializers.CharField()
    minutes = serializers.IntegerField(help_text="0: no protection, whatever the department guarantees.")


class MinRuntimeWrite(ReasonWrite):
    """A minimum runtime."""

    minutes = serializers.IntegerField(min_value=0, max_value=LONGEST_MINUTES)


EnforcementWrite = schema("EnforcementWrite", "Enforcement.", ReasonWrite, enforceDeserved=serializers.BooleanField())
PriorityCapsSchema = schema("PriorityCapsSchema", "One page.", ListSchema, priorityCaps=PriorityCapSchema(many=True))
RuntimeLimitsSchema = schema("RuntimeLimitsSchema", "One page.", ListSchema, limits=RuntimeLimitSchema(many=True))
MinRuntimesSchema = schema("MinRuntimesSchema", "One page.", ListSchema, minRuntimes=MinRuntimeSchema(many=True))
