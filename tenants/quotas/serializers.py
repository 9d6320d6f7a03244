"""Request and response bodies of quotas per node pool and of ranks."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rest_framework import serializers

from clusters.inventory.models import NodePool
from portal.kit.api.pagination import ListSchema
from portal.kit.api.serializers import schema
from portal.kit.db.validation import MAX_REASON_LENGTH
from portal.kit.errors import Problem
from scheduling.model.resources import Resources
from tenants.quotas.models import LONGEST_MINUTES
from tenants.quotas.services.pool_quotas import PoolWarnings
from tenants.quotas.services.quotas import QuotaWarning
from tenants.usage.selectors import Usage

MEGABYTE: Final = 10**6


def use_json(usage: Usage) -> dict[str, Any]:
    return {
        "allocated": amounts_json(usage.allocated),
        "allocatedNonPreemptible": amounts_json(usage.non_preemptible),
        "requested": amounts_json(usage.requested),
    }


def amounts_json(amounts: Resources) -> dict[str, float]:
    """Devices, millicores and megabytes."""
    return {"gpu": amounts.gpu / 1000, "cpu": amounts.cpu, "memory": amounts.memory / MEGABYTE}


class QuotaWarningSchema(serializers.Serializer[Any]):
    """What a change of a quota brings with it, as the console warns before it saves. Beyond Run:ai."""

    code = serializers.CharField(
        help_text="becomes_reclaimable, limit_below_use, over_physical, over_department_limit, sum_over_department, "
        "one_weight or whole_weight."
    )
    message = serializers.CharField()
    nodePool = serializers.DictField(help_text="`id` and `name`.")
    pointer = serializers.CharField(help_text="Within the pool's entry, such as /gpu/deserved.")
    numbers = serializers.DictField(child=serializers.CharField())
    workloads = serializers.ListField(
        child=serializers.DictField(), help_text="Those that others may reclaim from: `id`, `name` and `held`."
    )


def warnings_json(warnings: PoolWarnings) -> list[dict[str, Any]]:
    """`QuotaWarningSchema` of every warning."""
    return [_warning(pool, each) for pool, found in warnings.items() for each in found]


def warned_entries(entries: Iterable[Mapping[str, Any]], warnings: PoolWarnings) -> list[dict[str, Any]]:
    """Quota entries, each with the warnings of its pool."""
    said = warnings_json(warnings)
    return [
        {**entry, "warnings": [each for each in said if each["nodePool"]["id"] == entry["nodePool"]["id"]]}
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
    resources = serializers.DictField()
    quotaStatus = serializers.DictField()


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


class PriorityCapWrite(ReasonWrite):
    """A cap."""

    gpuLimit = serializers.DecimalField(
        max_digits=None,
        decimal_places=3,
        min_value=0,
        max_value=10**9,
        coerce_to_string=False,
        help_text="GPU devices.",
    )


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


PriorityCapsSchema = schema("PriorityCapsSchema", "One page.", ListSchema, priorityCaps=PriorityCapSchema(many=True))
RuntimeLimitsSchema = schema("RuntimeLimitsSchema", "One page.", ListSchema, limits=RuntimeLimitSchema(many=True))
MinRuntimesSchema = schema("MinRuntimesSchema", "One page.", ListSchema, minRuntimes=MinRuntimeSchema(many=True))
