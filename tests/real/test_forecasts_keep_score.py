"""A hundred forecasts followed by submissions to a real kube-scheduler: those that nothing disturbed have held, and
each of those that were made to fail is counted under what was done to it.
"""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import NODE, RESOURCE_QUOTA
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM, Actor
from scheduling.model.resources import Resources
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.factories.cast import acting
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, ProjectQuotaFactory, UserFactory
from tests.factories.workloads import bare_pod, spec_of
from tests.real.product import PATIENCE, Product, fresh, quick
from tests.real.scenarios import objects
from tests.real.scenarios.objects import MARK
from tests.real.scenarios.plain import NodePlan, PodPlan, Scenario
from tests.real.scenarios.stage import NODES
from tests.support.kube import MERGE
from workloads.forecast.models import StoredForecast
from workloads.forecast.selectors.accuracy import tallies, together
from workloads.forecast.services.scoring import HORIZON, score
from workloads.forecast.services.storage import scenario_of, stored_forecast
from workloads.intake import WorkloadSpec
from workloads.lifecycle.services.actions import stop
from workloads.state.models import Workload
from workloads.submission.services import submit

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
POOLS, ROUNDS = 10, 9
PRIORITIES = ("low", "medium", "high", "very-high")
DONE_TO = {
    "overtaken": 3,
    "cordoned": 2,
    "quota": 1,
    "hidden": 2,
    "old": 1,
    "stopped": 1,
}
"""How many are made to fail, by how."""


@dataclass
class Stream:
    """People who ask and submit, each in a node pool of 12 GPUs."""

    product: Product
    project: Project
    pools: list[NodePool] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    made: int = 0

    def pool(self) -> NodePool:
        """One more, of two nodes."""
        number = 9000 + len(self.pools)
        nodes = tuple(NodePlan(f"n{gpus}", Resources.of(gpu=gpus, cpu=64, memory="512Gi")) for gpus in (4, 8))
        comer = PodPlan("none", "agree-a", Resources(), None)
        plan = Scenario(number, "score", nodes, (), comer)
        for node in nodes:
            made = objects.node_object(plan, node)
            self.product.admin.call("POST", "/api/v1/nodes", made)
            self.product.admin.call(
                "PATCH", f"/api/v1/nodes/{made['metadata']['name']}", {"spec": {"taints": None}}, MERGE
            )
        found: NodePool = NodePoolFactory(
            cluster=self.product.cluster, name=f"pool-{number}", label_key=MARK, label_value=str(number)
        )
        ProjectQuotaFactory(project=self.project, node_pool=found, gpu_deserved=5000 * GPU)
        self.pools.append(found)
        return found

    def spec(self, pool: NodePool, *, gpus: int, priority: str, project: Project | None = None) -> WorkloadSpec:
        self.made += 1
        return spec_of(
            quick(bare_pod(f"work-{self.made}", gpus=gpus)),
            namespace=(project or self.project).namespace,
            priority=priority,
            preemptibility="preemptible",
            node_pools=(pool.name,),
        )

    def drawn(self, pool: NodePool) -> WorkloadSpec:
        return self.spec(pool, gpus=self.dice.choice((1, 2, 2, 4)), priority=self.dice.choice(PRIORITIES))

    def ask(self, spec: WorkloadSpec, project: Project | None = None) -> None:
        stored_forecast(spec=spec, project=requested(project or self.project), actor=SYSTEM)

    def submit(self, spec: WorkloadSpec, project: Project | None = None, *, actor: Actor = SYSTEM) -> Workload:
        workload = submit(spec=spec, project=requested(project or self.project), actor=actor)
        self.product.apply(workload)
        return workload

    def settle(self, *workloads: Workload) -> None:
        """Until each runs or has a reason why not, no pod is terminating, and the next one starts in another second.

        Of pods that started in one second kube-scheduler evicts any: a forecast then names one, and a doubt.
        """
        wanted = {str(each.pk) for each in workloads}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.product.look()
            rows = ObservedPod.objects.filter(cluster=self.product.cluster, gone_at=None)
            leaving = rows.filter(deletion_at__isnull=False).exists()
            promised = rows.filter(node_name="").exclude(nominated_node="").exists()
            said = {row.owner_id for row in rows if row.started_at or (row.reason and not row.node_name)}
            starting = rows.filter(started_at=None).exclude(node_name="").exists()
            if wanted <= said and not (leaving or promised or starting):
                time.sleep(1)
                return
            time.sleep(0.5)
        raise AssertionError("\n".join(self.product.everyone()))


def requested(project: Project) -> Project:
    return Project.objects.select_related("cluster", "department").get(pk=project.pk)


@pytest.fixture
def stream(product: Product) -> Stream:
    stream = Stream(product, product.project("score", deserved=5000))
    for _number in range(POOLS):
        stream.pool()
    product.reconcile()
    product.look()
    return stream


def undisturbed(stream: Stream) -> None:
    """Each pool gets one submission a round, right after its forecast."""
    for _round in range(ROUNDS):
        specs = [stream.drawn(pool) for pool in stream.pools]
        for spec in specs:
            stream.ask(spec)
        stream.settle(*[stream.submit(spec) for spec in specs])
        score()


def overtaken(stream: Stream) -> None:
    """Somebody else takes what was promised, after the forecast."""
    other = acting(UserFactory(is_superuser=True))
    for pool in [fresh_pool(stream) for _each in range(DONE_TO["overtaken"])]:
        spec = stream.spec(pool, gpus=2, priority="very-high")
        stream.ask(spec)
        taking = [stream.spec(pool, gpus=gpus, priority="very-high") for gpus in (8, 4)]
        stream.settle(*[stream.submit(each, actor=other) for each in taking])
        stream.settle(stream.submit(spec))


def cordoned(stream: Stream) -> None:
    """The nodes of a new pool are closed, which is observed only after the scheduler has decided."""
    for _each in range(DONE_TO["cordoned"]):
        pool = fresh_pool(stream)
        spec = stream.spec(pool, gpus=4, priority="high")
        stream.ask(spec)
        for node in stream.product.admin.list(NODE):
            if node["metadata"]["labels"].get(MARK) == pool.label_value:
                path = f"{NODES}/{node['metadata']['name']}"
                stream.product.admin.call("PATCH", path, {"spec": {"unschedulable": True}}, MERGE)
        time.sleep(1)
        stream.settle(stream.submit(spec))
        score()


def fresh_pool(stream: Stream, *projects: Project) -> NodePool:
    """One that is empty, with quotas for these."""
    pool = stream.pool()
    for project in projects:
        ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=8 * GPU, gpu_limit=8 * GPU)
    stream.product.reconcile()
    stream.product.look()
    return pool


def quota(stream: Stream) -> None:
    """The limit that kept it waiting is raised after the forecast."""
    tight = stream.product.project("tight", deserved=0, limit=0)
    pool = fresh_pool(stream, tight)
    stream.settle(stream.submit(stream.spec(pool, gpus=8, priority="high", project=tight), tight))
    spec = stream.spec(pool, gpus=4, priority="high", project=tight)
    stream.ask(spec, tight)
    ProjectQuota.objects.filter(project=tight, node_pool=pool).update(gpu_deserved=16 * GPU, gpu_limit=16 * GPU)
    Cluster.objects.update(generation=stream.product.cluster.generation + 1000)
    stream.product.reconcile()
    workload = stream.submit(spec, tight)
    stream.product.until(workload, lambda row: row.running_pods, work=True)
    score()


def hidden_from_rung(stream: Stream) -> None:
    """A ResourceQuota that Rung did not write refuses every pod of a namespace."""
    project = stream.product.project("hidden", deserved=8)
    pools = [fresh_pool(stream, project) for _each in range(4)]
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "by-hand", "namespace": project.namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
    }
    stream.product.admin.apply(manifest, manager="somebody")
    ref = ObjectRef(RESOURCE_QUOTA, "by-hand", project.namespace)
    stream.product.admin.wait_until(ref, lambda found: found.get("status", {}).get("hard"))
    for how, pool in zip(("hidden", "hidden", "old", "stopped"), pools, strict=True):
        spec = stream.spec(pool, gpus=1, priority="high", project=project)
        if how == "old":
            Cluster.objects.update(observed_at=timezone.now() - timedelta(minutes=6))
        stream.ask(spec, project)
        stream.product.look()
        workload = stream.submit(spec, project)
        stream.product.look()
        if how == "stopped":
            stop(workload=fresh(workload), actor=SYSTEM)


def test_a_hundred_are_judged_by_what_the_scheduler_did(stream: Stream) -> None:
    undisturbed(stream)
    overtaken(stream)
    cordoned(stream)
    quota(stream)
    hidden_from_rung(stream)
    score()
    now = timezone.now() + HORIZON + timedelta(seconds=30)
    Cluster.objects.update(observed_at=now)
    score(now)
    rows = StoredForecast.objects.select_related("workload")
    said = [
        f"{row.workload} {row.verdict} {row.result} {row.why} {row.doubts} {row.victims} {row.evicted}" for row in rows
    ]
    found = Counter((row.result, row.why) for row in rows)
    assert found == {
        ("held", ""): POOLS * ROUNDS,
        ("overtaken", "submission"): DONE_TO["overtaken"],
        ("overtaken", "nodes"): DONE_TO["cordoned"],
        ("overtaken", "quotas"): DONE_TO["quota"],
        ("unexplained", ""): DONE_TO["hidden"],
        ("doubted", "stale_snapshot"): DONE_TO["old"],
        ("not_judged", "stopped"): DONE_TO["stopped"],
    }, "\n".join(said)
    held = Counter(row.verdict for row in rows if row.result == "held")
    assert min(held[verdict] for verdict in ("starts", "evicts", "waits")) >= 5
    assert together(tallies(stream.product.cluster, weeks=2)).sentence.startswith(
        "99 forecasts, 90.9 % held; 9 did not"
    )
    for row in StoredForecast.objects.filter(result="unexplained"):
        scenario = scenario_of(row)
        assert scenario is not None
        assert scenario.outcome().kind == "placed"
