"""May this workload ever run here? Which node pool it goes to, and the refusals with their numbers.

Only what can never come true is refused: more than the limit, or non-preemptible work beyond what the deserved quotas
of project and department can give in any of its pools. What is merely in use now is accepted and waits.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from django.db import connection

from clusters.flavours import flavour_for
from clusters.models import NodePool
from portal.core.errors import Problem, Refused
from portal.core.marks import Kept
from scheduling.capacity import fits_quota
from scheduling.model import Queue
from scheduling.priority import Effective, Preemptibility
from scheduling.reasons import Pend, Reason
from scheduling.resources import Limit, Resources
from tenants.models import DepartmentQuota, PriorityCap, Project, ProjectQuota
from workloads.intake import WorkloadSpec
from workloads.models import Workload
from workloads.sentences import allowed_text, needed_text


def pools_for(spec: WorkloadSpec, project: Project) -> list[NodePool]:
    """Its pools in order of preference: its own, else the project's, else the default. Refuses unknown names."""
    pools = _pools.of(project.cluster_id, lambda: _read_pools(project))
    wanted = spec.node_pools or tuple(project.default_node_pools) or _default(pools.values())
    problems = [
        Problem(f"/nodePools/{index}", "pool_unknown", f"There is no node pool {name[:63]!r} here.", tuple(pools))
        for index, name in enumerate(wanted)
        if name not in pools
    ]
    if not wanted:
        problems = [Problem("/nodePools", "no_pool", f"The cluster {project.cluster.name} has no node pool.")]
    if problems:
        raise Refused(problems[0].message, code=problems[0].code, problems=problems)
    return [pools[name] for name in wanted]


_pools: Final = Kept[Mapping[str, NodePool]]("rules")


def _read_pools(project: Project) -> Mapping[str, NodePool]:
    return {pool.name: pool for pool in NodePool.objects.filter(cluster=project.cluster_id).order_by("pk")}


def _default(pools: Iterable[NodePool]) -> tuple[str, ...]:
    ordered = sorted(pools, key=lambda pool: (not pool.is_default, pool.name))
    return tuple(pool.name for pool in ordered[:1])


def pick_pool(spec: WorkloadSpec, effective: Effective, project: Project, pools: Sequence[NodePool]) -> NodePool:
    """The first pool whose quotas could ever hold it. Refused with the numbers of every pool when there is none."""
    return holding_pools(spec, effective, project, pools)[0]


def holding_pools(
    spec: WorkloadSpec, effective: Effective, project: Project, pools: Sequence[NodePool]
) -> list[NodePool]:
    """The pools whose quotas could ever hold it, in their order. Refused as `pick_pool` when there is none."""
    found, problems = _by_quota(spec, effective, project, pools)
    if not found:
        raise Refused(problems[0].message, code=problems[0].code, problems=problems)
    return found


def _by_quota(
    spec: WorkloadSpec, effective: Effective, project: Project, pools: Sequence[NodePool]
) -> tuple[list[NodePool], list[Problem]]:
    paths = queue_paths(project, pools)
    preemptible = effective.preemptibility is not Preemptibility.NON_PREEMPTIBLE
    found, problems = [], []
    for pool in pools:
        pend = fits_quota(paths[pool.pk], {}, spec.total, preemptible=preemptible)
        if pend is None:
            found.append(pool)
        else:
            problems.append(_problem(spec, pool, pend))
    return found, problems


def could_hold(workload: Workload, pool: NodePool) -> bool:
    """Could the quotas of the pool ever hold a workload that was accepted already?"""
    path = queue_paths(workload.project, [pool])[pool.pk]
    total = Resources(workload.gpu_milli, workload.cpu_milli, workload.memory_bytes)
    preemptible = workload.preemptibility != Preemptibility.NON_PREEMPTIBLE
    return fits_quota(path, {}, total, preemptible=preemptible) is None


def queue_paths(project: Project, pools: Sequence[NodePool]) -> dict[int, tuple[Queue, Queue]]:
    """Per pool id the project's and the department's queue, under their people's names. No row: nothing deserved."""
    leaf, parent = f"project {project.name}", f"department {project.department.name}"
    bounds = _bounds.of(project.pk, lambda: _read_bounds(project))
    return {
        pool.pk: (_queue(leaf, pool, bounds.get((LEAF, pool.pk))), _queue(parent, pool, bounds.get((PARENT, pool.pk))))
        for pool in pools
    }


LEAF, PARENT = "leaf", "parent"
Bounds = tuple[Limit, Limit]
_bounds: Final = Kept[Mapping[tuple[str, int], Bounds]]("rules")
_COLUMNS: Final = "gpu_deserved, cpu_deserved, memory_deserved, gpu_limit, cpu_limit, memory_limit"
# Written out: the ORM takes four times as long to say the same.
_BOUNDS: Final = f"""
SELECT '{LEAF}', node_pool_id, {_COLUMNS} FROM {ProjectQuota._meta.db_table} WHERE project_id = %s
UNION ALL
SELECT '{PARENT}', node_pool_id, {_COLUMNS} FROM {DepartmentQuota._meta.db_table} WHERE department_id = %s
"""  # noqa: S608  # names of tables and columns, nothing that anybody sent


def _read_bounds(project: Project) -> Mapping[tuple[str, int], Bounds]:
    """Deserved and limit of the project and of its department, per pool id."""
    with connection.cursor() as cursor:
        cursor.execute(_BOUNDS, [project.pk, project.department_id])
        return {(whose, pool): (Limit(*row[:3]), Limit(*row[3:])) for whose, pool, *row in cursor.fetchall()}


def _queue(name: str, pool: NodePool, bounds: Bounds | None) -> Queue:
    deserved, limit = bounds or (ProjectQuota().deserved, ProjectQuota().limit)
    return Queue(name, pool=pool.name, deserved=deserved, limit=limit)


def _problem(spec: WorkloadSpec, pool: NodePool, pend: Pend) -> Problem:
    pointer = spec.roles[0].pointer if spec.roles else ""
    numbers = {"pool": pool.name, **pend.numbers()}
    return Problem(pointer, str(pend.reason), _sentence(pool, pend), numbers=numbers)


def _sentence(pool: NodePool, pend: Pend) -> str:
    if pend.reason is Reason.OVER_LIMIT:
        return f"It needs {needed_text(pend)} in {pool.name}; the limit of {pend.queue} is {allowed_text(pend)}."
    return (
        f"It needs {needed_text(pend)} in {pool.name} and is non-preemptible, so it must fit the deserved quota; "
        f"{pend.queue} deserves {allowed_text(pend)}."
    )


def refuse_unenforceable(effective: Effective, project: Project) -> None:
    """A preemptibility that the cluster's scheduler has no words for is refused with its name."""
    flavour = flavour_for(project.cluster.flavour)
    if effective.preemptibility not in flavour.preemptibilities:
        raise Refused.at(
            "/preemptibility",
            "preemptibility_unsupported",
            f"{flavour.title} on {project.cluster.name} cannot express {effective.preemptibility}.",
            allowed=flavour.preemptibilities,
            flavour=flavour.name,
        )


def refuse_unserved(spec: WorkloadSpec, project: Project) -> None:
    """A kind that the cluster does not serve, as far as it was asked yet: its operator is not installed there."""
    served, wanted = project.cluster.served_kinds, f"{spec.api_version} {spec.kind}"
    if not served or wanted in served:
        return
    versions = [each.rpartition(" ")[0] for each in served if each.rpartition(" ")[2] == spec.kind]
    known = f"; it knows {spec.kind} as {' and '.join(versions)}" if versions else ": its operator is not installed"
    raise Refused.at(
        "/apiVersion" if versions else "/kind",
        "kind_not_served",
        f"The cluster {project.cluster.name} does not serve {spec.api_version} {spec.kind}{known}.",
        allowed=versions or sorted({each.rpartition(" ")[2] for each in served}),
    )


def refuse_over_cap(spec: WorkloadSpec, effective: Effective, project: Project) -> None:
    """The project's GPU cap on this priority, where there is one."""
    needed, most = spec.total.gpu, _caps.of(project.pk, lambda: _read_caps(project))
    for name in sorted({effective.priority.name, effective.priority.canonical} & most.keys()):
        if needed > most[name]:
            wanted, cap = str(Resources(gpu=needed)), str(Resources(gpu=most[name]))
            raise Refused.at(
                "/priority",
                "OverPriorityCap",
                f"It needs {wanted}; {project.name} may use {cap} with priority {name}.",
                needed=wanted,
                cap=cap,
                priority=name,
            )


_CAPS: Final = f"SELECT priority, gpu_limit FROM {PriorityCap._meta.db_table} WHERE project_id = %s"  # noqa: S608  # as above

_caps: Final = Kept[Mapping[str, int]]("rules")


def _read_caps(project: Project) -> Mapping[str, int]:
    """GPU thousandths by the name of a priority."""
    with connection.cursor() as cursor:
        cursor.execute(_CAPS, [project.pk])
        return dict(cursor.fetchall())
