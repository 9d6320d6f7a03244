"""A seeded soak: random workloads come and go on a small cluster; each one's forecast is compared with its fate.

A step is drawn from the seed and its number; what it meets is what the steps before have left, pods that are ending and
Jobs between two tries included. `python -m pytest tests/real/test_soak.py` says how many steps and from which seed.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.objects import POD, RESOURCE_QUOTA
from clusters.watch.models import ObservedPod
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.builders import RUNAI_VALUES
from tests.clusters.watch.streaming import Watching
from tests.factories.tenants import GPU
from tests.factories.workloads import spec_of
from tests.real.product import PATIENCE, Product, fresh
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.actions import delete
from workloads.lifecycle.services.apply import apply
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload
from workloads.state.rules import LIVE

QUIET: Final = {"kai": 5.0}
"""Seconds without a change after which a scheduler has said everything, where they are not `BRIEF`: KAI evicts for
whoever waits once its turn comes, cycles after the room for it was there."""
BRIEF: Final = 2.5
FIRST: Final = 8
"""So many workloads are there before the first forecast."""
CROWD: Final = 12
"""So many at most."""
QUOTAS: Final = (("one", 16, None), ("two", 8, None), ("three", 8, 12))
"""Project, deserved GPUs, limit; 32 GPUs are there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Who comes in one step."""

    kind: str
    project: int
    pods: int
    gpus: int
    cpus: int
    priority: str
    preemptibility: str
    grace: int

    @property
    def chosen(self) -> dict[str, str]:
        return {"priority": self.priority, "preemptibility": self.preemptibility}

    def __str__(self) -> str:
        cpus = f" {self.cpus} CPU" if self.cpus else ""
        shape = f"{self.kind} {self.pods}x{self.gpus} GPU{cpus}"
        return f"{shape} {self.priority} {self.preemptibility} of {QUOTAS[self.project][0]}"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of somebody: refused, or so many pods on nodes once these have been evicted for it."""

    placed: int
    victims: frozenset[str]
    refused: bool = False

    @property
    def kind(self) -> str:
        if self.refused:
            return "refused"
        if self.victims:
            return "evicts"
        return "starts" if self.placed else "waits"

    def __str__(self) -> str:
        whom = f" {', '.join(sorted(self.victims))}" if self.victims else ""
        return self.kind if self.refused else f"{self.kind}{whom} ({self.placed} placed)"


@dataclass(frozen=True, slots=True)
class Step:
    """One forecast beside what happened. cautions: those of this moment; before: who was there; went: all who went."""

    number: int
    requested: Asked
    predicted: Fate
    seen: Fate
    sentence: str
    cautions: tuple[str, ...]
    before: tuple[str, ...]
    went: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        return self.predicted == self.seen

    def __str__(self) -> str:
        said = f"step {self.number:2}: {self.requested}: predicted {self.predicted}, seen {self.seen}"
        if self.agrees:
            return said
        there = "\n    ".join(("there was:", *self.before, "went, for whom:", *self.went))
        return f"{said}\n    said: {self.sentence}\n    cautions: {list(self.cautions)}\n    {there}"


def drawn(dice: random.Random) -> Asked:
    """A newcomer: mostly preemptible, of any size that a node could hold, now and then short of CPU."""
    kind = dice.choice(["Job", "Job", "gang", "Deployment", "Deployment", "Pod"])
    return Asked(
        kind=kind,
        project=dice.randrange(len(QUOTAS)),
        pods=1 if kind in {"Job", "Pod"} else dice.choice([2, 2, 3]),
        gpus=dice.choice([1, 2, 4, 4, 8, 8]),
        cpus=dice.choice([0, 0, 0, 0, 60, 130]),
        priority=dice.choice(sorted(RUNAI_VALUES)),
        preemptibility=dice.choice(["preemptible", "preemptible", "preemptible", "non-preemptible"]),
        grace=dice.choice([1, 2, 4]),
    )


def manifest_of(requested: Asked, name: str) -> Manifest:
    """Pods that run until they are ended, and take their whole grace to go."""
    limits = {"nvidia.com/gpu": str(requested.gpus), **({"cpu": str(requested.cpus)} if requested.cpus else {})}
    container = {"name": "main", "image": "ghcr.io/team/x:1", "resources": {"limits": limits, "requests": limits}}
    pod: dict[str, Any] = {"terminationGracePeriodSeconds": requested.grace, "containers": [container]}
    if requested.kind == "Pod":
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", **pod},
        }
    if requested.kind == "Deployment":
        marks = {"app": name}
        template = {"metadata": {"labels": marks}, "spec": pod}
        spec = {"replicas": requested.pods, "selector": {"matchLabels": marks}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    template = {"spec": {"restartPolicy": "Never", **pod}}
    spec = {"parallelism": requested.pods, "completions": requested.pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


class Soak:
    """One run on one product."""

    def __init__(self, product: Product, watching: Watching, seed: int) -> None:
        self.product, self.watching, self.seed = product, watching, seed
        self._quiet = QUIET.get(product.cluster.flavour, BRIEF)
        product.department.quotas.update(gpu_deserved=32 * GPU)
        self.projects = [product.project(name, deserved=deserved, limit=limit) for name, deserved, limit in QUOTAS]
        product.reconcile()

    def run(self, steps: int) -> Iterator[Step]:
        """First a crowd, of which nothing is predicted; then in each step some go and one comes."""
        dice = random.Random(f"{self.seed}")
        for number in range(FIRST):
            self._submit(drawn(dice), f"first-{number}")
        self.settle()
        for number in range(steps):
            dice = random.Random(f"{self.seed}-{number}")
            self._leave(dice)
            yield self._come(number, drawn(dice))

    def _leave(self, dice: random.Random) -> None:
        """Somebody is deleted, in one step of three and where it is crowded."""
        live = list(Workload.objects.filter(phase__in=LIVE, deleted_at=None).order_by("created_at"))
        many = max(len(live) - CROWD, int(dice.random() < 0.33))
        for workload in dice.sample(live, min(many, len(live))):
            delete(workload=fresh(workload), actor=SYSTEM)
            self.product.apply(workload)
        if many:
            self.settle()

    def _submit(self, requested: Asked, name: str) -> Workload | None:
        """None: refused."""
        project, manifest = self._project(requested), manifest_of(requested, name)
        try:
            return self.product.submit(project, manifest, **requested.chosen)
        except ValidationFailed:
            return None

    def _project(self, requested: Asked) -> Project:
        return Project.objects.select_related("cluster", "department").get(pk=self.projects[requested.project].pk)

    def _come(self, number: int, requested: Asked) -> Step:
        name, project = f"w{number}", self._project(requested)
        spec = spec_of(manifest_of(requested, name), namespace=project.namespace, **requested.chosen)
        before, known = self._there(), set(PreemptionRecord.objects.values_list("pk", flat=True))
        answer = forecast(spec=spec, project=project, actor=SYSTEM)
        workload = self._submit(requested, name)
        seen = self._fate(workload, known) if workload else Fate(0, frozenset(), refused=True)
        return Step(
            number,
            requested,
            predicted(answer),
            seen,
            answer.sentence,
            _of_the_moment(project, answer),
            before,
            _went(known),
        )

    def _there(self) -> tuple[str, ...]:
        """A line for each workload: its pods by node, and why others wait."""
        pods: dict[str, list[str]] = defaultdict(list)
        for pod in ObservedPod.objects.filter(cluster=self.product.cluster, gone_at=None):
            word = "leaving " if pod.deletion_at else ""
            pods[pod.owner_id].append(f"{word}{pod.node_name or pod.nominated_node or pod.reason or 'nowhere'}")
        rows = Workload.objects.filter(phase__in=LIVE, deleted_at=None).select_related("project").order_by("created_at")
        workloads = tuple(
            f"{row.name} of {row.project.name}: {row.type.name} of {row.pod_count}, {row.gpu_milli // GPU} GPU "
            f"{row.cpu_milli // GPU} CPU, {row.priority_value}: {row.phase} {row.phase_reason} {pods[str(row.pk)]}"
            for row in rows
        )
        return workloads + tuple(map(_counted, self.product.admin.list(RESOURCE_QUOTA)))

    def _fate(self, workload: Workload, before: set[int]) -> Fate:
        """Its victims are also those of whom nobody says for whom they went: nobody else came."""
        most = self.settle(workload)
        found = PreemptionRecord.objects.exclude(pk__in=before).filter(Q(preemptor=workload) | Q(preemptor=None))
        return Fate(most, frozenset(found.values_list("victim__name", flat=True)))

    def settle(self, newcomer: Workload | None = None) -> int:
        """Until nothing changes; answers how many of the newcomer's pods had a node at once, at most."""
        deadline, since, before, most = time.monotonic() + PATIENCE, time.monotonic(), "", 0
        while time.monotonic() < deadline:
            self._turn()
            pods = self.product.admin.list(POD)
            now = str([_standing(pod) for pod in pods])
            if now != before or any("deletionTimestamp" in pod["metadata"] for pod in pods):
                before, since = now, time.monotonic()
            if newcomer is not None:
                most = max(most, _placed(pods, newcomer))
            if time.monotonic() - since > self._quiet and (newcomer is None or self._is_decided(newcomer)):
                return most
            time.sleep(0.1)
        raise AssertionError("\n".join(["it does not settle:", *self.product.everyone()]))

    def _turn(self) -> None:
        """What observer and workers do."""
        if self.watching.streams.is_due():
            self.watching.streams.turn()
        for pk in Workload.objects.filter(due_at__lte=timezone.now()).values_list("pk", flat=True):
            apply(pk)

    def _is_decided(self, workload: Workload) -> bool:
        """Each of its pods has a node or a reason, or it has one itself."""
        pods = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None)
        waiting = pods.filter(node_name="", reason="")
        return bool(fresh(workload).phase_reason) or (pods.exists() and not waiting.exists())


def _counted(quota: Manifest) -> str:
    """What the cluster counts of GPUs, which may lag behind its pods."""
    metadata, status = quota["metadata"], quota.get("status", {})
    amounts = [
        f"{status.get('used', {}).get(name)} of {hard}"
        for name, hard in status.get("hard", {}).items()
        if "gpu" in name
    ]
    return f"quota {metadata['namespace']}/{metadata['name']}: {', '.join(amounts)}"


def _went(before: set[int]) -> tuple[str, ...]:
    found = PreemptionRecord.objects.exclude(pk__in=before).select_related("victim", "preemptor")
    return tuple(
        f"{each.victim.name} {each.cause} for {each.preemptor.name if each.preemptor else '?'}" for each in found
    )


def predicted(answer: Forecast) -> Fate:
    """The same of a forecast."""
    victims = frozenset(each.label for each in answer.victims)
    return Fate(answer.starting + answer.coming, victims, refused=answer.verdict is Verdict.REFUSED)


def _of_the_moment(project: Project, answer: Forecast) -> tuple[str, ...]:
    effective = answer.effective
    always = flavour_for(project.cluster.flavour).cautions(
        value=effective.priority.value, preemptibility=effective.preemptibility
    )
    return tuple(str(each) for each in answer.cautions if each not in always)


def _standing(pod: Manifest) -> tuple[Any, ...]:
    status: Mapping[str, Any] = pod.get("status", {})
    where = (pod["spec"].get("nodeName"), status.get("nominatedNodeName"), status.get("phase"))
    return (pod["metadata"]["uid"], len(pod["spec"].get("schedulingGates", [])), *where)


def _placed(pods: list[Manifest], workload: Workload) -> int:
    owner = f"workload.{workload.pk}"
    own = (pod for pod in pods if pod["metadata"].get("labels", {}).get("rung.dev/owner") == owner)
    return sum(bool(pod["spec"].get("nodeName")) for pod in own if "deletionTimestamp" not in pod["metadata"])
