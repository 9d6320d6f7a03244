"""Where the model takes too long, pages and requests answer without an estimate and say so."""

from collections.abc import Callable

import pytest
from django.test import Client

from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tests.factories.tenants import UserFactory
from tests.factories.workloads import spec_of
from tests.workloads.forecast.test_alternatives import (
    asking,
    offered,
    registries,  # noqa: F401  # a fixture
    waiting,
)
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors import time_budget
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import why_waiting
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def mine() -> Workload:
    """It waits for 8 GPUs that another workload holds."""
    _lab, _team, found = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    return found


@pytest.fixture
def no_time(mine: Workload, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """The same, and the model is never in time."""
    monkeypatch.setattr(time_budget, "SECONDS", 0.0)
    return mine


def test_a_waiting_workload_shows_what_its_scheduler_says(
    no_time: Workload, client_of: Callable[[User], Client]
) -> None:
    headline = why_waiting(no_time)
    assert headline is not None
    assert headline.source == "scheduler"
    assert "too many workloads compete on this cluster" in headline.sentence
    admin: User = UserFactory(is_superuser=True)
    page = client_of(admin).get(f"/workloads/{no_time.pk}/").content.decode()
    assert "The estimate was stopped after 3 s" in page
    assert "Not all alternatives were tried" in page
    assert "Apply: Not all" not in page


def test_with_time_there_is_an_estimate(mine: Workload) -> None:
    headline = why_waiting(mine)
    assert headline is not None
    assert headline.source == "model"
    assert not any("Not all" in words for words in offered(mine, SYSTEM))


def test_a_preview_without_time_makes_no_estimate(no_time: Workload) -> None:
    manifest = asking("another", gpus=1)
    found = forecast(spec=spec_of(manifest), project=no_time.project, actor=SYSTEM)
    assert found.verdict is Verdict.UNKNOWN
    assert found.sentence.startswith("No estimate: the estimate was stopped")
