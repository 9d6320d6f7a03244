"""Request and response bodies of quotas per node pool and of ranks."""

from typing import Any, Final

from rest_framework import serializers

from scheduling.model.resources import Resources
from tenants.usage.selectors import Usage

MEGABYTE: Final = 10**6


def use_json(usage: Usage) -> dict[str, Any]:
    """QuotaStatus."""
    return {
        "allocated": amounts_json(usage.allocated),
        "allocatedNonPreemptible": amounts_json(usage.non_preemptible),
        "requested": amounts_json(usage.requested),
    }


def amounts_json(amounts: Resources) -> dict[str, float]:
    """Devices, millicores and megabytes."""
    return {"gpu": amounts.gpu / 1000, "cpu": amounts.cpu, "memory": amounts.memory / MEGABYTE}


class RankSchema(serializers.Serializer[Any]):
    """A rank of queues."""

    name = serializers.CharField()
    value = serializers.IntegerField()
    isDefault = serializers.BooleanField()


class RanksSchema(serializers.Serializer[Any]):
    """Ranks, the lowest first."""

    priorities = RankSchema(many=True)


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
