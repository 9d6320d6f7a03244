"""Validate placement: gang capacity, minimum, topology, GPU share, and what the scheduler serves.

Asked only where the scheduler starts gangs whole, and only of GPUs: every node of a pool is counted as if it were
empty and ready. A pool of which no node was seen yet is not judged.

Only requests are refused. What a scheduler does by itself is in its guarantees.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.db.models import Count

from clusters.connection.services.scheduler_config import (
    domains_ignored_because,
    eviction_exemptions,
    forecast_warnings,
    unmanaged_because,
)
from clusters.flavours.objects import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.flavours.rendering import MIN_MEMBER
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.ports.pod_templates import TemplateShape, WorkloadKind
from clusters.ports.pods import EPHEMERAL_STORAGE, GPU_FRACTION, gpus_of, needs_of_pods
from clusters.ports.workload_kinds import kind_for
from portal.kit.errors import Problem, RungError, ValidationFailed
from portal.kit.security.strict_json import token
from scheduling.model.decisions import Outcome
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause
from scheduling.model.reasons import Reason
from scheduling.model.resources import MILLI, Resources, decimal_text
from scheduling.model.snapshot import Snapshot, SnapshotNode
from tenants.organisation.models import Project
from workloads.forecast.rules.messages import memory_text
from workloads.forecast.selectors.pool_selection import pools_for
from workloads.intake import WorkloadSpec
from workloads.intake.rules.spec import named_requests, shared_topology, together, wanted_placement

CODE = "gang_larger_than_pool"


def check_gang_capacity(spec: WorkloadSpec, project: Project, pools: Sequence[NodePool]) -> None:
    """ValidationFailed with the numbers of every pool where none of them could hold the gang, however empty it were."""
    if spec.min_member < 2 or flavour_for(project.cluster.flavour).traits.minimum == "none":
        return
    gpus = _smallest(spec)
    nodes = _nodes(pools) if gpus and gpus[-1] else {}
    problems = []
    for index, pool in enumerate(pools):
        held = nodes.get(pool.pk)
        problem = held and _problem(spec, pool, index, gpus, held)
        if not problem:
            return
        problems.append(problem)
    raise ValidationFailed(problems[0].message, code=CODE, problems=problems)


def _smallest(spec: WorkloadSpec) -> list[int]:
    """GPU thousandths of as many pods as have to start together, the smallest of those that start with it."""
    return sorted(_each(spec))[: spec.min_member]


def _each(spec: WorkloadSpec) -> Iterator[int]:
    kind = kind_for(spec.api_version, spec.kind)
    later = kind.later if kind else ()
    for role in spec.roles:
        if role.name not in later:
            yield from [role.requests.gpu] * role.replicas


def _nodes(pools: Sequence[NodePool]) -> Mapping[int, list[int]]:
    """GPU thousandths of each node by pool id."""
    found: dict[int, list[int]] = {}
    rows = Node.objects.filter(pool__in=pools, gpu_milli__gt=0).values_list("pool_id", "gpu_milli")
    for pool, gpus, count in rows.order_by().annotate(Count("pk")):
        found.setdefault(pool, []).extend([gpus] * count)
    return found


def _problem(
    spec: WorkloadSpec, pool: NodePool, index: int, gpus: Sequence[int], nodes: Sequence[int]
) -> Problem | None:
    """Necessary for a start: enough GPUs in all, and room on the nodes for as many pods of the smallest sort."""
    asking = [each for each in gpus if each]
    room = sum(node // asking[0] for node in nodes)
    needed, held = Resources(gpu=sum(asking)), Resources(gpu=sum(nodes))
    if needed.gpu <= held.gpu and len(asking) <= room:
        return None
    message = (
        f"{spec.min_member} pods start together and need {needed}. All {len(nodes)} nodes of {pool.name} have "
        f"{held}, enough for at most {min(room, len(asking))} pods."
    )
    pointer = f"/nodePools/{index}" if spec.node_pools else spec.roles[0].pointer
    numbers = {
        "pool": pool.name,
        "needed": str(needed),
        "held": str(held),
        "together": str(spec.min_member),
        "room": str(room),
    }
    return Problem(pointer, CODE, message, numbers=numbers)


@dataclass(frozen=True, slots=True)
class MissingOnNodes:
    """No node of the pool has so much for one pod, however empty: why, as the rest of a sentence, and the numbers."""

    why: str
    numbers: Mapping[str, str]


def nodes_of(snapshot: Snapshot, pool: NodePool) -> list[SnapshotNode]:
    """The nodes of a pool: by its name, or by its label where the scheduler knows no pools."""
    if flavour_for(pool.cluster.flavour).traits.queues_by_pool:
        return [each for each in snapshot.nodes if each.pool == pool.name]
    return [each for each in snapshot.nodes if each.labels.get(pool.label_key) == pool.label_value]


def missing_on_nodes(spec: WorkloadSpec, pool: NodePool, snapshot: Snapshot) -> MissingOnNodes | None:
    """Ephemeral storage or devices of a name that no node offers. A pool of which no node was seen is not judged."""
    nodes = [each.more for each in nodes_of(snapshot, pool)]
    for gpus, more in named_requests(spec).values() if nodes else ():
        needs = needs_of_pods([(gpus, more)])
        if not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            return _missing(pool, needs, nodes)
    return None


def _missing(pool: NodePool, needs: Mapping[str, int], nodes: Sequence[Mapping[str, int]]) -> MissingOnNodes:
    most = {name: max(node.get(name, 0) for node in nodes) for name in needs}
    name = next((each for each in needs if most[each] < needs[each]), EPHEMERAL_STORAGE)
    numbers = {"pool": pool.name, "resource": name, "needed": str(needs[name]), "largest": str(most[name])}
    if name == EPHEMERAL_STORAGE:
        needed, largest = memory_text(needs[name], up=True), memory_text(most[name])
        why = (
            f"each pod needs {needed} of ephemeral storage on one node of {pool.name}; the largest that can fit there "
            f"is {largest}"
        )
        return MissingOnNodes(why, numbers)
    offered = sorted({each for node in nodes for each, count in node.items() if count and gpus_of(each)})
    offer = f"its nodes offer {', '.join(offered)}" if offered else "its nodes offer no GPUs"
    if name in offered:
        offer = f"its nodes offer at most {most[name]} each"
    return MissingOnNodes(f"each pod needs {needs[name]} {name} on one node of {pool.name}, and {offer}", numbers)


def no_controller_of(spec: WorkloadSpec, cluster: Cluster) -> str:
    """Why a workload of this kind would get no pods, as the rest of a sentence; empty: nothing says that."""
    group = spec.api_version.rpartition("/")[0]
    since = cluster.silent_kinds.get(f"{spec.kind}.{group}")
    if since is None:
        return ""
    when = f"{datetime.fromisoformat(since):%Y-%m-%d %H:%M} UTC"
    return (
        f"no controller for {spec.kind} seems to run in {cluster.name}, so it gets no pods: the object created at "
        f"{when} has no status."
    )


WHATEVER: Final = frozenset(
    {
        Reason.NEVER_FITS,
        Reason.NO_SUCH_POOL,
        Reason.QUEUE_MISSING,
        Reason.GANG_INCOMPLETE,
        Reason.PREEMPTION_NEVER,
        Reason.EVICTING,
    }
)
"""Reasons to wait that are none of its configuration's."""


def configured_so(cluster: Cluster, outcome: Outcome) -> tuple[str, ...]:
    """Sentences for the workload's people; empty where the configuration makes no difference."""
    return forecast_warnings(cluster, outcome.kind) if outcome.victims or _matters(cluster, outcome) else ()


def _matters(cluster: Cluster, outcome: Outcome) -> bool:
    """A queue at its limit gains nothing from capacity that others free."""
    reason = outcome.pend.code if outcome.pend else None
    if reason is Reason.OVER_LIMIT:
        exempt = eviction_exemptions(cluster)
        return replace(exempt, causes=exempt.causes - {Cause.RECLAIM}) != NO_EXEMPTIONS
    return reason not in WHATEVER


NOTES: Final = "/metadata/annotations"


def check_placement(spec: WorkloadSpec, project: Project) -> None:
    """Refused at the field that the cluster's scheduler has nothing for."""
    _check_gpu_share(spec, project)
    _check_minimum(spec, project)
    _check_packing(spec, project)
    _check_topology(spec, project)


def check_resumable(spec: WorkloadSpec, project: Project) -> None:
    """Made for another scheduler, or other settings of it, it would run outside quotas or without its GPUs."""
    check_kind_scheduled(spec, project)
    _check_gpu_share(spec, project)


def check_kind_scheduled(spec: WorkloadSpec, project: Project) -> None:
    """A kind that the cluster's scheduler is configured to leave alone would run outside every quota."""
    if why := unmanaged_because(project.cluster, spec.kind):
        message = f"{_where(project)} does not manage this kind: {why}."
        raise ValidationFailed.at("/kind", "kind_not_managed", message, flavour=project.cluster.flavour)


def _check_gpu_share(spec: WorkloadSpec, project: Project) -> None:
    """A part of a GPU, which a scheduler that does not know it would make none at all."""
    role = next((each for each in spec.roles if each.requests.gpu % MILLI), None)
    if role is None or flavour_for(project.cluster.flavour).traits.shares_gpus:
        return
    share, able = (
        decimal_text(role.requests.gpu % MILLI),
        [each.title for each in FLAVOURS.values() if each.traits.shares_gpus],
    )
    raise ValidationFailed.at(
        f"{role.pointer}/metadata/annotations/{GPU_FRACTION}",
        "gpu_share_unsupported",
        f"A pod requests {share} of a GPU. {_where(project)} supports whole GPUs only; {' and '.join(able)} "
        "supports GPU sharing.",
        flavour=project.cluster.flavour,
        requested=share,
    )


def _check_minimum(spec: WorkloadSpec, project: Project) -> None:
    kind = kind_for(spec.api_version, spec.kind)
    if kind is None or MIN_MEMBER not in (spec.annotations or {}) or spec.min_member < 2:
        return
    title, most = _where(project), together(kind, spec.roles)
    traits = flavour_for(project.cluster.flavour).traits
    match traits.minimum:
        case "none":
            why_not = f"{title} starts pods one by one"
        case "all" if spec.min_member < most:
            why_not = f"{title} starts all {most} pods together, or none"
        case "own" if not kind.minimum and kind.name not in traits.settable_minimum:
            why_not = f"{title} reads it from a field of the kind, and a {kind.kind} has none"
        case _:
            return
    message = f"{spec.min_member} pods cannot start together: {why_not}."
    raise _validation_error(project, MIN_MEMBER, "minimum_unsupported", message)


def _check_packing(spec: WorkloadSpec, project: Project) -> None:
    wanted, kind = wanted_placement(spec), kind_for(spec.api_version, spec.kind)
    if not wanted or kind is None:
        return
    offered = flavour_for(project.cluster.flavour).traits.placements
    if wanted not in offered:
        message = f"{_where(project)} does not support pod placement strategies."
    elif not _describes_pods(kind):
        message = f"The operator of {kind.kind} creates the pods, so their placement cannot be set."
    else:
        return
    raise _validation_error(project, PLACEMENT, "placement_unsupported", message, *offered)


def _describes_pods(kind: WorkloadKind) -> bool:
    return all(path.shape is not TemplateShape.CONTAINER for path in kind.paths)


def _check_topology(spec: WorkloadSpec, project: Project) -> None:
    """A node label to share that is not for this scheduler, not for this workload, no level of a pool or on no node."""
    key = shared_topology(spec)
    if key is None:
        return
    pools = pools_for(spec, project)
    levels = list(dict.fromkeys(level for pool in pools for level in pool.topology_levels))
    traits = flavour_for(project.cluster.flavour).traits
    if not traits.knows_domains:
        code, reason = "topology_unsupported", f"{_where(project)} does not support it"
    elif ignored := domains_ignored_because(project.cluster):
        code, reason = "topology_unsupported", f"{_where(project)} does not keep gangs in one domain; {ignored}"
    elif spec.min_member < 2:
        code, reason = "topology_of_one", "only a gang of several pods can use it"
    elif why := next(filter(None, (_no_level(pool, key, needed=traits.topologies is not None) for pool in pools)), ""):
        code, reason = "topology_not_a_level", why
    elif bare := next((pool for pool in pools if _on_no_node(pool, key)), None):
        code, reason = "topology_unknown", f"no node of {bare.name} has the label {key}"
    elif traits.queues_jobs and _too_many_roles(spec):
        code, reason = "topology_unsupported", f"{_where(project)} supports two roles, one of them with a single pod"
    else:
        return
    raise _validation_error(
        project, TOPOLOGY_KEY, code, f"The gang cannot be kept in one topology domain: {reason}.", *levels
    )


def _no_level(pool: NodePool, key: str, *, needed: bool) -> str:
    """Why the key is none of the pool's; empty: it is. Without `needed`, a pool that names none has any."""
    levels = pool.topology_levels
    if key in levels or not (levels or needed):
        return ""
    if not levels:
        return f"node pool {pool.name} has no topology levels; an admin can add them"
    return f"{key} is not a topology level of node pool {pool.name}; its levels are {', '.join(levels)}"


def _on_no_node(pool: NodePool, key: str) -> bool:
    """Of a pool whose nodes have been seen."""
    nodes = Node.objects.filter(pool=pool)
    return nodes.exists() and not nodes.filter(labels__has_key=key).exists()


def _too_many_roles(spec: WorkloadSpec) -> bool:
    return len(spec.roles) > 2 or (len(spec.roles) == 2 and all(role.replicas > 1 for role in spec.roles))


def _where(project: Project) -> str:
    return f"{flavour_for(project.cluster.flavour).title} on {project.cluster.name}"


def _validation_error(project: Project, note: str, code: str, message: str, *allowed: str) -> RungError:
    pointer = f"{NOTES}/{token(note)}"
    return ValidationFailed.at(pointer, code, message, allowed=allowed, flavour=project.cluster.flavour)
