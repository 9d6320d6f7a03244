"""How long a workload has waited and run, up to this second; what an eviction costs; what an alternative fills in."""

import json

from django import template

from workloads.forecast.rules.forecast import Alternative
from workloads.forecast.rules.messages import gpu_time_text
from workloads.forecast.rules.reasons import short
from workloads.state.selectors.workloads import ran_seconds, waited_seconds

register = template.Library()

register.filter("waited", waited_seconds)
register.filter("ran", ran_seconds)
register.filter("reason", short)


@register.filter
def gpu_time(gpu_hours: float) -> str:
    """GPU-hours with their unit, small ones in minutes."""
    return gpu_time_text(gpu_hours * 3600)


@register.filter
def fill(alternative: Alternative) -> str:
    """What a button puts into the form, as JSON."""
    gpus, cpus, gib = alternative.gpus_per_pod, alternative.cpus_per_pod, alternative.gib_per_pod
    values = {
        "priority": alternative.priority,
        "preemptibility": alternative.preemptibility,
        "gpus": str(gpus) if gpus else "",
        "cpu": str(cpus) if cpus else "",
        "memory": f"{gib}Gi" if gib else "",
        "node_pool": alternative.pool,
    }
    return json.dumps({name: value for name, value in values.items() if value})
