"""What a forecast does not know has a name: a code, a sentence, and what to check."""

from datetime import timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.utils import timezone

from clusters.connection.services.scheduler_config import BUDGETS, OTHER_QUEUES
from clusters.flavours.kueue_capabilities import INTEGRATIONS
from clusters.inventory.models import Cluster
from clusters.watch.models import ObservedPod
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory
from tests.factories.workloads import WorkloadFactory, bare_pod, job, spec_of
from tests.support.repository import ROOT
from tests.workloads.forecast.test_preview_on_kube import NOON, Kube, victims
from tests.workloads.forecast.test_preview_on_kueue import Kueue
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.rules.messages import DoubtCode, doubt
from workloads.forecast.serializers import forecast_json
from workloads.state.models import Phase

pytestmark = pytest.mark.django_db
SHIPPED = {"integrations": list(INTEGRATIONS), "external": [], "narrowed": False, "fair": [], "impatient": False}


@pytest.fixture
def kube() -> Kube:
    return Kube()


@pytest.fixture
def kueue() -> Kueue:
    return Kueue()


def sentence(answer: Forecast, code: DoubtCode) -> str:
    """Of the doubt with this code; empty: there is none."""
    return next((each.sentence for each in answer.doubts if each.code is code), "")


def asking(**limits: str) -> dict[str, Any]:
    """A pod of one container with these limits."""
    manifest = bare_pod("asked", gpus=0)
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi", **limits}}
    return manifest


def spread_over_nodes(pods: int) -> dict[str, Any]:
    manifest = job("asked")
    manifest["spec"] |= {"parallelism": pods, "completions": pods}
    labels = {"app": "asked"}
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    template = manifest["spec"]["template"]
    template.setdefault("metadata", {})["labels"] = labels
    template["spec"]["topologySpreadConstraints"] = [{**constraint, "labelSelector": {"matchLabels": labels}}]
    return manifest


def test_every_code_says_what_to_check() -> None:
    values = dict.fromkeys(("namespace", "names", "key", "node", "pool", "queue"), "x")
    for code in DoubtCode:
        assert doubt(code, "Why.", **values).check


@pytest.mark.parametrize(
    ("age", "code"),
    [(None, DoubtCode.NO_SNAPSHOT), (timedelta(hours=2), DoubtCode.STALE_SNAPSHOT), (timedelta(minutes=1), None)],
)
def test_data_that_is_old_or_missing_is_named(kube: Kube, age: timedelta | None, code: DoubtCode | None) -> None:
    kube.node("a")
    Cluster.objects.update(observed_at=age and timezone.now() - age)
    answer = kube.ask()
    assert [each.code for each in answer.doubts] == ([code] if code else [])
    if age == timedelta(hours=2):
        assert "last observed 2 h ago" in sentence(answer, DoubtCode.STALE_SNAPSHOT)


def test_a_volume_claim_that_nothing_runs_with_is_named(kube: Kube) -> None:
    kube.node("a")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "corpus"}}
    answer = kube.ask(volumes=[volume])
    [found] = [each for each in answer.doubts if each.code is DoubtCode.VOLUME_CLAIM]
    assert "mounts the volume claim corpus, which Rung does not read" in found.sentence
    assert found.check == f"kubectl -n {kube.team.namespace} get pvc corpus"
    assert answer.verdict is Verdict.STARTS
    manifest = bare_pod("other")
    manifest["spec"]["volumes"] = [volume]
    spec = spec_of(manifest, namespace=kube.team.namespace)
    WorkloadFactory(project=kube.team, phase=Phase.RUNNING, spec=spec.as_json())
    assert not sentence(kube.ask(volumes=[volume]), DoubtCode.VOLUME_CLAIM)


def test_pods_that_must_be_spread_and_would_not_be_are_named(kube: Kube) -> None:
    kube.node("a", 8, labels={"kubernetes.io/hostname": "a"})
    kube.node("b", 1, labels={"kubernetes.io/hostname": "b"})
    kube.pod("strong", "b", priority=1000)
    answer = kube.ask_for(spread_over_nodes(3))
    assert "3 pods are in one domain and 0 in another" in sentence(answer, DoubtCode.TOPOLOGY_SPREAD)
    ObservedPod.objects.all().delete()
    assert not sentence(kube.ask_for(spread_over_nodes(2)), DoubtCode.TOPOLOGY_SPREAD)


def test_more_ephemeral_storage_than_any_node_has_never_fits_and_says_what_would(kube: Kube) -> None:
    kube.node("a", more_amounts={"ephemeral-storage": 100 * 2**30})
    answer = kube.ask_for(asking(**{"ephemeral-storage": "200Gi"}))
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NeverFits")
    assert "needs 200 GiB of ephemeral storage on one node of h100; the largest that can fit there is 100 GiB" in (
        answer.sentence
    )
    assert kube.ask_for(asking(**{"ephemeral-storage": "90Gi"})).verdict is Verdict.STARTS


def test_ephemeral_storage_that_others_use_is_named(kube: Kube) -> None:
    kube.node("a", more_amounts={"ephemeral-storage": 100 * 2**30})
    kube.pod("big", "a", gpus=0, more_requests={"ephemeral-storage": 60 * 2**30})
    answer = kube.ask_for(asking(**{"ephemeral-storage": "50Gi"}))
    assert "a has 40 GiB of ephemeral storage left, and a pod needs 50 GiB" in sentence(
        answer, DoubtCode.EPHEMERAL_STORAGE
    )


def test_a_whole_gpu_is_not_found_on_nodes_of_mig_slices(kube: Kube) -> None:
    kube.node("a", 7, more_amounts={"nvidia.com/mig-1g.10gb": 7})
    answer = kube.ask()
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NeverFits")
    assert "needs 1 nvidia.com/gpu on one node of h100, and its nodes offer nvidia.com/mig-1g.10gb" in answer.sentence
    kube.node("b", 1)
    assert (kube.ask().verdict, kube.ask().nodes) == (Verdict.STARTS, ("b",))


def test_whole_gpus_beside_slices_are_counted_together_and_that_is_named(kube: Kube) -> None:
    kube.node("a", 9, more_amounts={"nvidia.com/mig-1g.10gb": 7})
    kube.pod("whole", "a", gpus=2)
    assert "a offers GPUs under several resource names and has 0 nvidia.com/gpu left" in sentence(
        kube.ask(), DoubtCode.GPU_RESOURCES_MIXED
    )


@pytest.mark.parametrize(
    ("more", "ways"),
    [
        ({"resource-claims": 1}, "claims of dynamic resource allocation"),
        ({"gpu-memory": 1}, "parts of GPUs by memory"),
        ({"gpu-fraction-num-devices": 2}, "parts of several GPUs"),
    ],
)
def test_pods_that_hold_gpus_otherwise_are_named(kube: Kube, more: dict[str, int], ways: str) -> None:
    kube.node("a")
    kube.pod("odd", "a", gpus=0, more_requests=more)
    said = sentence(kube.ask(), DoubtCode.PODS_NOT_COUNTED)
    assert f"1 pod of others use GPUs in a way that is not counted exactly ({ways})" in said


def test_victims_under_a_disruption_budget_are_named_without_names(kube: Kube) -> None:
    kube.node("a", 1)
    kube.pod("secret-plan", "a", namespace="nobodys")
    Cluster.objects.update(configured={BUDGETS: {"nobodys": 0, "elsewhere": 0}})
    member = acting(MembershipFactory(project=kube.team).user)
    answer = kube.ask(actor=member)
    assert victims(answer) == ["another tenant's pod"]
    said = sentence(answer, DoubtCode.DISRUPTION_BUDGETS)
    assert "in the namespaces of 1 victim do not allow so many evictions" in said
    assert "nobodys" not in repr(answer.doubts)
    Cluster.objects.update(configured={BUDGETS: {"nobodys": 1}})
    assert not sentence(kube.ask(), DoubtCode.DISRUPTION_BUDGETS)


def test_budgets_that_may_not_be_read_are_named(kube: Kube) -> None:
    kube.node("a", 1)
    kube.pod("notebook", "a")
    assert not sentence(kube.ask(), DoubtCode.DISRUPTION_BUDGETS_UNKNOWN), "a simulated cluster has none"
    Cluster.objects.update(backend="kubernetes")
    assert "may not read disruption budgets here" in sentence(kube.ask(), DoubtCode.DISRUPTION_BUDGETS_UNKNOWN)


def test_above_100_nodes_the_victim_is_one_of_several(kube: Kube) -> None:
    for number in range(101):
        kube.node(f"node-{number:03}", 1)
        kube.pod(f"pod-{number}", f"node-{number:03}", priority=0 if number < 60 else 1000)
    answer = kube.ask()
    assert answer.verdict is Verdict.EVICTS
    said = sentence(answer, DoubtCode.NODES_SAMPLED)
    assert "With 101 nodes to choose from, the kube-scheduler looks at about 100 of them" in said
    assert "one of 60 equally good nodes, such as node-0" in said


@pytest.mark.parametrize(
    ("members", "lending", "said"),
    [
        (1, False, "1 queue or cohort that Rung did not make shares quota with its queues. "),
        (
            3,
            True,
            "3 queues and cohorts that Rung did not make share quota with its queues, some with lending limits. ",
        ),
    ],
)
def test_queues_of_others_in_kueues_cohorts_are_named(kueue: Kueue, members: int, lending: bool, said: str) -> None:
    Cluster.objects.update(configured={**SHIPPED, OTHER_QUEUES: {"members": 0, "lending": False, "checks": []}})
    named = {each.code for each in kueue.ask(gpus=1).doubts}
    assert not named & {DoubtCode.QUEUES_OF_OTHERS, DoubtCode.ADMISSION_CHECKS}
    checks = [kueue.team.owner]
    Cluster.objects.update(
        configured={**SHIPPED, OTHER_QUEUES: {"members": members, "lending": lending, "checks": checks}}
    )
    assert sentence(kueue.ask(gpus=1), DoubtCode.QUEUES_OF_OTHERS).startswith(said)
    assert "waits until all of them are ready" in sentence(kueue.ask(gpus=1), DoubtCode.ADMISSION_CHECKS)


@pytest.mark.parametrize(
    ("limits", "needed", "largest"),
    [
        ({"nvidia.com/gpu": "16"}, "needs 16 GPUs", "8 GPUs in total, 8 on its largest node"),
        ({"cpu": "4k"}, "needs 4000 CPUs", "on its largest node"),
        ({"memory": "64Ti"}, "needs 65536 GiB", "on its largest node"),
    ],
)
def test_what_is_larger_than_any_node_never_fits_and_says_what_would(
    kube: Kube, limits: dict[str, str], needed: str, largest: str
) -> None:
    kube.node("a", 8)
    answer = kube.ask_for(asking(**limits))
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NeverFits")
    assert needed in answer.sentence
    assert largest in answer.sentence


def test_under_kueues_fair_sharing_a_share_is_taken_from_who_borrows_more(kueue: Kueue) -> None:
    rich = kueue.project("rich", kueue.research, deserved=0)
    kueue.runs(rich, "lent", gpus=4)
    kueue.runs(kueue.team, "own", gpus=8)
    assert kueue.ask(gpus=1).verdict is Verdict.WAITS
    Cluster.objects.update(configured={**SHIPPED, "fair": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]})
    answer = kueue.ask(gpus=1)
    assert victims(answer) == ["lent"]
    assert "at random between departments" in sentence(answer, DoubtCode.SCHEDULER_CONFIGURATION)


def test_settings_of_a_shard_of_kai_are_named_in_forecasts_for_its_pool(kueue: Kueue) -> None:
    settings = {"": {"other": ["time-based fair share"]}}
    Cluster.objects.update(flavour="kai", configured={"shards": [""], "shard_settings": settings})
    said = sentence(kueue.ask(gpus=1), DoubtCode.SCHEDULER_CONFIGURATION)
    assert "SchedulingShard of h100 is configured with time-based fair share" in said


def test_of_victims_that_started_in_one_second_the_one_not_named_is_a_doubt(kube: Kube) -> None:
    for name in ("one", "two", "three"):
        kube.node(name, 1)
        kube.pod(f"on-{name}", name, namespace=kube.team.namespace)
    answer = kube.ask()
    assert victims(answer) == [f"{kube.team.namespace}/on-one"]
    assert "2 workloads of others may be evicted instead" in sentence(answer, DoubtCode.TIED_VICTIMS)
    ObservedPod.objects.exclude(name="on-one").update(started_at=NOON - timedelta(seconds=1))
    assert not sentence(kube.ask(), DoubtCode.TIED_VICTIMS)


def test_the_documentation_explains_every_code() -> None:
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    section = text.partition("## What a forecast does not know")[2].partition("\n## ")[0]
    assert {code for code in DoubtCode if f"`{code}`" not in section} == set()


def test_rest_and_the_page_show_the_doubts(kube: Kube) -> None:
    kube.node("a")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "corpus"}}
    answer = kube.ask(volumes=[volume])
    [found] = [each for each in forecast_json(answer)["doubts"] if each["code"] == "volume_claim"]
    assert found["sentence"] in forecast_json(answer)["cautions"]
    shown = {"forecast": answer, "spec": {"name": "asked", "type_name": "Job"}, "titles": {"Job": "Job"}}
    page = render_to_string("workloads/forecast/parts/forecast_one.html", shown)
    assert "mounts the volume claim corpus" in page
    assert f"Check: {found['check']}" in page
