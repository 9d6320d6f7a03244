"""What another priority does to a workload that is in its cluster already: by its kind, in words people see before."""

from collections.abc import Mapping, Sequence
from typing import Final

from clusters.flavours import flavour_for
from clusters.kinds import OnChange, kind_for
from workloads.models import Workload

WORDS: Final[Mapping[OnChange, str]] = {
    OnChange.ANEW: (
        "Running pods keep the old number, and so do pods that its controller makes for it meanwhile: the API server "
        "never changes this kind. Once none of its pods runs (evicted, or stopped and resumed) Rung makes it anew "
        "with the new number."
    ),
    OnChange.RESTART: (
        "Running pods keep the old number: writing the new one would restart all of them at once, so Rung waits until "
        "none runs. Stop and resume it for the new number now."
    ),
    OnChange.NEW_PODS: "Pods that are there keep the old number; pods created from now on get the new one.",
    OnChange.NEXT_RUN: "A run that is under way keeps the old number; the next run gets the new one.",
}


QUEUED: Final = "{title} counts the new number at once. The kube-scheduler goes by that of the pods. "


def on_change_of(workload: Workload) -> OnChange:
    """What its kind does when its pods are to be described otherwise."""
    kind = kind_for(str(workload.spec.get("api_version")), str(workload.spec.get("kind")))
    return kind.on_change if kind else OnChange.ANEW


def consequence(workload: Workload) -> str:
    """Some sentences for the page, before the priority is changed."""
    flavour, words = flavour_for(workload.project.cluster.flavour), WORDS[on_change_of(workload)]
    return QUEUED.format(title=flavour.title) + words if flavour.traits.queues_jobs else words


def cautions_of(workload: Workload) -> Sequence[str]:
    """What its cluster's scheduler will not keep for this priority and preemptibility."""
    flavour = flavour_for(workload.project.cluster.flavour)
    return flavour.cautions(value=workload.priority_value, preemptibility=workload.preemptibility)
