"""Replays in the browser: a form, progress, cancel, the report."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.clusters import ClusterFactory
from tests.factories.workloads import WorkloadFactory
from workloads.dictionary.models import Priority
from workloads.replay import services as replay_services
from workloads.replay.models import Replay
from workloads.replay.rules import COLUMNS

Clients = Callable[[User], Client]
PATH = "/replay/"
CSV = b"t,dur,gpu,who\n0,3600,8,llm-team\n1,3600,8,someone\n60,600,4,llm-team\n"


@pytest.fixture
def person(client_of: Clients, admin: User, llm_team: Project) -> Client:
    return client_of(admin)


def sent(project: Project, **more: Any) -> dict[str, Any]:
    values = {f"priority_{row.name}": row.value for row in Priority.objects.all()}
    return {
        "name": "what if", "cluster": project.cluster_id, "project": "llm-team", "default_priority": "low",
        "csv": SimpleUploadedFile("trace.csv", CSV), "column_submitted": "t", "column_duration": "dur",
        "column_gpus": "gpu", "column_owner": "who", **values, **more,
    }  # fmt: skip


def words(client: Client, path: str = PATH, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_an_admin_starts_one_watches_it_and_reads_the_report(person: Client, llm_team: Project) -> None:
    assert "No replays yet." in words(person)
    quotas = "llm-team, h100, 8, 16, 3\nllm-team, a100, 4"
    answer = person.post(PATH, sent(llm_team, scheduler="kai", priority_low=45, quotas=quotas))
    row = Replay.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"{PATH}{row.pk}/")
    assert row.request["priorities"] == [{"name": "low", "value": 45}]
    assert row.request["quotas"][1]["limitGpus"] is None
    page = words(person, f"{PATH}{row.pk}/")
    assert "every 2s" in page
    assert "0 %: 0 of 6 submissions" in page
    replay_services.sweep()
    part = words(person, f"{PATH}{row.pk}/", **{"HX-Request": "true", "HX-Target": "progress"})
    assert "<html" not in part
    assert "every 2s" not in part
    assert part.count('<polyline class="held"') == 2
    assert part.count('<polyline class="deserved"') == 2
    assert (
        "Submissions of an uploaded trace. Proposal: priority low 45; quota of project llm-team in h100: 8 GPUs" in part
    )
    assert (
        "deserved, limit 16 GPUs, over-quota weight 3; quota of project llm-team in a100: 4 GPUs deserved, no" in part
    )
    assert "Evictions: 0 before, 0 after." in part
    assert "> llm-team <" in part
    assert "Model: KAI Scheduler today, KAI Scheduler proposed. GPU use of 24 GPUs: 33.3 % before" in part
    assert "% after, over 1 min, from the first to the last submission." in part
    assert "last submission, 1 min later" in part
    assert "what if" in words(person)
    assert person.get(f"{PATH}{row.pk}/file/")["Content-Type"].startswith("text/csv")


def test_without_a_proposal_the_report_says_that_no_change_was_proposed(person: Client, llm_team: Project) -> None:
    person.post(PATH, sent(llm_team, scheduler="kai", proposed_scheduler="kai"))
    replay_services.sweep()
    page = words(person, f"{PATH}{Replay.objects.get().pk}/")
    assert "No change proposed: both runs have today's settings." in page
    assert "with the proposal" not in page


def test_where_all_submissions_come_at_once_the_plots_end_with_the_runs(person: Client, llm_team: Project) -> None:
    at_once = b"t,dur,gpu,who\n0,3600,8,llm-team\n0,7200,8,llm-team\n"
    person.post(PATH, sent(llm_team, csv=SimpleUploadedFile("trace.csv", at_once)))
    replay_services.sweep()
    page = words(person, f"{PATH}{Replay.objects.get().pk}/")
    assert "both runs ended, 3 h later" in page
    assert "over 3 h, from the submissions, which all came at once, until both runs had ended." in page
    assert "last submission" not in page


def test_where_nothing_waits_a_sentence_takes_the_place_of_the_plot(person: Client, llm_team: Project) -> None:
    person.post(PATH, sent(llm_team, csv=SimpleUploadedFile("t.csv", b"t,dur,gpu,who\n0,60,1,llm-team\n3600,60,1,x\n")))
    replay_services.sweep()
    page = words(person, f"{PATH}{Replay.objects.get().pk}/")
    assert page.count('<polyline class="held"') == 1
    assert "None in either run, to 0.01 GPUs on average. Time: 1 h, from the first to the last submission." in page


def test_the_report_names_the_period_of_the_record_and_whether_it_had_ended(person: Client, llm_team: Project) -> None:
    WorkloadFactory(project=llm_team)
    today = timezone.now().date()
    assert f'name="end" value="{today}"' in words(person)
    person.post(PATH, sent(llm_team, csv="", start=today - timedelta(days=6), end=today))
    page = words(person, f"{PATH}{Replay.objects.get().pk}/")
    ends = today + timedelta(days=1)
    assert (
        f"Recorded submissions from {today - timedelta(days=6)} 00:00 to {ends} 00:00 UTC. The period had not" in page
    )


def test_the_only_cluster_is_chosen(person: Client, llm_team: Project) -> None:
    chosen = f'<option value="{llm_team.cluster_id}" selected>'
    assert chosen in words(person)
    ClusterFactory(name="other")
    assert chosen not in words(person)
    assert chosen in words(person, f"{PATH}?cluster={llm_team.cluster.name}")
    assert chosen not in words(person, f"{PATH}?cluster=none-of-these&proposed_scheduler=slurm")


def test_the_report_names_the_proposed_configuration(person: Client, llm_team: Project) -> None:
    person.post(PATH, sent(llm_team, proposed_scheduler="kueue", proposed_configuration="fair-sharing"))
    replay_services.sweep()
    row = Replay.objects.get()
    assert "Kueue (fair-sharing) proposed" in words(person, f"{PATH}{row.pk}/")
    assert row.result["assumptions"] == []


def test_the_report_names_what_is_evicted_again_and_again(person: Client, llm_team: Project) -> None:
    person.post(PATH, sent(llm_team))
    replay_services.sweep()
    row = Replay.objects.get()
    assert row.result["endless"] == {"before": [], "after": []}
    assert "again and again" not in words(person, f"{PATH}{row.pk}/")
    row.result["assumptions"] = ["Assumption: Volcano does nothing."]
    row.result["endless"] = {"before": ["line 2"], "after": [f"line {number}" for number in range(2, 9)]}
    row.save()
    page = words(person, f"{PATH}{row.pk}/")
    assert "Assumption: Volcano does nothing." in page
    assert "Before the change, submissions are evicted again and again, until nothing else finishes: line 2." in page
    assert "After the change" in page
    assert "line 2, line 3, line 4, line 5, line 6 and others. The replay ends there" in page


def test_columns_with_the_fields_names_need_no_mapping(person: Client, llm_team: Project) -> None:
    blank = dict.fromkeys(("project", "default_priority", *(f"column_{name}" for name in COLUMNS)), "")
    text = b"submitted,duration,gpus,owner,Priority\n0,3600,8,llm-team,low\n"
    requested = {**sent(llm_team), **blank, "csv": SimpleUploadedFile("t.csv", text)}
    assert person.post(PATH, requested).status_code == 302
    assert Replay.objects.get().trace[0]["priority"] == "low"


def test_a_missing_column_is_shown_once_at_its_open_field(person: Client, llm_team: Project) -> None:
    answer = person.post(PATH, sent(llm_team, column_gpus=""))
    assert answer.status_code == 422
    page = answer.content.decode()
    assert page.count("no column") == 1
    assert "<details open>" in page


def test_it_is_cancelled(person: Client, llm_team: Project) -> None:
    person.post(PATH, sent(llm_team))
    row = Replay.objects.get()
    assert person.post(f"{PATH}{row.pk}/cancel/").status_code == 302
    assert "Cancelled" in words(person, f"{PATH}{row.pk}/")
    assert "every 2s" not in words(person, f"{PATH}{row.pk}/")


def test_the_record_of_some_days_needs_no_file(person: Client, llm_team: Project) -> None:
    WorkloadFactory(project=llm_team)
    assert person.post(PATH, sent(llm_team, csv="", start="2026-01-01", end="2026-01-07")).status_code == 302
    assert Replay.objects.get().request["end"] == "2026-01-08T00:00:00+00:00"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({"csv": SimpleUploadedFile("t.csv", b"\xff\xfe")}, "must be UTF-8", id="no text"),
        pytest.param({"csv": SimpleUploadedFile("t.csv", b"x" * 400_001)}, "must be at most 400000 bytes", id="large"),
        pytest.param({"csv": SimpleUploadedFile("t.csv", b"t,dur,gpu,who\n0,-1,1,x\n")}, "Line 2, column", id="a cell"),
        pytest.param({"column_gpus": "GPUs"}, "Line 1: no column", id="a column"),
        pytest.param({"quotas": "llm-team, h100, many"}, "Line 1: One per line", id="a quota"),
        pytest.param({"quotas": "llm-team, h100, -1"}, "Line 1: One per line", id="a negative quota"),
        pytest.param({"quotas": "nobody, h100, 1"}, "Not a project of this cluster", id="a project"),
        pytest.param({"words": "HP = high\nLP"}, "Line 2: One per line: word", id="a line without a priority"),
        pytest.param({"words": "HP = urgent"}, "which is not one of", id="a priority"),
        pytest.param(
            {"scheduler": "kai", "proposed_configuration": "recommended"}, "to choose from: none", id="a configuration"
        ),
    ],
)
def test_what_is_wrong_is_shown_and_nothing_stored(
    person: Client, llm_team: Project, more: dict[str, Any], said: str
) -> None:
    answer = person.post(PATH, sent(llm_team, **more))
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert not Replay.objects.exists()


def test_others_than_platform_admins_are_refused(client_of: Clients, bob: User, llm_team: Project) -> None:
    assert client_of(bob).get(PATH).status_code == 403
