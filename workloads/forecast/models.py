"""Forecasts and start estimates that were shown, what became of them, and how many held."""

from django.db import models

from clusters.inventory.models import Cluster
from tenants.organisation.models import Project


class ForecastResult(models.TextChoices):
    """What became of a forecast. Not judged: nothing can be said about it, so it counts neither way."""

    HELD = "held"
    OVERTAKEN = "overtaken"
    DOUBTED = "doubted"
    UNEXPLAINED = "unexplained"
    NOT_JUDGED = "not_judged"


class StoredForecast(models.Model):
    """A forecast that was shown. It is dropped after minutes unless the same subject submits what it was about."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="forecasts")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    subject = models.CharField(max_length=90, help_text="Kind and id of the actor.")
    fingerprint = models.CharField(max_length=64, help_text="Of the request without its name, and what it resolved to.")
    at = models.DateTimeField()
    data_at = models.DateTimeField(null=True, help_text="When the cluster had been observed; null: never.")
    flavour = models.CharField(max_length=40)
    pool_name = models.CharField(max_length=63)
    verdict = models.CharField(max_length=10)
    starts = models.BooleanField(help_text="It was to start, at once or after evictions.")
    victims = models.JSONField(default=list, help_text="Workload ids, and uids of other pods as pod:UID.")
    doubts = models.JSONField(default=list, help_text="Codes, see DoubtCode.")
    digests = models.JSONField(default=dict, help_text="Of nodes and quotas, as the snapshot had them.")
    input = models.BinaryField(null=True, help_text="The question to the model: JSON of a Scenario, compressed.")
    workload = models.OneToOneField(
        "workloads.Workload", on_delete=models.CASCADE, null=True, blank=True, related_name="forecast"
    )
    changed = models.JSONField(default=dict, help_text="What was first seen to differ from the snapshot, and when.")
    result = models.CharField(max_length=12, choices=ForecastResult.choices, blank=True)
    why = models.CharField(max_length=24, blank=True, help_text="Doubt, what overtook it, or why it is not judged.")
    started_at = models.DateTimeField(null=True, blank=True, help_text="When it started within the horizon.")
    evicted = models.JSONField(default=list, help_text="As victims: who was evicted for it within the horizon.")
    evicted_pods = models.JSONField(default=list, help_text="Uids.")
    overtaken_by = models.ForeignKey(
        "workloads.Workload", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    judged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["cluster", "-at", "-id"], name="workloads_forecast_newest"),
            models.Index(fields=["at"], name="workloads_forecast_open", condition=models.Q(result="")),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} {self.at:%Y-%m-%d %H:%M}"


class ForecastQuestion(models.TextChoices):
    """What was asked: what a submission would do, or when a waiting workload starts."""

    VERDICT = "verdict"
    START = "start"


class StartResult(models.TextChoices):
    """When it started: by the median, between that and the p90, or later. Not judged: it was stopped or changed."""

    BY_MEDIAN = "by_median"
    BY_P90 = "by_p90"
    LATE = "late"
    NOT_JUDGED = "not_judged"


class StoredStartEstimate(models.Model):
    """The first start estimate that was shown in one wait of a workload; later ones of the same wait are not stored."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="start_estimates")
    workload = models.ForeignKey("workloads.Workload", on_delete=models.CASCADE, related_name="start_estimates")
    waits_since = models.DateTimeField()
    at = models.DateTimeField()
    flavour = models.CharField(max_length=40)
    median_at = models.DateTimeField()
    p90_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    result = models.CharField(max_length=12, choices=StartResult.choices, blank=True)
    judged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["at"], name="workloads_estimate_open", condition=models.Q(result=""))]
        constraints = [
            models.UniqueConstraint(fields=["workload", "waits_since"], name="workloads_estimate_once_a_wait")
        ]

    def __str__(self) -> str:
        return f"{self.median_at:%Y-%m-%d %H:%M}"


class ComputedStarts(models.Model):
    """Start estimates of what waits in a node pool, computed by a worker because they take longer than a page may."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="computed_starts")
    pool_name = models.CharField(max_length=63)
    requested_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True, blank=True, help_text="A worker computes them.")
    computed_at = models.DateTimeField(null=True, blank=True, help_text="When that began; null: not yet.")
    data_at = models.DateTimeField(null=True, blank=True, help_text="When the cluster had been observed.")
    starts = models.JSONField(default=dict, help_text="Workload id to generation, median, p90, code and why.")
    basis = models.JSONField(default=dict, help_text="EstimateBasis.as_json().")

    class Meta:
        verbose_name_plural = "computed starts"
        constraints = [models.UniqueConstraint(fields=["cluster", "pool_name"], name="workloads_starts_once_a_pool")]

    def __str__(self) -> str:
        return f"{self.pool_name} {self.requested_at:%Y-%m-%d %H:%M}"

    @property
    def is_due(self) -> bool:
        """Was it asked for since it was computed?"""
        return self.computed_at is None or self.computed_at < self.requested_at


class ForecastCount(models.Model):
    """How many forecasts of one week came out so. Kept when the forecasts themselves are dropped."""

    question = models.CharField(
        max_length=8, choices=ForecastQuestion.choices, default=ForecastQuestion.VERDICT, db_default="verdict"
    )

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="forecast_counts")
    flavour = models.CharField(max_length=40)
    week = models.DateField(help_text="Its Monday, UTC.")
    result = models.CharField(max_length=12, help_text="ForecastResult, of start estimates StartResult.")
    why = models.CharField(max_length=24, blank=True)
    count = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "question", "flavour", "week", "result", "why"],
                name="workloads_forecast_count_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.week} {self.result} {self.count}"
