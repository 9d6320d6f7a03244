"""Templates from the command line: which there are, and a workload that starts from one."""

import pytest

from tenants.organisation.models import Project
from tests.cli.conftest import Rung
from tests.factories.tenants import ProjectFactory
from tests.factories.workloads import AssetFactory, WorkloadTemplateFactory
from workloads.state.models import Workload


@pytest.fixture
def templates(llm_team: Project) -> None:
    """One of the project, two of everybody, one of a project that is somebody else's."""
    WorkloadTemplateFactory.create(name="night-run", spec={"image": "docker.io/a/everybody:1"})
    size = AssetFactory.create(name="one-gpu", kind="compute", spec={"gpuDevicesRequest": 1})
    own = {"image": "docker.io/a/own:1", "priorityClass": "low"}
    WorkloadTemplateFactory.create(name="night-run", scope="project", project=llm_team, spec=own, compute=size)
    WorkloadTemplateFactory.create(
        name="gang",
        kind="distributed",
        spec={"image": "docker.io/a/b:1", "numWorkers": 3, "distributedFramework": "MPI"},
    )
    WorkloadTemplateFactory.create(name="theirs", scope="project", project=ProjectFactory.create())


def test_those_that_hold_in_the_project_are_listed(signed_in: Rung, templates: None) -> None:
    header, *rows = signed_in("templates").out.splitlines()
    assert header.split()[:3] == ["TEMPLATE", "TYPE", "SCOPE"]
    assert sorted(row.split()[:3] for row in rows) == [
        ["gang", "distributed", "tenant"],
        ["night-run", "training", "project"],
        ["night-run", "training", "tenant"],
    ]
    assert signed_in("templates", "--type", "distributed", "-o", "name").out == "gang\n"
    assert signed_in("templates", "--search", "nothing").out == "No templates.\n"
    assert len(signed_in("templates", "-A", "-o", "json").data) == 3


def test_the_nearest_of_a_name_says_what_the_flags_leave_out(signed_in: Rung, templates: None) -> None:
    ended = signed_in("submit", "tonight", "--template", "night-run", "--priority", "medium")
    assert ended.code == 0, ended.err
    assert "Submitted llm-team/tonight" in ended.out
    assert "From template night-run: image\n" in ended.out
    made = Workload.objects.get(name="tonight")
    assert (made.priority.name, made.type.name) == ("medium", "Training")
    assert "docker.io/a/own:1" in signed_in("describe", "tonight", "-o", "json").out


def test_a_template_says_what_sort_of_workload_it_is(signed_in: Rung, templates: None) -> None:
    ended = signed_in("submit", "many", "-t", "gang", "--workers", "2", "-g", "1", "--dry-run", "-o", "json")
    assert ended.code == 0, ended.err
    assert (ended.data["spec"]["numWorkers"], ended.data["spec"]["distributedFramework"]) == (2, "MPI")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("-t", "nothing"), 1, "No template nothing applies in llm-team."),
        (("-t", "theirs"), 1, "No template theirs applies in llm-team."),
        (("-t", "gang", "--type", "workspace"), 1, "Template gang is of type distributed, not workspace"),
        (("-t", "night-run", "--workers", "2"), 64, "--workers requires --type distributed."),
        (("-t", "night-run", "-f", "-"), 64, "cannot be combined with a manifest"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(
    signed_in: Rung, templates: None, args: tuple[str, ...], code: int, said: str
) -> None:
    ended = signed_in("submit", "train", *args, stdin="kind: Job")
    assert (ended.code, said in ended.err) == (code, True), ended.err
    assert not Workload.objects.exists()
