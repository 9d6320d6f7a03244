"""What the submit page foretells is what the simulated cluster then does, whatever scheduler it plays: by seed."""

import random
from collections import Counter

import pytest

from clusters.flavours import FLAVOURS
from portal.core.actors import SYSTEM
from tenants.models import DepartmentQuota, Project
from tests.factories.workloads import pytorch_job, spec_of
from tests.workloads.lab import Lab, configure, fresh
from workloads.forecasts import Forecast, Verdict
from workloads.models import Phase, PreemptionRecord, Workload
from workloads.quota_only import HOLDS
from workloads.services.preview import forecast

pytestmark = pytest.mark.django_db

LEVELS = ("very-low", "low", "medium", "medium-high", "high")
GPU = 1000


def evicting(lab: Lab) -> None:
    """Volcano as Rung wants it configured; as shipped it evicts nobody."""
    if lab.cluster.flavour == "volcano":
        configure(lab, 'actions: "allocate, preempt, reclaim, backfill"\n')


class World:
    """Two nodes and two projects full of work, and somebody who comes."""

    def __init__(self, flavour: str, seed: int) -> None:
        self.dice = random.Random(seed)
        self.lab = Lab(flavour, nodes=2)
        evicting(self.lab)
        DepartmentQuota.objects.update(gpu_deserved=16 * GPU)  # as much as the nodes have
        deserved = self.dice.choice([(8, 8), (4, 8), (2, 12)])
        names = zip(("one", "two"), deserved, strict=True)
        self.projects = [self.lab.project(name, deserved=amount) for name, amount in names]

    def asked(self) -> tuple[Project, int, int, str]:
        """Whose, how many pods of how many GPUs, how important."""
        gpus = self.dice.choice([1, 2, 4, 4, 8])
        workers = self.dice.choice([0, 0, 1]) if gpus < 8 else 0
        return self.dice.choice(self.projects), gpus, workers, self.dice.choice(LEVELS)

    def fill(self) -> None:
        for number in range(self.dice.choice([3, 5, 6])):
            project, gpus, workers, priority = self.asked()
            name = f"work-{number}"
            manifest = pytorch_job(name, gpus=gpus, workers=workers)
            self.lab.submit(project, name, manifest=manifest, priority=priority, preemptibility="preemptible")
            self.lab.settle(3)
        self.lab.settle(4, seconds=40)

    def foretold(self) -> tuple[Forecast, Workload]:
        """What was said of the newcomer, and the newcomer."""
        project, gpus, workers, priority = self.asked()
        manifest = pytorch_job("newcomer", gpus=gpus, workers=workers)
        spec = spec_of(manifest, namespace=project.namespace, priority=priority, preemptibility="preemptible")
        said = forecast(spec=spec, project=project, actor=SYSTEM)
        asked = self.lab.submit(project, "newcomer", manifest=manifest, priority=priority, preemptibility="preemptible")
        return said, asked


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
@pytest.mark.parametrize("seed", range(6))
def test_verdict_and_victims_are_what_then_happens(flavour: str, seed: int) -> None:
    world = World(flavour, seed)
    world.fill()
    before = set(PreemptionRecord.objects.values_list("pk", flat=True))
    said, newcomer = world.foretold()
    world.lab.settle(3)
    records = PreemptionRecord.objects.exclude(pk__in=before).select_related("victim")
    went = Counter({each.victim: 0 for each in records})
    for record in records:
        went[record.victim] += record.gpu_milli
    foretold = Counter({each.workload: each.gpu_milli for each in said.victims if each.workload})
    if HOLDS in said.cautions:  # kube-scheduler may evict whoever is weaker, once Kueue has let it go
        weaker = {each for each in went if each.priority_value < newcomer.priority_value}
        assert set(went) <= {*foretold, *weaker}, said.sentence
        return
    assert went == foretold, said.sentence
    assert (fresh(newcomer).phase == Phase.RUNNING) is (said.verdict is Verdict.STARTS), said.sentence
    causes = {record.cause for record in records}
    if said.verdict is Verdict.RECLAIMS:
        assert causes == {"reclaim"}
    elif said.verdict is Verdict.EVICTS:
        assert "preempt" in causes
    else:
        assert not causes
