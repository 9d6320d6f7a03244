"""What is done to workloads: stopped, resumed, deleted, copied, waited for."""

from collections.abc import Callable

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from rung_cli.output.units import phase_word
from rung_cli.watch import ChangeFeed
from tenants.organisation.models import Project
from tests.cli.conftest import Rung, job
from tests.factories.workloads import WorkloadFactory
from workloads.state.models import Phase, Workload


@pytest.fixture
def submitted(signed_in: Rung) -> Callable[[str], Workload]:
    """Submits through the command."""

    def submit(name: str) -> Workload:
        assert signed_in("submit", "-f", "-", stdin=job(name)).code == 0
        return Workload.objects.get(name=name)

    return submit


def test_suspend_resume_and_delete_by_name(signed_in: Rung, submitted: Callable[[str], Workload]) -> None:
    first, second = submitted("first"), submitted("second")
    assert signed_in("suspend", "first", "-o", "name").out == "llm-team/first\n"
    again = signed_in("suspend", "first", str(second.pk))
    assert again.code == 0
    assert "llm-team/first   No change: it is Stopping." in again.out
    assert "llm-team/second  Suspending." in again.out
    assert signed_in("resume", "first").code == 0
    assert signed_in("delete", "first", "llm-team/second", "--yes").code == 0
    phases = Workload.objects.filter(pk__in=[first.pk, second.pk]).values_list("phase", flat=True)
    assert set(phases) == {Phase.DELETING}


@pytest.mark.parametrize(
    ("action", "phase"), [("resume", Phase.RUNNING), ("resume", Phase.PENDING), ("suspend", Phase.COMPLETED)]
)
def test_an_action_that_changes_nothing_says_so(
    signed_in: Rung, submitted: Callable[[str], Workload], action: str, phase: Phase
) -> None:
    Workload.objects.filter(pk=submitted("train").pk).update(phase=phase)
    ended = signed_in(action, "train")
    assert (ended.code, f"No change: it is {phase_word(phase)}." in ended.out) == (0, True)


def test_what_failed_to_apply_is_listed_and_retried_by_name(
    signed_in: Rung, submitted: Callable[[str], Workload]
) -> None:
    made, _fine = submitted("refused"), submitted("fine")
    Workload.objects.filter(pk=made.pk).update(phase=Phase.FAILED, apply_error="Invalid value")
    assert signed_in("list", "--failed-to-apply", "-o", "name").out == "llm-team/refused\n"
    again = signed_in("retry", "refused", "fine")
    assert again.code == 1
    assert "1 of 2 refused." in again.err
    assert (again.out + again.err).count("fine is Creating") == 1
    assert "llm-team/refused  Retrying." in again.out
    made.refresh_from_db()
    assert made.phase == Phase.CREATING
    assert "llm-team/refused  No change: it is Creating." in signed_in("retry", "refused").out


def test_deleting_asks_on_a_terminal_and_does_nothing_in_a_script(
    signed_in: Rung, submitted: Callable[[str], Workload]
) -> None:
    submitted("kept")
    assert signed_in("delete", "kept").code == 64
    ended = signed_in("delete", "kept", stdin="n\n", terminal=True)
    assert (ended.code, "llm-team/kept" in ended.err) == (1, True)
    assert Workload.objects.get(name="kept").phase != Phase.DELETING
    assert signed_in("delete", "kept", stdin="y\n", terminal=True).code == 0


def test_nothing_is_done_when_one_name_is_wrong(signed_in: Rung, submitted: Callable[[str], Workload]) -> None:
    submitted("right")
    assert signed_in("suspend", "right", "wrong").code == 1
    assert Workload.objects.get(name="right").phase != Phase.STOPPING


def test_a_copy_has_a_dry_run_and_is_made(signed_in: Rung, submitted: Callable[[str], Workload]) -> None:
    submitted("original")
    assert "Would submit llm-team/other" in signed_in("clone", "original", "--name", "other", "--dry-run").out
    assert not Workload.objects.filter(name="other").exists()
    ended = signed_in("clone", "original", "--name", "other", "--priority", "low")
    assert "Submitted llm-team/other" in ended.out
    assert "Preview before the submission" in ended.out
    assert Workload.objects.get(name="other").priority.name == "low"
    assert signed_in("clone", "original", "--priority", "urgent").code == 1


ENDINGS = [
    (Phase.RUNNING, "running", 0),
    (Phase.COMPLETED, "running", 0),
    (Phase.COMPLETED, "completed", 0),
    (Phase.FAILED, "completed", 1),
    (Phase.FAILED, "failed", 0),
    (Phase.PENDING, "phase=pending", 0),
    (Phase.PENDING, "phase=Waiting", 0),
    (Phase.PENDING, "running", 5),
    (Phase.COMPLETED, "phase=Running", 1),
    (Phase.RUNNING, "deleted", 5),
]


def test_waiting_ends_with_the_code_that_the_phase_means(signed_in: Rung, llm_team: Project) -> None:
    made = WorkloadFactory.create(project=llm_team, name="watched")
    for phase, until, code in ENDINGS:
        Workload.objects.filter(pk=made.pk).update(phase=phase)
        ended = signed_in("wait", "watched", "--for", until, "--timeout", "0")
        assert (ended.code, phase, until) == (code, phase, until), ended.err
        assert f"llm-team/watched: {phase_word(phase)}" in ended.err


def test_who_is_not_there_need_not_be_waited_for_to_go(signed_in: Rung) -> None:
    assert signed_in("wait", "nobody", "--for", "deleted").code == 0
    assert signed_in("wait", "nobody", "--for", "running").code == 1


def test_another_priority_for_several_workloads_says_what_it_means(
    signed_in: Rung, submitted: Callable[[str], Workload]
) -> None:
    first, second = submitted("first"), submitted("second")
    tried = signed_in("update", "first", "--priority", "very-high", "--dry-run")
    assert (tried.code, f"Would change from {first.priority.name} to very-high." in tried.out) == (0, True)
    assert not Workload.objects.filter(priority__name="very-high").exists()
    assert signed_in("update", "first", "second", "--priority", "very-high", "-o", "name").out.split() == [
        "llm-team/first",
        "llm-team/second",
    ]
    again = signed_in("update", str(second.pk), "--priority", "very-high")
    assert (again.code, "No change: priority is very-high." in again.out) == (0, True)
    refused = signed_in("update", "first", "--priority", "urgent")
    assert (refused.code, "'urgent' is not known" in refused.out) == (1, True)
    named = signed_in("update", "first", "--priority", "urgent", "-o", "name")
    assert "1 of 1 refused: Priority 'urgent' is not known" in named.err


def test_a_dry_run_says_what_another_priority_of_a_waiting_workload_does(
    signed_in: Rung, submitted: Callable[[str], Workload]
) -> None:
    first = submitted("first")
    Cluster.objects.filter(pk=first.project.cluster_id).update(observed_at=timezone.now())
    tried = signed_in("update", "first", "--priority", "low", "--dry-run", "-o", "json")
    message = tried.data[0]["message"]
    assert "No pod of it runs, so the change takes effect immediately and may evict other workloads. " in message
    assert message.endswith("Estimate: with low (40) it starts now without evictions.")


def test_a_watched_list_shows_every_change_until_it_is_interrupted(
    signed_in: Rung, submitted: Callable[[str], Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submitted("first")
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: Workload.objects.filter(pk=first.pk).update(phase=Phase.RUNNING),
        lambda: WorkloadFactory(name="second", project=first.project, phase=Phase.PENDING),
        lambda: Workload.objects.filter(name="second").update(phase=Phase.FAILED),
    ]

    def wait(_feed: ChangeFeed) -> None:
        if not changes:
            raise KeyboardInterrupt
        changes.pop(0)()

    monkeypatch.setattr("rung_cli.watch._begin", lambda *_: None)
    monkeypatch.setattr(ChangeFeed, "wait", wait)
    ended = signed_in("list", "--watch")
    assert ended.code == 130
    assert [tuple(line.split()[place] for place in (0, 3)) for line in ended.out.splitlines()[1:]] == [
        ("first", "Creating"),
        ("first", "Running"),
        ("second", "Waiting"),
        ("second", "Failed"),
    ]
