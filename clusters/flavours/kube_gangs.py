"""kube-scheduler with gangs: all that plain kube is, and a Workload with its PodGroup beside whatever has several pods.

Sources: Kubernetes 1.36 (`scheduling.k8s.io/v1alpha2`, an alpha that a cluster serves only where it was switched on),
and what its scheduler was seen to write. Specs of both kinds never change: a change is made by deleting and creating.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from clusters.flavours.common import TOPOLOGY_KEY
from clusters.flavours.kube import Kube
from clusters.flavours.kube_promises import PROMISES as KUBE_PROMISES
from clusters.kinds import kind_for, starting_together
from clusters.kinds_core import GANG_POD_GROUP, GANG_WORKLOAD
from clusters.ownership import owned
from clusters.ports import FOR_OTHERS, JobSpec, Kind, Manifest, Promise, Reading, Traits

TEMPLATE: Final = "pods"  # name of the one pod group template of a Workload
WAITS_FOR_OTHERS: Final = "waiting for minCount pods from a gang"
RIGID: Final = "It asks for one topology domain: this scheduler evicts nobody for such a gang, whatever its priority."
BY_GROUP: Final = "podgroup"  # in the scheduler's words: whoever gains is a gang


class KubeGangs(Kube):
    """The kube-scheduler's dialect, its gangs included."""

    name: str = "kube-gangs"
    title: str = "kube-scheduler with gangs"
    traits: Traits = Traits(
        installed=GANG_WORKLOAD,
        suggested=False,
        simulated=True,
        whole_gangs=True,
        minimum="any",
        beside=(GANG_WORKLOAD, GANG_POD_GROUP),
        rigid=RIGID,
    )

    def render(self, job: JobSpec) -> list[Manifest]:
        """As plain kube; for a gang its Workload and its PodGroup first, and the group named at every pod template."""
        manifests = super().render(job)
        if job.min_member > 1 and manifests and _join(manifests[0], job):
            return [_workload(job), _pod_group(job), *manifests]
        return manifests

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> Reading:
        """As plain kube; a pod that waits only for the rest of its gang, and whether it was evicted for a gang."""
        found = super().interpret(pod, events)
        if found.cause:
            return replace(found, whole=BY_GROUP in found.message)
        return replace(found, reason=FOR_OTHERS) if WAITS_FOR_OTHERS in found.message else found

    def semantics(self) -> Sequence[Promise]:
        """What kube-scheduler keeps of Rung's promises where it knows gangs."""
        return PROMISES


def _join(body: Manifest, job: JobSpec) -> bool:
    """Name the group at every pod template that starts with the gang; False: the object has none to write it in."""
    kind = kind_for(str(body["apiVersion"]), str(body["kind"]))
    parts = starting_together(body, kind) if kind else []
    for each in parts:
        spec: dict[str, Any] = each.part["spec"]
        spec["schedulingGroup"] = {"podGroupName": job.name}
    return bool(parts)


def _workload(job: JobSpec) -> Manifest:
    """The gang as a template."""
    return _object(GANG_WORKLOAD, job, {"podGroupTemplates": [{"name": TEMPLATE, **_terms(job)}]})


def _pod_group(job: JobSpec) -> Manifest:
    """The gang itself, on the same terms."""
    origin = {"workload": {"workloadName": job.name, "podGroupTemplateName": TEMPLATE}}
    return _object(GANG_POD_GROUP, job, {"podGroupTemplateRef": origin, **_terms(job)})


def _terms(job: JobSpec) -> dict[str, Any]:
    """How many start together, where, with which priority, and that it is evicted whole or not at all."""
    key = ((job.manifest.get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_KEY)
    return {
        "schedulingPolicy": {"gang": {"minCount": job.min_member}},
        **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
        "priorityClassName": job.priority_class,
        "disruptionMode": "PodGroup",
    }


def _object(kind: Kind, job: JobSpec, spec: Mapping[str, Any]) -> Manifest:
    metadata = owned(job.name, owner=f"workload.{job.id}", generation=job.generation, namespace=job.namespace)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)}


_OWN: Final = {
    promise.code: promise
    for promise in (
        Promise(
            "priority_inside_project",
            "Priority acts only inside the project",
            "no",
            "A higher priority evicts lower ones on the whole cluster, in any namespace. A gang looks at all nodes "
            "together: every weaker pod and gang is taken away in thought, then given back from the strongest on as "
            "long as it still fits. While its first victims end it may look again and evict more than it needed.",
            "Give entries that should evict nobody the preemption policy Never, or choose a flavour with queues.",
        ),
        Promise(
            "gang",
            "A distributed job starts whole or not at all",
            "yes",
            "Its pods share a PodGroup: its minimum starts at once or waits as a whole, and a stronger gang evicts it "
            "as a whole. Two surprises: a single pod of a higher priority breaks a running gang, since it takes one "
            "pod out of it as the plain kube-scheduler does; and a gang that asks for one topology domain never evicts "
            "anybody. "
            "Operators whose resource definition does not know schedulingGroup drop it: their pods start one by one.",
            "Give single pods lower priorities than the gangs that they must not break.",
        ),
        Promise(
            "topology",
            "A gang keeps to one domain of close nodes",
            "yes",
            "All pods of a PodGroup that asks for a node label run on nodes with one value of it, or the gang waits. "
            "Such a gang never evicts anybody, whatever its priority. Where the pool names levels, it has to be one "
            "of them.",
        ),
    )
}
PROMISES: Final = tuple(_OWN.get(promise.code, promise) for promise in KUBE_PROMISES)
