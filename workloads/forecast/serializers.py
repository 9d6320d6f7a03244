"""Forecasts as REST sends them. Beyond Run:ai."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from portal.kit.api.parsers import rfc3339
from workloads.forecast.rules.estimates import CheaperVictim, EvictionOdds, ExpectedMove, RunOdds, StartEstimate
from workloads.forecast.rules.forecast import Alternative, Forecast, ForecastVictim
from workloads.forecast.rules.messages import DoubtCode
from workloads.forecast.selectors.alternatives import PriorityForecast
from workloads.forecast.selectors.waiting import Holder, QueueRank
from workloads.intake import WorkloadSpec


class VictimSchema(serializers.Serializer[Any]):
    """Who would be evicted; `workloadId` is null and the name general for what is not the caller's to see."""

    workloadId = serializers.UUIDField(allow_null=True)
    name = serializers.CharField()
    projectName = serializers.CharField(allow_blank=True)
    priority = serializers.CharField(allow_blank=True)
    priorityValue = serializers.IntegerField()
    gpus = serializers.FloatField()
    gpuHoursAtRisk = serializers.FloatField(
        help_text="Since its last reported checkpoint; the median of comparable workloads where it reports none."
    )
    moved = serializers.BooleanField(help_text="It restarts again on other nodes, where it has its place.")


class PriorityForecastSchema(serializers.Serializer[Any]):
    """What a waiting workload would do with another priority: an estimate on the last snapshot."""

    sentence = serializers.CharField()
    victims = VictimSchema(many=True)


class AlternativeSchema(serializers.Serializer[Any]):
    """A change that would start at once; only what is to be changed is named."""

    words = serializers.CharField()
    priority = serializers.CharField(required=False)
    preemptibility = serializers.CharField(required=False)
    gpusPerPod = serializers.IntegerField(required=False)
    cpuCoresPerPod = serializers.IntegerField(required=False)
    memoryGibPerPod = serializers.IntegerField(required=False)
    nodePool = serializers.CharField(required=False)


class AlternativesSchema(serializers.Serializer[Any]):
    """What would let a waiting workload start; empty where it does not wait, or nothing that was tried lets it."""

    scheduler = serializers.CharField(help_text="Whose model tried them.")
    simulated = serializers.BooleanField(help_text="The cluster itself is simulated.")
    snapshotAgeSeconds = serializers.FloatField(allow_null=True)
    alternatives = AlternativeSchema(many=True)


class DoubtSchema(serializers.Serializer[Any]):
    """What the estimate depends on and does not know."""

    code = serializers.ChoiceField(choices=[str(each) for each in DoubtCode], help_text="Stable; new ones may come.")
    sentence = serializers.CharField()
    check = serializers.CharField(help_text="What to look at.")


class RunOddsSchema(serializers.Serializer[Any]):
    """How many of the preemptible runs of the last 7 days were evicted within 4 h of their start."""

    percent = serializers.IntegerField(allow_null=True, help_text="null: fewer than 20 runs, not enough data.")
    runs = serializers.IntegerField()
    evicted = serializers.IntegerField()
    reclaimed = serializers.IntegerField(help_text="Of those, by a queue that took its quota back.")


class EvictionOddsSchema(RunOddsSchema):
    """Of all preemptible runs in the pool, and of those whose project was over or within its quota at the start."""

    sentence = serializers.CharField()
    overQuota = RunOddsSchema()
    withinQuota = RunOddsSchema()


class CheaperVictimSchema(serializers.Serializer[Any]):
    """Another workload of the same queue and priority that would make room too, by the model, and lose less."""

    sentence = serializers.CharField(help_text="With the rule by which the scheduler chooses.")
    workloadId = serializers.UUIDField()
    name = serializers.CharField()
    gpuHours = serializers.FloatField()
    insteadOf = serializers.CharField(help_text="Name of the costliest victim of the forecast.")
    insteadGpuHours = serializers.FloatField()


class ForecastSchema(serializers.Serializer[Any]):
    """An estimate by the model of the cluster's scheduler, on a snapshot of the age that it names."""

    verdict = serializers.ChoiceField(choices=["starts", "evicts", "reclaims", "waits", "refused", "unknown"])
    sentence = serializers.CharField()
    nodePool = serializers.CharField()
    scheduler = serializers.CharField()
    simulated = serializers.BooleanField(help_text="The cluster itself is simulated.")
    snapshotAgeSeconds = serializers.FloatField(allow_null=True)
    overQuota = serializers.BooleanField(help_text="The workload starts over quota, as the sentence says.")
    reason = serializers.CharField(allow_blank=True, help_text="Machine-readable code.")
    numbers = serializers.DictField(child=serializers.CharField())
    victims = VictimSchema(many=True)
    gpuHoursAtRisk = serializers.FloatField()
    cheaperVictim = CheaperVictimSchema(allow_null=True)
    podsStarting = serializers.IntegerField(help_text="Pods that start now.")
    podsAfterEviction = serializers.IntegerField(help_text="Pods that start when evicted pods have stopped.")
    podsWaiting = serializers.IntegerField(help_text="Pods that wait independently of the others.")
    alternatives = AlternativeSchema(many=True)
    doubts = DoubtSchema(many=True)
    evictionOdds = EvictionOddsSchema(
        allow_null=True, help_text="null: its scheduler never evicts it, it never fits, or it requests no GPU."
    )
    cautions = serializers.ListField(child=serializers.CharField(), help_text="Warnings, and the sentences of doubts.")
    assurances = serializers.ListField(child=serializers.CharField())


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """`ForecastSchema`."""
    return {
        "verdict": str(forecast.verdict),
        "sentence": str(forecast.sentence),
        "nodePool": forecast.pool,
        "scheduler": str(forecast.flavour),
        "simulated": forecast.simulated,
        "snapshotAgeSeconds": _rounded(forecast.snapshot_age),
        "overQuota": forecast.over_quota,
        "reason": forecast.reason,
        "numbers": {name: str(value) for name, value in forecast.numbers.items()},
        "victims": [_victim(each) for each in forecast.victims],
        "gpuHoursAtRisk": round(forecast.gpu_hours_at_risk, 3),
        "cheaperVictim": _cheaper(forecast.cheaper),
        "podsStarting": forecast.starting,
        "podsAfterEviction": forecast.coming,
        "podsWaiting": forecast.waiting,
        "alternatives": [alternative_json(each) for each in forecast.alternatives],
        "doubts": [
            {"code": str(each.code), "sentence": each.sentence, "check": each.check} for each in forecast.doubts
        ],
        "evictionOdds": _odds(forecast.odds),
        "cautions": [str(each) for each in forecast.cautions],
        "assurances": [str(each) for each in forecast.assurances],
    }


def _cheaper(found: CheaperVictim | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "sentence": found.sentence,
        "workloadId": found.workload_id,
        "name": found.label,
        "gpuHours": round(found.gpu_hours, 3),
        "insteadOf": found.instead_of,
        "insteadGpuHours": round(found.instead_gpu_hours, 3),
    }


def _odds(odds: EvictionOdds | None) -> dict[str, Any] | None:
    if odds is None:
        return None
    parts = {"overQuota": _run_odds(odds.over), "withinQuota": _run_odds(odds.within)}
    return {"sentence": odds.sentence, **_run_odds(odds.every), **parts}


def _run_odds(odds: RunOdds) -> dict[str, int | None]:
    return {"percent": odds.percent, "runs": odds.runs, "evicted": odds.evicted, "reclaimed": odds.reclaimed}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def priority_forecast_json(found: PriorityForecast, effect: str) -> dict[str, Any]:
    """`PriorityForecastSchema`. effect: when the change takes effect."""
    return {"sentence": f"{effect} {found.sentence}", "victims": [_victim(each) for each in found.victims]}


def _victim(victim: ForecastVictim) -> dict[str, Any]:
    return {
        "workloadId": str(victim.workload.pk) if victim.workload else None,
        "name": str(victim.label),
        "projectName": victim.project,
        "priority": victim.priority,
        "priorityValue": victim.value,
        "gpus": gpus(victim.gpu_milli),
        "gpuHoursAtRisk": round(victim.gpu_hours_at_risk, 3),
        "moved": victim.moved,
    }


def alternatives_json(cluster: Cluster, found: Iterable[Alternative]) -> dict[str, Any]:
    """`AlternativesSchema`."""
    age = (timezone.now() - cluster.observed_at).total_seconds() if cluster.observed_at else None
    return {
        "scheduler": str(flavour_for(cluster.flavour).title),
        "simulated": cluster.is_simulated,
        "snapshotAgeSeconds": _rounded(age),
        "alternatives": [alternative_json(each) for each in found],
    }


def alternative_json(alternative: Alternative) -> dict[str, Any]:
    """`AlternativeSchema`."""
    changes = {
        "priority": alternative.priority,
        "preemptibility": alternative.preemptibility,
        "gpusPerPod": alternative.gpus_per_pod,
        "cpuCoresPerPod": alternative.cpus_per_pod,
        "memoryGibPerPod": alternative.gib_per_pod,
        "nodePool": alternative.pool,
    }
    return {"words": str(alternative), **{name: value for name, value in changes.items() if value not in (None, "")}}


def gpus(milli: int) -> float:
    """GPU devices from thousandths."""
    return milli / 1000


class HolderSchema(serializers.Serializer[Any]):
    """Who holds GPUs in the pool; `workloadId` and what follows are null for what is not the caller's to see."""

    name = serializers.CharField(help_text='"another project": workloads of other projects together.')
    gpus = serializers.FloatField()
    workloadId = serializers.UUIDField(allow_null=True)
    projectName = serializers.CharField(allow_null=True)
    owner = serializers.CharField(allow_null=True)
    priority = serializers.CharField(allow_null=True)
    priorityValue = serializers.IntegerField(allow_null=True)
    runningSince = serializers.DateTimeField(allow_null=True)


class QueueRankSchema(serializers.Serializer[Any]):
    """1 is next; by priority, then by age."""

    position = serializers.IntegerField()
    length = serializers.IntegerField()


class StartEstimateSchema(serializers.Serializer[Any]):
    """When it will probably start in its present node pool; without an estimate both moments are null and `reason`
    says why.
    """

    median = serializers.DateTimeField(allow_null=True, help_text="Half of the model's runs start it by then.")
    p90 = serializers.DateTimeField(allow_null=True, help_text="Nine of ten runs of the model start it by then.")
    code = serializers.CharField(
        allow_blank=True,
        help_text="Why there is none: never_fits, thin_history, beyond_horizon, next_pool, computing, …",
    )
    reason = serializers.CharField(allow_blank=True)
    basis = serializers.CharField(allow_blank=True, help_text="Where the ends of running workloads were taken from.")
    scheduler = serializers.CharField(help_text="Whose model it is.")
    simulated = serializers.BooleanField(help_text="The cluster itself is simulated.")
    snapshotAgeSeconds = serializers.FloatField(allow_null=True)
    calibration = serializers.CharField(allow_blank=True, help_text="How earlier estimates of this cluster came out.")


class NextPoolSchema(serializers.Serializer[Any]):
    """Rung moves a workload of several node pools by itself, to one where it can start by the model."""

    sentence = serializers.CharField()
    nodePool = serializers.CharField(allow_null=True, help_text="null: none of its others lets it start now.")
    inSeconds = serializers.IntegerField(allow_null=True, help_text="Until Rung tries it; 0: at its next check.")
    nodePools = serializers.ListField(child=serializers.CharField(), help_text="Its others, in order of preference.")


class WaitingSchema(serializers.Serializer[Any]):
    """A waiting workload: its places, who holds the GPUs of its pool, and when it will probably start."""

    sentence = serializers.CharField(allow_blank=True, help_text="Why it waits; empty: it does not.")
    reason = serializers.CharField(allow_blank=True)
    schedulerMessage = serializers.CharField(
        allow_blank=True,
        help_text="What the scheduler reported last, if the sentence is the model's; empty: the sentence is from it.",
    )
    schedulerMessageAt = serializers.DateTimeField(allow_null=True, help_text="Since when it has reported that.")
    nodePool = serializers.CharField(allow_blank=True)
    projectQueue = QueueRankSchema(allow_null=True, help_text="Among what waits in its project's queue of the pool.")
    poolQueue = QueueRankSchema(
        allow_null=True, help_text="Among all that waits in the pool; null: its scheduler has no such order."
    )
    holders = HolderSchema(many=True)
    startEstimate = StartEstimateSchema(allow_null=True)
    nextPool = NextPoolSchema(allow_null=True, help_text="null: it has no other node pool, or Rung leaves it there.")


def rank_json(rank: QueueRank | None) -> dict[str, int] | None:
    """`QueueRankSchema`."""
    return {"position": rank.number, "length": rank.among} if rank else None


def holder_json(holder: Holder) -> dict[str, Any]:
    """`HolderSchema`."""
    row = holder.workload
    return {
        "name": holder.label,
        "gpus": gpus(holder.gpu_milli),
        "workloadId": str(row.pk) if row else None,
        "projectName": row.project.name if row else None,
        "owner": row.submitted_by if row else None,
        "priority": row.priority.name if row else None,
        "priorityValue": row.priority_value if row else None,
        "runningSince": rfc3339(row.started_at) if row else None,
    }


def start_estimate_json(
    cluster: Cluster, found: StartEstimate, projects: Mapping[int, str], calibration: str
) -> dict[str, Any]:
    """`StartEstimateSchema`. projects: names that the reader may see."""
    return {
        "median": rfc3339(found.median),
        "p90": rfc3339(found.p90),
        "code": found.code,
        "reason": found.why,
        "basis": found.basis.text(projects),
        "scheduler": str(flavour_for(cluster.flavour).title),
        "simulated": cluster.is_simulated,
        "snapshotAgeSeconds": _rounded((found.at - found.data_at).total_seconds() if found.data_at else None),
        "calibration": calibration,
    }


def next_pool_json(move: ExpectedMove | None) -> dict[str, Any] | None:
    """`NextPoolSchema`."""
    if move is None:
        return None
    known = {"nodePool": move.pool or None, "inSeconds": move.seconds}
    return {"sentence": move.sentence, **known, "nodePools": list(move.others)}


class RequestedSchema(serializers.Serializer[Any]):
    """What all of its pods ask for together."""

    pods = serializers.IntegerField()
    gpus = serializers.FloatField()
    cpuCores = serializers.FloatField()
    memoryBytes = serializers.IntegerField()


def requested_json(spec: WorkloadSpec) -> dict[str, Any]:
    """`RequestedSchema`."""
    total = spec.total
    return {
        "pods": spec.pods,
        "gpus": gpus(total.gpu),
        "cpuCores": total.cpu / 1000,
        "memoryBytes": total.memory,
    }
