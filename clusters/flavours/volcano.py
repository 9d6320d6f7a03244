"""Volcano: a Queue per department and project in each node pool, a HyperNode per topology domain; pods and groups.
Pure.

A gang that may use tier 2 is put into one HyperNode of tier 2 or below. Three traps are known: above all HyperNodes
Volcano thinks a root, of a tier one higher than the highest, which covers the whole cluster; a member by label that
moves to another HyperNode stays in the first one too; and a HyperNode that is a member of two stops every gang that
asks for a domain. So there is always one of a tier above all levels, members are named, and a domain is named after
the values of all levels down to its own, which belong to one parent only.

Volcano writes why a group waits into its PodGroup and, in the same words, into the conditions of the group's pods:
nodes counted for the pod that it tried, a reservation for one that has its room as soon as others have ended or the
rest of the gang has room, and for the others how many of the group wait. Of a gang of one domain only that. Whether
the action enqueue has admitted it, only events of the PodGroup say.

Sources: Volcano 1.15.1 (`scheduling.volcano.sh/v1beta1`), its capacity plugin, messages as they were observed. What
a cluster's own configuration disables: `clusters.flavours.volcano_config`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from clusters.flavours import objects as flavours_objects
from clusters.flavours import pod_status, volcano_config
from clusters.flavours.objects import MOST_LEVELS, POOL, TOPOLOGY_KEY, go_duration
from clusters.flavours.rendering import render_job
from clusters.flavours.volcano_guarantees import GUARANTEES, TOPOLOGY_DRAWBACK, guarantees_of
from clusters.ports.flavour import (
    GANG_INCOMPLETE,
    WAITS_FOR_VICTIMS,
    DesiredState,
    Guarantee,
    JobSpec,
    PodStatusReason,
    PoolSpec,
    QueueSpec,
    SchedulerConfiguration,
    Traits,
)
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import (
    NAMESPACE,
    OWNER,
    PRIORITY_CLASS,
    VOLCANO_HYPER_NODE,
    VOLCANO_POD_GROUP,
    VOLCANO_QUEUE,
    owned,
)
from clusters.ports.pod_templates import gang_templates
from clusters.ports.workload_kinds import kind_for
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import MILLI, Limit, decimal_text

EVICTED: Final = re.compile(r"^(?:Pod is evicted, because of )?(?P<action>preempt|reclaim)\b")
CAUSES: Final = {"preempt": "Preempted", "reclaim": "Reclaimed"}
UNSCHEDULABLE: Final = "Unschedulable"
INSUFFICIENT: Final = "queue resource quota insufficient"
OVER_LIMIT: Final = "OverLimit"
PROMISED: Final = re.compile(r"^Pod \S+ can possibly be assigned to \S+, once (?P<what>resource is released)?")
NOT_READY: Final = re.compile(
    r"^pod group is not ready, [^;]*; Pending: \d+ Unschedulable(?P<tried>\. Origin reason is )?"
)
TASKS: Final = re.compile(r"^\d{1,9}/(?P<tasks>\d{1,9}) tasks in gang unschedulable: ")
TOO_FEW: Final = "NotEnoughTasks"
PENDING: Final = "Pending"
WAITING: Final = frozenset({PENDING, "Inqueue", "Unknown"})
SCHEDULED: Final = "Scheduled"
LAST: Final = "lastTransitionTime"
SOURCE: Final = "volcano"
PHASE_WORDS: Final = {
    PENDING: "Volcano holds it in the queue: its action enqueue found no free resources and does not evict.",
    "Inqueue": "Volcano admitted it. It starts when its minimum of pods fits.",
    "Running": "Its minimum of pods fits.",
    "Unknown": "Fewer pods run than its minimum.",
    "Completed": "All pods completed.",
}
"""What a phase of a group means."""
NOT_THERE: Final = "Some of its pods do not exist yet."
NOT_TRIED: Final = "Volcano did not try to place it: its queue, or a parent queue, is at its limit."
NO_DOMAIN: Final = "NoDomain"
NOT_NEAR: Final = "No single {level} fits its minimum of pods, or its queue is at its limit."


def interpret(pod: Manifest, events: Sequence[Manifest]) -> PodStatusReason:
    """Evicted and how, held outside, or why it waits.

    It waits for victims only while its message says so, because Volcano never clears `nominatedNodeName`.
    """
    for text in _disruptions(pod, events):
        if match := EVICTED.search(text):
            return PodStatusReason(CAUSES[match["action"]], text, cause=match["action"])
    for text in pod_status.messages(events, pod_status.QUEUED):
        return PodStatusReason(OVER_LIMIT if INSUFFICIENT in text else pod_status.QUEUED, text)
    waiting = pod_status.waiting_reason(pod)
    if waiting.reason not in {"", UNSCHEDULABLE, WAITS_FOR_VICTIMS}:
        return waiting
    at_limit = next(_at_limit(events), None)
    return at_limit or (_in_our_words(waiting.message, _level_of(pod)) if waiting.reason else waiting)


def pod_group_events(group: Manifest) -> Iterator[Manifest]:
    """What a PodGroup says, as events: whether it is let in, and while it waits for room, what it lacks.

    A condition that is over stays as it was beside its successor: only the phase shows which one holds.
    """
    about, phase = _about(group), str((group.get("status") or {}).get("phase", ""))
    if about is None or phase not in PHASE_WORDS:
        return
    waits = pod_status.condition(group, UNSCHEDULABLE, status="True") or {}
    message, since = str(waits.get("message", "")), waits.get(LAST)
    reason = pod_status.QUEUED if phase == PENDING else pod_status.ADMITTED
    words = f"{PHASE_WORDS[phase]} Message: {message}" if message and phase == PENDING else PHASE_WORDS[phase]
    at = since if phase in WAITING else (pod_status.condition(group, SCHEDULED, status="True") or {}).get(LAST)
    yield pod_status.event_of(group, about, "queue", source=SOURCE, reason=reason, message=words, at=at)
    if message and phase in WAITING - {PENDING}:
        found = _of_group(waits, _level_of(group))
        yield pod_status.event_of(
            group, about, "waits", source=SOURCE, reason=found.reason, message=found.message, at=since
        )


def _about(group: Manifest) -> Mapping[str, Any] | None:
    """The owner of the pods that it groups; itself where it belongs to a workload of Rung's; None: unknown."""
    metadata = group["metadata"]
    if (owner := pod_status.controller_of(group)) or OWNER not in (metadata.get("labels") or {}):
        return owner
    return {"kind": VOLCANO_POD_GROUP.kind, "name": metadata["name"], "uid": metadata["uid"]}


def _level_of(found: Manifest) -> str:
    """The node label of which a gang wants one value, as Rung wrote it there; empty: any nodes will do."""
    return str(((found.get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_KEY, ""))


def _of_group(condition: Mapping[str, Any], level: str) -> PodStatusReason:
    """Why a group waits that is let in."""
    text = str(condition["message"])
    found = TASKS.match(text)
    if condition.get("reason") == TOO_FEW or (found and not int(found["tasks"])):
        return PodStatusReason(GANG_INCOMPLETE, f"{NOT_THERE} Message: {text}")
    found_reason = _in_our_words(text[found.end() :] if found else text, level)
    return found_reason if found_reason.reason in {OVER_LIMIT, NO_DOMAIN} else replace(found_reason, message=text)


def _in_our_words(text: str, level: str) -> PodStatusReason:
    """What its own condition means for the group; `level`: it has to be in one domain of that."""
    if promised := PROMISED.match(text):
        return PodStatusReason(WAITS_FOR_VICTIMS if promised["what"] else GANG_INCOMPLETE, text)
    if f"Origin reason is {INSUFFICIENT}" in text:
        return PodStatusReason(OVER_LIMIT, text)
    not_ready = NOT_READY.match(text)
    if not_ready and not not_ready["tried"] and level:
        return PodStatusReason(NO_DOMAIN, f"{NOT_NEAR.format(level=level)} Message: {text}")
    if not_ready and not not_ready["tried"]:
        return PodStatusReason(OVER_LIMIT, f"{NOT_TRIED} Message: {text}")
    return PodStatusReason(UNSCHEDULABLE, text, pod_status.node_numbers(text))


def _disruptions(pod: Manifest, events: Sequence[Manifest]) -> Iterator[str]:
    """Volcano marks a pod it evicts as not ready before it deletes it; then come the events."""
    found = pod_status.condition(pod, "Ready", status="False")
    if found and found.get("reason") == "Evict":
        yield str(found.get("message", ""))
    yield from pod_status.messages(events, "Evict")


def _at_limit(events: Sequence[Manifest]) -> Iterator[PodStatusReason]:
    for text in pod_status.messages(events, UNSCHEDULABLE):
        if text.startswith(INSUFFICIENT):
            yield PodStatusReason(OVER_LIMIT, text)


CEILING: Final = "rung.ceiling"
NO_NODE: Final = "rung.nobody"
"""A node that is none: the ceiling holds no nodes, but Volcano wants it to have a member."""
NOWHERE: Final = 0
"""A tier without HyperNodes."""
LONGEST: Final = 63
DIGEST: Final = 10


def hyper_nodes(pools: Iterable[PoolSpec]) -> Iterator[Manifest]:
    """topology.volcano.sh/v1alpha1 HyperNodes: the ceiling, then the domains of every pool, narrowest first."""
    yield _hyper_node(CEILING, "cluster", MOST_LEVELS + 1, [("Node", NO_NODE)])
    for pool in pools:
        for depth in range(len(pool.topology_levels), 0, -1):
            yield from _domains_at_depth(pool, depth)


def network_topology(job: JobSpec) -> dict[str, Any]:
    """Of a PodGroup: its pods in one domain of the level that was asked for; empty: anywhere.

    What is no level of the pool any more is nowhere: the gang waits, rather than be spread.
    """
    key = required_level(job)
    if not key:
        return {}
    levels = job.pool.topology_levels if job.pool else ()
    tier = len(levels) - levels.index(key) if key in levels else NOWHERE
    return {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}


def required_level(job: JobSpec) -> str:
    """The node label of which all its pods want one value; empty: any nodes will do."""
    return str(((job.manifest.get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_KEY, ""))


def _domains_at_depth(pool: PoolSpec, depth: int) -> Iterator[Manifest]:
    """Domains of the level at that depth: of the narrowest their members are nodes, else the domains inside them."""
    members: dict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
    narrowest = depth == len(pool.topology_levels)
    for domain in pool.domains:
        inner = ("HyperNode", _name(pool, domain.values[: depth + 1]))
        members[domain.values[:depth]] |= {("Node", node) for node in domain.nodes} if narrowest else {inner}
    tier, key = len(pool.topology_levels) - depth + 1, pool.topology_levels[depth - 1]
    for values, found in sorted(members.items()):
        yield _hyper_node(_name(pool, values), f"pool.{pool.name}", tier, sorted(found), pool=pool, key=key)


def _name(pool: PoolSpec, values: Sequence[str]) -> str:
    """Legible, and another one for every other path of values."""
    digest = sha256("\n".join((pool.name, *values)).encode()).hexdigest()[:DIGEST]
    legible = re.sub(r"[^a-z0-9]+", "-", "-".join(values).lower()).strip("-")
    return f"{f'{pool.name}.{legible}'[: LONGEST - DIGEST - 1].strip('-.')}-{digest}"


def _hyper_node(
    name: str,
    owner: str,
    tier: int,
    members: Iterable[tuple[str, str]],
    *,
    pool: PoolSpec | None = None,
    key: str = "",
) -> Manifest:
    labels, annotations = ({POOL: pool.name}, {TOPOLOGY_KEY: key}) if pool else ({}, {})
    metadata = owned(name, owner=owner, generation=0, labels=labels, annotations=annotations)
    named = [{"type": kind, "selector": {"exactMatch": {"name": each}}} for kind, each in members]
    kind, spec = VOLCANO_HYPER_NODE, {"tier": tier, "members": named}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


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
        weights="whole",
        minimum="any",
        beside=(VOLCANO_POD_GROUP,),
        event_sources={VOLCANO_POD_GROUP: pod_group_events},
        configuration=SchedulerConfiguration(
            volcano_config.CONF,
            "whether the scheduler preempts, reclaims and uses topology domains",
            facts_of=volcano_config.facts_of,
            warnings_of=volcano_config.admin_warnings,
            exemptions=volcano_config.exemptions,
            assumption=volcano_config.assumption,
            cautions_of=volcano_config.forecast_warnings,
            guarantees_of=guarantees_of,
            ignores_domains=volcano_config.ignores_domains,
            domain_cautions_of=volcano_config.domain_warnings,
            proposals={"recommended": volcano_config.RECOMMENDED},
        ),
        topologies=VOLCANO_HYPER_NODE,
        names_domains=True,
        rigid=TOPOLOGY_DRAWBACK,
        protects_minimum_runtime="pods",
    )

    def kinds(self) -> Sequence[Kind]:
        return (PRIORITY_CLASS, NAMESPACE, VOLCANO_QUEUE, VOLCANO_HYPER_NODE)

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """PriorityClasses, namespaces, a HyperNode per domain, a Queue per department and project in each pool."""
        yield from flavours_objects.shared_objects(state)
        yield from hyper_nodes(state.pools)
        yield from map(queue_manifest, state.departments)
        for project in state.projects:
            yield from map(queue_manifest, project.queues)

    def queue_name(self, owner: str, pool: str) -> str:
        return flavours_objects.queue_name(owner, pool)

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's object with scheduler, queue and preemptibility at every pod template; a gang's group first.

        A min guaranteed runtime is written whether the scheduler asks for it by now or not: pods keep what they were
        made with. Where no group is written, Volcano's own controller makes one of a single member for the pods.
        """
        may_be_evicted = job.preemptibility != Preemptibility.NON_PREEMPTIBLE
        marks = {QUEUE: job.queue, PREEMPTABLE: str(may_be_evicted).lower()}
        runtime = {MIN_RUNTIME: go_duration(job.min_runtime_minutes)} if job.min_runtime_minutes else {}
        manifests = render_job(job, labels={}, annotations={**marks, **runtime}, scheduler=SCHEDULER)
        if manifests and job.min_member > 1 and _join(manifests[0], job):
            return [_pod_group(job, {PREEMPTABLE: marks[PREEMPTABLE]}), *manifests]
        return manifests

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """Preempted or reclaimed (Volcano names no preemptor), or why it or its group waits."""
        return interpret(pod, events)

    def guarantees(self) -> Sequence[Guarantee]:
        return GUARANTEES

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
        "weight": min(max(round(spec.over_quota_weight), WEIGHTS[0]), WEIGHTS[-1]),
        "priority": flavours_objects.RANK_TO_PRIORITY[spec.rank],
        "reclaimable": True,
        "deserved": {GPU: limit.get(GPU, unlimited[GPU]), **amounts(spec.deserved)},
        "capability": {**unlimited, **limit} if limit or not spec.parent else {},
    }
    if spec.parent:
        body["parent"] = spec.parent
    labels = {flavours_objects.POOL: spec.pool.name}
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
    parts = gang_templates(body, kind) if kind else []
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
    """At the group and its pods: waiting for a domain is read from it."""
    level = required_level(job)
    return {flavours_objects.TOPOLOGY_KEY: level} if level else {}
