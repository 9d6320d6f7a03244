"""What a project can start, as its page says it, is what previews of workloads of that size say."""

import random
import re
from typing import Any

import pytest

from portal.kit.pages.formatting import gpus_text
from portal.kit.security.actors import SYSTEM
from scheduling.forecast.headroom import COUNTS_FIXED_APART
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota
from tenants.quotas.selectors.quota_rows import PoolQuota, startable_rows
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, ProjectQuotaFactory
from tests.factories.workloads import job, spec_of
from tests.workloads.sandbox_lab import Lab
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast

pytestmark = pytest.mark.django_db

PREEMPTIBLE: dict[str, Any] = {"priority": "very-low", "preemptibility": "preemptible"}
FIXED: dict[str, Any] = {"priority": "high", "preemptibility": "non-preemptible"}


def row(project: Project) -> PoolQuota:
    return next(each for each in startable_rows(Project.objects.get(pk=project.pk)) if each.pool.name == "h100")


def ask(project: Project, gpus: int, requested: dict[str, Any]) -> Forecast:
    """A workload of so many pods of one GPU."""
    spec = spec_of(job("asked", gpus=1, pods=gpus), namespace=project.namespace, **requested)
    return forecast(spec=spec, project=project, actor=SYSTEM)


def starts(project: Project, gpus: int, requested: dict[str, Any]) -> bool:
    """Whether all of it starts now; of nothing, yes."""
    if not gpus:
        return True
    answer = ask(project, gpus, requested)
    return answer.verdict is Verdict.STARTS and not answer.waiting


AMOUNTS = (
    r"(?P<all>\d+) GPUs? can start in h100: (?P<within>\d+) GPUs? within quota \((?P<fixed>\d+) if non-preemptible\)",
    r"(?P<all>\d+) GPUs? can start in h100: over quota if preemptible, or (?P<fixed>\d+) of them within quota if",
    r"(?P<fixed>(?P<all>\d+)) GPUs? can start in h100: over quota if preemptible, within quota if non-preemptible\.",
    r"(?P<within>\d+) GPUs? can start in h100 within quota, (?P<over>\d+) more over quota(?P<kind>[^.]*)\.",
    r"(?P<within>\d+) GPUs? can start in h100 within quota\.",
    r"No quota left in h100\. (?P<over>\d+) GPUs? can start over quota(?P<kind>[^.]*)\.",
    r"Nothing can start in h100 without evictions\.",
)


def printed(sentence: str) -> tuple[int, int, int]:
    """GPUs of preemptible work within quota and in all, and of one non-preemptible workload, by the sentence."""
    match = next(found for pattern in AMOUNTS if (found := re.match(pattern, sentence)))
    found = match.groupdict()
    within = int(found.get("within") or 0)
    total = int(found.get("all") or within + int(found.get("over") or 0))
    fixed = int(found.get("fixed") or (total if found.get("kind") == "" else within))
    if bound := re.search(r"on-preemptible: at most (\d+) GPU", sentence):
        fixed = int(bound[1])
    return within, total, fixed


def fill(lab: Lab, projects: list[Project], chance: random.Random) -> None:
    """Workloads that start at once, so that nothing waits."""
    for number in range(6):
        project, requested = chance.choice(projects), dict(chance.choice([PREEMPTIBLE, FIXED]))
        gpus = chance.choice([1, 2, 3, 4])
        if starts(project, gpus, requested):
            lab.submit(project, f"runs-{number}", manifest=job(f"runs-{number}", gpus=1, pods=gpus), **requested)
            lab.settle(2)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("flavour", ["kai", "kube", "kueue", "volcano"])
def test_the_sentence_and_the_previews_agree(flavour: str, seed: int) -> None:
    chance = random.Random(f"{flavour} {seed}")
    lab = Lab(flavour, nodes=2)
    sizes = {name: chance.choice([2, 4, 6]) for name in ("a", "b")}
    DepartmentQuota.objects.update(gpu_deserved=chance.choice([sum(sizes.values()), 6, 20]) * GPU)
    projects = [lab.project(name, deserved=size, limit=chance.choice([None, 8, 12])) for name, size in sizes.items()]
    lab.settle()
    fill(lab, projects, chance)
    for project in projects:
        check(project)


def check(project: Project) -> None:
    """As many GPUs as are printed start, and not one more; the preview agrees on which are within quota."""
    sentence = row(project).sentence
    within, total, fixed = printed(sentence)
    for requested, most in ((PREEMPTIBLE, total), (FIXED, fixed)):
        assert starts(project, most, requested), (sentence, requested)
        assert not starts(project, most + 1, requested), (sentence, requested)
    if within:
        assert not ask(project, within, PREEMPTIBLE).over_quota, sentence
    if within < total:
        assert ask(project, within + 1, PREEMPTIBLE).over_quota, sentence
    if fixed and project.cluster.flavour in COUNTS_FIXED_APART:
        assert not ask(project, fixed, FIXED).over_quota, sentence


def test_quota_in_use_by_preemptible_work_is_left_to_non_preemptible_work() -> None:
    """Of 8 deserved GPUs 10 are in use, 5 by non-preemptible work; 1 GPU of the pool is free."""
    lab = Lab("kai", nodes=2)
    team, other = lab.project("llm-team", deserved=8), lab.project("vision-team", deserved=5)
    lab.submit(team, "fixed", gpus=5, **FIXED)
    lab.submit(team, "gives-way", gpus=5, **PREEMPTIBLE)
    lab.submit(other, "other", gpus=3, **PREEMPTIBLE)
    lab.submit(other, "more", gpus=2, **PREEMPTIBLE)
    lab.settle()
    assert row(team).sentence == (
        "1 GPU can start in h100: over quota if preemptible, within quota if non-preemptible. No other GPU in the pool "
        "is free."
    )
    assert ask(team, 1, PREEMPTIBLE).sentence.startswith("Starts now in h100, over quota")
    assert ask(team, 1, FIXED).sentence.startswith("Starts now in h100, within quota")


@pytest.mark.parametrize("gpus", [3, 4])
def test_on_kube_non_preemptible_work_that_waits_for_the_quota_of_its_pool_counts(gpus: int) -> None:
    """The project deserves 4 GPUs in h100 and 8 in another pool. Rung defers what does not fit into the 4."""
    lab = Lab("kube", nodes=2)
    team = lab.project("llm-team", deserved=4)
    ProjectQuotaFactory(project=team, node_pool=NodePoolFactory(cluster=lab.cluster, name="a100"), gpu_deserved=8 * GPU)
    lab.submit(team, "first", gpus=1, **FIXED)
    lab.submit(team, "second", gpus=gpus - 1, **FIXED)
    lab.settle()
    check(team)
    said = f"at most {gpus_text((4 - gpus) * GPU)}; such workloads take {gpus} of the 4 GPUs of the project."
    assert said in row(team).sentence
    lab.submit(team, "waits", gpus=2, **FIXED)
    lab.settle()
    assert printed(row(team).sentence)[2] == 0
    check(team)


def test_on_kube_the_department_counts_non_preemptible_work_of_its_other_projects() -> None:
    lab = Lab("kube", nodes=2)
    DepartmentQuota.objects.update(gpu_deserved=6 * GPU)
    team, other = lab.project("llm-team", deserved=4), lab.project("vision-team", deserved=4)
    lab.submit(other, "theirs", gpus=4, **FIXED)
    lab.settle()
    bound = "Non-preemptible: at most 2 GPUs; such workloads take 4 of the 6 GPUs of department research."
    assert bound in row(team).sentence
    check(team)
