"""What a forecast says of a workload is what the real scheduler then does with it, beside pods of anybody."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest

from clusters.inventory.models import NodePool
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.builders import RUNAI_VALUES
from tests.factories.clusters import NodePoolFactory
from tests.factories.workloads import bare_pod, spec_of
from tests.real.product import PATIENCE, Product
from tests.real.scenarios import objects
from tests.real.scenarios.generator import FAMILIES, scenario
from tests.real.scenarios.objects import MARK
from tests.real.scenarios.plain import NAMESPACES, Kind, Scenario, Verdict
from tests.real.scenarios.stage import Stage
from workloads.forecast.rules.forecast import Forecast
from workloads.forecast.rules.forecast import Verdict as Predicted
from workloads.forecast.selectors.preview import forecast
from workloads.intake import WorkloadSpec
from workloads.state.models import Workload
from workloads.submission.services import submit

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
EACH = 2  # scenarios of every family
NAMES = {value: name for name, value in RUNAI_VALUES.items()}
KINDS = {Predicted.STARTS: Kind.PLACED, Predicted.EVICTS: Kind.PREEMPTS, Predicted.WAITS: Kind.WAITS}


@dataclass(frozen=True, slots=True)
class Submission:
    """A scenario whose candidate somebody submits to a node pool of its own."""

    scenario: Scenario
    pool: NodePool
    spec: WorkloadSpec


def submittable(found: Scenario) -> Scenario:
    """With a priority of the dictionary, which all may preempt; a pool's nodes all carry its label."""
    names = sorted(NAMES)
    value = found.candidate.value if found.candidate.value in NAMES else names[found.seed % len(names)]
    nodes = tuple(replace(node, closed="cordoned") if node.closed == "elsewhere" else node for node in found.nodes)
    return replace(found, nodes=nodes, candidate=replace(found.candidate, value=value, never=False))


def submission(product: Product, project: Project, found: Scenario) -> Submission:
    pool = NodePoolFactory(
        cluster=product.cluster, name=f"pool-{found.seed}", label_key=MARK, label_value=str(found.seed)
    )
    manifest = bare_pod(f"candidate-{found.seed}", gpus=0)
    resources = objects.pod_object(found, found.candidate)["spec"]["containers"][0]["resources"]
    manifest["spec"]["containers"][0]["resources"] = {"limits": resources.get("limits", {})}
    spec = spec_of(
        manifest,
        namespace=project.namespace,
        priority=NAMES[found.candidate.priority],
        preemptibility="preemptible",
        node_pools=(pool.name,),
    )
    return Submission(found, pool, spec)


def predicted(answer: Forecast) -> Verdict:
    victims = frozenset(each.label.rpartition("-")[2] for each in answer.victims)
    return Verdict(KINDS[answer.verdict], victims)


def submitted(product: Product, project: Project, spec: WorkloadSpec) -> Workload:
    workload = submit(spec=spec, project=requested(project), actor=SYSTEM)
    product.apply(workload)
    return workload


def candidates(product: Product, workloads: Iterable[Workload]) -> dict[str, ObservedPod]:
    """The observed pod of each workload, once the scheduler has said something to all of them and nothing changes."""
    wanted = {str(each.pk) for each in workloads}
    deadline, before = time.monotonic() + PATIENCE, ""
    while time.monotonic() < deadline:
        product.look()
        rows = ObservedPod.objects.filter(cluster=product.cluster, owner_id__in=wanted)
        found = {row.owner_id: row for row in rows if row.node_name or row.reason}
        now = str([found.keys(), sorted(disrupted(product))])
        if found.keys() == wanted and now == before:
            return found
        before = now
        time.sleep(1)
    raise AssertionError(f"{wanted - found.keys()} were not decided within {PATIENCE} s")


def disrupted(product: Product) -> set[str]:
    rows = ObservedPod.objects.filter(cluster=product.cluster, namespace__in=NAMESPACES, disrupted_at__isnull=False)
    return set(rows.values_list("name", flat=True))


def seen(found: Scenario, pod: ObservedPod, victims: set[str]) -> Verdict:
    mine = frozenset(name.rpartition("-")[2] for name in victims if name.startswith(f"agree-{found.seed}-"))
    if pod.node_name:
        return Verdict(Kind.PLACED, mine)
    return Verdict(Kind.PREEMPTS if mine else Kind.WAITS, mine)


def requested(project: Project) -> Project:
    return Project.objects.select_related("cluster", "department").get(pk=project.pk)


def come_true(product: Product, project: Project, all_of_them: Sequence[Submission]) -> list[str]:
    """Foretell each, submit each, and answer where the scheduler did otherwise."""
    product.look()
    gone_before = disrupted(product)
    answers = [forecast(spec=each.spec, project=requested(project), actor=SYSTEM) for each in all_of_them]
    workloads = [submitted(product, project, each.spec) for each in all_of_them]
    pods = candidates(product, workloads)
    victims = disrupted(product) - gone_before
    pairs = [
        (each.scenario, predicted(answer), seen(each.scenario, pods[str(workload.pk)], victims), answer.sentence)
        for each, answer, workload in zip(all_of_them, answers, workloads, strict=True)
    ]
    assert {was.kind for _scenario, _said, was, _sentence in pairs} == set(Kind)
    return [
        f"seed {found.seed} ({found.family}): predicted {said} ({sentence}), seen {was}"
        for found, said, was, sentence in pairs
        if said != was
    ]


def test_in_every_family_of_scenarios(product: Product) -> None:
    project = product.project("llm-team", deserved=5000)
    product.reconcile()
    stage = Stage(product.admin)
    first = int(os.environ.get("RUNG_REALITY_SEED", "0"))
    scenarios = [submittable(scenario(seed)) for seed in range(first, first + EACH * len(FAMILIES))]
    try:
        stage.furnish(scenarios)
        stage.decide([(each, each.earlier) for each in scenarios if each.earlier])
        assert come_true(product, project, [submission(product, project, each) for each in scenarios]) == []
    finally:
        stage.clear()
