"""Waiting workloads whose preemptibility follows the threshold turn with the value of their priority."""

from datetime import timedelta
from typing import Final

from django.db.models import F
from django.utils import timezone

from workloads.drafts import Draft
from workloads.enqueue import wake_apply
from workloads.models import EventType, Workload
from workloads.services.locking import lock
from workloads.services.moves import note
from workloads.services.plan_effects import flip_of, flipping

AFTER_SYNC: Final = timedelta(seconds=15)


def flip_waiting(before: Draft, after: Draft) -> int:
    """Turn them, and have their pods made anew once the clusters hold the new value; answers how many.

    Running workloads keep what they have: their pods carry the old integer and their people the old promise.
    """
    now, turned = timezone.now(), 0
    for workload, _foreseen in flipping(before, after):
        lock(workload)
        follows = flip_of(workload, before, after)
        if follows is None:  # it runs, has ended or got another priority meanwhile
            continue
        level = after.entries[workload.priority.name].level
        turned += Workload.objects.filter(pk=workload.pk).update(
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
