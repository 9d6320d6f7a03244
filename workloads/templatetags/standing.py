"""How long a workload has waited and run, up to this second; and what an alternative fills in."""

import json

from django import template

from workloads.forecasts import Alternative
from workloads.selectors.life import ran_seconds, waited_seconds

register = template.Library()

register.filter("waited", waited_seconds)
register.filter("ran", ran_seconds)


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
