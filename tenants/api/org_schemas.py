"""What the routes of departments and projects take and answer, for the OpenAPI document and for checking bodies."""

from typing import Any

from rest_framework import serializers

from portal.core.paging import ListSchema

NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class EntrySchema(serializers.Serializer[Any]):
    """The quota in one node pool: GPUs in devices, CPU in millicores, memory in its `units`; -1 or null is no limit."""

    nodePool = serializers.DictField(help_text="`id` and `name`.")
    gpu = serializers.DictField(required=False, help_text="`deserved`, `limit`, `overQuotaWeight`.")
    cpu = serializers.DictField(required=False, allow_null=True)
    memory = serializers.DictField(required=False, allow_null=True, help_text="Also `units`: Mib, MB or GB.")
    priority = serializers.CharField(required=False, allow_null=True, help_text="The rank, by its older name.")
    rank = serializers.CharField(required=False, allow_null=True)


class OrgUnitChange(serializers.Serializer[Any]):
    """What may be changed of both. `resources` replaces every quota."""

    resources = serializers.ListField(child=serializers.DictField(), help_text="One entry per node pool.")
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True, max_length=2000)
    schedulingRules = serializers.DictField(required=False, allow_null=True)
    defaultNodePools = serializers.ListField(
        child=serializers.CharField(max_length=63), required=False, allow_null=True, max_length=100
    )
    nodeTypes = serializers.DictField(required=False, allow_null=True, help_text="Not supported; leave it empty.")


class NewDepartment(OrgUnitChange):
    """A department."""

    name = serializers.RegexField(NAME, max_length=50)
    clusterId = serializers.UUIDField()
    overtimeData = serializers.DictField(required=False, allow_null=True, help_text="Not read.")


class ProjectChange(OrgUnitChange):
    """A project's change."""

    enforceRunaiScheduler = serializers.BooleanField(required=False, default=True, help_text="Always true.")


class NewProject(ProjectChange):
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
    totalResources = serializers.DictField()
    schedulingRules = serializers.DictField()
    status = serializers.DictField()
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()


class ProjectsSchema(ListSchema):
    """One page."""

    projects = OrgUnitSchema(many=True)


class DepartmentsSchema(ListSchema):
    """One page."""

    departments = OrgUnitSchema(many=True)
