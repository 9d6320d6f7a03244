"""The organisations that `bench_pages` measures on: clusters with nodes and pods, projects, workloads, people."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import cycle
from typing import Final
from uuid import UUID

from benchmarks import stage

# isort: split
from django.db import connection
from django.db.models import Value
from django.db.models.functions import Concat
from django.utils import timezone

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import ObservedPod
from clusters.watch.selectors import RESOLUTIONS
from clusters.watch.services.usage import EVERY, SPANS, sample_clusters
from portal.kit.messaging.tasks import period_start
from tenants.access.models import Membership, Role, User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, ProjectQuota, TimeLimit
from workloads.state.models import Workload

NODES: Final = 120
PODS: Final = 4
"""On every node, of one GPU each: of a running workload of each project, where it has one."""
RARE: Final = 60
"""The oldest workloads, whose names are searched for: a full page on either estate. So many more are the member's."""
PROJECTS_PER_DEPARTMENT: Final = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much an estate holds."""

    workloads: int
    projects: int
    clusters: int

    @property
    def database(self) -> str:
        """Its name in the server."""
        return f"pages_{self.workloads}"


SMALL: Final = Size(200, 100, 2)


def fill(size: Size) -> None:
    """The estate: an admin, a member of one project, a robot's roles, clusters with nodes, projects, workloads."""
    now = timezone.now()
    clusters = [
        Cluster.objects.create(name=f"c{number}", flavour="kai", observed_at=now) for number in range(size.clusters)
    ]
    pools = NodePool.objects.bulk_create(
        NodePool(cluster=each, name="h100", label_value="h100", is_default=True) for each in clusters
    )
    Node.objects.bulk_create(
        Node(
            cluster=pool.cluster,
            pool=pool,
            uid=f"{pool.pk}-{number}",
            name=f"n{number}",
            gpu_milli=8000,
            cpu_milli=96_000,
            memory_bytes=2**40,
            observed_at=now,
        )
        for pool in pools
        for number in range(NODES)
    )
    _projects(size, pools)
    stage.fill(size.workloads, size.projects)
    ended = Workload.objects.filter(phase__in=("Running", "Pending")).order_by("-created_at")
    keep = list(ended.values_list("pk", flat=True)[: 80 * size.clusters // SMALL.clusters])
    ended.exclude(pk__in=keep).update(phase="Completed")
    Workload.objects.filter(phase="Running").update(started_at=now)
    _pods(now)
    for kind in (TimeLimit, IdleLimit):
        kind.objects.bulk_create(
            kind(department=each, category="Train", minutes=1440)
            for each in Department.objects.exclude(projects__name="p3")  # which `world_of` furnishes
        )
    oldest = Workload.objects.order_by("created_at").values("pk")[:RARE]
    Workload.objects.filter(pk__in=list(oldest.values_list("pk", flat=True))).update(
        name=Concat(Value("rare-"), "name")
    )
    finished = Workload.objects.exclude(phase__in=("Running", "Pending")).order_by("-created_at").values("pk")[:RARE]
    Workload.objects.filter(pk__in=list(finished.values_list("pk", flat=True))).update(
        project=Project.objects.get(name="p3")
    )
    User.objects.create_superuser("admin", password="bench")
    member = User.objects.create_user("member", password="bench")
    Membership.objects.create(user=member, project=Project.objects.get(name="p3"), role_id=Role.MEMBER)
    _history(now)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _history(now: datetime) -> None:
    """The samples that averages are made of."""
    at = period_start(now, EVERY)
    sample_clusters(list(Cluster.objects.values_list("pk", flat=True)), at=at)
    with connection.cursor() as cursor:
        for grain, span in {grain: span for span, grain in SPANS.values()}.items():
            every = RESOLUTIONS[grain].every
            cursor.execute(
                "INSERT INTO clusters_sample (cluster_id, kind, owner, at, grain, figures)"
                " SELECT cluster_id, kind, owner, %(at)s - n * %(every)s - %(apart)s, %(grain)s, figures"
                " FROM clusters_sample, generate_series(1, %(count)s) AS n WHERE at = %(at)s",
                {"at": at, "every": every, "apart": timedelta(seconds=grain), "grain": grain, "count": span // every},
            )


def _pods(now: datetime) -> None:
    """Four on each node, of the projects of its cluster in turn; one waiting for each pending workload."""
    owners: dict[int, Workload] = {}
    pods: list[ObservedPod] = []
    for each in Workload.objects.filter(phase__in=("Running", "Pending")).select_related("project"):
        if each.phase == "Running":
            owners[each.project_id] = each
        else:
            pods.append(_pod(each.project, each, len(pods), now))
    projects: defaultdict[UUID, list[Project]] = defaultdict(list)
    for project in Project.objects.order_by("pk"):
        projects[project.cluster_id].append(project)
    places = [f"n{number}" for number in range(NODES) for _ in range(PODS)]
    for of_cluster in projects.values():
        for place, project in zip(places, cycle(of_cluster), strict=False):
            pods.append(_pod(project, owners.get(project.pk), len(pods), now, place))
    ObservedPod.objects.bulk_create(pods, batch_size=2000)


def _pod(project: Project, workload: Workload | None, number: int, now: datetime, node: str = "") -> ObservedPod:
    return ObservedPod(
        cluster_id=project.cluster_id,
        uid=f"pod-{number}",
        namespace=project.namespace,
        name=f"pod-{number}",
        owner_id=str(workload.pk) if workload else "",
        node_name=node,
        pool_name="h100",
        phase="Running" if node else "Pending",
        gpu_milli=1000,
        cpu_milli=4000,
        memory_bytes=2**30,
        preemptible=bool(number % 3),
        observed_at=now,
        created_at=workload.created_at if workload else now,
    )


def _projects(size: Size, pools: list[NodePool]) -> None:
    departments: list[Department] = []
    projects: list[Project] = []
    for number in range(size.projects):
        pool = pools[number % len(pools)]
        if number < len(pools) or number // len(pools) % PROJECTS_PER_DEPARTMENT == 0:
            departments.append(Department.objects.create(cluster=pool.cluster, name=f"d{number}"))
        place = next(each for each in reversed(departments) if each.cluster_id == pool.cluster_id)
        projects.append(
            Project(department=place, cluster=pool.cluster, name=f"p{number}", namespace=f"runai-p{number}")
        )
    Project.objects.bulk_create(projects)
    by_cluster = {pool.cluster_id: pool for pool in pools}
    ProjectQuota.objects.bulk_create(
        ProjectQuota(project=each, node_pool=by_cluster[each.cluster_id], gpu_deserved=40_000) for each in projects
    )
