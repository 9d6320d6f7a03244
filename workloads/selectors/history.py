"""What happened to a workload: its pods, events, logs and timeline."""

import re
from dataclasses import dataclass
from datetime import datetime

from clusters.errors import ClusterError
from clusters.gateways import gateway_for
from clusters.kinds_core import POD
from clusters.logtext import LogText, clean_message, tail
from clusters.logturns import LogTurns
from clusters.models import ClusterEvent, ObservedPod
from clusters.ports import ObjectRef
from portal.core.actors import Actor
from tenants.models import Project
from tenants.permissions import visible_projects
from workloads.models import Workload

MOST_ENTRIES = 200
OTHERS = "another project"
MANY_READ = "Many logs are being read at this moment. This one is asked for again in a few seconds."
READERS = LogTurns()
_NAMED = re.compile(r"\b([a-z0-9][a-z0-9-]*)/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline."""

    at: datetime
    type: str
    phase: str
    reason: str
    message: str
    actor_name: str = ""


def pods_of(workload: Workload, actor: Actor | None = None) -> list[ObservedPod]:
    """Its pods, newest first, gone ones too. Names of projects that the actor may not see are left out of messages."""
    rows = ObservedPod.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
    pods = list(rows.order_by("-created_at", "name")[:MOST_ENTRIES])
    hidden = hidden_namespaces(workload, actor)
    for pod in pods:
        pod.message = quietly(clean_message(pod.message), hidden)
        pod.disruption_message = quietly(clean_message(pod.disruption_message), hidden)
    return pods


def events_of(workload: Workload, actor: Actor | None = None) -> list[ClusterEvent]:
    """What its cluster reported about its objects, newest first; names as in `pods_of`."""
    rows = ClusterEvent.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
    events = list(rows.order_by("-at", "-pk")[:MOST_ENTRIES])
    hidden = hidden_namespaces(workload, actor)
    for event in events:
        event.message = quietly(clean_message(event.message), hidden)
    return events


def hidden_namespaces(workload: Workload, actor: Actor | None) -> frozenset[str]:
    """Namespaces of the same cluster whose projects the actor may not see; without an actor all but its own."""
    others = Project.objects.filter(cluster=workload.project.cluster_id).exclude(pk=workload.project_id)
    if actor is not None:
        others = others.exclude(pk__in=visible_projects(actor))
    return frozenset(others.values_list("namespace", flat=True))


def quietly(text: str, hidden: frozenset[str]) -> str:
    """A scheduler's message without other projects' names: `<namespace>/<name>` becomes "another project"."""

    def told(match: re.Match[str]) -> str:
        return OTHERS if match[1] in hidden else match[0]

    return _NAMED.sub(told, text)


def timeline(workload: Workload) -> list[Entry]:
    """Everything that happened to it, newest first, with who did it."""
    return [
        Entry(row.at, row.type, row.phase, row.reason, row.message or row.phase or row.reason, row.actor)
        for row in workload.timeline.all()[:MOST_ENTRIES]
    ]


def containers_of(workload: Workload, pod: ObservedPod) -> list[str]:
    """The containers of one of its pods, as they were submitted; a controller may have added others."""
    roles = workload.spec.get("roles") or []
    own = [role for role in roles if role["name"] == pod.role] or roles
    return list(dict.fromkeys(name for role in own for name in role.get("containers", [])))


def logs(workload: Workload, pod: str, *, container: str = "", lines: int = 200) -> LogText:
    """The last lines of one of its pods, fit to be read. The trouble says why there are none."""
    row = ObservedPod.objects.filter(owner_id=str(workload.pk), name=pod).order_by("-created_at").first()
    if row is None:
        return LogText()
    with READERS.turn(workload.project.cluster_id) as mine:
        return _read(workload, row, container, lines) if mine else LogText(trouble=MANY_READ)


def _read(workload: Workload, row: ObservedPod, container: str, lines: int) -> LogText:
    try:
        if not container and len(several := containers_of(workload, row)) > 1:
            container = several[0]  # an API server does not choose
        ref = ObjectRef(POD, row.name, workload.project.namespace)
        # one line more than is shown tells whether there are earlier ones
        said = gateway_for(workload.project.cluster).logs(ref, container=container, tail=lines + 1)
    except ClusterError as error:
        return LogText(trouble=clean_message(error.message))
    return tail(said, most_lines=lines)
