"""`rung clusters`, `pools`, `nodes`, `policies`, `profiles`: what there is, as a table and for programs."""

import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import NodePool
from rung_cli.errors import ExitCode
from tenants.organisation.models import Project
from tests.cli.conftest import Account, Rung
from tests.cli.fake_portal import Answer, portal_that
from tests.factories.clusters import NodeFactory
from tests.factories.tenants import ProjectFactory
from tests.factories.workloads import FindingFactory, WorkloadFactory
from tests.support.repository import ROOT
from tests.tenants.usage.test_borrowing import sampled
from tests.workloads.dictionary.test_eviction_matrix import runs
from tests.workloads.lifecycle.test_activity import evict
from workloads.policies.models import Policy


def test_clusters_pools_and_nodes_are_listed_and_filtered(admin: Rung, llm_team: Project) -> None:
    pool = llm_team.cluster.node_pools.get(name="h100")
    NodeFactory(cluster=llm_team.cluster, name="h100-77", pool=pool)
    assert "lab " in admin("clusters").out
    assert admin("clusters", "-o", "name").out == "lab\n"
    assert admin("pools", "--cluster", "lab", "-o", "name").out.split() == ["a100", "h100"]
    assert "h100-77" in admin("nodes", "--cluster", "lab", "--pool", "h100", "-o", "name").out.split()
    assert "h100-77" not in admin("nodes", "--pool", "a100").out
    (node,) = admin("nodes", "--search", "h100-77", "-o", "json").data
    assert (node["clusterName"], node["nodePool"]) == ("lab", "h100")


def test_quotas_are_a_table_of_departments_and_projects_with_the_sums_of_their_pools(
    admin: Rung, llm_team: Project
) -> None:
    llm_team.quotas.update(gpu_deserved=10_000)
    out = admin("quotas", "--pool", "h100", "--department", "research").out
    assert [line.split()[:5] for line in out.splitlines()[1:3]] == [
        ["research", "h100", "8", "10", "(over"],
        ["llm-team", "h100", "10", "-", "12"],
    ]
    assert "NON-PREEMPTIBLE" in out
    assert "lab/h100 has 16 GPUs: departments deserve 16, projects deserve 14." in out
    rows = admin("quotas", "--cluster", "lab", "--department", "research", "-o", "json").data
    assert [(each["nodePool"]["name"], each["name"]) for each in rows] == [
        (pool, name) for pool in ("h100", "a100") for name in ("research", "llm-team")
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("quotas", "--pool", "h10"), "No pool 'h10' found. Did you mean 'h100'?"),
        (("quotas", "--department", "reserch"), "No department 'reserch' found. Did you mean 'research'?"),
        (("nodes", "--pool", "h10"), "--pool: No pool 'h10' found. Did you mean 'h100'?"),
        (("pools", "--cluster", "lib"), "Cluster lib not found. Did you mean 'lab'?"),
        (("list", "-p", "lm-team"), "--project: No project 'lm-team' found. Did you mean 'llm-team'?"),
        (("list", "-A", "--phase", "Bogus"), "Phases: Running, Completed, Waiting"),
        (("list", "-A", "--priority", "hihg"), "--priority: No priority 'hihg' found. Did you mean 'high'?"),
        (("quota", "-p", "lm-team"), "Project lm-team not found. Did you mean 'llm-team'?"),
        (("describe", "x", "-p", "lm-team"), "--project: No project 'lm-team' found. Did you mean 'llm-team'?"),
    ],
)
def test_an_unknown_name_fails_with_the_nearest_one(admin: Rung, args: tuple[str, ...], said: str) -> None:
    ended = admin(*args)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err


def test_a_list_that_does_not_tell_of_further_pages_is_read_to_its_end(
    rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [{"name": f"pool-{number}"} for number in range(500)]
    with portal_that(Answer(body={"nodepools": full}), Answer(body={"nodepools": [{"name": "last"}]})) as portal:
        for name, value in {"URL": portal.url, "CLIENT_ID": "me", "CLIENT_SECRET": "s"}.items():
            monkeypatch.setenv(f"RUNG_{name}", value)
        names = rung("pools", "-o", "name").out.split()
    assert (len(names), names[-1]) == (501, "last")
    assert [each.path for each in portal.requested] == [
        "/api/v1/node-pools?limit=500",
        "/api/v1/node-pools?offset=500&limit=500",
    ]


def test_a_phase_is_found_however_it_is_written(admin: Rung) -> None:
    assert admin("list", "-A", "--phase", "running").out == "No workloads.\n"
    assert admin("list", "-A", "--phase", "waiting").out == "No workloads.\n"


def test_policies_say_what_they_demand_and_where(admin: Rung, llm_team: Project) -> None:
    document = {
        "defaults": {"priorityClass": "low"},
        "rules": {"preemptibility": {"canEdit": False}, "priorityClass": {"options": [{"value": "low"}]}},
    }
    now = timezone.now()
    Policy.objects.create(
        kind="training",
        scope="project",
        project=llm_team,
        name="calm",
        document=document,
        created_at=now,
        updated_at=now,
    )
    out = admin("policies").out
    assert "training       project llm-team  priorityClass=low" in out
    assert "preemptibility: cannot be changed; priorityClass: low" in out
    assert admin("policies", "-p", "llm-team", "-o", "json").data[0]["policy"] == document
    assert admin("policies", "-o", "name").out == "training/project llm-team\n"


def test_profiles_are_listed_and_another_becomes_the_default(
    rung: Rung, live_server: Any, member: Account, home: Path
) -> None:
    assert rung("profiles").out == "No profiles. Make one with: rung login\n"
    requested = ("login", live_server.url, "--client-id", member.client_id, "--secret-stdin")
    rung("--profile", "first", *requested, "--project", "llm-team", stdin=member.secret)
    rung("--profile", "second", *requested, stdin=member.secret)
    assert rung("profiles", "list", "-o", "name").out.split() == ["first", "second"]
    assert [each["default"] for each in rung("profiles", "list", "-o", "json").data] == [True, False]
    assert rung("profiles", "use", "second").code == 0
    assert [each["default"] for each in rung("profiles", "list", "-o", "json").data] == [False, True]
    assert member.secret not in rung("profiles").out
    refused = rung("profiles", "use", "third")
    assert (refused.code, "Known profiles: first, second" in refused.err) == (64, True)


def test_the_command_alone_prints_its_help(rung: Rung) -> None:
    ended = rung()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == rung("--help").out


@pytest.mark.parametrize(("no_color", "escapes"), [("1", False), ("", True)])
def test_no_color_leaves_no_escape_sequence_on_a_terminal(
    admin: Rung, no_color: str, escapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    for args in (["priorities"], ["nodes", "--pool", "typo"]):
        shown = on_a_terminal([sys.executable, "-m", "rung_cli", *args])
        assert (b"\x1b" in shown) is escapes, shown


def on_a_terminal(argv: list[str]) -> bytes:
    """What a program writes to stdout and stderr where both are a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower, cwd=ROOT / "cli")
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    process.wait()
    os.close(leader)
    return shown


def test_findings_are_listed_by_kind_and_status(admin: Rung, llm_team: Project) -> None:
    FindingFactory(cluster=llm_team.cluster, project=llm_team, gpu_seconds=7200)
    FindingFactory(cluster=llm_team.cluster, project=llm_team, kind="thrashing", ended_at=timezone.now())
    (found,) = admin("findings", "-o", "json").data
    assert (found["title"], found["gpuHours"], found["evidence"]) == ("Priority inversion", 2.0, ["It waits."])
    assert "Thrashing" in admin("findings", "--status", "ended", "--cluster", "lab").out
    assert len(admin("findings", "--status", "all", "-o", "json").data) == 2
    assert "No findings." in admin("findings", "--kind", "idle-gpus").out + admin("findings", "--kind", "idle-gpus").err


def test_the_eviction_matrix_shows_cells_with_their_rules(admin: Rung, llm_team: Project) -> None:
    said = admin("matrix", "--cluster", "lab").out
    assert "KAI preempts inside the project's queue" in said
    (row,) = [line for line in said.splitlines() if line.startswith("high 125")]
    assert row.split("  ")[-1].startswith("preemptible [")
    found = admin("matrix", "-p", "llm-team", "-o", "json").data
    assert (found["project"], found["tables"][0]["relations"]) == ("llm-team", ["own"])


def test_the_eviction_matrix_merges_reclaims_that_look_the_same(
    signed_in: Rung, llm_team: Project, h100: NodePool
) -> None:
    for name in ("first", "second"):
        runs(ProjectFactory.create(department=llm_team.department, name=name), h100, 4)
    (row,) = [line for line in signed_in("matrix", "-p", "llm-team").out.splitlines() if "other projects" in line]
    assert "2 other projects" in row
    assert "4 GPUs each" in row


def test_evictions_are_listed_with_who_evicted_them_and_what_was_lost(admin: Rung, llm_team: Project) -> None:
    assert admin("evictions").out == "No evictions.\n"
    for name in ("older", "newer"):
        victim = WorkloadFactory(project=llm_team, name=name)
        hours = 2 if name == "older" else 1
        evict(victim, hours_ago=hours, preemptor_name="llm-pretrain", ran_seconds=20_400, lost_gpu_seconds=5760)
    rows = admin("evictions", "-p", "llm-team").out.splitlines()[1:]
    assert [row.split()[2:4] for row in rows] == [["newer", "llm-team"], ["older", "llm-team"]]
    assert rows[0].split()[4:12] == ["llm-pretrain", "preempt", "5", "h", "40", "m", "1.6", "GPU-hours"]
    cut = admin("evictions", "--limit", "1", "-o", "name")
    assert (cut.out, cut.err) == ("newer\n", "Showing the newest 1. Use --all or --limit N for more.\n")
    assert [each["workloadName"] for each in admin("evictions", "--workload", "older", "-o", "json").data] == ["older"]


def test_the_activity_of_a_cluster_is_three_tables(admin: Rung, llm_team: Project) -> None:
    idle = admin("activity", "--cluster", "lab").out
    for said in ("No workload waits.", "No evictions.", "No workload started."):
        assert said in idle
    evict(WorkloadFactory(project=llm_team, phase_reason="NoRoom"), hours_ago=1, lost_gpu_seconds=3600)
    lines = [line.split() for line in admin("activity", "--cluster", "lab", "--span", "7d").out.splitlines()]
    assert ["no", "room", "1", "1", "0s"] in lines
    assert ["1", "0", "0", "1.0", "GPU-hours"] in [line[2:] for line in lines]
    assert admin("activity", "--cluster", "lab", "-o", "json").data["period"] == "hour"


def test_the_eviction_matrix_needs_a_cluster_or_a_project(admin: Rung) -> None:
    ended = admin("matrix")
    assert ended.code == ExitCode.USAGE
    assert "Name a cluster or a project" in ended.err


def test_borrowing_names_the_lender_and_says_when_there_are_no_samples(
    admin: Rung, llm_team: Project, vision_team: Project
) -> None:
    assert "No samples in this period." in admin("borrowing", "-p", "llm-team").out
    sampled(llm_team, 6, 6)
    sampled(vision_team, 0, 0)
    said = admin("borrowing", "-p", "llm-team").out
    assert "borrowed from" in said
    assert "vision-team" in said
    assert "GPUS AT LAST SAMPLE" in said
    assert admin("borrowing", "-p", "llm-team", "-o", "json").data["loans"][0]["gpus"] == 2


def test_borrowing_of_a_department_is_that_of_its_projects(
    admin: Rung, llm_team: Project, vision_team: Project
) -> None:
    sampled(llm_team, 6, 6)
    sampled(vision_team, 0, 0)
    found = admin("borrowing", "--department", "perception", "-o", "json").data
    assert [(each["direction"], each["counterparty"]) for each in found["loans"]] == [("lent", "llm-team")]
    assert "Department nowhere not found." in admin("borrowing", "--department", "nowhere").err
    both = admin("borrowing", "--department", "perception", "-p", "llm-team")
    assert "a project or a department, not both" in both.err


def test_the_list_shows_what_an_eviction_now_would_lose(admin: Rung, llm_team: Project) -> None:
    started = timezone.now() - timedelta(hours=6)
    held = {"gpu_milli": 2000, "allocated_gpu_milli": 2000}
    WorkloadFactory(project=llm_team, name="silent", phase="Running", started_at=started, **held)
    WorkloadFactory(project=llm_team, name="waiting")
    silent, waiting = sorted(admin("list", "-A").out.splitlines()[1:])
    assert "12.0 GPU-hours" in silent
    assert "GPU-hours" not in waiting
