"""What there is: the catalogue, quotas, lists and one workload in all its parts."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, forget_all, store_of
from clusters.watch.models import ObservedPod
from portal.kit.pages.formatting import duration_text
from rung_cli.commands.logs import fresh
from rung_cli.http.client import each as rows_of
from rung_cli.output.units import span
from rung_cli.session import Session
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.cli.conftest import Rung, account_of
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.workloads.lifecycle.test_next_pool import Pools
from tests.workloads.sandbox_lab import Lab
from workloads.state.models import EventType, Phase, Workload, WorkloadEvent


@pytest.fixture
def running(llm_team: Project) -> Workload:
    """A workload with a pod that speaks, and a history."""
    forget_all()
    made: Workload = WorkloadFactory.create(project=llm_team, name="finetune", phase=Phase.RUNNING)
    pod = ObservedPodFactory.create(workload=made, name="finetune-0", namespace=llm_team.namespace)
    store = store_of(str(llm_team.cluster_id))
    gateway, metadata = MemoryGateway(store), {"name": pod.name, "namespace": llm_team.namespace}
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": llm_team.namespace}})
    gateway.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    store.logs[llm_team.namespace, pod.name] = [f"step {number}" for number in range(5)]
    WorkloadEvent.objects.create(workload=made, at=made.created_at, type=EventType.PHASE, phase="Running")
    WorkloadEvent.objects.create(
        workload=made, at=made.created_at, type=EventType.PHASE, phase="Stopping", actor="admin"
    )
    return made


def test_the_catalogue_is_a_table_a_list_of_names_or_what_the_portal_said(signed_in: Rung) -> None:
    lines = signed_in("priorities").out.splitlines()
    assert lines[0].split() == ["NAME", "VALUE", "ALONE", "MEANS", "SYNCED", "DESCRIPTION"]
    assert lines[1].startswith("very-high      150  non-preemptible  ")
    assert signed_in("priorities", "-o", "name").out.split()[-2:] == ["low", "very-low"]
    assert signed_in("priorities", "-o", "json").data[0]["value"] == 150
    assert "Training" in signed_in("types").out
    assert signed_in("projects", "-o", "name").out == "llm-team\n"


def test_quota_per_pool_in_the_unit_that_was_asked_for(signed_in: Rung) -> None:
    (h100, _a100) = signed_in("quota", "-o", "json").data
    assert [h100[name] for name in ("pool", "deserved", "limit", "allocated")] == ["h100", 4.0, 12.0, 0.0]
    out = signed_in("quota").out
    assert "NON-PREEMPTIBLE" in out
    assert "In GPUs" in out
    assert "h100" in out
    assert (h100["canStart"], h100["canStartNonPreemptible"]) == (12.0, 4.0)
    assert h100["startable"] in " ".join(out.split())
    assert "Project limit: 12 GPUs (0 in use)." in h100["startable"]
    assert signed_in("quota", "--resource", "cpu", "-A").code == 0


def test_what_can_start_in_several_projects_is_said_by_project(admin: Rung) -> None:
    found = {(row["project"], row["startable"]) for row in admin("quota", "-o", "json").data if row["startable"]}
    assert {project for project, _sentence in found} == {"llm-team", "vision-team"}
    out = " ".join(admin("quota").out.split())
    assert [f"{project}: {sentence}" in out for project, sentence in found] == [True] * len(found)


@pytest.mark.parametrize("seconds", [0, 45, 60, 3599, 3600, 23_310, 86_400, 97_300])
def test_durations_read_as_on_the_pages(seconds: int) -> None:
    assert span(seconds) == duration_text(seconds)


def test_lists_filter_and_say_when_there_is_more(signed_in: Rung, running: Workload, vision_team: Project) -> None:
    WorkloadFactory.create(project=running.project, name="waits")
    WorkloadFactory.create(project=vision_team, name="foreign")
    assert signed_in("list", "-o", "name").out == "llm-team/waits\nllm-team/finetune\n"
    assert signed_in("list", "--phase", "Running", "-o", "name").out == "llm-team/finetune\n"
    assert signed_in("list", "--sort", "name", "--limit", "1", "-o", "name").out == "llm-team/finetune\n"
    assert signed_in("list", "--search", "nothing").out == "No workloads.\n"
    header, *rows = signed_in("list").out.splitlines()
    columns = "NAME PROJECT TYPE PHASE PRIORITY EVICTABLE GPUS AT RISK POOL BY AGE"
    assert header.split() == columns.split()
    assert [row.split()[0] for row in rows] == ["waits", "finetune"]
    assert all(row == row.rstrip() for row in rows)


def test_a_project_or_phase_that_is_not_there_is_an_error_with_the_nearest_name(
    signed_in: Rung, running: Workload
) -> None:
    for flags, nearest in ((("-p", "llm-taem"), "llm-team"), (("--phase", "runing"), "Running")):
        ended = signed_in("list", *flags)
        assert ended.code != 0
        assert ended.out == ""
        assert f"Did you mean '{nearest}'?" in ended.err


def test_pages_of_a_real_portal_follow_each_other_to_the_end(signed_in: Rung, llm_team: Project) -> None:
    WorkloadFactory.create_batch(5, project=llm_team)
    held = Session()
    api = held.api
    found = [each["id"] for each in rows_of(api, "v1/workloads", "workloads", query={}, size=2)]
    assert (len(found), len(set(found))) == (5, 5)
    assert len(list(rows_of(api, "v1/workloads", "workloads", query={"sortBy": "completedAt"}, size=2))) == 5
    held.close()


def test_one_workload_by_name_by_project_and_name_or_by_id(signed_in: Rung, running: Workload) -> None:
    for name in ("finetune", "llm-team/finetune", str(running.pk)):
        assert signed_in("describe", name, "-o", "json").data["id"] == str(running.pk)
    out = signed_in("describe", "finetune").out
    for part in ("llm-team/finetune", "Running since", "low 40 (type default)", "finetune-0", "node-000"):
        assert part in out
    assert signed_in("describe", "other").code == 1
    events = signed_in("events", "finetune", "-o", "json").data
    assert {(each["what"], each["of"]) for each in events} == {("Running", "rung"), ("Stopping", "admin")}


def test_a_history_that_is_cut_says_of_how_many_entries(signed_in: Rung, running: Workload) -> None:
    assert "entries" not in signed_in("describe", "finetune").out
    for number in range(6):
        at = running.created_at + timedelta(seconds=number)
        WorkloadEvent.objects.create(workload=running, at=at, type=EventType.SCHEDULING, message=f"step {number}")
    out = signed_in("describe", "finetune").out
    assert out.endswith("Latest 5 of 8 entries. For more, run: rung events llm-team/finetune\n")
    assert ("step 5" in out, "step 0" in out) == (True, False)
    WorkloadEvent.objects.bulk_create(
        WorkloadEvent(workload=running, at=running.created_at, type=EventType.SCHEDULING) for _ in range(50)
    )
    assert "Latest 5 of 50+ entries." in signed_in("describe", "finetune").out


def test_one_that_waits_says_why_now_and_what_its_scheduler_said_when(
    signed_in: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = account_of("admin", Role.PLATFORM_ADMIN)
    monkeypatch.setenv("RUNG_CLIENT_ID", admin.client_id)
    monkeypatch.setenv("RUNG_CLIENT_SECRET", admin.secret)
    lab = Lab(name="queues")
    team = lab.project("queued")
    lab.submit(team, "ahead", gpus=8)
    lab.settle()
    workload = lab.submit(team, "mine", gpus=8)
    lab.settle()
    said = "No node fits it: 10 node(s) didn't have enough resources: GPUs."
    old = timezone.now() - timedelta(minutes=30, seconds=5)
    Workload.objects.filter(pk=workload.pk).update(phase_message=said)
    WorkloadEvent.objects.create(workload=workload, at=old, type=EventType.SCHEDULING, message=said)
    out = " ".join(signed_in("describe", "queued/mine").out.split())
    now, _, then = out.partition("Scheduler's last message (30 min ago): ")
    assert "needs 8 GPUs in h100; 0 GPUs free" in now
    assert then.startswith(said)
    assert said not in now
    waiting = signed_in("describe", "queued/mine", "-o", "json").data["waiting"]
    assert waiting["schedulerMessage"] == said
    assert waiting["schedulerMessageAt"] == old.isoformat().replace("+00:00", "Z")


def test_a_terminating_pod_is_not_called_running(signed_in: Rung, running: Workload) -> None:
    until = timezone.now() + timedelta(seconds=30)
    ObservedPod.objects.filter(owner_id=str(running.pk)).update(deletion_at=until)
    [pod] = signed_in("describe", "finetune", "-o", "json").data["pods"]
    assert pod["terminatingUntil"] == until.isoformat().replace("+00:00", "Z")
    assert f"Terminating (grace period until {until:%H:%M:%S} UTC)" in signed_in("describe", "finetune").out


def test_one_that_waits_names_what_would_let_it_start(signed_in: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = account_of("admin", Role.PLATFORM_ADMIN)
    monkeypatch.setenv("RUNG_CLIENT_ID", admin.client_id)
    monkeypatch.setenv("RUNG_CLIENT_SECRET", admin.secret)
    lab = Lab(name="queues")
    team = lab.project("queued")
    lab.submit(team, "ahead", gpus=8)
    lab.settle()
    lab.submit(team, "mine", gpus=8, priority="low")
    lab.settle()
    found = signed_in("describe", "queued/mine", "-o", "json").data["alternatives"]
    assert {"medium-low"} == {each["priority"] for each in found if "priority" in each}
    out = " ".join(signed_in("describe", "queued/mine").out.split())
    until_the_loss = [each["words"].partition("), ")[0] for each in found]  # what is at risk grows by the second
    assert all(f"Alternative: {words}), " in out for words in until_the_loss)
    assert " GPU-minutes at risk." in out
    assert "Position 1 of 1 in its project's queue" in out
    assert "Start estimate: none: 1 running workload has no time limit" in out
    assert "ahead queued 8 low 40" in out[out.index("GPUS HELD BY") :]
    assert "Alternative:" not in signed_in("describe", "queued/ahead").out


def test_logs_whole_in_part_and_until_the_end(signed_in: Rung, running: Workload) -> None:
    assert signed_in("logs", "finetune").out.splitlines() == [f"step {number}" for number in range(5)]
    last = signed_in("logs", "finetune", "--tail", "2")
    assert (last.out, "Earlier lines" in last.err) == ("step 3\nstep 4\n", True)
    assert signed_in("logs", "finetune", "--pod", "other").code == 1
    Workload.objects.filter(pk=running.pk).update(phase=Phase.COMPLETED)
    assert signed_in("logs", "-f", "finetune").out.splitlines()[-1] == "step 4"


def test_what_is_new_in_a_log_is_found_also_when_its_begin_is_lost() -> None:
    said: list[Any] = [str(number) for number in range(100)]
    assert fresh([], said) == said
    assert fresh(said[:50], said) == said[50:]
    assert fresh(said[:50], said[40:]) == said[50:]
    assert fresh(said, said) == []
    assert fresh(["gone"], said) == said


def test_semi_preemptible_is_named_with_what_the_scheduler_makes_of_it(signed_in: Rung) -> None:
    requested = ("submit", "semi", "-i", "docker.io/a/b:1", "--preemptibility", "semi-preemptible")
    assert "Preemptibility  semi-preemptible  (chosen)" in signed_in(*requested).out
    shown = signed_in("describe", "semi").out
    assert "Preemptibility  semi-preemptible (chosen)" in shown
    assert "Warning: KAI 0.17 does not support semi-preemptible." in shown


def test_one_of_several_pools_names_the_pool_that_rung_tries_next(
    signed_in: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = account_of("admin", Role.PLATFORM_ADMIN)
    monkeypatch.setenv("RUNG_CLIENT_ID", admin.client_id)
    monkeypatch.setenv("RUNG_CLIENT_SECRET", admin.secret)
    lab = Pools("kai", name="queues")
    team = lab.team("queued")
    lab.submit(team, "ahead", gpus=8, node_pools=("h100",))
    lab.settle()
    lab.submit(team, "mine", gpus=8, node_pools=("h100", "a100"))
    lab.settle()
    out = signed_in("describe", "queued/mine").out
    assert "  Start estimate: none: Rung tries a100 before it would start in h100\n" in out
    assert "s: by the model, it starts there now.\n" in out
    assert "Use node pool" not in out


def test_a_phase_has_the_word_of_the_pages_in_text_and_that_of_rest_in_json(signed_in: Rung, running: Workload) -> None:
    Workload.objects.filter(pk=running.pk).update(phase=Phase.PENDING)
    WorkloadEvent.objects.create(workload=running, at=timezone.now(), type=EventType.PHASE, phase="Pending")
    for command in (["list"], ["describe", "finetune"], ["events", "finetune"]):
        out = signed_in(*command).out
        assert ("Waiting" in out, "Pending" in out) == (True, False), out
    for word in ("Waiting", "waiting", "Pending"):
        assert [each["phase"] for each in signed_in("list", "--phase", word, "-o", "json").data] == ["Pending"]
    filtered = signed_in("list", "--filter", "phase==Waiting", "-o", "json").data
    assert [each["phase"] for each in filtered] == ["Pending"]
    assert signed_in("list", "--filter", "phase!=waiting", "-o", "json").data == []
    assert signed_in("events", "finetune", "-o", "json").data[-1]["what"] == "Pending"
    assert signed_in("describe", "finetune", "-o", "json").data["phase"] == "Pending"
