"""Bodies of another scheduler for a cluster: what it would mean, and that it is wanted."""

from typing import Any

from rest_framework import serializers


class SchedulerChoice(serializers.Serializer[Any]):
    """A scheduler that might be there instead."""

    flavour = serializers.CharField(max_length=40)


class SchedulerChange(SchedulerChoice):
    """Another scheduler, as planned."""

    generation = serializers.IntegerField(
        min_value=0, max_value=2**63 - 1, help_text="Of the plan: refused where the cluster has moved on since."
    )


class KindPlanSchema(serializers.Serializer[Any]):
    """What becomes of Rung's objects of one kind."""

    kind = serializers.CharField()
    created = serializers.IntegerField()
    updated = serializers.IntegerField()
    replaced = serializers.IntegerField()
    deleted = serializers.IntegerField()
    kept = serializers.IntegerField(help_text="They go once the last workload made for them has ended.")
    inConflict = serializers.IntegerField()
    samples = serializers.ListField(child=serializers.CharField())


class PromiseChangeSchema(serializers.Serializer[Any]):
    """A promise that the two schedulers keep differently."""

    code = serializers.CharField()
    title = serializers.CharField()
    before = serializers.CharField(help_text="yes, partly or no.")
    after = serializers.CharField(help_text="yes, partly or no.")
    explanation = serializers.CharField()
    remedy = serializers.CharField(allow_blank=True)


class SomeWorkSchema(serializers.Serializer[Any]):
    """How many workloads, and the first of them."""

    count = serializers.IntegerField()
    names = serializers.ListField(child=serializers.CharField())


class WorkSchema(serializers.Serializer[Any]):
    """What becomes of the work there."""

    stays = SomeWorkSchema()
    anew = SomeWorkSchema()
    unexpressed = SomeWorkSchema()
    unmanaged = SomeWorkSchema(help_text="Of kinds that the new scheduler is configured to leave alone.")
    evicted = SomeWorkSchema(
        allow_null=True,
        help_text="Of what stays, what the new scheduler's model evicts for others; null: no model.",
    )
    uncountedGpus = serializers.FloatField(help_text="GPUs of what stays, which the new quotas do not count.")


class SchedulerPlanSchema(serializers.Serializer[Any]):
    """What a switch would do: an estimate of one moment."""

    before = serializers.CharField()
    after = serializers.CharField()
    generation = serializers.IntegerField()
    askedAt = serializers.DateTimeField()
    observedAt = serializers.DateTimeField(allow_null=True)
    possible = serializers.BooleanField()
    hindered = serializers.CharField(allow_blank=True, help_text="What forbids it.")
    rights = serializers.CharField(
        allow_blank=True, help_text="Where rights are missing: YAML that grants those of both schedulers."
    )
    uncompared = serializers.ListField(
        child=serializers.CharField(), help_text="Kinds that could not be listed: what is needed of them counts as new."
    )
    warnings = serializers.ListField(child=serializers.CharField())
    conflicts = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.IntegerField()
    kinds = KindPlanSchema(many=True)
    promises = PromiseChangeSchema(many=True)
    work = WorkSchema()
