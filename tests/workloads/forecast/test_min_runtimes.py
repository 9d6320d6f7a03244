"""What is young is left alone: forecast, sandbox and page agree on until when."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from clusters.flavours.volcano import MIN_RUNTIME
from clusters.ports.objects import POD
from clusters.ports.pods import is_terminal
from clusters.sandbox.services.simulation import SandboxGateway
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.services.runtime_rules import set_min_runtime
from tests.factories.tenants import UserFactory
from tests.factories.workloads import WorkloadFactory, pytorch_job, spec_of
from tests.support.repository import ROOT
from tests.workloads.sandbox_lab import Lab, configure, fresh
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.runtime_rules import protection_of
from workloads.forecast.selectors.waiting import why_waiting
from workloads.lifecycle.services.actions import change_priority, resume, stop
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
CONF = (ROOT / "lab" / "volcano.conf").read_text(encoding="utf-8")


def guaranteed(flavour: str, minutes: int = 30) -> tuple[Lab, Project, Workload]:
    """One node, all of it in use by a preemptible run of a project whose runs are left alone so long."""
    lab = Lab(flavour)
    if flavour == "volcano":
        configure(lab, CONF)
    team = lab.project("llm-team", deserved=16)
    set_min_runtime(owner=team, minutes=minutes, actor=SYSTEM)
    young = lab.submit(team, "young", gpus=8)
    lab.settle()
    return lab, team, young


def ask(project: Project, *, workers: int = 0, **requested: str) -> Forecast:
    spec = spec_of(pytorch_job("asked", gpus=8, workers=workers), namespace=project.namespace, **requested)
    project = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    return forecast(spec=spec, project=project, actor=SYSTEM)


@pytest.mark.parametrize("flavour", ["kai", "volcano"])
def test_the_forecast_waits_where_the_sandbox_waits_and_evicts_where_it_evicts(flavour: str) -> None:
    lab, team, young = guaranteed(flavour)
    answer = ask(team, priority="medium")
    ends = (fresh(young).started_at or timezone.now()) + timedelta(minutes=30)
    assert answer.verdict is Verdict.WAITS
    assert "It may evict 1 workload when" in answer.assurances[-1]
    assert answer.assurances[-1].endswith(f"at {ends:%Y-%m-%d %H:%M} UTC.")
    strong = lab.submit(team, "strong", gpus=8, priority="medium")
    lab.settle(4)
    assert fresh(young).phase == Phase.RUNNING
    headline = why_waiting(fresh(strong))
    assert headline is not None
    assert headline.sentence.endswith(answer.assurances[-1])
    lab.settle(1, seconds=30 * 60)
    lab.settle(3, seconds=31)
    assert fresh(young).preempted_count == 1


@pytest.mark.parametrize(
    ("flavour", "preemptibility", "said"),
    [
        (
            "kai",
            "preemptible",
            ["After the start it is protected from eviction for 30 min within its department and for no time from "],
        ),
        ("kai", "non-preemptible", []),
        (
            "volcano",
            "preemptible",
            ["After the start it is protected from eviction for 30 min: minimum runtime of project"],
        ),
        ("volcano", "non-preemptible", []),
    ],
)
def test_who_submits_is_told(flavour: str, preemptibility: str, said: list[str]) -> None:
    _, team, _ = guaranteed(flavour)
    found = ask(team, preemptibility=preemptibility).assurances
    assert [text[: len(words)] for text, words in zip(found, said, strict=True)] == said


def test_on_volcano_other_departments_wait_for_a_projects_own_rule_too() -> None:
    _, _, young = guaranteed("volcano")
    found = protection_of(fresh(young))
    assert found is not None
    assert (found.inside, found.differs) == (found.across, False)


def test_pods_on_volcano_keep_what_they_were_made_with_until_they_are_recreated() -> None:
    """Neither another rule nor another priority reaches them: the workload is still said to carry the old one."""
    lab, team, young = guaranteed("volcano")
    set_min_runtime(owner=team, minutes=50, actor=SYSTEM)
    change_priority(workload=fresh(young), priority="very-low", actor=SYSTEM)
    lab.settle()
    made = protection_of(fresh(young))
    assert made is not None
    assert made.inside == (fresh(young).started_at or timezone.now()) + timedelta(minutes=30)
    assert made.rule_of == "project llm-team when its pods were made"
    assert carried(lab) == {"30m"}
    stop(workload=fresh(young), actor=SYSTEM)
    lab.settle(3, seconds=60)
    resume(workload=fresh(young), actor=SYSTEM)
    lab.settle()
    anew = protection_of(fresh(young))
    assert anew is not None
    assert (anew.rule_of, carried(lab)) == ("project llm-team", {"50m"})


@pytest.mark.parametrize(("preemptibility", "said"), [("preemptible", 30), ("non-preemptible", 0)])
def test_only_what_may_be_evicted_carries_it(preemptibility: str, said: int) -> None:
    lab, team, _ = guaranteed("volcano")
    other = lab.submit(team, "other", preemptibility=preemptibility)
    lab.settle()
    assert fresh(other).min_runtime_minutes == said


def carried(lab: Lab) -> set[str | None]:
    """What the pods of the cluster say."""
    pods, _version = SandboxGateway(lab.cluster).list(POD)
    return {pod["metadata"]["annotations"].get(MIN_RUNTIME) for pod in pods if not is_terminal(pod)}


@pytest.mark.parametrize("flavour", ["kai", "volcano"])
def test_the_page_says_until_when(client_of: Callable[..., Client], flavour: str) -> None:
    _, _, young = guaranteed(flavour)
    found = protection_of(fresh(young))
    assert found is not None
    assert found.inside == (fresh(young).started_at or timezone.now()) + timedelta(minutes=30)
    text = client_of(UserFactory(is_superuser=True)).get(f"/workloads/{young.pk}/").content.decode()
    assert f'"{found.inside:%Y-%m-%dT%H:%M}' in text
    assert "minimum runtime of project llm-team" in " ".join(text.split())


@pytest.mark.parametrize(
    ("minutes", "preemptibility", "phase"),
    [
        pytest.param(31, "preemptible", Phase.RUNNING, id="its time is over"),
        pytest.param(1, "non-preemptible", Phase.RUNNING, id="it needs no protection"),
        pytest.param(1, "semi-preemptible", Phase.RUNNING, id="its core needs none and the rest has none"),
        pytest.param(1, "preemptible", Phase.PENDING, id="it does not run"),
    ],
)
def test_nothing_is_said_where_nothing_is_protected(
    llm_team: Project, minutes: int, preemptibility: str, phase: str
) -> None:
    set_min_runtime(owner=llm_team, minutes=30, actor=SYSTEM)
    began = timezone.now() - timedelta(minutes=minutes)
    workload = WorkloadFactory(project=llm_team, preemptibility=preemptibility, phase=phase, started_at=began)
    assert protection_of(workload) is None
