"""May a gang ever start in its pools as they are? One that needs more than a pool holds would wait for ever.

Asked only where the scheduler starts gangs whole, and only of GPUs: every node of a pool is counted as if it were empty
and ready. A pool of which no node was seen yet is not judged.
"""

from collections.abc import Iterator, Mapping, Sequence

from clusters.flavours import flavour_for
from clusters.kinds import kind_for
from clusters.models import Node, NodePool
from portal.core.errors import Problem, Refused
from scheduling.resources import Resources
from tenants.models import Project
from workloads.intake import WorkloadSpec

CODE = "gang_larger_than_pool"


def refuse_larger_gang(spec: WorkloadSpec, project: Project, pools: Sequence[NodePool]) -> None:
    """Refused with the numbers of every pool where none of them could hold the gang, however empty it were."""
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
    raise Refused(problems[0].message, code=CODE, problems=problems)


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
    found: dict[int, list[int]] = {}
    rows = Node.objects.filter(pool__in=pools, gpu_milli__gt=0).values_list("pool_id", "gpu_milli")
    for pool, gpus in rows:
        found.setdefault(pool, []).append(gpus)
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
        f"{spec.min_member} pods start together and need {needed}; all {len(nodes)} nodes of {pool.name} together hold "
        f"{held}, room for {min(room, len(asking))} of them at most."
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
