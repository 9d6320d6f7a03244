"""Bodies of what an admin asks of a cluster."""

from typing import Any

from rest_framework import serializers

from portal.core.paging import ListSchema


class SyncObjectSchema(serializers.Serializer[Any]):
    """What happened to one object."""

    action = serializers.CharField()
    kind = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    ok = serializers.BooleanField()
    code = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)


class SyncSchema(serializers.Serializer[Any]):
    """One reconcile, or a rehearsal of one."""

    id = serializers.IntegerField()
    state = serializers.CharField(help_text="running, succeeded, partial or failed.")
    trigger = serializers.CharField()
    dryRun = serializers.BooleanField()
    owners = serializers.ListField(child=serializers.CharField(), help_text="Whose objects; empty: everybody's.")
    generation = serializers.IntegerField()
    startedAt = serializers.DateTimeField()
    finishedAt = serializers.DateTimeField(allow_null=True)
    listed = serializers.IntegerField()
    written = serializers.IntegerField()
    failed = serializers.IntegerField()
    code = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)
    objects = SyncObjectSchema(many=True)


class SyncsSchema(ListSchema):
    """A page of syncs."""

    syncs = SyncSchema(many=True)


class DifferenceSchema(serializers.Serializer[Any]):
    """How one object differs."""

    category = serializers.CharField(help_text="missing, changed, extra, conflict or stale.")
    kind = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    owner = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)
    changes = serializers.ListField(child=serializers.JSONField())
    uid = serializers.CharField(allow_blank=True, help_text="Of the foreign object that may be taken over.")
    seenAt = serializers.DateTimeField()


class DifferencesSchema(ListSchema):
    """A page of differences."""

    differences = DifferenceSchema(many=True)


class Named(serializers.Serializer[Any]):
    """One object, as the list of differences calls it."""

    kind = serializers.CharField(max_length=128)
    namespace = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    name = serializers.CharField(max_length=253)


class NamedByUid(Named):
    """One foreign object, as it was shown."""

    uid = serializers.CharField(max_length=64)


class PodSecurityChange(serializers.Serializer[Any]):
    """`restricted` or `baseline`."""

    podSecurity = serializers.CharField(max_length=40)


class PauseChange(serializers.Serializer[Any]):
    """Why."""

    reason = serializers.CharField(max_length=500, required=False)


class UnpauseChange(serializers.Serializer[Any]):
    """Whether another cluster at its address is taken over."""

    adopt = serializers.BooleanField(required=False, default=False)


class MissingSchema(serializers.Serializer[Any]):
    """Rights that are lacking for one purpose."""

    resources = serializers.ListField(child=serializers.CharField())
    verbs = serializers.ListField(child=serializers.CharField())
    unknown = serializers.ListField(child=serializers.CharField(), help_text="Verbs that could not be asked.")
    why = serializers.CharField()


class ConnectionTestSchema(serializers.Serializer[Any]):
    """What a test of the stored connection found."""

    works = serializers.BooleanField()
    code = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)
    uid = serializers.CharField(allow_blank=True)
    version = serializers.CharField(allow_blank=True)
    username = serializers.CharField(allow_blank=True)
    milliseconds = serializers.IntegerField()
    missing = MissingSchema(many=True)
    excess = serializers.ListField(child=serializers.CharField())
    schedulers = serializers.ListField(child=serializers.CharField())
    warnings = serializers.ListField(child=serializers.CharField())
    unserved = serializers.ListField(child=serializers.CharField())
