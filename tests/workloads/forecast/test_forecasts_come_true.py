"""What the submit page predicts is what the simulated cluster then does, whatever scheduler it plays: by seed."""

import random
from collections import Counter

import pytest

from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import NodePool
from clusters.inventory.services.inventory import update_node_pool
from clusters.ports.gateway import Manifest
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota
from tests.factories.workloads import pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, configure, fresh
from workloads.forecast.rules.forecast import HOLDS, Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db

PRIORITIES = ("very-low", "low", "medium", "medium-high", "high")
GPU = 1000


def evicting(lab: Lab) -> None:
    """Volcano as Rung wants it configured; as shipped it evicts nobody."""
    if lab.cluster.flavour == "volcano":
        configure(lab, 'actions: "allocate, preempt, reclaim, backfill"\n')


class World:
    """Two nodes and two projects full of work, and somebody who comes.

    `racks`: of two nodes each, of which gangs want one, and twice as much quota as there is on them.
    """

    def __init__(self, flavour: str, seed: int, *, racks: int = 0) -> None:
        self.dice = random.Random(seed)
        self.racks = racks
        self.lab = Lab(flavour, nodes=0 if racks else 2)
        for number in range(2 * racks):
            self.lab.node(f"node-{number}", gpus=4, rack=f"rack-{number % racks}")
        if racks:
            update_node_pool(pool=NodePool.objects.get(), topology_levels=["rack"], actor=SYSTEM)
        evicting(self.lab)
        times = 2 if racks else 1
        DepartmentQuota.objects.update(gpu_deserved=16 * times * GPU)  # 16: as much as the nodes have
        deserved = [amount * times for amount in self.dice.choice([(8, 8), (4, 8), (2, 12)])]
        names = zip(("one", "two"), deserved, strict=True)
        self.projects = [self.lab.project(name, deserved=amount) for name, amount in names]

    def requested(self) -> tuple[Project, int, int, str]:
        """Whose, how many pods of how many GPUs, how important."""
        gpus = self.dice.choice([1, 2, 4, 4, 8])
        workers = self.dice.choice([0, 0, 1]) if gpus < 8 else 0
        return self.dice.choice(self.projects), gpus, workers, self.dice.choice(PRIORITIES)

    def fill(self) -> None:
        for number in range(self.dice.choice([3, 5, 6])):
            project, gpus, workers, priority = self.requested()
            name = f"work-{number}"
            manifest = self.manifest(name, gpus, workers)
            self.lab.submit(project, name, manifest=manifest, priority=priority, preemptibility="preemptible")
            self.lab.settle(2)
        self.lab.settle(4, seconds=40)

    def manifest(self, name: str, gpus: int, workers: int) -> Manifest:
        found = pytorch_job(name, gpus=min(gpus, 4) if self.racks else gpus, workers=workers)
        if self.racks and workers:
            found["metadata"]["annotations"] = {"rung.dev/topology-key": "rack"}
        return found

    def predicted(self) -> tuple[Forecast, Workload]:
        """What was said of the newcomer, and the newcomer."""
        project, gpus, workers, priority = self.requested()
        manifest = self.manifest("newcomer", gpus, workers)
        spec = spec_of(manifest, namespace=project.namespace, priority=priority, preemptibility="preemptible")
        said = forecast(spec=spec, project=project, actor=SYSTEM)
        requested = self.lab.submit(
            project, "newcomer", manifest=manifest, priority=priority, preemptibility="preemptible"
        )
        return said, requested


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
@pytest.mark.parametrize("seed", range(6))
def test_verdict_and_victims_are_what_then_happens(flavour: str, seed: int) -> None:
    compare(World(flavour, seed))


@pytest.mark.parametrize("seed", range(8))
def test_so_they_are_where_kueue_gives_places_on_nodes(seed: int) -> None:
    compare(World("kueue", seed, racks=2))


def compare(world: World) -> None:
    world.fill()
    before = set(PreemptionRecord.objects.values_list("pk", flat=True))
    said, newcomer = world.predicted()
    world.lab.settle(3)
    records = PreemptionRecord.objects.exclude(pk__in=before).select_related("victim")
    went = Counter({each.victim: 0 for each in records})
    for record in records:
        went[record.victim] += record.gpu_milli
    predicted = Counter({each.workload: each.gpu_milli for each in said.victims if each.workload})
    assert went == predicted, said.sentence
    if HOLDS in said.cautions:  # admitted without room on the nodes: it waits, or runs in part
        return
    assert (fresh(newcomer).phase == Phase.RUNNING) is (said.verdict is Verdict.STARTS), said.sentence
    causes = {record.cause for record in records}
    if said.verdict is Verdict.RECLAIMS:
        assert causes == {"reclaim"}
    elif said.verdict is Verdict.EVICTS:
        assert "preempt" in causes
    else:
        assert not causes
