"""What a submission asks of its scheduler beyond room: a gang's minimum, a placement, a domain. Refused with its name.

Only what was asked for is refused: what a scheduler does by itself is told by its promises.
"""

from typing import Final

from clusters.flavours import flavour_for
from clusters.flavours.common import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from clusters.kind_shapes import Shape
from clusters.kinds import WorkloadKind, kind_for
from clusters.models import Node
from clusters.topologies import levels_of
from portal.core.errors import Refused, RungError
from tenants.models import Project
from workloads.intake import WorkloadSpec
from workloads.intake.problems import token
from workloads.intake.roles import together
from workloads.node_choice import shared_topology, wanted_placement

NOTES: Final = "/metadata/annotations"


def refuse_placing(spec: WorkloadSpec, project: Project) -> None:
    """Refused at the field that the cluster's scheduler has nothing for."""
    _refuse_minimum(spec, project)
    _refuse_placement(spec, project)
    _refuse_topology(spec, project)


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
    """A node label to share that is not for this workload, not for this scheduler, or not on any node."""
    key, cluster = shared_topology(spec), project.cluster
    if key is None:
        return
    nodes = Node.objects.filter(cluster=cluster)
    traits = flavour_for(cluster.flavour).traits
    if traits.topologies is None and not traits.whole_gangs:
        code, said = "topology_unsupported", f"{_where(project)} is not told of it"
    elif spec.min_member < 2:
        code, said = "topology_of_one", "only a gang of several pods can share one"
    elif nodes.exists() and not nodes.filter(labels__has_key=key).exists():
        code, said = "topology_unknown", f"no node of {cluster.name} carries {key}"
    elif traits.topologies and (why := _not_in_a_topology(spec, project, key)):
        code, said = "topology_unsupported", why
    else:
        return
    raise _refused(project, TOPOLOGY_KEY, code, f"A topology for the whole gang was asked for: {said}.")


def _not_in_a_topology(spec: WorkloadSpec, project: Project, key: str) -> str:
    """Why none of its pools' topologies serves; empty: one does."""
    cluster = project.cluster
    pools = spec.node_pools or cluster.node_pools.values_list("name", flat=True)
    levels = {name: levels_of(cluster.served_kinds, name) for name in pools}
    if not any(levels.values()):
        return f"{_where(project)} has no Topology named as the pool ({' or '.join(levels)})"
    if not any(key in each for each in levels.values()):
        known = sorted({label for each in levels.values() for label in each})
        return f"no level of the pool's Topology is {key}; there are {', '.join(known)}"
    if len(spec.roles) > 2 or (len(spec.roles) == 2 and all(role.replicas > 1 for role in spec.roles)):
        return f"{_where(project)} brings two roles together at most, one of them of a single pod"
    return ""


def _where(project: Project) -> str:
    return f"{flavour_for(project.cluster.flavour).title} on {project.cluster.name}"


def _refused(project: Project, note: str, code: str, message: str, *allowed: str) -> RungError:
    pointer = f"{NOTES}/{token(note)}"
    return Refused.at(pointer, code, message, allowed=allowed, flavour=project.cluster.flavour)
