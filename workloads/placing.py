"""What a submission asks of its scheduler beyond room: a gang's minimum, a placement, a domain. Refused with its name.

Only what was asked for is refused: what a scheduler does by itself is told by its promises.
"""

from typing import Final

from clusters.flavours import FLAVOURS, flavour_for
from clusters.flavours.common import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from clusters.kind_shapes import Shape
from clusters.kinds import WorkloadKind, kind_for
from clusters.models import Node, NodePool
from clusters.pods import GPU_FRACTION
from clusters.services.configured import domains_ignored, left_alone
from portal.core.errors import Refused, RungError
from scheduling.resources import MILLI, decimal_text
from tenants.models import Project
from workloads.admission import pools_for
from workloads.intake import WorkloadSpec
from workloads.intake.problems import token
from workloads.intake.roles import together
from workloads.node_choice import shared_topology, wanted_placement

NOTES: Final = "/metadata/annotations"


def refuse_placing(spec: WorkloadSpec, project: Project) -> None:
    """Refused at the field that the cluster's scheduler has nothing for."""
    _refuse_share(spec, project)
    _refuse_minimum(spec, project)
    _refuse_placement(spec, project)
    _refuse_topology(spec, project)


def refuse_resuming(spec: WorkloadSpec, project: Project) -> None:
    """Made for another scheduler, or other settings of it, it would run outside quotas or without its GPUs."""
    refuse_left_alone(spec, project)
    _refuse_share(spec, project)


def refuse_left_alone(spec: WorkloadSpec, project: Project) -> None:
    """A kind that the cluster's scheduler is configured to leave alone would run outside every quota."""
    if why := left_alone(project.cluster, spec.kind):
        message = f"{_where(project)} does not manage this kind: {why}."
        raise Refused.at("/kind", "kind_not_managed", message, flavour=project.cluster.flavour)


def _refuse_share(spec: WorkloadSpec, project: Project) -> None:
    """A part of a GPU, which a scheduler that does not know it would make none at all."""
    role = next((each for each in spec.roles if each.requests.gpu % MILLI), None)
    if role is None or flavour_for(project.cluster.flavour).traits.shares_gpus:
        return
    share, able = (
        decimal_text(role.requests.gpu % MILLI),
        [each.title for each in FLAVOURS.values() if each.traits.shares_gpus],
    )
    raise Refused.at(
        f"{role.pointer}/metadata/annotations/{GPU_FRACTION}",
        "gpu_share_unsupported",
        f"A pod asks for {share} of a GPU: {_where(project)} gives whole GPUs only, {' and '.join(able)} shares them.",
        flavour=project.cluster.flavour,
        asked=share,
    )


def _refuse_minimum(spec: WorkloadSpec, project: Project) -> None:
    kind = kind_for(spec.api_version, spec.kind)
    if kind is None or MIN_MEMBER not in (spec.annotations or {}) or spec.min_member < 2:
        return
    title, most = _where(project), together(kind, spec.roles)
    traits = flavour_for(project.cluster.flavour).traits
    match traits.minimum:
        case "none":
            said = f"{title} starts pods one by one"
        case "all" if spec.min_member < most:
            said = f"{title} starts all {most} pods together, or none"
        case "own" if not kind.minimum and kind.name not in traits.told_minimum:
            said = f"{title} takes it from the kind's own field, and a {kind.kind} has none"
        case _:
            return
    message = f"{spec.min_member} pods were to start together: {said}."
    raise _refused(project, MIN_MEMBER, "minimum_unsupported", message)


def _refuse_placement(spec: WorkloadSpec, project: Project) -> None:
    wanted, kind = wanted_placement(spec), kind_for(spec.api_version, spec.kind)
    if not wanted or kind is None:
        return
    offered = flavour_for(project.cluster.flavour).traits.placements
    if wanted not in offered:
        message = f"{_where(project)} is not told how a workload wants its own pods placed."
    elif not _describes_pods(kind):
        message = f"A {kind.kind} leaves its pods to its operator: it cannot say how they are placed."
    else:
        return
    raise _refused(project, PLACEMENT, "placement_unsupported", message, *offered)


def _describes_pods(kind: WorkloadKind) -> bool:
    return all(path.shape is not Shape.CONTAINER for path in kind.paths)


def _refuse_topology(spec: WorkloadSpec, project: Project) -> None:
    """A node label to share that is not for this scheduler, not for this workload, no level of a pool or on no node."""
    key = shared_topology(spec)
    if key is None:
        return
    pools = pools_for(spec, project)
    levels = list(dict.fromkeys(level for pool in pools for level in pool.topology_levels))
    traits = flavour_for(project.cluster.flavour).traits
    if not traits.knows_domains:
        code, said = "topology_unsupported", f"{_where(project)} is not told of it"
    elif ignored := domains_ignored(project.cluster):
        code, said = "topology_unsupported", f"{_where(project)} keeps no gang in one domain; {ignored}"
    elif spec.min_member < 2:
        code, said = "topology_of_one", "only a gang of several pods can share one"
    elif why := next(filter(None, (_no_level(pool, key, needed=traits.topologies is not None) for pool in pools)), ""):
        code, said = "topology_not_a_level", why
    elif bare := next((pool for pool in pools if _on_no_node(pool, key)), None):
        code, said = "topology_unknown", f"no node of {bare.name} carries {key}"
    elif traits.queues_jobs and _too_many_roles(spec):
        code, said = "topology_unsupported", f"{_where(project)} brings two roles together, one of them of a single pod"
    else:
        return
    raise _refused(project, TOPOLOGY_KEY, code, f"A topology for the whole gang was asked for: {said}.", *levels)


def _no_level(pool: NodePool, key: str, *, needed: bool) -> str:
    """Why the key is none of the pool's; empty: it is. Without `needed`, a pool that names none has any."""
    levels = pool.topology_levels
    if key in levels or not (levels or needed):
        return ""
    if not levels:
        return f"the node pool {pool.name} names no topology levels, which an admin sets on its page"
    return f"{key} is no topology level of the node pool {pool.name}; there are {', '.join(levels)}"


def _on_no_node(pool: NodePool, key: str) -> bool:
    """Of a pool whose nodes have been seen."""
    nodes = Node.objects.filter(pool=pool)
    return nodes.exists() and not nodes.filter(labels__has_key=key).exists()


def _too_many_roles(spec: WorkloadSpec) -> bool:
    return len(spec.roles) > 2 or (len(spec.roles) == 2 and all(role.replicas > 1 for role in spec.roles))


def _where(project: Project) -> str:
    return f"{flavour_for(project.cluster.flavour).title} on {project.cluster.name}"


def _refused(project: Project, note: str, code: str, message: str, *allowed: str) -> RungError:
    pointer = f"{NOTES}/{token(note)}"
    return Refused.at(pointer, code, message, allowed=allowed, flavour=project.cluster.flavour)
