"""Whoever waits for CPUs or memory is told so, with what is asked for, what is free and what would do instead."""

from typing import Any

import pytest

from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.factories.workloads import job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import why_waiting

pytestmark = pytest.mark.django_db
FLAVOURS = ["kube", "kube-gangs", "kai", "volcano"]


def asking(name: str, *, gpus: int = 1, cpu: str = "1", memory: str = "1Gi") -> dict[str, Any]:
    manifest = job(name, gpus=gpus)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"] = {"cpu": cpu, "memory": memory}
    return manifest


def ask(project: Project, **amounts: Any) -> Forecast:
    spec = spec_of(asking("asked", **amounts), namespace=project.namespace, preemptibility="preemptible")
    project = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    return forecast(spec=spec, project=project, actor=SYSTEM)


def busy(flavour: str, **amounts: Any) -> tuple[Lab, Project]:
    """One node of 8 GPUs, 128 CPUs and 1 TiB, on which one job runs."""
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=16)
    lab.submit(team, "first", manifest=asking("first", **amounts), preemptibility="preemptible")
    lab.settle()
    return lab, team


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_cpus_that_are_short_are_named_and_fewer_cpus_are_offered(flavour: str) -> None:
    lab, team = busy(flavour, cpu="100")
    answer = ask(team, cpu="64")
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NoRoom")
    assert answer.sentence == (
        "Waits: it needs 64 CPUs in h100; 28 CPUs free, at most 28 on one node, and the scheduler finds no "
        "evictions that would free enough for it."
    )
    assert answer.numbers["short"] == "cpu"
    assert [(each.words, each.cpus_per_pod, each.gpus_per_pod) for each in answer.alternatives if each.resizes] == [
        ("Request 28 CPUs per pod instead of 64: it starts now.", 28, None)
    ]
    second = lab.submit(team, "second", manifest=asking("second", cpu="64"), preemptibility="preemptible")
    lab.settle()
    headline = why_waiting(fresh(second))
    assert headline is not None
    assert "needs 64 CPUs in h100; 28 CPUs free" in headline.sentence
    assert headline.numbers["short"] == "cpu"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_memory_that_is_short_is_named_and_less_memory_is_offered(flavour: str) -> None:
    _lab, team = busy(flavour, memory="900Gi")
    answer = ask(team, memory="500Gi")
    assert "it needs 500 GiB in h100; 124 GiB free, at most 124 GiB on one node" in answer.sentence
    assert [(each.words, each.gib_per_pod) for each in answer.alternatives if each.resizes] == [
        ("Request 117 GiB per pod instead of 500 GiB: it starts now.", 117)
    ]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_more_cpus_than_any_node_has_is_said_of_cpus(flavour: str) -> None:
    _lab, team = busy(flavour)
    answer = ask(team, cpu="256")
    assert answer.reason == "NeverFits"
    assert "needs 256 CPUs, more than h100 has: 128 CPUs in total, 128 on its largest node" in answer.sentence


def test_both_are_named_and_less_of_both_is_offered() -> None:
    _lab, team = busy("kai", gpus=6, cpu="100")
    answer = ask(team, gpus=4, cpu="64")
    assert "needs 4 GPUs and 64 CPUs in h100; 2 GPUs and 28 CPUs free" in answer.sentence
    assert [(each.words, each.gpus_per_pod, each.cpus_per_pod) for each in answer.alternatives if each.resizes] == [
        ("Request 1 GPU and 28 CPUs per pod instead of 4 GPUs and 64 CPUs: it starts now.", 1, 28)
    ]


@pytest.mark.parametrize(("used", "requested", "offered"), [(1, 9, 7), (1, 8, 7), (5, 8, 3), (2, 5, None), (6, 16, 2)])
def test_the_largest_number_of_gpus_that_starts_is_offered(used: int, requested: int, offered: int | None) -> None:
    _lab, team = busy("kai", gpus=used)
    answer = ask(team, gpus=requested)
    words = [each.words for each in answer.alternatives if each.gpus_per_pod]
    assert words == ([f"Request {offered} GPUs per pod instead of {requested}: it starts now."] if offered else [])


def test_a_quota_of_cpus_refuses_in_cpus() -> None:
    lab, team = busy("kai")
    ProjectQuota.objects.filter(project=team).update(cpu_limit=32_000)
    answer = ask(team, cpu="64")
    assert answer.sentence == "It needs 64 CPUs in h100; the limit of project llm-team is 32 CPUs."
    assert [each.cpus_per_pod for each in answer.alternatives if each.resizes] == [30]
    with pytest.raises(ValidationFailed) as refused:
        lab.submit(team, "second", manifest=asking("second", cpu="64"))
    assert refused.value.problems[0].numbers["short"] == "cpu"


def test_the_simulated_scheduler_names_it_too() -> None:
    lab, team = busy("kai", cpu="100")
    second = lab.submit(team, "second", manifest=asking("second", cpu="64"), preemptibility="preemptible")
    third = lab.submit(team, "third", manifest=asking("third", cpu="256"), preemptibility="preemptible")
    lab.settle()
    assert "didn't have enough resources: CPU cores" in fresh(second).phase_message
    assert "Max CPU resources available in a single node" in fresh(third).phase_message
    assert "topped at 128 cores" in fresh(third).phase_message
