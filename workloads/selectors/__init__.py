"""Reads for pages, the API and the command line. Nothing here writes; every list takes a constant number of queries."""

from workloads.selectors.dictionary import dictionary_rows, sync_state_of_priorities, type_rows, workload_types
from workloads.selectors.history import containers_of, events_of, logs, pods_of, timeline
from workloads.selectors.listing import visible_workloads, workload_or_404
from workloads.selectors.places import Place, told_place
from workloads.selectors.stories import preemption_story, stories_of
from workloads.selectors.waiting import Headline, queue_position, why_waiting

__all__ = [
    "Headline",
    "Place",
    "containers_of",
    "dictionary_rows",
    "events_of",
    "logs",
    "pods_of",
    "preemption_story",
    "queue_position",
    "stories_of",
    "sync_state_of_priorities",
    "timeline",
    "told_place",
    "type_rows",
    "visible_workloads",
    "why_waiting",
    "workload_or_404",
    "workload_types",
]
