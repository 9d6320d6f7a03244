"""What will happen if I press this? The model's answer on the observed cluster, and what really happens then."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.objects import KAI_QUEUE
from clusters.sandbox.services.queues import dialect_of
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.sandbox.services.store import ObjectStore
from clusters.sync.services.reconcile import reconcile
from portal.audit.models import AuditRecord
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor
from scheduling.model.decisions import Evict, Outcome, OutcomeKind
from scheduling.model.preemptibility import Cause
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota, PriorityCap
from tests.factories.cast import acting
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, MembershipFactory, UserFactory
from tests.factories.workloads import (
    ObservedPodFactory,
    WorkloadFactory,
    deployment,
    job,
    pytorch_job,
    spec_of,
)
from tests.support.repository import ROOT
from tests.workloads.sandbox_lab import Lab, configure, fresh
from workloads.dictionary.models import Priority
from workloads.dictionary.services.changes import change_priority_entry
from workloads.forecast.models import StoredForecast
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.rules.messages import DoubtCode
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.snapshot import snapshot_of
from workloads.forecast.selectors.start_estimate import start_estimate
from workloads.forecast.selectors.waiting import why_waiting
from workloads.forecast.serializers import forecast_json
from workloads.forecast.services.storage import stored_forecast
from workloads.intake import WorkloadSpec
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["kai", "kube"])
def lab(request: pytest.FixtureRequest) -> Lab:
    """One node of 8 GPUs."""
    return Lab(request.param)


@pytest.fixture
def kai() -> Lab:
    """One node of 8 GPUs under KAI."""
    return Lab("kai")


@pytest.mark.parametrize(
    ("flavour", "weights"),
    [
        pytest.param("kai", (2500, 1000, 500), id="one per resource"),
        pytest.param("kueue", (2500, None, None), id="one per queue"),
        pytest.param("volcano", (2000, None, None), id="one whole number"),
    ],
)
def test_the_model_counts_the_weights_that_the_scheduler_gets(
    flavour: str, weights: tuple[int, int | None, int | None]
) -> None:
    lab = Lab(flavour)
    team = lab.project("llm-team")
    team.quotas.update(over_quota_weight=2.5, cpu_weight=1, memory_weight=0.5)
    name = flavour_for(flavour).queue_name(team.owner, "h100")
    (modelled,) = [queue for queue in snapshot_of(lab.cluster)[0].queues if queue.name == name]
    assert (modelled.weight, modelled.cpu_weight, modelled.memory_weight) == weights
    if flavour == "kai":
        reconcile(lab.cluster)
        synced = [each for each in SandboxGateway(lab.cluster).list(KAI_QUEUE)[0] if each["metadata"]["name"] == name]
        store = SimpleNamespace(of=lambda _key: synced)
        dialect = dialect_of(flavour_for(flavour).traits)
        assert dialect is not None
        (simulated,) = dialect.queues(cast("ObjectStore", store))
        assert (simulated.weight, simulated.cpu_weight, simulated.memory_weight) == weights


def ask(project: Project, *, gpus: int, actor: Actor = SYSTEM, workers: int = 0, **requested: str) -> Forecast:
    """A forecast of a PyTorch training."""
    manifest = pytorch_job("asked", gpus=gpus, workers=workers)
    spec = spec_of(manifest, namespace=project.namespace, **requested)
    project = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    return forecast(spec=spec, project=project, actor=actor)


def ask_for(project: Project, manifest: dict[str, Any], **requested: str) -> Forecast:
    """A forecast of this."""
    spec = spec_of(manifest, namespace=project.namespace, **requested)
    row = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    return forecast(spec=spec, project=row, actor=SYSTEM)


def leader_worker_set(*, replicas: int, size: int, gpus: int) -> dict[str, Any]:
    """All pods alike."""
    container = {"name": "main", "image": "ghcr.io/team/x:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    template = {"spec": {"containers": [container]}}
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    return {**kind, "metadata": {"name": "served"}, "spec": spec}


def test_what_fits_starts_and_the_forecast_says_on_what_it_was_made(lab: Lab) -> None:
    team = lab.project("llm-team")
    lab.settle()
    answer = ask(team, gpus=4)
    assert (answer.verdict, answer.sentence) == (Verdict.STARTS, "Starts now in h100, within quota.")
    assert answer.simulated is True
    assert answer.snapshot_age is not None
    assert answer.snapshot_age < 60
    assert answer.flavour in {"KAI Scheduler", "kube-scheduler"}
    assert answer.effective.priority.name == "low"
    assert answer.alternatives == ()


def test_of_several_previewed_together_as_many_start_as_do_once_all_are_submitted(kai: Lab) -> None:
    team = kai.project("llm-team")
    kai.submit(team, "running", gpus=8)
    kai.settle()
    row = Project.objects.select_related("cluster", "department").get(pk=team.pk)
    found: list[tuple[WorkloadSpec, Forecast]] = []
    for number in range(4):
        spec = spec_of(job(f"job-{number}", gpus=4), namespace=team.namespace, priority="high")
        found.append((spec, forecast(spec=spec, project=row, actor=SYSTEM, above=tuple(found))))
    sentences = [each.sentence for _spec, each in found]
    assert sentences[0].startswith("Starts in h100 after evicting 1 workload (8 GPUs), ")
    assert sentences[1] == "Waits: it has its place in h100 and waits for evicted pods to stop."
    assert all("0 GPUs free" in each for each in sentences[2:])
    assert [len(each.victims) for _spec, each in found] == [1, 0, 0, 0], "one eviction serves two of them"
    made = [kai.submit(team, spec.name, manifest=job(spec.name, gpus=4), priority="high") for spec, _ in found]
    kai.settle(8, seconds=20)
    phases = [fresh(each).phase for each in made]  # of which two: they were created within one second
    assert sorted(phases) == [Phase.PENDING, Phase.PENDING, Phase.RUNNING, Phase.RUNNING]


def test_a_forecast_that_counts_others_as_submitted_is_not_compared_with_what_happens(kai: Lab) -> None:
    team = kai.project("llm-team")
    kai.settle()
    row = Project.objects.select_related("cluster", "department").get(pk=team.pk)
    spec = spec_of(job("job", gpus=4), namespace=team.namespace)
    first = stored_forecast(spec=spec, project=row, actor=SYSTEM)
    stored_forecast(spec=spec, project=row, actor=SYSTEM, above=((spec, first),))
    assert StoredForecast.objects.count() == 1


def test_a_limit_and_a_deserved_quota_that_block_it_are_both_named(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=8)
    DepartmentQuota.objects.update(gpu_deserved=8 * GPU, gpu_limit=12 * GPU)
    for name in ("first", "second"):
        kai.submit(team, name, gpus=4, priority="high", preemptibility="non-preemptible")
    kai.settle()
    limit = "Waits: it needs 8 GPUs in h100; department research uses 8 GPUs of its limit of 12 GPUs"
    answer = ask(team, gpus=8, preemptibility="non-preemptible")
    assert (answer.reason, answer.sentence) == (
        "OverLimit",
        f"{limit}; 0 of the 8 GPUs that project llm-team deserves are free, and non-preemptible workloads cannot go "
        "over quota.",
    )
    assert ask(team, gpus=8, preemptibility="preemptible").sentence.startswith(f"{limit}.")


def test_evictions_that_would_not_free_enough_are_not_denied(lab: Lab) -> None:
    """Lower preemptible work of the project holds 4 GPUs, work that stays the other 4."""
    team, requested = lab.project("llm-team", deserved=16), {"priority": "high", "preemptibility": "preemptible"}
    lab.submit(team, "stays", gpus=4, priority="very-high", preemptibility="non-preemptible")
    lab.submit(team, "gives-way", gpus=4, priority="very-low", preemptibility="preemptible")
    lab.settle()
    assert ask(team, gpus=4, **requested).verdict is Verdict.EVICTS
    answer = ask(team, gpus=8, **requested)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NoRoom")
    assert answer.sentence == (
        "Waits: it needs 8 GPUs in h100; 0 GPUs free, at most 0 on one node, and the scheduler finds no evictions that "
        "would free enough for it."
    )


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        pytest.param(
            {"breaker_reason": "Unauthorized"},
            "lab does not accept work now. Rung retries automatically. Unauthorized",
            id="the cluster refuses Rung",
        ),
        pytest.param(
            {"state": "paused", "paused_reason": "Paused by admin."},
            "lab is paused. No workloads are sent until an admin resumes it. Paused by admin.",
            id="an admin paused it",
        ),
    ],
)
def test_a_forecast_names_a_cluster_that_is_handed_no_work(kai: Lab, trouble: dict[str, str], words: str) -> None:
    team = kai.project("llm-team")
    kai.settle()
    assert words not in ask(team, gpus=4).cautions
    Cluster.objects.filter(pk=team.cluster_id).update(**trouble)
    assert words in ask(team, gpus=4).cautions


@pytest.mark.parametrize("gpus", [9, 16])
def test_larger_than_any_node_never_fits_whatever_the_limit(gpus: int) -> None:
    """More quota does not help, nor do evictions: neither is offered."""
    kai = Lab("kai", nodes=3)
    team = kai.project("llm-team", limit=16)
    kai.submit(team, "weak", gpus=8, priority="low")
    kai.settle()
    spec = spec_of(pytorch_job("train", gpus=gpus), namespace=team.namespace)
    answer = forecast(spec=spec, project=team, actor=SYSTEM)
    assert (answer.verdict, answer.reason, answer.short_of_quota) == (Verdict.WAITS, "NeverFits", False)
    assert answer.sentence == (
        f"Never fits: it needs {gpus} GPUs, which h100 cannot place even if nothing else runs there: 24 GPUs in total, "
        "8 on its largest node."
    )
    assert DoubtCode.EVICTS_AND_MOVES not in {each.code for each in answer.doubts}
    mine = kai.submit(team, "train", gpus=gpus)
    kai.settle()
    headline, estimate = why_waiting(fresh(mine)), start_estimate(fresh(mine))
    assert headline is not None
    assert estimate is not None
    assert (headline.reason, headline.short_of_quota, estimate.code) == ("NeverFits", False, "never_fits")


def test_over_quota_is_said(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=2)
    kai.settle()
    answer = ask(team, gpus=4)
    assert (answer.verdict, answer.over_quota) == (Verdict.STARTS, True)
    assert "over quota: it may be evicted" in answer.sentence


OTHERS = "Other preemptible workloads of the project may be evicted when others reclaim their share."


@pytest.mark.parametrize(
    ("flavour", "preemptibility", "said"),
    [
        pytest.param("kai", "preemptible", "over quota: it may be evicted when others reclaim their share.", id="kai"),
        pytest.param("kai", "non-preemptible", f"within quota. {OTHERS}", id="KAI counts what it never evicts apart"),
        pytest.param("kube", "preemptible", "over quota.", id="kube reclaims nothing"),
        pytest.param("kube", "non-preemptible", "within quota.", id="kube counts priorities from 100 apart"),
        pytest.param(
            "kueue",
            "non-preemptible",
            "over quota: it may be evicted when others reclaim their share.",
            id="Kueue reclaims any work",
        ),
        pytest.param("volcano", "non-preemptible", "over quota.", id="Volcano without the action reclaim"),
        pytest.param("volcano-reclaims", "non-preemptible", f"over quota. {OTHERS}", id="Volcano with it"),
    ],
)
def test_whether_it_starts_over_quota_is_one_answer(flavour: str, preemptibility: str, said: str) -> None:
    """The project deserves 4 GPUs and has 4 in use."""
    lab = Lab(flavour.partition("-")[0])
    if "reclaims" in flavour:
        configure(lab, (ROOT / "lab" / "volcano.conf").read_text(encoding="utf-8"))
    team = lab.project("llm-team", deserved=4)
    lab.submit(team, "uses-the-quota", gpus=4)
    lab.settle()
    answer = ask(team, gpus=2, priority="high", preemptibility=preemptibility)
    assert (answer.verdict, answer.sentence) == (Verdict.STARTS, f"Starts now in h100, {said}")
    assert forecast_json(answer)["overQuota"] is said.startswith("over quota")


def test_the_forecast_of_an_eviction_comes_true(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=16)
    victim = lab.submit(team, "low-train", gpus=8)
    lab.settle()
    answer = ask(team, gpus=8, priority="high")
    assert answer.verdict is Verdict.EVICTS
    assert [(each.workload, each.gpu_milli, each.priority) for each in answer.victims] == [(victim, 8000, "low")]
    assert answer.sentence.startswith("Starts in h100 after evicting 1 workload (8 GPUs)")
    lab.submit(team, "high-train", gpus=8, priority="high")
    lab.settle(4)
    assert fresh(victim).preempted_count == 1


def serving(replicas: int, *, gpus: int = 8) -> dict[str, Any]:
    """A Deployment, of which KAI makes a group of every pod."""
    manifest = deployment("serving", gpus=gpus)
    manifest["spec"]["replicas"] = replicas
    return manifest


def test_of_a_deployment_on_kai_each_pod_starts_or_waits_for_itself() -> None:
    lab = Lab("kai", nodes=2)
    team = lab.project("llm-team", deserved=32)
    lab.settle()
    answer = ask_for(team, serving(3), priority="low")
    assert (answer.starting, answer.coming, answer.waiting) == (2, 0, 1)
    assert "2 of 3 pods" in answer.sentence
    made = lab.submit(team, "serving", manifest=serving(3), priority="low")
    lab.settle(4)
    assert fresh(made).running_pods == 2


def test_every_pod_of_a_deployment_on_kai_has_its_own_victims() -> None:
    lab = Lab("kai", nodes=3)
    team = lab.project("llm-team", deserved=32)
    weak = [lab.submit(team, f"weak-{number}", gpus=8) for number in range(3)]
    lab.settle()
    answer = ask_for(team, serving(3), priority="high", preemptibility="preemptible")
    assert (answer.verdict, answer.coming) == (Verdict.EVICTS, 3)
    assert {each.workload for each in answer.victims} == set(weak)
    assert answer.sentence.startswith("Starts in h100 after evicting 3 workloads (24 GPUs)")


def test_the_groups_that_kai_names_on_pods_are_those_it_decides_about() -> None:
    """Also of a kind of which one group was expected; each is as old as its first pod, which may be gone."""
    lab = Lab("kai")
    team = lab.project("llm-team")
    lab.settle()
    run = WorkloadFactory(project=team, phase=Phase.RUNNING, running_pods=2)
    old, now = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    ObservedPodFactory(workload=run, pod_group="pg-one", created_at=old, gone_at=now)
    for group in ("pg-one", "pg-one", "pg-other"):
        ObservedPodFactory(workload=run, pod_group=group, created_at=now)
    found = {each.name: each for each in snapshot_of(lab.cluster)[0].groups}
    assert {name: len(each.pods) for name, each in found.items()} == {f"{run.pk}:pg-one": 2, f"{run.pk}:pg-other": 1}
    ages = [found[f"{run.pk}:{name}"].created for name in ("pg-one", "pg-other")]
    assert ages == [each.timestamp() * 1_000_000 for each in (old, now)]


def test_a_job_whose_pod_was_evicted_does_not_come_first_on_kai_while_its_controller_pauses() -> None:
    """KAI sees pods alone; a stronger one that it does not see is named as a doubt."""
    lab = Lab("kai")
    team = lab.project("llm-team")
    lab.settle()
    high = Priority.objects.get(name="high")
    pauses = WorkloadFactory(project=team, name="pauses", priority=high, priority_value=125, pool_name="h100")
    Workload.objects.filter(pk=pauses.pk).update(phase=Phase.PENDING, applied_generation=pauses.generation)
    spec = spec_of(job("pauses", gpus=8), namespace=team.namespace)
    Workload.objects.filter(pk=pauses.pk).update(spec=spec.as_json())
    assert ask(team, gpus=8, priority="low").verdict is Verdict.WAITS
    ObservedPodFactory(workload=fresh(pauses), gone_at=datetime(2026, 1, 2, tzinfo=UTC), node_name="")
    answer = ask(team, gpus=8, priority="low")
    assert answer.verdict is Verdict.STARTS
    assert any("its controller waits before it retries" in each for each in answer.cautions)


def test_a_replica_of_a_leader_worker_set_on_kai_starts_as_one() -> None:
    lab = Lab("kai", nodes=2)
    team = lab.project("llm-team", deserved=32)
    lab.settle()
    answer = ask_for(team, leader_worker_set(replicas=3, size=2, gpus=4), priority="low")
    assert (answer.starting, answer.waiting) == (4, 2)


def test_where_others_wait_a_forecast_of_an_eviction_on_kai_says_that_they_may_come_first(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    kai.submit(team, "weak", gpus=8)
    kai.settle()
    doubt = "decides again while evicted pods stop"
    assert not [each for each in ask(team, gpus=8, priority="high").cautions if doubt in each]
    kai.submit(team, "waits", gpus=8)
    kai.settle()
    assert [each for each in ask(team, gpus=8, priority="high").cautions if doubt in each]


@pytest.mark.parametrize("placed", [True, False])
def test_who_takes_room_that_is_made_for_a_workload_is_named_as_far_as_the_actor_knows_them(
    kai: Lab, monkeypatch: pytest.MonkeyPatch, placed: bool
) -> None:
    """What the model says then is tested with it."""
    team, other = kai.project("llm-team", deserved=16), kai.project("vision-team", deserved=16)
    victim, mine, theirs = kai.submit(team, "weak", gpus=8), kai.submit(team, "mine"), kai.submit(other, "theirs")
    kai.settle()
    groups = {each.name: each for each in snapshot_of(kai.cluster)[0].groups}
    weak = groups[str(victim.pk)]
    evict = Evict(weak, tuple(pod.name for pod in weak.pods), Cause.PREEMPT, "candidate")
    outcome = Outcome(
        OutcomeKind.PREEMPTS if placed else OutcomeKind.PENDING,
        (evict,),
        coming=int(placed),
        waiting=int(not placed),
        first=tuple(groups[str(each.pk)] for each in (mine, theirs)),
    )
    monkeypatch.setattr("workloads.forecast.selectors.preview.preview", lambda *_args, **_more: outcome)
    answer = ask(team, gpus=8, actor=acting(MembershipFactory(project=team).user), priority="high")
    assert answer.verdict is (Verdict.EVICTS if placed else Verdict.WAITS)
    assert ("Waits in h100, although it evicts 1 workload (8 GPUs)" in answer.sentence) is not placed
    assert [each.label for each in answer.victims] == ["weak"]
    assert any(
        each.startswith("mine and 1 workload of others take the GPUs that are freed for it") for each in answer.cautions
    )


def test_a_number_that_a_class_gets_counts_on_kai_for_what_runs_and_elsewhere_for_new_pods(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=16)
    running = lab.submit(team, "runs", gpus=8, priority="medium")
    lab.settle()
    assert ask(team, gpus=8, priority="low").verdict is Verdict.WAITS
    change_priority_entry(name="medium", value=30, actor=SYSTEM)
    lab.settle()
    by_class = lab.cluster.flavour == "kai"
    assert ask(team, gpus=8, priority="low").verdict is (Verdict.EVICTS if by_class else Verdict.WAITS)
    lab.submit(team, "comes", gpus=8, priority="low")
    lab.settle(4)
    assert fresh(running).preempted_count == by_class


def test_a_gang_is_one_victim(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    kai.submit(team, "gang", manifest=pytorch_job("gang", gpus=4, workers=1))
    kai.settle()
    answer = ask(team, gpus=8, priority="high")
    assert [(each.label, each.gpu_milli) for each in answer.victims] == [("gang", 8000)]


def test_reclaim_is_distinguished_and_names_of_foreign_workloads_are_hidden(kai: Lab) -> None:
    borrower, owner = kai.project("borrower", deserved=0), kai.project("owner", deserved=8)
    kai.submit(borrower, "secret-plan", gpus=8, priority="medium")
    kai.settle()
    member = acting(MembershipFactory(project=owner).user)
    answer = ask(owner, gpus=8, actor=member, priority="very-low")
    assert answer.verdict is Verdict.RECLAIMS
    assert [(each.workload, each.label, each.project) for each in answer.victims] == [(None, "another project", "")]
    everything = ask(owner, gpus=8, actor=acting(UserFactory(is_superuser=True)), priority="very-low")
    assert [(each.label, each.project) for each in everything.victims] == [("secret-plan", "borrower")]


def test_the_alternatives_were_tried(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=4)
    kai.submit(team, "first", gpus=4, preemptibility="non-preemptible")
    NodePoolFactory(cluster=kai.cluster, name="empty")
    kai.settle()
    answer = ask(team, gpus=4, preemptibility="non-preemptible")
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NonPreemptibleOverQuota")
    assert answer.numbers["queue"] == "project llm-team"
    assert [(each.preemptibility, each.gpus_per_pod, each.pool) for each in answer.alternatives] == [
        ("preemptible", None, "")
    ]


def test_fewer_gpus_are_offered_where_they_help(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=16)
    kai.submit(team, "low-train", gpus=4)
    kai.settle()
    fewer = ask(team, gpus=8, priority="high", preemptibility="preemptible")
    assert fewer.verdict is Verdict.EVICTS
    assert [each.gpus_per_pod for each in fewer.alternatives] == [4]
    waits = ask(team, gpus=8)
    assert waits.verdict is Verdict.WAITS
    assert "4 GPUs free, at most 4 on one node" in waits.sentence


def test_a_weaker_priority_is_offered_where_a_cap_refuses_the_priority(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=8)
    PriorityCap.objects.create(project=team, priority="high", gpu_limit=2 * GPU)
    lab.settle()
    answer = ask(team, gpus=4, priority="high")
    assert answer.verdict is Verdict.REFUSED
    assert [each.words for each in answer.alternatives if each.priority] == [
        "Choose medium-high (90): it starts now without evictions."
    ]


def test_what_can_never_run_is_the_verdict_with_its_numbers(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=4)
    kai.settle()
    answer = ask(team, gpus=8, preemptibility="non-preemptible")
    assert (answer.verdict, answer.reason) == (Verdict.REFUSED, "NonPreemptibleOverQuota")
    assert answer.numbers["allowed"] == "4 GPU"
    assert [each.preemptibility for each in answer.alternatives if each.preemptibility] == ["preemptible"]


def test_more_than_any_node_has_never_fits(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=64)
    kai.settle()
    answer = ask(team, gpus=16)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NeverFits")
    assert answer.sentence.startswith("Never fits: it needs ")
    assert "8 GPUs in total, 8 on its largest node" in answer.sentence


def test_others_who_wait_with_more_right_are_counted_in(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=8)
    kai.settle()
    ahead = kai.submit(team, "ahead", gpus=8, priority="medium")
    assert ahead.phase == Phase.CREATING
    assert ask(team, gpus=8).verdict is Verdict.WAITS


def test_asking_writes_nothing_and_needs_the_right_to_submit(kai: Lab) -> None:
    team = kai.project("llm-team")
    kai.settle()
    before = AuditRecord.objects.count()
    ask(team, gpus=1)
    with pytest.raises(NotFound):
        ask(team, gpus=1, actor=acting(UserFactory()))
    with pytest.raises(ValidationFailed):
        ask(team, gpus=1, priority="urgent")
    assert (AuditRecord.objects.count(), Workload.objects.count()) == (before, 0)


def test_a_quota_of_a_namespace_holds_for_the_kube_scheduler() -> None:
    kube = Lab("kube")
    team = kube.project("llm-team", deserved=4)
    spec = spec_of(job("first", gpus=4), namespace=team.namespace)
    kube.submit(team, "first", manifest=job("first", gpus=4))
    kube.settle()
    answer = forecast(spec=spec, project=team, actor=SYSTEM)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NonPreemptibleOverQuota")


def test_a_pool_that_shares_its_kai_scheduler_with_another_is_forecast_with_that_caution(kai: Lab) -> None:
    """The sandbox has a scheduler for every pool; a real cluster where both carry Rung's own label has one."""
    team = kai.project("llm-team")
    NodePoolFactory(cluster=kai.cluster, name="a100")
    kai.settle()
    said = "One KAI Scheduler serves a100 and h100"
    assert not [each for each in ask(team, gpus=4).cautions if each.startswith(said)]
    Cluster.objects.filter(pk=kai.cluster.pk).update(backend="memory")
    assert [each for each in ask(team, gpus=4).cautions if each.startswith(said)]


def test_a_pool_that_no_kai_scheduler_takes_lets_nothing_start(kai: Lab) -> None:
    team = kai.project("llm-team")
    kai.settle()
    Cluster.objects.filter(pk=kai.cluster.pk).update(backend="memory", configured={"shards": ["a100"]})
    answer = ask(team, gpus=4)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NoSuchPool")
    assert answer.sentence.startswith("Waits: No SchedulingShard of KAI Scheduler covers the nodes of h100")


def test_who_waits_though_the_model_lets_it_start_is_told_that_pools_share_a_scheduler(kai: Lab) -> None:
    team = kai.project("llm-team")
    NodePoolFactory(cluster=kai.cluster, name="a100")
    kai.settle()
    waiting = kai.submit(team, "waiting", gpus=4)
    Workload.objects.filter(pk=waiting.pk).update(phase=Phase.PENDING, phase_message="no nodes with enough resources")
    Cluster.objects.filter(pk=kai.cluster.pk).update(backend="memory")
    headline = why_waiting(fresh(waiting))
    assert headline is not None
    assert "no nodes with enough resources. One KAI Scheduler serves a100 and h100" in headline.sentence


def test_what_waits_on_kai_beside_weaker_work_of_its_project_may_start_all_the_same(kai: Lab) -> None:
    team = kai.project("llm-team", deserved=8, limit=8)
    kai.submit(team, "weak", gpus=4, priority="low")
    kai.submit(team, "equal", gpus=4, priority="medium")
    kai.settle()
    answer = ask(team, gpus=8, priority="medium")
    assert answer.verdict is Verdict.WAITS
    assert any("in one step, which the model tries separately" in each for each in answer.cautions)
    assert not any("in one step" in each for each in ask(team, gpus=8, priority="very-low").cautions)
