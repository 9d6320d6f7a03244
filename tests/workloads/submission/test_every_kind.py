"""T39 and kinds that are not served, for every kind of the table: one estate, every kind in turn."""

import pytest

from clusters.inventory.models import Cluster
from clusters.ports.workload_kinds import KINDS
from portal.kit.errors import Problem, ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tests.factories.tenants import GPU
from tests.factories.workloads import spec_of
from tests.workloads.intake.manifests import Manifest
from tests.workloads.intake.pod_places import SPOTS, ask_gpus, fullest
from workloads.dictionary.models import WorkloadType
from workloads.state.models import Workload
from workloads.submission.services import submit

MOST = {"VirtualMachineInstance": 16}  # cards of one machine


def refused(body: Manifest, project: Project, preemptibility: str) -> Problem:
    """What a submission is refused for."""
    spec = spec_of(body, priority="low", preemptibility=preemptibility)
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=spec, project=project, actor=SYSTEM)
    problem, *_larger_than_its_pool = refusal.value.problems
    return problem


def test_t39_more_than_deserved_can_ever_give_is_refused_whichever_pod_of_whichever_kind_asks(
    llm_team: Project,
) -> None:
    WorkloadType.objects.update(fixed=False)
    DepartmentQuota.objects.update(gpu_deserved=64 * GPU, gpu_limit=None)
    ProjectQuota.objects.update(gpu_deserved=15 * GPU, gpu_limit=None)
    missed, tried = [], set()
    for spot in (spot for spots in SPOTS.values() for spot in spots):
        body = fullest(spot.kind)
        if not ask_gpus(body, spot, MOST.get(spot.kind.name, 64)):
            continue
        problem = refused(body, llm_team, "non-preemptible")
        tried.add(spot.kind.name)
        if (problem.code, problem.numbers.get("allowed")) != ("NonPreemptibleOverQuota", "15 GPU"):
            missed.append((spot.kind.name, spot.found.pointer, problem))
    assert missed == []
    assert tried == {kind.name for kind in KINDS} - {"DevWorkspace"}
    assert not Workload.objects.exists()


def test_a_kind_that_the_cluster_does_not_serve_is_refused_with_what_it_serves(llm_team: Project) -> None:
    WorkloadType.objects.update(fixed=False)
    missed = []
    for kind in KINDS:
        others = [(version, each.kind) for each in KINDS if each is not kind for version in each.api_versions]
        Cluster.objects.update(served_kinds=[f"{version} {name}" for version, name in others])
        problem = refused(fullest(kind), Project.objects.get(pk=llm_team.pk), "preemptible")
        pointer = "/apiVersion" if kind.kind in {name for _, name in others} else "/kind"
        if (problem.code, problem.pointer) != ("kind_not_served", pointer) or kind.kind not in problem.message:
            missed.append((kind.name, problem))
    assert missed == []
    assert not Workload.objects.exists()
