"""How long a workload has waited and run, up to this second; and what an alternative fills in."""

import json
from datetime import datetime

from django import template
from django.utils import timezone

from workloads.forecasts import Alternative
from workloads.lifecycle import HOLDING, WAITING
from workloads.models import Workload

register = template.Library()


@register.filter
def waited(workload: Workload) -> float:
    """Seconds without its pods since it was submitted, all waits together."""
    return workload.pending_seconds + (_since(workload.phase_at) if workload.phase in WAITING else 0)


@register.filter
def ran(workload: Workload) -> float:
    """Seconds with its pods, all runs together."""
    return workload.running_seconds + (_since(workload.phase_at) if workload.phase in HOLDING else 0)


def _since(moment: datetime) -> float:
    return max((timezone.now() - moment).total_seconds(), 0)


@register.filter
def fill(alternative: Alternative) -> str:
    """What a button puts into the form, as JSON."""
    gpus = alternative.gpus_per_pod
    values = {
        "priority": alternative.priority,
        "preemptibility": alternative.preemptibility,
        "gpus": str(gpus) if gpus else "",
        "node_pool": alternative.pool,
    }
    return json.dumps({name: value for name, value in values.items() if value})
