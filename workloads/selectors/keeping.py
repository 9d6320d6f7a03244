"""Which observed pods the workloads still need: rows that are past their time but not past their use."""

from collections.abc import Sequence

from clusters.models import ObservedPod
from workloads.lifecycle import ENDED
from workloads.models import PreemptionRecord, Workload
from workloads.owners import workload_ids


def needed_pods(pods: Sequence[ObservedPod]) -> set[int]:
    """Pods of workloads that have not ended, and pods without which the record of an eviction stays incomplete."""
    alive = Workload.objects.filter(pk__in=workload_ids({pod.owner_id for pod in pods}), deleted_at=None)
    owners = {str(pk) for pk in alive.exclude(phase__in=ENDED).values_list("pk", flat=True)}
    uids = [pod.uid for pod in pods]
    unended = PreemptionRecord.objects.filter(pod_uid__in=uids, gone_at=None)
    nameless = PreemptionRecord.objects.filter(preemptor_uid__in=uids, preemptor=None, preemptor_name="")
    told = {*unended.values_list("pod_uid", flat=True), *nameless.values_list("preemptor_uid", flat=True)}
    return {pod.pk for pod in pods if pod.owner_id in owners or pod.uid in told}
