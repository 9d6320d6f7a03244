"""What the dictionary's routes take and answer. Reading is Run:ai's; the writes are beyond it."""

from typing import Any

from rest_framework import serializers

from workloads.api.schemas import PrioritySchema


class PriorityChange(serializers.Serializer[Any]):
    """What is to change; absent fields stay. A rename comes alone."""

    name = serializers.CharField(required=False, max_length=63)
    value = serializers.IntegerField(required=False, help_text="100 or more is non-preemptible unless set otherwise.")
    preemptionPolicy = serializers.CharField(required=False, max_length=20)
    description = serializers.CharField(required=False, allow_blank=True, max_length=500)


class WholePriority(serializers.Serializer[Any]):
    """An entry as it is to be."""

    name = serializers.CharField(max_length=63)
    value = serializers.IntegerField()
    preemptionPolicy = serializers.CharField(required=False, default="PreemptLowerPriority", max_length=20)
    description = serializers.CharField(required=False, default="", allow_blank=True, max_length=500)


class NewPriority(WholePriority):
    """A new entry; an alias has the value of what it stands for."""

    aliasOf = serializers.CharField(required=False, default="", allow_blank=True, max_length=63)


class PlanSchema(serializers.Serializer[Any]):
    """What the change does: a sentence, objects per cluster, workloads, who may evict whom, types, warnings."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    sentence = serializers.CharField()
    objects = serializers.JSONField()
    workloads = serializers.JSONField()
    victims = serializers.JSONField()
    types = serializers.JSONField()
    warnings = serializers.ListField(child=serializers.CharField())


class DictionaryEntrySchema(PrioritySchema):
    """A dictionary entry, aliases included."""

    aliasOf = serializers.CharField(allow_blank=True)


class ChangedSchema(DictionaryEntrySchema):
    """The entry as it is now, and what that did."""

    plan = PlanSchema()


class RetiredSchema(serializers.Serializer[Any]):
    """What taking it out of use did."""

    plan = PlanSchema()
