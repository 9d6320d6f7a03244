"""Waiting workloads whose preemptibility follows the threshold turn with the value of their priority."""

from datetime import timedelta
from typing import Final

from django.db.models import F
from django.utils import timezone

from workloads.drafts import Draft
from workloads.enqueue import wake_apply
from workloads.models import EventType, Workload
from workloads.services.moves import note
from workloads.services.plan_effects import flipping

AFTER_SYNC: Final = timedelta(seconds=15)


def flip_waiting(before: Draft, after: Draft) -> int:
    """Turn them, and have their pods made anew once the clusters hold the new value; answers how many.

    Running workloads keep what they have: their pods carry the old integer and their people the old promise.
    """
    now, turned = timezone.now(), 0
    for workload, follows in flipping(before, after):
        level = after.entries[workload.priority.name].level
        standing = Workload.objects.filter(pk=workload.pk, generation=workload.generation, running_pods=0)
        turned += standing.update(
            preemptibility=follows,
            priority_value=level.value,
            generation=F("generation") + 1,
            due_at=now + AFTER_SYNC,
            updated_at=now,
        )
        message = f"{level.name} is now {level.value}: waiting, it became {follows}."
        note(workload=workload, at=now, type_=EventType.ACTION, reason="PreemptibilityChanged", message=message)
        wake_apply(workload.project.cluster_id)
    return turned
