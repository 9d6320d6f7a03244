"""A gang that its pools could not hold even if they were empty is refused, where gangs start whole."""

import pytest

from clusters.inventory.models import Cluster, NodePool
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.clusters import NodeFactory
from tests.factories.tenants import GPU
from tests.factories.workloads import job, pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.state.models import Workload
from workloads.submission.services import submit

pytestmark = pytest.mark.django_db
WHOLE = ["kube-gangs", "kai", "kueue", "volcano"]


def team_on(flavour: str) -> Project:
    """A project without limits on two nodes of eight GPUs."""
    lab = Lab(flavour, nodes=0)
    for number in range(2):
        NodeFactory(cluster=lab.cluster, pool=lab.pool, name=f"node-{number}", gpu_milli=8 * GPU)
    return lab.project("llm-team", deserved=64)


def gang(project: Project, *, gpus: int, pods: int, pools: tuple[str, ...] = ()) -> Workload:
    manifest = pytorch_job("large", gpus=gpus, workers=pods - 1)
    spec = spec_of(manifest, namespace=project.namespace, priority="low", node_pools=pools)
    return submit(spec=spec, project=project, actor=SYSTEM)


@pytest.mark.parametrize("flavour", WHOLE)
@pytest.mark.parametrize(
    ("gpus", "pods", "room"),
    [
        pytest.param(8, 3, "2", id="more than all its nodes together"),
        pytest.param(5, 3, "2", id="fewer GPUs than it holds, but no node takes two"),
    ],
)
def test_a_gang_larger_than_the_pool_is_refused_with_the_numbers(flavour: str, gpus: int, pods: int, room: str) -> None:
    project = team_on(flavour)
    with pytest.raises(ValidationFailed) as refusal:
        gang(project, gpus=gpus, pods=pods)
    (problem,) = refusal.value.problems
    assert problem.code == "gang_larger_than_pool"
    assert problem.numbers["needed"] == f"{gpus * pods} GPU"
    assert (problem.numbers["held"], problem.numbers["room"]) == ("16 GPU", room)
    assert not Workload.objects.exists()


def test_one_that_just_fits_is_taken_and_so_is_one_whose_scheduler_starts_pods_one_by_one() -> None:
    project = team_on("kube-gangs")
    assert gang(project, gpus=8, pods=2).pod_count == 2
    Workload.objects.all().delete()
    Cluster.objects.update(flavour="kube")
    assert gang(Project.objects.get(pk=project.pk), gpus=8, pods=8).pod_count == 8


def test_a_pool_without_a_node_is_not_judged_and_one_that_holds_it_is_enough() -> None:
    project = team_on("kube-gangs")
    own = NodePool.objects.get(cluster=project.cluster).name
    NodePool.objects.create(cluster=project.cluster, name="soon", label_value="soon")
    assert gang(project, gpus=8, pods=4, pools=(own, "soon")).pool_name
    with pytest.raises(ValidationFailed) as refusal:
        gang(project, gpus=8, pods=4, pools=(own,))
    assert refusal.value.problems[0].pointer == "/nodePools/0"


def test_the_preview_says_the_same_before() -> None:
    project = team_on("kube-gangs")
    spec = spec_of(job("large", gpus=8, pods=3), namespace=project.namespace, priority="low")
    predicted = forecast(spec=spec, project=project, actor=SYSTEM)
    assert (predicted.verdict, predicted.reason) == (Verdict.REFUSED, "gang_larger_than_pool")
