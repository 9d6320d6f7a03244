"""Volcano: one Queue per department and project in each node pool, a HyperNode per domain; preemptibility: annotation.

Sources: Volcano 1.15 (`scheduling.volcano.sh/v1beta1`) and its capacity plugin. What it says is read by
`clusters.flavours.volcano_reading`; what a cluster's own configuration switches off is told by `volcano_conf`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clusters.durations import minutes_text
from clusters.flavours import common, volcano_reading
from clusters.flavours.rendering import render_job
from clusters.flavours.volcano_conf import (
    CONF,
    cautions_of,
    domain_cautions_of,
    facts_of,
    ignores_domains,
    leaves_out,
    warnings_of,
)
from clusters.flavours.volcano_domains import asked_level, hyper_nodes, network_topology
from clusters.flavours.volcano_promises import PROMISES, RIGID, promises_of
from clusters.kinds import kind_for, starting_together
from clusters.kinds_core import NAMESPACE, PRIORITY_CLASS, VOLCANO_HYPER_NODE, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from clusters.ownership import owned
from clusters.ports import Configuration, DesiredState, JobSpec, Kind, Manifest, Promise, QueueSpec, Reading, Traits
from scheduling.priority import Preemptibility
from scheduling.resources import MILLI, Limit, decimal_text

SCHEDULER: Final = "volcano"
QUEUE: Final = "scheduling.volcano.sh/queue-name"
PREEMPTABLE: Final = "volcano.sh/preemptable"
MIN_RUNTIME: Final = "volcano.sh/cooldown-time"  # for the plugin cdp
GROUP: Final = "scheduling.k8s.io/group-name"
GPU: Final = "nvidia.com/gpu"
WEIGHTS: Final = range(1, 65536)
# More than any cluster has. A department's is as much as a thousand projects' together, since Volcano compares sums.
UNLIMITED: Final = {"nvidia.com/gpu": "1M", "cpu": "1M", "memory": "1P"}
UNLIMITED_ABOVE: Final = {"nvidia.com/gpu": "1G", "cpu": "1G", "memory": "1E"}


class Volcano:
    """Volcano's dialect."""

    name: str = "volcano"
    title: str = "Volcano"
    preemptibilities: tuple[str, ...] = ("preemptible", "non-preemptible")
    traits: Traits = Traits(
        installed=VOLCANO_QUEUE,
        simulated=True,
        queues_by_pool=True,
        minimum="any",
        beside=(VOLCANO_POD_GROUP,),
        tells={VOLCANO_POD_GROUP: volcano_reading.tell},
        configuration=Configuration(
            CONF,
            "whether the scheduler preempts, reclaims and keeps to domains",
            facts_of=facts_of,
            warnings_of=warnings_of,
            leaves_out=leaves_out,
            cautions_of=cautions_of,
            promises_of=promises_of,
            ignores_domains=ignores_domains,
            domain_cautions_of=domain_cautions_of,
        ),
        topologies=VOLCANO_HYPER_NODE,
        names_domains=True,
        rigid=RIGID,
        spares_young="pods",
    )

    def kinds(self) -> Sequence[Kind]:
        """Kinds that reconcile lists and owns."""
        return (PRIORITY_CLASS, NAMESPACE, VOLCANO_QUEUE, VOLCANO_HYPER_NODE)

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """PriorityClasses, namespaces, a HyperNode per domain, a Queue per department and project in each pool."""
        yield from common.shared_objects(state)
        yield from hyper_nodes(state.pools)
        yield from map(queue_manifest, state.departments)
        for project in state.projects:
            yield from map(queue_manifest, project.queues)

    def queue_name(self, owner: str, pool: str) -> str:
        """Deterministic name of a Queue."""
        return common.queue_name(owner, pool)

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's object with scheduler, queue and preemptibility at every pod template; a gang's group first.

        A min guaranteed runtime is written whether the scheduler asks for it by now or not: pods keep what they were
        made with. Where no group is written, Volcano's own controller makes one of a single member for the pods.
        """
        may_be_evicted = job.preemptibility != Preemptibility.NON_PREEMPTIBLE
        marks = {QUEUE: job.queue, PREEMPTABLE: str(may_be_evicted).lower()}
        young = {MIN_RUNTIME: minutes_text(job.min_runtime_minutes)} if job.min_runtime_minutes else {}
        manifests = render_job(job, labels={}, annotations={**marks, **young}, scheduler=SCHEDULER)
        if manifests and job.min_member > 1 and _join(manifests[0], job):
            return [_pod_group(job, {PREEMPTABLE: marks[PREEMPTABLE]}), *manifests]
        return manifests

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> Reading:
        """Preempted or reclaimed (Volcano names nobody who gains), or why it or its group waits."""
        return volcano_reading.interpret(pod, events)

    def semantics(self) -> Sequence[Promise]:
        """What Volcano keeps of Rung's promises."""
        return PROMISES

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """Nothing: priority and preemptibility are two things to Volcano."""
        return ()


def queue_manifest(spec: QueueSpec) -> Manifest:
    """A scheduling.volcano.sh/v1beta1 Queue, as Volcano's own admission takes it.

    A resource that `capability` leaves out counts as zero wherever it is compared with `deserved` or with the parent's:
    it names every resource, and a project without any limit has none at all. `deserved` names GPUs, and CPU and memory
    only where they are counted: a queue may take from others as long as it is within its deserved in one resource, so
    that an unlimited one would let it take GPUs for ever.
    """
    unlimited, limit = UNLIMITED if spec.parent else UNLIMITED_ABOVE, amounts(spec.limit)
    body: dict[str, Any] = {
        "weight": min(max(spec.over_quota_weight, WEIGHTS[0]), WEIGHTS[-1]),
        "priority": common.RANK_TO_PRIORITY[spec.rank],
        "reclaimable": True,
        "deserved": {GPU: limit.get(GPU, unlimited[GPU]), **amounts(spec.deserved)},
        "capability": {**unlimited, **limit} if limit or not spec.parent else {},
    }
    if spec.parent:
        body["parent"] = spec.parent
    labels = {common.POOL: spec.pool.name}
    metadata = owned(spec.name, owner=spec.owner, generation=spec.generation, labels=labels)
    return {"apiVersion": VOLCANO_QUEUE.api_version, "kind": VOLCANO_QUEUE.kind, "metadata": metadata, "spec": body}


def amounts(limit: Limit) -> dict[str, str]:
    """A resource list; what is unlimited has no key. Volcano takes whole GPUs only: a part of one is left out."""
    texts = {
        "nvidia.com/gpu": None if limit.gpu is None else str(limit.gpu // MILLI),
        "cpu": None if limit.cpu is None else decimal_text(limit.cpu),
        "memory": None if limit.memory is None else str(limit.memory),
    }
    return {name: text for name, text in texts.items() if text is not None}


def _join(body: Manifest, job: JobSpec) -> bool:
    """Name the group at every pod template that starts with the gang; False: the object has none to write it in."""
    kind = kind_for(str(body["apiVersion"]), str(body["kind"]))
    parts = starting_together(body, kind) if kind else []
    for each in parts:
        part: Any = each.part
        part["metadata"]["annotations"] |= {GROUP: job.name, **_level(job)}
    return bool(parts)


def _pod_group(job: JobSpec, annotations: Mapping[str, str]) -> Manifest:
    """A scheduling.volcano.sh/v1beta1 PodGroup: so many pods start together, in one domain where it was asked for."""
    metadata = owned(
        job.name,
        owner=f"workload.{job.id}",
        generation=job.generation,
        namespace=job.namespace,
        annotations={**annotations, **_level(job)},
    )
    spec = {"minMember": job.min_member, "queue": job.queue, "priorityClassName": job.priority_class}
    spec |= network_topology(job)
    kind = VOLCANO_POD_GROUP
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _level(job: JobSpec) -> dict[str, str]:
    """At the group and its pods: that they wait for a domain is told from it."""
    level = asked_level(job)
    return {common.TOPOLOGY_KEY: level} if level else {}
