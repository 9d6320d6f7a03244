"""Bodies of the actions on a cluster: connection, sync, differences, pause, scheduler switch."""

from typing import Any, Final

from rest_framework import serializers

from clusters.web.serializers.inventory import ClusterUpdate
from portal.kit.api.lists import ListSchema
from portal.kit.api.serializers import schema

LONGEST_TEXT: Final = 256 * 1024


class SecretField(serializers.CharField):
    """A text that is only ever taken: its spaces are its own."""

    def __init__(self, **about: Any) -> None:
        super().__init__(
            write_only=True, required=False, allow_blank=True, trim_whitespace=False, max_length=LONGEST_TEXT, **about
        )


class ConnectionChange(serializers.Serializer[Any]):
    """How a cluster is reached: a kubeconfig, or its parts."""

    kubeconfig = SecretField(help_text="With one context and embedded data; instead of the separate fields.")
    server = serializers.CharField(required=False, max_length=500)
    ca = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, max_length=LONGEST_TEXT, help_text="PEM."
    )
    token = SecretField(help_text="Without it the stored credential is kept, unless the address changes.")
    tlsServerName = serializers.CharField(required=False, allow_blank=True, max_length=253)
    insecure = serializers.BooleanField(required=False, help_text="Only where the operator allows it.")


class ConnectionUpdate(ConnectionChange):
    """Another way to a known cluster."""

    adopt = serializers.BooleanField(
        required=False, default=False, help_text="Accept a new cluster at this address in place of the old one."
    )


class ClusterCreate(ConnectionChange, ClusterUpdate):
    """What Run:ai takes of a new cluster; beyond it, its scheduler and how it is reached, which Rung needs."""

    domain = serializers.CharField(max_length=253, required=False, allow_null=True, allow_blank=True)
    version = serializers.CharField(max_length=63, required=False, allow_null=True, allow_blank=True)
    flavour = serializers.CharField(max_length=40, required=False, default="kube", help_text="Its scheduler.")


class ConnectionSchema(serializers.Serializer[Any]):
    """What may be shown of a connection."""

    server = serializers.CharField()
    tlsServerName = serializers.CharField(allow_blank=True)
    ownAuthority = serializers.BooleanField()
    insecure = serializers.BooleanField()
    kind = serializers.CharField(help_text="Of its credential: token or certificate.")
    expiresAt = serializers.DateTimeField(allow_null=True)
    changedAt = serializers.DateTimeField()


class MetricsSourceChange(serializers.Serializer[Any]):
    """Where a cluster's Prometheus is."""

    server = serializers.CharField(max_length=500)
    ca = serializers.CharField(
        required=False, default="", allow_blank=True, trim_whitespace=False, max_length=LONGEST_TEXT, help_text="PEM."
    )
    token = SecretField(help_text="Without it the stored one is kept, unless the address changes.")
    metric = serializers.CharField(max_length=128, required=False, help_text="Percent per GPU, labelled with its pod.")


class MetricsSourceSchema(serializers.Serializer[Any]):
    """A cluster's Prometheus, and how it answered last."""

    server = serializers.CharField()
    ownAuthority = serializers.BooleanField()
    metric = serializers.CharField()
    hasToken = serializers.BooleanField()
    readAt = serializers.DateTimeField(allow_null=True)
    pods = serializers.IntegerField(help_text="Number of pods with GPU metrics at the last reading.")
    error = serializers.CharField(allow_blank=True)


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
    """One reconcile, or a dry run of one."""

    id = serializers.IntegerField()
    state = serializers.CharField(help_text="running, succeeded, partial or failed.")
    trigger = serializers.CharField()
    dryRun = serializers.BooleanField()
    owners = serializers.ListField(child=serializers.CharField(), help_text="Owner of the objects; empty: all.")
    generation = serializers.IntegerField()
    startedAt = serializers.DateTimeField()
    finishedAt = serializers.DateTimeField(allow_null=True)
    listed = serializers.IntegerField()
    written = serializers.IntegerField()
    failed = serializers.IntegerField()
    code = serializers.CharField(source="error_code", allow_blank=True)
    message = serializers.CharField(allow_blank=True, help_text="Empty where the reader may not manage clusters.")
    objects = SyncObjectSchema(source="first_outcomes", many=True)
    hidden = serializers.IntegerField(source="hidden_outcomes", help_text="Objects that the reader may not see.")


SyncsSchema = schema("SyncsSchema", "A page of syncs.", ListSchema, syncs=SyncSchema(many=True))


class DifferenceSchema(serializers.Serializer[Any]):
    """How one object differs."""

    category = serializers.CharField(help_text="missing, changed, extra, conflict or stale.")
    kind = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    owner = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)
    changes = serializers.ListField(
        child=serializers.ListField(child=serializers.JSONField(allow_null=True)),
        help_text="Changed fields: [path, observed, desired].",
    )
    uid = serializers.CharField(
        source="object_uid", allow_blank=True, help_text="UID of the foreign object that can be taken over."
    )
    seenAt = serializers.DateTimeField()


class DifferencesSchema(ListSchema):
    """A page of differences."""

    differences = DifferenceSchema(many=True)
    hidden = serializers.IntegerField(help_text="Differences that the reader may not see.")


class NamedObject(serializers.Serializer[Any]):
    """One object, as the list of differences calls it."""

    kind = serializers.CharField(max_length=128)
    namespace = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    name = serializers.CharField(max_length=253)


class NamedObjectWithUid(NamedObject):
    """One foreign object, as it was shown."""

    uid = serializers.CharField(max_length=64)


class PodSecurityChange(serializers.Serializer[Any]):
    """`restricted` or `baseline`."""

    podSecurity = serializers.CharField(max_length=40)


class DeferralChange(serializers.Serializer[Any]):
    """Whether Rung defers who would evict a run inside its minimum runtime."""

    deferPreemptors = serializers.BooleanField()


PauseChange = schema("PauseChange", "Why.", reason=serializers.CharField(max_length=500, required=False))


class UnpauseChange(serializers.Serializer[Any]):
    """Whether another cluster at its address is taken over."""

    adopt = serializers.BooleanField(required=False, default=False)


class MissingSchema(serializers.Serializer[Any]):
    """Rights that are lacking for one purpose."""

    resources = serializers.ListField(child=serializers.CharField())
    verbs = serializers.ListField(source="missing", child=serializers.CharField())
    unknown = serializers.ListField(child=serializers.CharField(), help_text="Verbs that could not be asked.")
    why = serializers.CharField()


class ConnectionTestSchema(serializers.Serializer[Any]):
    """What a test of the stored connection found."""

    works = serializers.BooleanField()
    code = serializers.CharField(allow_blank=True)
    message = serializers.CharField(source="error", allow_blank=True)
    uid = serializers.CharField(allow_blank=True)
    version = serializers.CharField(allow_blank=True)
    username = serializers.CharField(allow_blank=True)
    milliseconds = serializers.IntegerField()
    missing = MissingSchema(source="gaps", many=True)
    excess = serializers.ListField(child=serializers.CharField())
    schedulers = serializers.ListField(child=serializers.CharField())
    warnings = serializers.ListField(child=serializers.CharField())
    unserved = serializers.ListField(child=serializers.CharField())


class SchedulerChoice(serializers.Serializer[Any]):
    """A scheduler that might be there instead."""

    flavour = serializers.CharField(max_length=40)


class SchedulerChange(SchedulerChoice):
    """Another scheduler, as planned."""

    generation = serializers.IntegerField(
        min_value=0,
        max_value=2**63 - 1,
        help_text="Generation of the plan. Rejected if the configuration has changed since.",
    )


class KindPlanSchema(serializers.Serializer[Any]):
    """What becomes of Rung's objects of one kind."""

    kind = serializers.CharField()
    created = serializers.IntegerField(source="create")
    updated = serializers.IntegerField(source="update")
    replaced = serializers.IntegerField(source="replace")
    deleted = serializers.IntegerField(source="delete")
    kept = serializers.IntegerField(help_text="Deleted when the last workload created for them has ended.")
    inConflict = serializers.IntegerField(source="conflict")
    samples = serializers.ListField(child=serializers.CharField())


class GuaranteeChangeSchema(serializers.Serializer[Any]):
    """A guarantee that the two schedulers keep differently."""

    code = serializers.CharField(source="after.code")
    title = serializers.CharField(source="after.title")
    before = serializers.CharField(source="before.enforced", help_text="yes, partly or no.")
    after = serializers.CharField(source="after.enforced", help_text="yes, partly or no.")
    explanation = serializers.CharField(source="after.explanation")
    remedy = serializers.CharField(source="after.remedy", allow_blank=True)


class WorkloadSampleSchema(serializers.Serializer[Any]):
    """How many workloads, and the first of them."""

    count = serializers.IntegerField()
    names = serializers.ListField(child=serializers.CharField())


class SwitchEffectSchema(serializers.Serializer[Any]):
    """What becomes of the work there."""

    stays = WorkloadSampleSchema()
    recreated = WorkloadSampleSchema()
    unexpressed = WorkloadSampleSchema()
    unmanaged = WorkloadSampleSchema(help_text="Workloads of kinds that the new scheduler is configured to ignore.")
    evicted = WorkloadSampleSchema(
        allow_null=True,
        help_text="Running workloads that the new scheduler is estimated to evict; null: no model.",
    )
    uncountedGpus = serializers.FloatField(help_text="GPUs of running workloads that the new quotas do not count.")


class SchedulerPlanSchema(serializers.Serializer[Any]):
    """What a switch would do: an estimate of one moment."""

    before = serializers.CharField(source="before.name")
    after = serializers.CharField(source="after.name")
    generation = serializers.IntegerField()
    askedAt = serializers.DateTimeField()
    observedAt = serializers.DateTimeField(allow_null=True)
    possible = serializers.BooleanField()
    hindered = serializers.CharField(
        source="hindrances.sentence", allow_blank=True, help_text="Reasons that prevent the change."
    )
    rights = serializers.CharField(
        allow_blank=True, help_text="YAML with the permissions for both schedulers, if permissions are missing."
    )
    uncompared = serializers.ListField(
        child=serializers.CharField(), help_text="Kinds that cannot be listed; their objects count as new."
    )
    warnings = serializers.ListField(source="hindrances.warnings", child=serializers.CharField())
    conflicts = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.IntegerField()
    kinds = KindPlanSchema(many=True)
    guarantees = GuaranteeChangeSchema(many=True)
    work = SwitchEffectSchema()


class ForecastReasonSchema(serializers.Serializer[Any]):
    """How many forecasts of a week came out so, and why."""

    result = serializers.CharField(help_text="held, overtaken, doubted, unexplained or not_judged.")
    reason = serializers.CharField(allow_blank=True, help_text="Machine-readable code.")
    count = serializers.IntegerField()


class ForecastWeekSchema(serializers.Serializer[Any]):
    """Forecasts of one week and scheduler."""

    week = serializers.DateField(help_text="Its Monday, UTC.")
    scheduler = serializers.CharField(source="flavour")
    judged = serializers.IntegerField()
    held = serializers.IntegerField()
    heldPercent = serializers.FloatField(source="share", allow_null=True, help_text="Of the judged; null: none was.")
    notJudged = serializers.IntegerField()
    sentence = serializers.CharField()
    results = ForecastReasonSchema(many=True)


class MissedForecastSchema(serializers.Serializer[Any]):
    """A forecast that did not hold. Ids are null and names general for what is not the caller's to see."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    dataAgeSeconds = serializers.FloatField(source="data_age", allow_null=True)
    scheduler = serializers.CharField(source="flavour")
    verdict = serializers.CharField()
    forecast = serializers.CharField()
    outcome = serializers.CharField(source="happened")
    result = serializers.CharField()
    reason = serializers.CharField(source="why", allow_blank=True, help_text="Machine-readable code.")
    explanation = serializers.CharField(source="reason")
    workloadId = serializers.UUIDField(allow_null=True)
    workloadName = serializers.CharField(source="name")
    overtakenById = serializers.UUIDField(allow_null=True)


class StartCalibrationSchema(serializers.Serializer[Any]):
    """How the first start estimate of each wait came out. A calibrated one has 50 and 90 percent."""

    judged = serializers.IntegerField()
    startedByMedianPercent = serializers.FloatField(allow_null=True)
    startedByP90Percent = serializers.FloatField(allow_null=True)
    notJudged = serializers.IntegerField(help_text="Stopped or changed before the start, or not observed.")
    sentence = serializers.CharField(allow_blank=True)


class ForecastAccuracySchema(ListSchema):
    """How many forecasts held, by week, and a page of those that did not."""

    sentence = serializers.CharField(allow_blank=True, help_text="Of all these weeks; empty: none was judged.")
    startEstimates = StartCalibrationSchema(help_text="Start estimates of these weeks.")
    weeks = ForecastWeekSchema(many=True)
    missed = MissedForecastSchema(many=True)
