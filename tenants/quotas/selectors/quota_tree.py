"""The quotas of one node pool as a tree of departments and projects, with sums and with what is in use.

`PoolQuotas` holds every row of the pool, because sums and fair shares need all of them; `branches_of` is the part that
a reader may see. The number of queries grows with neither departments, projects nor pools, except in
`quotas_in_turn`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Final, Literal, NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet, Sum
from django.utils.translation import gettext as _

from clusters.flavours.objects import RANK_TO_PRIORITY
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Node, NodePool
from portal.kit.api.lists import closest_name
from portal.kit.errors import BadRequest
from scheduling.model.resources import Resources, per_dimension
from scheduling.model.snapshot import Queue
from scheduling.state.fair_share import fair_shares
from tenants.access.rules import Permission
from tenants.access.selectors import Access
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.selectors.desired_state import QuotaRow, no_quota, queue_weights, quotas_in
from tenants.usage.selectors import Usage, usage_by_pool, usage_by_queue


class OwnerKey(NamedTuple):
    """What has a quota: `("project", 7)`."""

    kind: Literal["department", "project"]
    pk: int


def key_of(owner: Department | Project) -> OwnerKey:
    return OwnerKey("project" if isinstance(owner, Project) else "department", owner.pk)


@dataclass(frozen=True)
class PoolQuotas:
    """All quotas of one node pool, who owns them and what they use. GPU sums are in thousandths.

    nodes: what all its nodes have together as last observed; None while no node was. capacity: what its nodes offer
    that take pods.
    """

    pool: NodePool
    owners: Mapping[OwnerKey, Department | Project]
    quotas: Mapping[OwnerKey, QuotaRow]
    project_usage: Mapping[int, Usage]
    nodes: Resources | None
    capacity: Resources

    @property
    def physical(self) -> int | None:
        """GPUs of all its nodes; None while no node was observed."""
        return None if self.nodes is None else self.nodes.gpu

    def quota(self, key: OwnerKey) -> QuotaRow:
        """Its row, or the defaults: nothing deserved, no limit."""
        return self.quotas.get(key) or no_quota()

    def usage(self, key: OwnerKey) -> Usage:
        """What a project uses, or the projects of a department together."""
        return (self.project_usage if key.kind == "project" else self._department_usage).get(key.pk, Usage())

    def with_quotas(self, changed: Mapping[OwnerKey, QuotaRow]) -> "PoolQuotas":
        """The same pool with other quotas of these owners."""
        return replace(self, quotas={**self.quotas, **changed})

    @cached_property
    def departments(self) -> Sequence[Department]:
        return [owner for owner in self.owners.values() if isinstance(owner, Department)]

    @cached_property
    def projects_of(self) -> Mapping[int, Sequence[Project]]:
        """By department id, in order of their names."""
        found: defaultdict[int, list[Project]] = defaultdict(list)
        for owner in self.owners.values():
            if isinstance(owner, Project):
                found[owner.department_id].append(owner)
        return found

    @cached_property
    def _department_usage(self) -> Mapping[int, Usage]:
        return {
            department: sum((self.project_usage.get(each.pk, Usage()) for each in projects), Usage())
            for department, projects in self.projects_of.items()
        }

    @cached_property
    def deserved_by_projects(self) -> Mapping[int, Resources]:
        """What the projects of each department deserve together; a resource that is not counted adds nothing."""
        return {
            department: sum((self._deserved(key_of(each)) for each in projects), Resources())
            for department, projects in self.projects_of.items()
        }

    @cached_property
    def deserved_of_departments(self) -> Resources:
        """What all departments deserve together."""
        return sum((self._deserved(key_of(each)) for each in self.departments), Resources())

    @cached_property
    def deserved_of_projects(self) -> Resources:
        """What all projects deserve together."""
        return sum(self.deserved_by_projects.values(), Resources())

    @property
    def sums(self) -> "PoolTotals":
        return PoolTotals(
            pool=self.pool,
            physical=self.physical,
            departments=self.deserved_of_departments.gpu,
            projects=self.deserved_of_projects.gpu,
            usage=self.usage_of_all,
        )

    @cached_property
    def usage_of_all(self) -> Usage:
        return sum(self.project_usage.values(), Usage())

    def _deserved(self, key: OwnerKey) -> Resources:
        deserved = self.quota(key).deserved
        return Resources(deserved.gpu or 0, deserved.cpu or 0, deserved.memory or 0)


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """GPU thousandths of a node pool: of its nodes, and what departments and projects deserve; usage: of all projects.

    physical: None while no node was observed.
    """

    pool: NodePool
    physical: int | None
    departments: int
    projects: int
    usage: Usage


def over(promised: int, available: int | None) -> int:
    """By how much it is over-committed; 0 where it is not, or where nothing is known of what there is."""
    return 0 if available is None else max(promised - available, 0)


def pools_for(access: Access) -> QuerySet[NodePool]:
    """Pools of the clusters where the reader sees a department or a project."""
    by_department = Q(cluster__in=access.departments().order_by().values("cluster"))
    by_project = Q(cluster__in=access.projects().order_by().values("cluster"))
    pools = NodePool.objects.filter(by_department | by_project).select_related("cluster")
    return pools.order_by("cluster__name", "-is_default", "name")


def pools_named(access: Access, cluster: str, pool: str) -> list[NodePool]:
    """Those of these names, all where a name is empty. 400 for a name that the reader cannot see."""
    found = list(pools_for(access))
    for pointer, name, of in (("/cluster", cluster, "cluster.name"), ("/pool", pool, "name")):
        name_of = attrgetter(of)
        named = [each for each in found if name in {"", name_of(each)}]
        if name and not named:
            known = sorted({name_of(each) for each in found})
            raise BadRequest.at(pointer, "unknown_name", unknown_text(pointer[1:], name, known), allowed=known)
        found = named
    return found


def unknown_text(field: str, name: str, known: Collection[str]) -> str:
    """`No pool 'h10' found. Did you mean 'h100'?`"""
    close = closest_name(name, known)
    hint = _(" Did you mean '%(name)s'?") % {"name": close} if close else ""
    return _("No %(field)s '%(name)s' found.") % {"field": field, "name": name[:63]} + hint


def pool_quotas(pools: Sequence[NodePool]) -> list[PoolQuotas]:
    """All quotas of these pools, in their order."""
    clusters = {pool.cluster_id for pool in pools}
    departments = list(Department.objects.filter(cluster__in=clusters).order_by("name", "pk"))
    projects = list(Project.objects.filter(cluster__in=clusters).order_by("name", "pk"))
    owners: defaultdict[UUID, list[Department | Project]] = defaultdict(list)
    everyone: list[Department | Project] = [*departments, *projects]
    for owner in everyone:
        owners[owner.cluster_id].append(owner)
    parents = quotas_in(DepartmentQuota.objects.filter(node_pool__in=pools))
    leaves = quotas_in(ProjectQuota.objects.filter(node_pool__in=pools))
    used: defaultdict[str, dict[int, Usage]] = defaultdict(dict)
    for (project, pool_name), usage in usage_by_queue([each.pk for each in projects]).items():
        used[pool_name][project] = usage
    nodes = {pool: amounts for pool, *amounts in _node_sums(pools)}
    return [
        _of_pool(pool, owners[pool.cluster_id], (parents, leaves), used[pool.name], nodes.get(pool.pk))
        for pool in pools
    ]


def pool_sums(pools: Sequence[NodePool]) -> list[PoolTotals]:
    """`PoolQuotas.sums` of each of these pools, added up by the database."""
    departments, projects, nodes = (
        dict(rows.filter(**{f"{column}__in": pools}).order_by().values_list(column).annotate(Sum(amount)))
        for rows, column, amount in (
            (DepartmentQuota.objects.all(), "node_pool", "gpu_deserved"),
            (ProjectQuota.objects.all(), "node_pool", "gpu_deserved"),
            (Node.objects.all(), "pool", "gpu_milli"),
        )
    )
    used = usage_by_pool({pool.cluster_id for pool in pools})
    return [
        PoolTotals(
            pool=pool,
            physical=nodes.get(pool.pk),
            departments=departments.get(pool.pk) or 0,
            projects=projects.get(pool.pk) or 0,
            usage=used.get((pool.cluster_id, pool.name), Usage()),
        )
        for pool in pools
    ]


POOLS_AT_FIRST: Final = 4


def quotas_in_turn(pools: Sequence[NodePool]) -> Iterator[PoolQuotas]:
    """`pool_quotas` for a page, read as far as it reaches: of four pools, then of twice as many each time."""
    start, count = 0, POOLS_AT_FIRST
    while start < len(pools):
        yield from pool_quotas(pools[start : start + count])
        start, count = start + count, 2 * count


Sums = Sequence[int | None]


def _node_sums(pools: Sequence[NodePool]) -> Iterable[tuple[int | None, ...]]:
    """Pool; GPUs, CPU and memory of all its nodes, and of those that take pods."""
    takes = Q(ready=True, unschedulable=False)
    return (
        Node.objects.filter(pool__in=pools)
        .order_by()
        .values_list("pool")
        .annotate(
            all_gpus=Sum("gpu_milli"),
            all_cpu=Sum("cpu_milli"),
            all_memory=Sum("memory_bytes"),
            gpu=Sum("gpu_milli", filter=takes),
            cpu=Sum("cpu_milli", filter=takes),
            memory=Sum("memory_bytes", filter=takes),
        )
    )


def _of_pool(
    pool: NodePool,
    owners: Iterable[Department | Project],
    quotas: tuple[Mapping[tuple[int, int], QuotaRow], Mapping[tuple[int, int], QuotaRow]],
    used: Mapping[int, Usage],
    nodes: Sums | None,
) -> PoolQuotas:
    own = {key_of(owner): owner for owner in owners}
    parents, leaves = quotas
    rows = {key: (leaves if key.kind == "project" else parents).get((key.pk, pool.pk)) for key in own}
    whole, free = (nodes[:3], nodes[3:]) if nodes else (None, ())
    return PoolQuotas(
        pool=pool,
        owners=own,
        quotas={key: row for key, row in rows.items() if row is not None},
        project_usage={key.pk: used[key.pk] for key in own if key.kind == "project" and key.pk in used},
        nodes=None if whole is None else Resources(*(amount or 0 for amount in whole)),
        capacity=Resources(*(amount or 0 for amount in free)),
    )


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """A department or a project in the pool, as its reader may see and change it."""

    owner: Department | Project
    quota: QuotaRow
    usage: Usage
    may_change: bool

    @property
    def key(self) -> OwnerKey:
        return key_of(self.owner)

    def over_quota(self, resource: str = "gpu") -> int:
        """How much is in use above the deserved quota; 0 where the resource is not counted."""
        return over(getattr(self.usage.allocated, resource), getattr(self.quota.deserved, resource))


@dataclass(frozen=True, slots=True)
class Branch:
    """A department with its projects. line: None where the reader may see no more of the department than its name.

    projects_deserved: what all its projects deserve, those that a search leaves out too.
    """

    department: Department
    line: QuotaLine | None
    projects: Sequence[QuotaLine]
    projects_deserved: int

    @property
    def over_committed(self) -> int:
        """GPU thousandths that its projects deserve above its own deserved quota."""
        return over(self.projects_deserved, self.line.quota.deserved.gpu) if self.line else 0


def may_see(access: Access, owner: Department | Project) -> bool:
    if isinstance(owner, Project):
        return access.can(Permission.VIEW_PROJECT, project=owner)
    return access.can(Permission.VIEW_DEPARTMENT, department=owner)


def may_change(access: Access, owner: Department | Project) -> bool:
    if isinstance(owner, Project):
        return access.can(Permission.MANAGE_PROJECT_QUOTA, project=owner)
    return access.can(Permission.MANAGE_DEPARTMENT_QUOTA, department=owner)


def branches_of(quotas: PoolQuotas, access: Access, *, search: str = "") -> Iterator[Branch]:
    """What the reader may see. `search`: a part of the name of the project, or of its department."""
    text = search.lower()
    for department in quotas.departments:
        named = text in department.name.lower()
        seen = [each for each in quotas.projects_of.get(department.pk, ()) if may_see(access, each)]
        projects = [each for each in seen if named or text in each.name.lower()]
        own = _line(quotas, access, department) if may_see(access, department) else None
        if projects or (named and own):
            sums = quotas.deserved_by_projects.get(department.pk, Resources())
            lines = [_line(quotas, access, each) for each in projects]
            yield Branch(department, own, lines, sums.gpu)


def lines_of(
    pools: Iterable[PoolQuotas], access: Access, *, search: str = "", department: str = ""
) -> Iterator[tuple[PoolQuotas, Branch, QuotaLine]]:
    """What the reader may see in these pools as a list, each department before its projects."""
    return (
        (quotas, branch, line)
        for quotas in pools
        for branch in branches_of(quotas, access, search=search)
        if department in {"", branch.department.name}
        for line in (branch.line, *branch.projects)
        if line
    )


def _line(quotas: PoolQuotas, access: Access, owner: Department | Project) -> QuotaLine:
    key = key_of(owner)
    return QuotaLine(owner, quotas.quota(key), quotas.usage(key), may_change(access, owner))


def requested_by(quotas: PoolQuotas, key: OwnerKey) -> Resources:
    """In use and waiting; never less than what is in use."""
    use = quotas.usage(key)
    return per_dimension(max, use.requested, use.allocated)


def fair_shares_of(quotas: PoolQuotas) -> dict[OwnerKey, Resources]:
    """By the rule of KAI, from the nodes that take pods and what is in use and waiting; departments before projects."""
    requested = {_name(key): requested_by(quotas, key) for key in quotas.owners}
    found = fair_shares(list(_queues(quotas)), requested, quotas.capacity)
    return {key: found[_name(key)] for key in quotas.owners}


def _name(key: OwnerKey) -> str:
    return f"{key.kind} {key.pk}"


def _queues(quotas: PoolQuotas) -> Iterator[Queue]:
    """Departments with their projects below them, in the order in which Rung writes them."""
    traits = flavour_for(quotas.pool.cluster.flavour).traits
    for order, (key, owner) in enumerate(quotas.owners.items()):
        row = quotas.quota(key)
        gpu, cpu, memory = queue_weights(row, traits)
        yield Queue(
            name=_name(key),
            parent=_name(OwnerKey("department", owner.department_id)) if isinstance(owner, Project) else None,
            pool=quotas.pool.name,
            deserved=row.deserved,
            limit=row.limit,
            weight=gpu,
            cpu_weight=cpu,
            memory_weight=memory,
            rank=RANK_TO_PRIORITY[row.rank],
            created=order,
        )
