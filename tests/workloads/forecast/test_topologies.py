"""Gangs that ask for one domain of a pool's topology: predicted, kept together, waiting with numbers, or refused."""

import pytest

from clusters.flavours.volcano_config import ASSUMED_DOMAINS
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.services.inventory import update_node_pool
from clusters.ports.gateway import Manifest
from clusters.watch.models import ObservedPod
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, configure, fresh
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.uncertainties import IN_VAIN
from workloads.lifecycle.services.actions import stop
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
NOTE = "/metadata/annotations/rung.dev~1topology-key"
KEEPS = """
actions: "allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: capacity, enableHierarchy: true}]
- plugins: [{name: network-topology-aware}]
"""


def racked(name: str, *, workers: int = 1, gpus: int = 8, key: str = "rack") -> Manifest:
    """A gang of a leader and its workers that wants one rack."""
    manifest = pytorch_job(name, gpus=gpus, workers=workers)
    manifest["metadata"]["annotations"] = {"rung.dev/topology-key": key}
    return manifest


def racks(flavour: str, *, large: int = 3) -> Lab:
    """A small rack of one node and a large one of more, whose pool says so."""
    lab = Lab(flavour, nodes=0)
    for number, rack in enumerate(("large", "small", *["large"] * (large - 1))):
        lab.node(f"node-{number}", rack=rack)
    update_node_pool(pool=NodePool.objects.get(), topology_levels=["rack"], actor=SYSTEM)
    return lab


def requested(team: Project, manifest: Manifest, *, priority: str = "low") -> Forecast:
    team = Project.objects.select_related("cluster", "department").get(pk=team.pk)
    spec = spec_of(manifest, namespace=team.namespace, priority=priority)
    return forecast(spec=spec, project=team, actor=SYSTEM)


def racks_of(workload: Workload) -> set[str]:
    names = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None).exclude(node_name="")
    return {node.labels["rack"] for node in Node.objects.filter(name__in=names.values("node_name"))}


@pytest.mark.parametrize("flavour", ["kube-gangs", "kai", "kueue", "volcano"])
def test_a_gang_of_one_domain_runs_in_one_that_holds_all_of_it(flavour: str) -> None:
    lab = racks(flavour)
    team = lab.project("llm-team", deserved=64)
    lab.settle()
    predicted = requested(team, racked("train"))
    train = lab.submit(team, "train", manifest=racked("train"), priority="low")
    lab.settle()
    assert (predicted.verdict, fresh(train).phase, racks_of(train)) == (Verdict.STARTS, Phase.RUNNING, {"large"})


@pytest.mark.parametrize("flavour", ["kube-gangs", "kai", "kueue", "volcano"])
def test_one_that_fits_no_domain_waits_with_what_the_emptiest_has(flavour: str) -> None:
    lab = racks(flavour)
    team = lab.project("llm-team", deserved=64)
    lab.submit(team, "first", manifest=racked("first"), priority="low")
    lab.settle()
    predicted = requested(team, racked("second"))
    assert (predicted.verdict, predicted.reason) == (Verdict.WAITS, "NoDomain")
    assert predicted.sentence == (
        "Waits: it needs 16 GPUs in h100 on nodes with the same rack; 16 GPUs free, at most 8 GPUs in one domain "
        "(large), and nothing is evicted for it."
    )
    second = lab.submit(team, "second", manifest=racked("second"), priority="low")
    lab.settle()
    assert (fresh(second).phase, racks_of(second)) == (Phase.PENDING, set())
    plain = lab.submit(team, "plain", manifest=pytorch_job("plain", gpus=8, workers=1), priority="low")
    lab.settle()
    assert racks_of(plain) == {"large", "small"}, "who asks for none takes what is free"


@pytest.mark.parametrize("flavour", ["kube-gangs", "kai", "kueue", "volcano"])
def test_one_that_no_domain_could_ever_hold_is_told_so(flavour: str) -> None:
    lab = racks(flavour)
    team = lab.project("llm-team", deserved=64)
    lab.settle()
    predicted = requested(team, racked("train", workers=3))
    assert predicted.verdict is Verdict.WAITS
    assert "no domain is large enough even when empty" in predicted.sentence


def test_racks_of_one_name_in_two_blocks_are_two_to_kai_and_predicted_so() -> None:
    lab = Lab("kai", nodes=0)
    for number, block in enumerate(("a", "b", "b")):
        lab.node(f"node-{number}", block=block, rack="r0" if number < 2 else "r1")
    update_node_pool(pool=NodePool.objects.get(), topology_levels=["block", "rack"], actor=SYSTEM)
    team = lab.project("llm-team", deserved=64)
    lab.settle()
    assert requested(team, racked("train")).reason == "NeverFits"
    waits = lab.submit(team, "train", manifest=racked("train"), priority="low")
    lab.settle()
    assert (fresh(waits).phase, racks_of(waits)) == (Phase.PENDING, set())
    block = lab.submit(team, "block", manifest=racked("block", key="block"), priority="low")
    lab.settle()
    assert (fresh(block).phase, racks_of(block)) == (Phase.RUNNING, {"r0", "r1"})


@pytest.mark.parametrize("flavour", ["kai", "kueue"])
def test_kai_and_kueue_evict_for_a_gang_of_one_domain_inside_that_domain(flavour: str) -> None:
    lab = racks(flavour)
    team = lab.project("llm-team", deserved=64)
    weak = lab.submit(team, "weak", manifest=racked("weak"), priority="low")
    lab.settle()
    predicted = requested(team, racked("strong"), priority="high")
    assert (predicted.verdict, [each.workload for each in predicted.victims]) == (Verdict.EVICTS, [weak])
    strong = lab.submit(team, "strong", manifest=racked("strong"), priority="high")
    lab.settle(rounds=8, seconds=20)
    assert (fresh(strong).phase, racks_of(strong)) == (Phase.RUNNING, {"large"})
    assert {each.preemptor for each in PreemptionRecord.objects.filter(victim=weak)} == {strong}


def test_on_kueue_what_waits_for_a_domain_says_so_and_what_asks_for_none_has_its_places_too() -> None:
    lab = racks("kueue")
    team = lab.project("llm-team", deserved=64)
    first = lab.submit(team, "first", manifest=racked("first"), priority="low")
    lab.settle()
    second = lab.submit(team, "second", manifest=racked("second"), priority="low")
    lab.settle()
    held = fresh(second)
    assert (held.phase, held.phase_reason) == (Phase.PENDING, "NoDomain")
    assert held.phase_message == "No single topology domain of h100 fits it: 1 of 2 pods would fit."
    stop(workload=fresh(first), actor=SYSTEM)
    lab.settle(rounds=4, seconds=20)
    assert (fresh(second).phase, racks_of(second)) == (Phase.RUNNING, {"large"})
    plain = pytorch_job("plain", gpus=8, workers=2)
    assert requested(team, plain).reason == "NoRoom"
    waits = lab.submit(team, "plain", manifest=plain, priority="low")
    lab.settle()
    assert (fresh(waits).phase, racks_of(waits)) == (Phase.PENDING, set())


def test_volcano_preempts_nobody_for_a_gang_of_one_domain_as_its_preview_says() -> None:
    lab = racks("volcano")
    configure(lab, KEEPS)
    team = lab.project("llm-team", deserved=64)
    weak = lab.submit(team, "weak", manifest=racked("weak"), priority="low")
    lab.settle()
    predicted = requested(team, racked("strong"), priority="high")
    assert (predicted.verdict, predicted.reason) == (Verdict.WAITS, "NoDomain")
    assert any("never preempts for such gangs" in said for said in predicted.cautions)
    strong = lab.submit(team, "strong", manifest=racked("strong"), priority="high")
    lab.settle()
    assert (fresh(strong).phase, fresh(weak).phase) == (Phase.PENDING, Phase.RUNNING)
    assert fresh(strong).phase_reason == "NoDomain"


def test_volcano_reclaims_without_a_look_at_domains_and_the_preview_says_when_it_is_in_vain() -> None:
    lab = racks("volcano", large=1)
    configure(lab, KEEPS)
    mine, other = lab.project("mine", deserved=16), lab.project("other", deserved=0)
    lab.settle()
    borrower = lab.submit(other, "borrower", manifest=pytorch_job("borrower", gpus=8, workers=1), priority="low")
    lab.settle()
    predicted = requested(mine, racked("train"))
    assert (predicted.verdict, [each.workload for each in predicted.victims]) == (Verdict.RECLAIMS, [borrower])
    assert IN_VAIN in predicted.cautions
    lab.submit(mine, "train", manifest=racked("train"), priority="low")
    lab.settle()
    assert {each.victim for each in PreemptionRecord.objects.all()} == {borrower}


def test_where_volcanos_configuration_keeps_no_gang_together_asking_for_a_domain_is_refused() -> None:
    lab = racks("volcano")
    team = lab.project("llm-team", deserved=64)
    lab.settle()
    assert ASSUMED_DOMAINS in requested(team, racked("train")).cautions, "nobody could read it: said, not refused"
    configure(lab, KEEPS.replace("network-topology-aware", "binpack"))
    lab.settle()
    with pytest.raises(ValidationFailed, match="lacks the plugin network-topology-aware") as error:
        requested(team, racked("train"))
    [problem] = error.value.problems
    assert (problem.pointer, problem.code, problem.numbers["flavour"]) == (NOTE, "topology_unsupported", "volcano")
    assert requested(team, pytorch_job("train", gpus=8, workers=1)).verdict is Verdict.STARTS


@pytest.mark.parametrize(
    ("flavour", "levels", "key", "code", "said"),
    [
        pytest.param("kai", ["zone", "rack"], "row", "topology_not_a_level", "zone, rack", id="another label"),
        pytest.param(
            "kube-gangs", ["zone"], "rack", "topology_not_a_level", "not a topology level", id="where any would do"
        ),
        pytest.param("kai", [], "rack", "topology_not_a_level", "has no topology levels", id="no levels"),
        pytest.param("kai", ["zone"], "zone", "topology_unknown", "no node of h100 has the label zone", id="no node"),
        pytest.param("kube", [], "rack", "topology_unsupported", "kube-scheduler on", id="plain pods"),
        pytest.param("volcano", ["zone"], "rack", "topology_not_a_level", "is not a topology level", id="hyper nodes"),
    ],
)
def test_a_key_that_cannot_be_shared_is_refused_at_its_field_with_the_levels_there_are(
    flavour: str, levels: list[str], key: str, code: str, said: str
) -> None:
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=64)
    NodePool.objects.update(topology_levels=levels)
    lab.settle()
    with pytest.raises(ValidationFailed) as error:
        lab.submit(team, "train", manifest=racked("train", key=key))
    [problem] = [each for each in error.value.problems if each.pointer == NOTE]  # beside the gang's size
    assert (problem.code, list(problem.allowed)) == (code, levels)
    assert said in problem.message
    assert not Workload.objects.exists()


def test_every_pool_that_it_may_go_to_has_the_level() -> None:
    lab = racks("kai")
    team = lab.project("llm-team", deserved=64)
    lab.settle()
    pool = NodePool.objects.get()
    NodePool.objects.create(cluster=Cluster.objects.get(), name="a100", label_key=pool.label_key, label_value="a100")
    with pytest.raises(ValidationFailed, match="node pool a100 has no topology levels"):
        lab.submit(team, "train", manifest=racked("train"), node_pools=("h100", "a100"))
