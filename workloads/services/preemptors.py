"""Who gained by an eviction, from what the scheduler said: the uid of a pod or of a gang's group, or namespace and name
of a workload's object.

A uid means something only once whoever has it was seen; until then it is kept, and the name follows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours import flavour_for
from clusters.models import Cluster, ObservedObject, ObservedPod
from workloads.models import Workload
from workloads.owners import workload_id
from workloads.queues import object_name

UID: Final = "uid:"


@dataclass(frozen=True, slots=True)
class Taker:
    """Who gained: a workload; or the name of something that is none of ours; or a uid that nobody knows yet."""

    workload: Workload | None = None
    name: str = ""
    uid: str = ""

    @property
    def is_known(self) -> bool:
        """There is something to show."""
        return self.workload is not None or bool(self.name)

    def fields(self) -> dict[str, Any]:
        """As a record keeps it, also once workload and pod are gone."""
        if self.workload is None:
            return {"preemptor_name": self.name[:253], "preemptor_uid": self.uid[:64]}
        return {
            "preemptor": self.workload,
            "preemptor_uid": self.uid[:64],
            "preemptor_name": self.workload.name,
            "preemptor_priority": self.workload.priority.name,
            "preemptor_value": self.workload.priority_value,
            "preemptor_project": self.workload.project.name,
        }


def taker_of(cluster: Cluster, said: str) -> Taker:
    """Behind `uid:<uid of a pod or a group>`, or `<namespace>/<name>` of a pod or a workload's object.

    Empty when nothing was said.
    """
    if not said:
        return Taker()
    pods = ObservedPod.objects.filter(cluster=cluster)
    if said.startswith(UID):
        uid = said.removeprefix(UID)
        return _by_pod(pods.filter(uid=uid).first(), uid) or _by_object_of(cluster, uid)
    namespace, _, name = said.partition("/")
    pod = pods.filter(namespace=namespace, name=name).exclude(owner_id="").order_by("-created_at").first()
    workload = _workload(pod.owner_id) if pod else None
    return Taker(workload or _by_object(cluster, namespace, name), said)


def objects_among(cluster: Cluster, uids: Iterable[str]) -> set[str]:
    """Which of the uids are those of our workloads' objects: a gang's group, a queued job."""
    if not flavour_for(cluster.flavour).traits.names_objects:
        return set()
    rows = ObservedObject.objects.filter(cluster=cluster, uid__in=list(uids)).exclude(owner_id="")
    return set(rows.values_list("uid", flat=True))


def _by_object_of(cluster: Cluster, uid: str) -> Taker:
    rows = ObservedObject.objects.filter(cluster=cluster, uid=uid).exclude(owner_id="")
    found = rows.first() if flavour_for(cluster.flavour).traits.names_objects else None
    if found is None:
        return Taker(uid=uid)
    return Taker(_workload(found.owner_id), f"{found.namespace}/{found.name}", uid)


def _by_pod(pod: ObservedPod | None, uid: str) -> Taker | None:
    if pod is None:
        return None
    return Taker(_workload(pod.owner_id), f"{pod.namespace}/{pod.name}", uid)


def _workload(owner_id: str | None) -> Workload | None:
    key = workload_id(owner_id or "")
    return Workload.objects.select_related("project", "priority").filter(pk=key).first() if key else None


def _by_object(cluster: Cluster, namespace: str, name: str) -> Workload | None:
    """An object's name is the workload's, cut, with the first eight digits of its id."""
    stem = name.rpartition("-")[0]
    rows = Workload.objects.filter(project__cluster=cluster, project__namespace=namespace, name__startswith=stem)
    candidates = rows.select_related("project", "priority").order_by("-created_at")[:100]
    return next((each for each in candidates if object_name(each) == name), None)
