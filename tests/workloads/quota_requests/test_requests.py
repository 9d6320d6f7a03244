"""Asking for quota, deciding and withdrawing: states, permissions, partial grants, and what is recorded."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.inventory.models import NodePool
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import Role
from tenants.organisation.models import Department, Project
from tenants.quotas.models import ProjectQuota
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import set_project_quota
from tests.factories.cast import acting
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, MembershipFactory
from tests.workloads.quota_requests.conftest import Asks
from workloads.quota_requests.models import QuotaRequest
from workloads.quota_requests.selectors import own_requests, requests_to_decide, sync_state, values_of
from workloads.quota_requests.services import (
    BaseMoved,
    approve_request,
    create_request,
    decline_request,
    refresh_open,
    withdraw_request,
)


def quota(project: Project) -> tuple[int, int | None]:
    """GPUs deserved, and the limit."""
    row = ProjectQuota.objects.get(project=project)
    return row.gpu_deserved // GPU, row.gpu_limit and row.gpu_limit // GPU


def deserving(values: QuotaValues, gpus: int) -> QuotaValues:
    return replace(values, deserved=replace(values.deserved, gpu=gpus * GPU))


def actions() -> list[str]:
    return list(AuditRecord.objects.order_by("pk").values_list("action", flat=True))


def test_a_request_changes_no_quota_and_is_recorded(asks: Asks, llm_team: Project) -> None:
    row = asks()
    assert (row.state, row.gpu_milli, quota(llm_team)) == ("open", 2 * GPU, (4, 12))
    assert actions() == ["quota_request.create"]
    llm_team.cluster.refresh_from_db()
    assert llm_team.cluster.generation == 1


def test_an_approval_sets_the_quota_and_moves_the_limit_along(asks: Asks, llm_team: Project, as_dora: Actor) -> None:
    row = asks()
    row = approve_request(key=row.pk, base=row.base, actor=as_dora, reason="Fine")
    assert (row.state, row.decided_by, row.granted_milli, quota(llm_team)) == ("approved", "dora", 2 * GPU, (6, 14))
    assert row.before["gpu_deserved"] == 4 * GPU
    assert actions() == ["quota_request.create", "quota.set", "quota_request.approve"]
    assert AuditRecord.objects.get(action="quota.set").actor_name == "dora"


def test_part_of_it_can_be_granted_until_an_earlier_day(asks: Asks, llm_team: Project, as_dora: Actor) -> None:
    today = timezone.now().date()
    row = asks(4, until=today + timedelta(days=9))
    earlier = today + timedelta(days=2)
    row = approve_request(key=row.pk, base=row.base, actor=as_dora, gpus=1, until=earlier)
    assert (row.granted_milli, row.granted_until, quota(llm_team)) == (GPU, earlier, (5, 13))
    assert row.ends_at is not None
    assert row.ends_at.date() == earlier + timedelta(days=1)
    assert row.impact["deserved"] == {"before": 4, "after": 5}


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        pytest.param({"gpus": 3}, "/gpus", id="more GPUs than requested"),
        pytest.param({"gpus": 0}, "/gpus", id="none"),
        pytest.param({"until": timedelta(days=10)}, "/until", id="a later day"),
        pytest.param({"until": timedelta(days=-1)}, "/until", id="a day in the past"),
        pytest.param({"reason": "x" * 501}, "/reason", id="a long comment"),
    ],
)
def test_no_more_is_granted_than_was_requested(
    asks: Asks, llm_team: Project, as_dora: Actor, more: dict[str, object], pointer: str
) -> None:
    today = timezone.now().date()
    row = asks(2, until=today + timedelta(days=9))
    given = {name: today + value if isinstance(value, timedelta) else value for name, value in more.items()}
    with pytest.raises(ValidationFailed) as refusal:
        approve_request(key=row.pk, base=row.base, actor=as_dora, **given)  # type: ignore[arg-type]
    assert refusal.value.problems[0].pointer == pointer
    row.refresh_from_db()
    assert (row.state, quota(llm_team)) == ("open", (4, 12))


@pytest.mark.parametrize(
    ("requested", "pointer"),
    [
        pytest.param({"gpus": 0}, "/gpus", id="nothing"),
        pytest.param({"gpus": -1}, "/gpus", id="less"),
        pytest.param({"gpus": 0.0001}, "/gpus", id="too fine"),
        pytest.param({"gpus": float("nan")}, "/gpus", id="no number"),
        pytest.param({"until": timedelta(days=-1)}, "/until", id="yesterday"),
        pytest.param({"until": timedelta(days=9999)}, "/until", id="too far ahead"),
        pytest.param({"reason": "  "}, "/reason", id="no reason"),
        pytest.param({"reason": "a\x00"}, "/reason", id="control characters"),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_stored(
    llm_team: Project, h100: NodePool, as_bob: Actor, requested: dict[str, object], pointer: str
) -> None:
    until = requested.pop("until", None)
    day = timezone.now().date() + until if isinstance(until, timedelta) else None
    good: dict[str, object] = {"gpus": 1, "reason": "why", "until": day, **requested}
    with pytest.raises(ValidationFailed) as refusal:
        create_request(project=llm_team, node_pool=h100, actor=as_bob, **good)  # type: ignore[arg-type]
    assert refusal.value.problems[0].pointer == pointer
    assert not QuotaRequest.objects.exists()


@pytest.mark.parametrize("gpus", [17, 1e9, 1e300])
def test_more_than_the_pool_has_is_refused_with_what_it_has(asks: Asks, gpus: float) -> None:
    with pytest.raises(ValidationFailed, match=r"h100 has 16 GPUs in total\.") as refusal:
        asks(gpus)
    assert refusal.value.problems[0].numbers == {"largest": "16.0"}


def test_the_pool_of_another_cluster_is_refused(llm_team: Project, as_bob: Actor) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        create_request(project=llm_team, node_pool=NodePoolFactory(), gpus=1, until=None, reason="why", actor=as_bob)
    assert refusal.value.problems[0].pointer == "/nodePoolId"


def test_one_author_has_one_open_request_per_project_and_pool(asks: Asks, as_alice: Actor) -> None:
    asks()
    with pytest.raises(Conflict, match="Withdraw it first"):
        asks()
    asks(actor=as_alice)


def test_a_viewer_and_a_stranger_cannot_ask(asks: Asks, llm_team: Project, as_charlie: Actor) -> None:
    with pytest.raises(NotFound):
        asks(actor=as_charlie)
    viewer = MembershipFactory(project=llm_team, role=Role.VIEWER).user
    with pytest.raises(Forbidden):
        asks(actor=acting(viewer))
    assert not QuotaRequest.objects.exists()


def test_only_who_may_set_the_quota_decides_and_strangers_do_not_see_it(
    asks: Asks, as_alice: Actor, as_charlie: Actor, as_bob: Actor
) -> None:
    row = asks()
    for actor, error in ((as_alice, Forbidden), (as_bob, Forbidden), (as_charlie, NotFound)):
        with pytest.raises(error):
            approve_request(key=row.pk, base=row.base, actor=actor)
        with pytest.raises(error):
            decline_request(key=row.pk, reason="no", actor=actor)
    with pytest.raises(NotFound):
        withdraw_request(key=row.pk, actor=as_charlie)
    with pytest.raises(Forbidden):
        withdraw_request(key=row.pk, actor=as_alice)
    row.refresh_from_db()
    assert row.state == "open"


def test_lists_show_ones_own_and_those_to_decide(asks: Asks, as_bob: Actor, as_dora: Actor, as_charlie: Actor) -> None:
    row = asks()
    assert list(own_requests(as_bob)) == list(requests_to_decide(as_dora)) == [row]
    assert not requests_to_decide(as_bob).exists()
    assert not own_requests(as_charlie).exists()
    decline_request(key=row.pk, reason="Not now", actor=as_dora)
    assert not requests_to_decide(as_dora).exists()


def test_a_declined_request_keeps_its_reason_and_is_over(asks: Asks, llm_team: Project, as_dora: Actor) -> None:
    row = asks()
    with pytest.raises(ValidationFailed):
        decline_request(key=row.pk, reason=" ", actor=as_dora)
    row = decline_request(key=row.pk, reason="Use the a100 pool", actor=as_dora)
    assert (row.state, row.decision_reason, quota(llm_team)) == ("declined", "Use the a100 pool", (4, 12))
    for again in (
        lambda: approve_request(key=row.pk, base=row.base, actor=as_dora),
        lambda: decline_request(key=row.pk, reason="no", actor=as_dora),
    ):
        with pytest.raises(Conflict, match="declined already"):
            again()


def test_its_author_withdraws_it_while_it_is_open(asks: Asks, as_bob: Actor, as_dora: Actor) -> None:
    row = withdraw_request(key=asks().pk, actor=as_bob)
    assert (row.state, actions()) == ("withdrawn", ["quota_request.create", "quota_request.withdraw"])
    with pytest.raises(Conflict):
        approve_request(key=row.pk, base=row.base, actor=as_dora)


def test_an_approval_on_a_moved_base_is_refused_with_the_new_impact(
    asks: Asks, llm_team: Project, h100: NodePool, as_dora: Actor
) -> None:
    row = asks()
    shown = row.base
    values = values_of(llm_team, h100)
    set_project_quota(project=llm_team, node_pool=h100, values=deserving(values, 5), actor=SYSTEM)
    with pytest.raises(BaseMoved) as refusal:
        approve_request(key=row.pk, base=shown, actor=as_dora)
    row.refresh_from_db()
    assert refusal.value.beside["base"] == row.base != shown
    assert refusal.value.beside["impact"]["deserved"] == row.impact["deserved"] == {"before": 5, "after": 7}
    assert (row.state, quota(llm_team)) == ("open", (5, 12))
    approve_request(key=row.pk, base=row.base, actor=as_dora)
    assert quota(llm_team) == (7, 14)


def test_an_open_request_is_recomputed_in_the_background_once_its_base_moved(
    asks: Asks, llm_team: Project, h100: NodePool
) -> None:
    row = asks()
    assert refresh_open() == 0
    set_project_quota(project=llm_team, node_pool=h100, values=deserving(values_of(llm_team, h100), 6), actor=SYSTEM)
    assert refresh_open() == 1
    row.refresh_from_db()
    assert row.impact["deserved"] == {"before": 6, "after": 8}
    assert actions()[-1] == "quota_request.recompute"


def test_a_department_that_enforces_its_quota_refuses_the_approval(
    asks: Asks, llm_team: Project, research: Department, as_dora: Actor
) -> None:
    Department.objects.filter(pk=research.pk).update(enforce_deserved=True)
    row = asks(6)
    assert [each["code"] for each in row.impact["refusals"]] == ["sum_over_department"]
    with pytest.raises(ValidationFailed, match="deserve 10 GPUs in total"):
        approve_request(key=row.pk, base=row.base, actor=as_dora)
    row.refresh_from_db()
    assert (row.state, quota(llm_team)) == ("open", (4, 12))
    approve_request(key=row.pk, base=row.base, gpus=4, actor=as_dora)
    assert quota(llm_team) == (8, 16)


def test_it_is_synced_only_once_a_newer_run_has_put_it_on_the_cluster(asks: Asks, as_dora: Actor) -> None:
    row = asks()
    assert sync_state(row) == "unchanged"
    row = approve_request(key=row.pk, base=row.base, actor=as_dora)
    cluster = row.project.cluster
    cluster.synced_generation = row.generation - 1
    assert sync_state(row) == "pending"
    run = cluster.sync_runs.create(
        state="succeeded", generation=row.generation - 1, started_at=timezone.now(), heartbeat_at=timezone.now(),
        finished_at=timezone.now(),
    )  # fmt: skip
    assert sync_state(row) == "pending"
    cluster.sync_runs.filter(pk=run.pk).update(generation=row.generation, scope="project.999")
    assert sync_state(row) == "pending", "a run about another owner says nothing of it"
    cluster.sync_runs.filter(pk=run.pk).update(scope=row.project.owner)
    assert sync_state(row) == "synced"
    run.outcomes.create(action="update", kind="Queue", name="q", owner=row.project.owner, ok=False)
    assert sync_state(row) == "pending"
    cluster.synced_generation = row.generation
    assert sync_state(row) == "synced"
