"""Priorities, categories and workload types as REST sends and accepts them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rest_framework import serializers

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import TypedJson, rendered, schema
from scheduling.forecast.eviction_matrix import VictimPlace
from scheduling.model.preemptibility import by_value
from scheduling.model.resources import MILLI
from tenants.quotas.selectors.reclaims import QueueFigures, Reclaims
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.dictionary.rules.eviction_matrix import Evictable, EvictionMatrix, MatrixTable
from workloads.plans.serializers import PlanSchema


class PriorityChange(serializers.Serializer[Any]):
    """What is to change; absent fields stay. A rename comes alone."""

    name = serializers.CharField(required=False, max_length=63)
    value = serializers.IntegerField(required=False, help_text="100 or more is non-preemptible unless set otherwise.")
    preemptionPolicy = serializers.CharField(required=False, max_length=20)
    description = serializers.CharField(required=False, allow_blank=True, max_length=500)


class PriorityReplace(serializers.Serializer[Any]):
    """An entry as it is to be."""

    name = serializers.CharField(max_length=63)
    value = serializers.IntegerField()
    preemptionPolicy = serializers.CharField(required=False, default="PreemptLowerPriority", max_length=20)
    description = serializers.CharField(required=False, default="", allow_blank=True, max_length=500)


class PriorityCreate(PriorityReplace):
    """A new entry; an alias has the value of its target."""

    aliasOf = serializers.CharField(required=False, default="", allow_blank=True, max_length=63)


class ClusterPhaseSchema(serializers.Serializer[Any]):
    """A priority's standing on one cluster."""

    clusterId = serializers.UUIDField()
    phase = serializers.CharField()


class PrioritySchema(serializers.Serializer[Any]):
    """A dictionary entry."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    value = serializers.IntegerField()
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    aggregatedPhase = serializers.CharField()
    status = ClusterPhaseSchema(many=True)
    scopeType = serializers.CharField()
    scopeId = serializers.CharField()
    preemptionPolicy = serializers.CharField()
    preemptibility = serializers.CharField(help_text="Preemptibility that follows from the value alone.")
    description = serializers.CharField(allow_blank=True)

    def get_fields(self) -> dict[str, Any]:
        """With `source`, a name the class itself uses."""
        return {**super().get_fields(), "source": serializers.CharField(allow_blank=True)}


class DictionaryEntrySchema(PrioritySchema):
    """A dictionary entry, aliases included."""

    aliasOf = serializers.CharField(allow_blank=True)


class ChangedSchema(DictionaryEntrySchema):
    """The entry as it is now, and what that did."""

    plan = PlanSchema()


RetiredSchema = schema("RetiredSchema", "What taking it out of use did.", plan=PlanSchema())
PrioritiesSchema = schema("PrioritiesSchema", "The dictionary.", priorities=PrioritySchema(many=True))


class MatrixPrioritySchema(serializers.Serializer[Any]):
    """An offered priority."""

    name = serializers.CharField()
    value = serializers.IntegerField()
    preemptionPolicy = serializers.CharField()


class MatrixCellSchema(serializers.Serializer[Any]):
    """One priority against another."""

    candidate = serializers.CharField()
    victim = serializers.CharField()
    evicts = serializers.ChoiceField([str(each) for each in Evictable], help_text="Workloads of the victim's priority.")
    rules = serializers.ListField(child=serializers.IntegerField(), help_text="Numbers of `rules`.")


class MatrixTableSchema(serializers.Serializer[Any]):
    """Every priority against every priority. relations: where the victim is; uniform: all cells are alike."""

    relations = serializers.ListField(
        child=serializers.ChoiceField([str(each) for each in VictimPlace]),
        help_text="own: same project; over, within: another project above or within its deserved quota.",
    )
    uniform = serializers.BooleanField()
    cells = MatrixCellSchema(many=True)


class ReclaimQueueSchema(serializers.Serializer[Any]):
    """A project or department in a node pool. Figures are null where you may not see it."""

    type = serializers.CharField()
    name = serializers.CharField(help_text='"another project" where you may not see it.')
    gpusDeserved = serializers.FloatField(allow_null=True, help_text="Null: unlimited.")
    gpusUsed = serializers.FloatField(allow_null=True)
    gpusNonPreemptible = serializers.FloatField(allow_null=True)
    gpusOver = serializers.FloatField(allow_null=True)
    rank = serializers.CharField(allow_blank=True)
    overQuotaWeight = serializers.FloatField(allow_null=True)


class ReclaimArrowSchema(serializers.Serializer[Any]):
    """`taker` can take back up to so many GPUs from `giver` now."""

    nodePool = serializers.CharField()
    taker = ReclaimQueueSchema()
    giver = ReclaimQueueSchema()
    gpus = serializers.FloatField(help_text="Of each, where there are several.")
    count = serializers.IntegerField(help_text="Several queues that the caller may not see are one row.")
    rule = serializers.ChoiceField(
        ["deserved", "fairShare"],
        help_text="deserved: below its deserved quota from above its own. fairShare: the same of fair shares (KAI).",
    )


EvictionMatrixSchema = schema(
    "EvictionMatrixSchema",
    "Who can evict whom on one cluster.",
    clusterId=serializers.UUIDField(),
    cluster=serializers.CharField(),
    scheduler=serializers.CharField(),
    simulated=serializers.BooleanField(),
    observedAt=serializers.DateTimeField(allow_null=True),
    project=serializers.CharField(allow_blank=True),
    priorities=MatrixPrioritySchema(many=True),
    tables=MatrixTableSchema(many=True),
    rules=schema("MatrixRuleSchema", "A rule.", number=serializers.IntegerField(), text=serializers.CharField())(
        many=True
    ),
    reclaimRule=serializers.CharField(),
    reclaims=ReclaimArrowSchema(many=True),
    reclaimsLeftOut=serializers.IntegerField(),
    notes=serializers.ListField(child=serializers.CharField()),
)


def matrix_json(
    cluster: Cluster, project: str, matrix: EvictionMatrix, reclaims: Reclaims, notes: list[str]
) -> dict[str, Any]:
    """Everything that the page shows."""
    numbers = {rule: number for number, rule in enumerate(matrix.rules, start=1)}
    return {
        "clusterId": str(cluster.pk),
        "cluster": cluster.name,
        "scheduler": flavour_for(cluster.flavour).title,
        "simulated": cluster.is_simulated,
        "observedAt": rfc3339(cluster.observed_at) if cluster.observed_at else None,
        "project": project,
        "priorities": [
            {"name": each.name, "value": each.value, "preemptionPolicy": each.preemption_policy}
            for each in matrix.priorities
        ],
        "tables": [_matrix_table(table, numbers) for table in matrix.tables],
        "rules": [{"number": number, "text": rule} for rule, number in numbers.items()],
        "reclaimRule": reclaims.rule,
        "reclaims": [
            {
                "nodePool": each.pool,
                "taker": _reclaim_queue(each.taker),
                "giver": _reclaim_queue(each.giver),
                "gpus": each.gpu / MILLI,
                "count": each.alike,
                "rule": "fairShare" if each.by_share else "deserved",
            }
            for each in reclaims.arrows
        ],
        "reclaimsLeftOut": reclaims.left_out,
        "notes": notes,
    }


def _matrix_table(table: MatrixTable, numbers: Mapping[str, int]) -> dict[str, Any]:
    cells = (cell for row in table.rows for cell in row)
    return {
        "relations": [str(place) for place in table.places],
        "uniform": table.uniform is not None,
        "cells": [
            {
                "candidate": cell.candidate,
                "victim": cell.victim,
                "evicts": str(cell.evicts),
                "rules": [numbers[rule] for rule in cell.rules],
            }
            for cell in cells
        ],
    }


def _reclaim_queue(queue: QueueFigures) -> dict[str, Any]:
    figures = (queue.deserved, queue.used, queue.non_preemptible, queue.over)
    amounts = [None if queue.hidden or each is None else each / MILLI for each in figures]
    names = ("gpusDeserved", "gpusUsed", "gpusNonPreemptible", "gpusOver")
    return {
        "type": queue.kind,
        "name": queue.name,
        **dict(zip(names, amounts, strict=True)),
        "rank": queue.rank,
        "overQuotaWeight": None if queue.hidden else queue.weight,
    }


class CategorySchema(serializers.Serializer[Any]):
    """Build, Train or Deploy."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()


CategoriesSchema = schema("CategoriesSchema", "Every category.", categories=CategorySchema(many=True))


class ClusterStatusOfType(serializers.Serializer[Any]):
    """The state of a type on a cluster. Rung stores none: types are the installation's."""

    clusterId = serializers.CharField()
    phase = serializers.CharField()


class TypeSchema(serializers.Serializer[Any]):
    """A workload type; `categoryId` and `priorityId` are empty where it has none."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    group = serializers.CharField()
    categoryId = serializers.CharField(allow_blank=True)
    priorityId = serializers.CharField(allow_blank=True)
    preemptibility = serializers.CharField(allow_null=True)
    categoryName = serializers.CharField(required=False)
    priorityName = serializers.CharField(required=False)
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    updatedAt = serializers.DateTimeField()
    updatedBy = serializers.CharField()
    clusterStatuses = TypedJson(as_=ClusterStatusOfType(many=True), allow_null=True, help_text="Always null.")


TypesSchema = schema("TypesSchema", "Every workload type.", types=TypeSchema(many=True))


class ResourceInterface(serializers.Serializer[Any]):
    """Where Run:ai finds the pods of a kind. Rung knows that itself."""

    version = serializers.CharField(required=False)
    resourceInterface = serializers.DictField(required=False)


class TypeChange(serializers.Serializer[Any]):
    """A new mapping; what is absent stays."""

    categoryId = serializers.UUIDField(required=False)
    priorityId = serializers.UUIDField(required=False)
    preemptibility = serializers.ChoiceField(
        choices=["preemptible", "semi-preemptible", "non-preemptible"], required=False
    )
    resourceInterfaces = serializers.ListField(
        child=TypedJson(as_=ResourceInterface()), required=False, max_length=4, help_text="Accepted, not used by Rung."
    )


class WorkloadTypeCreate(TypeChange):
    """A withdrawn type that is offered again; without `preemptibility` it has the one it had."""

    name = serializers.CharField(max_length=63)
    group = serializers.CharField(max_length=100)
    categoryId = serializers.UUIDField()
    priorityId = serializers.UUIDField()


READY: Final = "Ready"
UPDATING: Final = "Updating"


def priority_json(priority: Priority, status: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """WorkloadPriority. status: one entry per cluster, the same for every priority."""
    return rendered(
        PrioritySchema,
        priority,
        aggregatedPhase=UPDATING if any(entry["phase"] == UPDATING for entry in status) else READY,
        status=status,
        scopeType="tenant",
        scopeId=str(TENANT_ID),
        preemptibility=by_value(priority.value).value,
    )


def category_json(category: Category) -> dict[str, Any]:
    return rendered(CategorySchema, category, createdBy="Run:ai")


def type_json(kind: WorkloadType) -> dict[str, Any]:
    """WorkloadTypeConfig. A type without category or priority answers empty strings, which their client can read."""
    body = {
        "id": str(kind.pk),
        "name": kind.name,
        "group": kind.group,
        "categoryId": str(kind.category_id or ""),
        "priorityId": str(kind.priority_id or ""),
        "preemptibility": kind.preemptibility or None,
        "createdAt": rfc3339(kind.created_at),
        "createdBy": "Run:ai",
        "updatedAt": rfc3339(kind.updated_at),
        "updatedBy": kind.updated_by or "Run:ai",
        "clusterStatuses": None,
    }
    if kind.category:
        body["categoryName"] = kind.category.name
    if kind.priority:
        body["priorityName"] = kind.priority.name
    return body


class DiscardedValue(serializers.Serializer[Any]):
    """A value that a stronger source overrides."""

    field = serializers.CharField(help_text="priority or preemptibility.")
    value = serializers.CharField()
    because = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """With `source`, a name the class itself uses."""
        return {**super().get_fields(), "source": serializers.CharField()}


class WarningSchema(serializers.Serializer[Any]):
    """What is true of it without being refused."""

    code = serializers.CharField()
    message = serializers.CharField()
