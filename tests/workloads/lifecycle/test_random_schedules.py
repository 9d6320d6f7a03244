"""F21: submits, stops, resumes, deletes and priority changes in any order beside evictions and completions, by seed."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from django.utils import timezone

from clusters.ports.objects import WORKLOAD_KINDS, owner_of
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.watch.models import ObservedPod
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.lifecycle.services.actions import change_priority, delete, resume, stop
from workloads.lifecycle.services.apply_queue import drain
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import DesiredPhase, Phase, Workload, WorkloadEvent
from workloads.state.rules import ENDED, HOLDING, TRANSITIONS, WAITING

pytestmark = pytest.mark.django_db

PRIORITIES = ("very-low", "low", "medium", "high")
STEPS = 30


class Chaos:
    """One seeded run of people and a scheduler getting into each other's way."""

    def __init__(self, seed: int, flavour: str) -> None:
        self.dice = random.Random(seed)
        self.lab = Lab(flavour)
        self.projects = [self.lab.project(name, deserved=4, limit=8) for name in ("one", "two")]

    def run(self) -> None:
        for number in range(STEPS):
            self._act(number)
            if self.dice.random() < 0.6:
                self.lab.settle(1, seconds=self.dice.choice([1, 20, 60]))
        for _ in range(5):
            # Pauses between tries pass on the wall clock, the sandbox's time does not.
            Workload.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
            self.lab.settle(3, seconds=40)

    def _act(self, number: int) -> None:
        project: Project = self.dice.choice(self.projects)
        rows = list(Workload.objects.filter(project=project, deleted_at__isnull=True))
        try:
            if not rows or self.dice.random() < 0.55:
                self._submit(project, f"work-{number}")
            else:
                self._change(fresh(self.dice.choice(rows)))
        except Conflict:
            pass  # a legal answer to a person who comes too late

    def _submit(self, project: Project, name: str) -> None:
        seconds = self.dice.choice(["30", "86400", "86400"])
        gpus = self.dice.choice([2, 4, 8])
        self.lab.submit(
            project,
            name,
            gpus=gpus,
            seconds=seconds,
            priority=self.dice.choice(PRIORITIES),
            preemptibility="preemptible",
        )

    def _change(self, workload: Workload) -> None:
        verb = self.dice.choice([stop, resume, delete, None])
        if verb is None:
            change_priority(workload=workload, priority=self.dice.choice(PRIORITIES), actor=SYSTEM)
        else:
            verb(workload=workload, actor=SYSTEM)

    def objects(self) -> Counter[str]:
        """Live objects per owner."""
        gateway, found = SandboxGateway(self.lab.cluster), Counter[str]()
        for kind in WORKLOAD_KINDS:
            if kind.key != "Pod":
                found.update(owner_of(each).removeprefix("workload.") for each in gateway.list(kind)[0])
        return found


@pytest.mark.parametrize("flavour", ["kai", "kube"])
@pytest.mark.parametrize("seed", range(2))
def test_every_row_ends_where_its_people_wanted_it(seed: int, flavour: str) -> None:
    chaos = Chaos(seed, flavour)
    chaos.run()
    objects = chaos.objects()
    for workload in Workload.objects.all():
        held = objects.pop(str(workload.pk), 0)
        if workload.desired_phase == DesiredPhase.DELETED:
            assert (workload.phase, workload.deleted_at is not None, held) == (Phase.DELETING, True, 0)
        elif workload.phase not in ENDED and workload.desired_phase == DesiredPhase.RUNNING:
            assert held == 1
            assert workload.phase in HOLDING | WAITING
            assert (workload.running_pods > 0) is (workload.phase in HOLDING)
        elif workload.phase not in ENDED:
            assert (workload.phase, workload.running_pods) == (Phase.STOPPED, 0)
    assert not objects
    assert drain() == 0
    assert_history_is_legal()


def assert_history_is_legal() -> None:
    """Every move is in the table; every evicted pod has one record; nothing is counted twice."""
    for workload in Workload.objects.all():
        phases = [entry.phase for entry in WorkloadEvent.objects.filter(workload=workload, type="phase").order_by("pk")]
        assert phases[0] == "Creating"
        assert all(after in TRANSITIONS[before] for before, after in pairwise(phases)), phases
    evicted = ObservedPod.objects.filter(disruption_reason="PreemptionByScheduler").values_list("uid", flat=True)
    recorded = Counter(PreemptionRecord.objects.values_list("pod_uid", flat=True))
    assert set(recorded) == set(evicted)
    assert set(recorded.values()) <= {1}
