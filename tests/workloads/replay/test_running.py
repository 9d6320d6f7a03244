"""Workers run replays: with progress, cancelled, killed in between, taken over; one result comes of it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.forecast.replay import ClusterReplay
from tenants.organisation.models import Project
from tests.clusters.flavours.test_volcano_cdp import FIRST, SECOND
from tests.clusters.flavours.test_volcano_cdp import facts as volcano_facts
from tests.factories.workloads import WorkloadFactory
from workloads.dictionary.models import Priority
from workloads.replay import services as replay_services
from workloads.replay.models import Replay
from workloads.replay.tasks import run_replay, run_replays

HOUR = 3600
TRACE = "t,dur,gpu,prio\n0,36000,8,low\n1,36000,8,low\n3600,7200,8,medium\n"
"""Two fill the pool of 16 GPUs; a third comes after an hour."""
COLUMNS = {"submitted": "t", "duration": "dur", "gpus": "gpu", "priority": "prio"}


class Killed(BaseException):
    """What ends a process: nothing of ours catches it."""


def body(trace: str = TRACE, **proposal: Any) -> dict[str, Any]:
    return {"trace": {"csv": trace, "columns": COLUMNS, "project": "llm-team"}, **proposal}


Ask = Callable[..., Replay]


@pytest.fixture
def ask(cluster: Cluster, llm_team: Project, as_admin: Actor) -> Ask:
    for pool in cluster.node_pools.all():
        cluster.nodes.filter(pool=pool).update(labels={pool.label_key: pool.label_value})

    def requested(name: str = "what if", **proposal: Any) -> Replay:
        return replay_services.create_replay(
            name=name, cluster=cluster, body=body(**proposal) if "start" not in proposal else proposal, actor=as_admin
        )

    return requested


def later(replay: Replay, **since: int) -> None:
    Replay.objects.filter(pk=replay.pk).update(due_at=timezone.now() - timedelta(**since))


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Something happens in the middle of the first run."""
    advance = ClusterReplay.advance

    def acting(self: ClusterReplay, moments: int) -> bool:
        monkeypatch.setattr(ClusterReplay, "advance", advance)
        going = advance(self, 1)
        act()
        return going

    monkeypatch.setattr(ClusterReplay, "advance", acting)


def killed() -> None:
    raise Killed


def quota(limit: float | None = None, deserved: float = 4) -> dict[str, Any]:
    return {"project": "llm-team", "nodePool": "h100", "deservedGpus": deserved, "limitGpus": limit}


def test_before_and_after_are_those_of_the_two_dictionaries(ask: Ask) -> None:
    """Two low ones hold all 16 GPUs: medium evicts the younger one, unless it is the weaker of them."""
    replay = ask(scheduler="kube", priorities=[{"name": "medium", "value": 30}])
    assert (replay.status, replay.total, replay_services.sweep()) == ("Pending", 6, 1)
    replay.refresh_from_db()
    assert (replay.status, replay.done, replay.percent, replay.due_at) == ("Ready", 6, 100, None)
    found = replay.result
    assert found["scheduler"] == found["proposedScheduler"] == "kube"
    assert [found["all"][side]["evictions"] for side in ("before", "after")] == [1, 0]
    assert [found["all"][side]["p90WaitSeconds"] for side in ("before", "after")] == [30, 9 * HOUR]
    assert [each["name"] for each in found["priorities"]] == ["low", "medium"]
    assert found["projects"][0]["name"] == "llm-team"


def test_a_scheduler_whose_configuration_is_unknown_is_replayed_with_its_defaults_and_the_report_says_so(
    ask: Ask, cluster: Cluster
) -> None:
    """As Kueue's is known here, not what Volcano would be configured to do."""
    known = {"integrations": ["batch/job"], "external": [], "narrowed": False, "fair": [], "impatient": False}
    Cluster.objects.update(flavour="kueue", configured=known)
    cluster.refresh_from_db()
    replay = ask(proposedScheduler="volcano")
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert replay.status == "Ready", replay.message
    (text,) = replay.result["assumptions"]
    assert text.startswith("Assumption: Volcano neither preempts nor reclaims, which is its default.")


def test_a_scheduler_whose_configuration_is_known_is_replayed_with_it(ask: Ask, cluster: Cluster) -> None:
    Cluster.objects.update(flavour="volcano", configured=volcano_facts(FIRST, SECOND))
    cluster.refresh_from_db()
    replay = ask()
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.result["all"]["before"]["evictions"], replay.result["assumptions"]) == (1, [])


def test_volcano_evicts_in_a_replay_once_it_is_configured_as_rung_recommends(ask: Ask) -> None:
    evictions = {}
    for configuration in (None, "recommended"):
        replay = ask(proposedScheduler="volcano", proposedConfiguration=configuration)
        replay_services.run(replay.pk)
        replay.refresh_from_db()
        evictions[replay.result["proposedConfiguration"]] = replay.result["all"]["after"]["evictions"]
    assert (evictions, replay.result["assumptions"]) == ({"": 0, "recommended": 1}, [])


def test_a_configuration_that_a_new_scheduler_lacks_is_not_in_the_report(ask: Ask, cluster: Cluster) -> None:
    Cluster.objects.update(flavour="volcano")
    cluster.refresh_from_db()
    replay = ask(proposedConfiguration="recommended")
    Cluster.objects.update(flavour="kai")
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.result["proposedScheduler"], replay.result["proposedConfiguration"]) == ("kai", "")


@pytest.mark.parametrize(("scheduler", "known"), [("kai", "none"), ("kueue", "classical, fair-sharing")])
def test_a_configuration_that_a_scheduler_does_not_have_is_refused(ask: Ask, scheduler: str, known: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        ask(proposedScheduler=scheduler, proposedConfiguration="recommended")
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.message.endswith(f"to choose from: {known}.")) == ("/proposedConfiguration", True)
    assert not Replay.objects.exists()


def test_a_larger_limit_ends_a_wait(ask: Ask) -> None:
    """With 12 GPUs at most the second waits until the first has ended; with 16 both run at once."""
    replay = ask(quotas=[quota(limit=16)], scheduler="kai", priorities=[{"name": "medium", "value": 40}])
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    waits = {side: replay.result["all"][side]["p90WaitSeconds"] for side in ("before", "after")}
    # before: medium evicts the younger low of its queue at its limit; after: all are equal, and the third waits
    assert replay.result["all"]["before"]["evictions"] == 1
    assert replay.result["all"]["after"]["evictions"] == 0
    assert waits["after"] == 10 * HOUR - HOUR
    lines = replay.content.splitlines()
    assert lines[0].startswith("submission,project,priority,gpus,submittedSeconds,durationSeconds,beforeWaitSeconds")
    assert lines[1].startswith("line-2,llm-team,low,8,0,36000,0,")
    assert len(lines) == 4


def test_a_limit_of_the_department_holds_what_its_projects_may_use(ask: Ask) -> None:
    department = {"department": "research", "nodePool": "h100", "deservedGpus": 8, "limitGpus": 8}
    equal = [{"name": "medium", "value": 40}]
    replay = ask(quotas=[quota(limit=16), department], scheduler="kai", priorities=equal)
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert replay.result["all"]["after"]["p90WaitSeconds"] > 10 * HOUR
    with pytest.raises(ValidationFailed, match="kube-scheduler has no quotas of departments"):
        ask(quotas=[department], proposedScheduler="kube")


def test_the_record_is_replayed_and_what_never_ran_left_out(ask: Ask, llm_team: Project) -> None:
    now = timezone.now()
    for name, seconds in (("ran", HOUR), ("never", 0)):
        row = WorkloadFactory(project=llm_team, name=name, phase="Completed", running_seconds=seconds, gpu_milli=2000)
        type(row).objects.filter(pk=row.pk).update(created_at=now - timedelta(hours=3))
    replay = ask(start=(now - timedelta(days=1)).isoformat(), end=now.isoformat(), scheduler="kube")
    run_replay(str(replay.pk))
    replay.refresh_from_db()
    assert (replay.status, replay.result["leftOut"]) == ("Ready", 1)
    assert replay.result["all"]["before"]["submissions"] == 1
    assert replay.content.splitlines()[1].startswith("llm-team ran ")


def test_a_period_without_submissions_has_no_result(ask: Ask) -> None:
    replay = ask(start="2020-01-01T00:00:00+00:00", end="2020-01-02T00:00:00+00:00")
    run_replays()
    replay.refresh_from_db()
    assert (replay.status, replay.message[:26]) == ("Failed", "No submission of this peri")


def test_progress_is_written_while_it_runs(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_services, "TICK", timedelta(0))
    monkeypatch.setattr(replay_services, "MOMENTS", 1)
    replay, seen = ask(), list[int]()
    mine = replay_services._mine

    def watched(row: Replay) -> Any:
        seen.append(Replay.objects.get(pk=row.pk).percent)
        return mine(row)

    monkeypatch.setattr(replay_services, "_mine", watched)
    replay_services.run(replay.pk)
    assert seen == sorted(seen)
    assert 0 < seen[-1] < 100 or 0 < seen[-2] < 100


def test_a_cancelled_one_stops_and_has_no_result(ask: Ask, as_admin: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_services, "TICK", timedelta(0))
    replay = ask()
    during(monkeypatch, lambda: str(replay_services.cancel_replay(key=replay.pk, actor=as_admin)))
    assert replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.status, replay.result, replay.due_at) == ("Cancelled", None, None)
    assert [each.action for each in AuditRecord.objects.order_by("pk")][-2:] == ["replay.create", "replay.cancel"]
    assert not replay_services.run(replay.pk)
    with pytest.raises(Conflict):
        replay_services.cancel_replay(key=replay.pk, actor=as_admin)


def test_a_worker_that_is_killed_leaves_it_to_the_next_one(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = ask()
    during(monkeypatch, killed)
    with pytest.raises(Killed):
        replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.status, replay_services.sweep()) == ("Running", 0)
    later(replay, minutes=1)
    assert replay_services.sweep() == 1
    replay.refresh_from_db()
    assert (replay.status, replay.attempts) == ("Ready", 2)


def test_what_ends_every_worker_is_given_up(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = ask()
    for _try in range(replay_services.TRIES):
        during(monkeypatch, killed)
        with pytest.raises(Killed):
            replay_services.run(replay.pk)
        later(replay, minutes=1)
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.status, replay.message[:29]) == ("Failed", "Failed after several attempts")


def test_a_worker_that_was_believed_dead_changes_nothing_any_more(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = ask()

    def taken_over() -> None:
        later(replay, minutes=1)
        replay_services.run(replay.pk)

    during(monkeypatch, taken_over)
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.status, replay.attempts) == ("Ready", 2)


def test_an_error_is_tried_again_and_named_without_its_inside(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = ask()

    def broken(*_args: Any, **_more: Any) -> Any:
        raise RuntimeError("inside")

    monkeypatch.setattr(replay_services, "replay_on", broken)
    for _try in range(replay_services.TRIES):
        later(replay, minutes=1)
        replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert replay.status == "Failed"
    assert "inside" not in replay.message


def test_one_that_takes_too_long_says_how_far_it_has_come(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_services, "TICK", timedelta(0))
    monkeypatch.setattr(replay_services, "MOMENTS", 1)
    monkeypatch.setattr(replay_services, "LONGEST", timedelta(0))
    replay = ask()
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.status, replay.message[:13]) == ("Failed", "Stopped after")


def test_old_ones_are_forgotten_and_no_more_than_three_run(ask: Ask) -> None:
    for number in range(replay_services.MOST_UNFINISHED):
        replay = ask(f"number {number}")
    with pytest.raises(Conflict):
        ask("one more")
    Replay.objects.filter(pk=replay.pk).update(status="Ready", status_at=timezone.now() - timedelta(days=31))
    assert replay_services.forget_old() == 1


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs", "kai", "kueue", "volcano"])
def test_any_scheduler_can_be_proposed(ask: Ask, flavour: str) -> None:
    replay = ask(proposedScheduler=flavour, quotas=[quota(limit=16, deserved=16)])
    replay_services.run(replay.pk)
    replay.refresh_from_db()
    assert (replay.status, replay.result["proposedScheduler"]) == ("Ready", flavour)
    assert replay.result["all"]["after"]["started"] == 3
    assert replay.result["intervalSeconds"] == (
        0 if flavour.startswith("kube") and replay.cluster.flavour == "kube" else 3
    )


def test_the_dictionary_itself_stays_as_it_is(ask: Ask) -> None:
    replay = ask(priorities=[{"name": "medium", "value": 30}])
    replay_services.run(replay.pk)
    assert Priority.objects.get(name="medium").value == 80
