"""When the date of a grant passes: the GPUs are taken back, unless non-preemptible work holds them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.inventory.models import NodePool
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM, Actor
from scheduling.model.resources import Limit, Resources
from tenants.organisation.models import Project
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import set_project_quota
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from tests.factories.tenants import GPU
from tests.workloads.quota_requests.conftest import Asks
from workloads.quota_requests.models import QuotaRequest
from workloads.quota_requests.selectors import sync_state, values_of
from workloads.quota_requests.services import approve_request, end_due
from workloads.quota_requests.tasks import quota_requests

TODAY = timezone.now().date()


@pytest.fixture
def granted(asks: Asks, as_dora: Actor) -> QuotaRequest:
    """2 GPUs until tomorrow."""
    row = asks(2, until=TODAY + timedelta(days=1))
    return approve_request(key=row.pk, base=row.base, actor=as_dora)


def held(gpus: int) -> Usage:
    return Usage(Resources(gpu=gpus * GPU), Resources(gpu=gpus * GPU))


def test_nothing_is_taken_back_before_its_last_day_is_over(granted: QuotaRequest, h100: NodePool) -> None:
    assert granted.ends_at is not None
    assert end_due(granted.ends_at - timedelta(seconds=1)) == 0
    assert values_of(granted.project, h100).deserved.gpu == 6 * GPU


def test_the_granted_gpus_are_taken_back_once_it_has_passed(granted: QuotaRequest, h100: NodePool) -> None:
    assert granted.ends_at is not None
    assert end_due(granted.ends_at) == 1
    assert end_due(granted.ends_at) == 0
    values = values_of(granted.project, h100)
    assert (values.deserved.gpu, values.limit.gpu) == (4 * GPU, 12 * GPU)
    was = granted.generation
    granted.refresh_from_db()
    assert (granted.state, granted.ended_at, granted.generation > was) == ("ended", granted.ends_at, True)
    assert list(AuditRecord.objects.order_by("-pk").values_list("action", "actor_name")[:2]) == [
        ("quota_request.end", "rung"),
        ("quota.set", "rung"),
    ]
    assert sync_state(granted) == "pending"


def test_what_non_preemptible_work_holds_stays_until_it_is_free(
    granted: QuotaRequest, h100: NodePool, ledger: Ledger
) -> None:
    assert granted.ends_at is not None
    ledger.holds(granted.project, h100, held(5))
    assert end_due(granted.ends_at) == end_due(granted.ends_at + timedelta(minutes=1)) == 0
    granted.refresh_from_db()
    assert granted.state == "approved"
    assert granted.kept_because == "Non-preemptible workloads use 5 GPUs, more than 4 GPUs. Stop some of them first."
    assert values_of(granted.project, h100).deserved.gpu == 6 * GPU
    assert AuditRecord.objects.filter(action="quota_request.keep").count() == 1, "the same reason is recorded once"
    ledger.holds(granted.project, h100, held(4))
    assert end_due(granted.ends_at + timedelta(minutes=2)) == 1
    granted.refresh_from_db()
    assert (granted.state, granted.kept_because) == ("ended", "")
    assert values_of(granted.project, h100).deserved.gpu == 4 * GPU


def test_what_an_admin_has_lowered_meanwhile_does_not_fall_below_nothing(granted: QuotaRequest, h100: NodePool) -> None:
    assert granted.ends_at is not None
    lower = QuotaValues(Limit(gpu=GPU), Limit(gpu=2 * GPU))
    set_project_quota(project=granted.project, node_pool=h100, values=lower, actor=SYSTEM)
    assert end_due(granted.ends_at) == 1
    values = values_of(granted.project, h100)
    assert (values.deserved.gpu, values.limit.gpu) == (0, 0)


def test_a_limit_that_was_lifted_meanwhile_stays_lifted(granted: QuotaRequest, h100: NodePool) -> None:
    assert granted.ends_at is not None
    values = replace(values_of(granted.project, h100), limit=Limit())
    set_project_quota(project=granted.project, node_pool=h100, values=values, actor=SYSTEM)
    assert end_due(granted.ends_at) == 1
    values = values_of(granted.project, h100)
    assert (values.deserved.gpu, values.limit.gpu) == (4 * GPU, None)


def test_a_grant_without_a_date_does_not_end(asks: Asks, as_dora: Actor, llm_team: Project) -> None:
    row = asks()
    approve_request(key=row.pk, base=row.base, actor=as_dora)
    assert end_due(timezone.now() + timedelta(days=9999)) == 0


def test_the_periodic_task_ends_what_is_due_once_per_period(granted: QuotaRequest) -> None:
    QuotaRequest.objects.update(ends_at=timezone.now() - timedelta(seconds=1))
    quota_requests()
    granted.refresh_from_db()
    assert granted.state == "ended"
    QuotaRequest.objects.update(state="approved")
    quota_requests()
    granted.refresh_from_db()
    assert granted.state == "approved"
