"""Lets time pass in the demo: everything that has happened so far is moved into the past by the same span."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import models, transaction
from django.db.models import F

from clusters.sandbox.models import SandboxObject
from clusters.watch.models import ClusterEvent, ObservedPod
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload, WorkloadEvent

# Only rows of the demo's own story. The audit trail is never touched: it says when the demo was loaded.
MOMENTS: Final[Mapping[type[models.Model], tuple[str, ...]]] = {
    ObservedPod: ("created_at", "started_at", "deletion_at", "ended_at", "disrupted_at", "gone_at"),
    ClusterEvent: ("at",),
    Workload: ("phase_at", "created_at", "started_at", "completed_at", "deleted_at", "due_at"),
    WorkloadEvent: ("at",),
    PreemptionRecord: ("at", "gone_at", "checkpoint_at"),
}
_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")


@transaction.atomic
def pass_time(span: timedelta) -> None:
    """Move the whole story back by `span`."""
    for model, fields in MOMENTS.items():
        model._default_manager.update(**{field: F(field) - span for field in fields})
    objects = list(SandboxObject.objects.all())
    for each in objects:
        each.manifest = moved(each.manifest, span)
    SandboxObject.objects.bulk_update(objects, ["manifest"], batch_size=200)


def moved(value: Any, span: timedelta) -> Any:
    """The same JSON with every timestamp `span` earlier."""
    match value:
        case dict():
            return {key: moved(inner, span) for key, inner in value.items()}
        case list():
            return [moved(inner, span) for inner in value]
        case str() if _STAMP.match(value):
            earlier = datetime.fromisoformat(value).astimezone(UTC) - span
            return earlier.isoformat(timespec="microseconds" if "." in value else "seconds").replace("+00:00", "Z")
        case _:
            return value
