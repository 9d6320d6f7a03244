"""Replays from the command line: started with a trace, listed, shown, cancelled."""

from pathlib import Path

import pytest

from tenants.organisation.models import Project
from tests.cli.conftest import Rung
from workloads.replay import services as replay_services
from workloads.replay.models import Replay

CSV = "t,dur,gpu,prio\n0,3600,8,LP\n10,3600,8,HP\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "trace.csv"
    file.write_text(CSV)
    return str(file)


def started(rung: Rung, project: Project, trace: str, *more: str) -> Rung:
    return rung(
        "replay", "run", "what if", "--cluster", project.cluster.name, "--trace", trace, "--column", "submitted=t",
        "--column", "duration=dur", "--column", "gpus=gpu", "--column", "priority=prio", "--map-priority", "LP=low",
        "--map-priority", "HP=high", "--project", project.name, "--no-wait", *more,
    )  # fmt: skip


def test_it_is_started_listed_shown_and_written(admin: Rung, llm_team: Project, trace: str, tmp_path: Path) -> None:
    requested = ("--priority", "high=30", "--quota", "llm-team/h100=8:16", "--proposed-scheduler", "volcano")
    requested += ("--proposed-configuration", "recommended")
    made = started(admin, llm_team, trace, *requested, "-o", "json")
    assert made.code == 0, made.err
    assert made.data["request"]["priorities"] == [{"name": "high", "value": 30}]
    assert made.data["request"]["quotas"][0]["limitGpus"] == 16
    assert made.data["request"]["proposedConfiguration"] == "recommended"
    assert admin("replay", "list").out.splitlines()[1].split()[:3] == ["what", "if", "Pending"]
    replay_services.sweep()
    file = tmp_path / "rows.csv"
    shown = admin("replay", "show", "what if", "--file", str(file))
    assert shown.out.splitlines()[1].split()[:2] == ["all", "2"]
    assert "volcano (recommended) proposed." in shown.err
    proposal = (
        "scheduler volcano; configuration recommended; priority high 30; quota of project llm-team in h100: 8 GPUs"
    )
    assert f"Submissions of a trace. Proposal: {proposal} deserved, limit 16." in " ".join(shown.err.split())
    assert file.read_text().startswith("submission,project")
    assert admin("replay", "show", "nothing").code == 1


def test_what_is_evicted_again_and_again_is_named(admin: Rung, llm_team: Project, trace: str) -> None:
    started(admin, llm_team, trace)
    replay_services.sweep()
    row = Replay.objects.get()
    row.result["endless"] = {"before": [], "after": ["line 2", "line 3"]}
    row.result["assumptions"] = ["Assumption: Volcano does nothing."]
    row.save()
    shown = admin("replay", "show", "what if")
    assert "Assumption: Volcano does nothing." in shown.err
    said = "after the change, submissions are evicted again and again, until nothing else finishes: line 2, line 3."
    assert said in " ".join(shown.err.split())
    assert "before the change" not in shown.err


def test_columns_with_the_fields_names_need_no_mapping(admin: Rung, llm_team: Project, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"Submitted,Duration,GPUs,Owner,Priority\n0,60,1,{llm_team.name},low\n")
    requested = ("--cluster", llm_team.cluster.name, "--trace", str(file), "--no-wait")
    made = admin("replay", "run", "what if", *requested)
    assert made.code == 0, made.err


def test_it_is_cancelled(admin: Rung, llm_team: Project, trace: str) -> None:
    started(admin, llm_team, trace)
    assert admin("replay", "cancel", "what if").out == "Cancelled what if.\n"
    assert "Cancelled" in admin("replay", "show", "what if").out


@pytest.mark.parametrize("more", [("--priority", "high"), ("--priority", "high=much"), ("--quota", "x=y")])
def test_what_is_no_pair_or_number_is_refused_before_anything_is_sent(
    admin: Rung, llm_team: Project, trace: str, more: tuple[str, str]
) -> None:
    assert started(admin, llm_team, trace, *more).code == 64
    assert started(admin, llm_team, trace + ".missing").code == 64
    assert not Replay.objects.exists()


def test_a_bad_cell_is_named_by_line_and_column(admin: Rung, llm_team: Project, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(CSV.replace("0,3600,8,LP", "0,never,8,LP"))
    answer = started(admin, llm_team, str(bad))
    assert answer.code != 0
    assert 'Line 2, column "dur"' in answer.err


def test_the_record_needs_no_file(admin: Rung, llm_team: Project) -> None:
    requested = ("--cluster", llm_team.cluster.name, "--from", "2026-01-01", "--to", "2026-01-02", "--no-wait")
    assert admin("replay", "run", "record", *requested).code == 0
    assert Replay.objects.get().request["end"] == "2026-01-03T00:00:00+00:00"
    shown = " ".join(admin("replay", "show", "record").err.split())
    assert "Submissions recorded from 2026-01-01T00:00:00" in shown
    assert "Proposal: no change; both runs have today's settings." in shown


def test_a_member_learns_which_roles_may_replay(signed_in: Rung, llm_team: Project) -> None:
    refused = signed_in("replay")
    assert refused.code == 1
    allowed = "System administrator; or a custom role with the permission set “Manage workload properties”."
    assert f"Permission denied. Roles that allow this: {allowed}" in refused.err
