"""What an eviction now would lose: on Home, in the list and over REST."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.tenants import GPU
from tests.factories.workloads import WorkloadFactory, pytorch_job, spec_of
from tests.support.rest_clients import Robot
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
HOUR = timedelta(hours=1)


@pytest.fixture
def run(llm_team: Project, alice: User) -> Callable[..., Workload]:
    """A workload of alice that has run for six hours on two GPUs; `saved` minutes ago."""

    def build(name: str, *, saved: int | None = None, **about: Any) -> Workload:
        now = timezone.now()
        stated = saved is not None and (now - timedelta(minutes=saved)).isoformat()
        notes = {"rung.dev/last-checkpoint-at": stated} if stated else {}
        values = {"project": llm_team, "submitted_by_id": str(alice.pk), "phase": Phase.RUNNING, **about}
        held = {"gpu_milli": 2 * GPU, "allocated_gpu_milli": 2 * GPU, "started_at": now - 6 * HOUR}
        spec = {**spec_of(pytorch_job(name)).as_json(), "annotations": notes}
        row: Workload = WorkloadFactory(name=name, spec=spec, **{**held, **values})
        return row

    return build


@pytest.fixture
def running(run: Callable[..., Workload]) -> None:
    """Three that report checkpoints, one that reports none, one that is not evicted, one that waits."""
    for name, minutes in (("a", 15), ("b", 30), ("c", 60)):
        run(name, saved=minutes)
    run("silent")
    run("fixed", saved=90, preemptibility="non-preemptible")
    run("waiting", phase=Phase.PENDING, allocated_gpu_milli=0, started_at=None)


def test_the_list_shows_it_for_what_holds_gpus(client_of: Clients, running: None, alice: User) -> None:
    page = client_of(alice).get("/workloads/").content.decode()
    for lost in ("0.5", "1.0", "2.0"):
        assert f"{lost} GPU-hours at risk" in page
    assert page.count("at risk") == 4
    assert "about 1.5 GPU-hours at risk" in page


@pytest.mark.parametrize(
    ("flavour", "lost"), [("kai", 0), ("volcano", 0), ("kube", 12), ("kube-gangs", 12), ("kueue", 12)]
)
def test_non_preemptible_work_is_at_risk_where_its_scheduler_may_evict_it(
    client_of: Clients, run: Callable[..., Workload], alice: User, llm_team: Project, flavour: str, lost: int
) -> None:
    Cluster.objects.filter(pk=llm_team.cluster_id).update(flavour=flavour)
    run("fixed", preemptibility="non-preemptible")
    client = client_of(alice)
    assert ("up to 12.0 GPU-hours at risk" in client.get("/workloads/").content.decode()) == bool(lost)
    home = client.get("/").content.decode()
    assert (f"Your running workload that may be evicted would lose {lost}.0 GPU-hours" in home) == bool(lost)


def test_where_too_few_report_it_counts_from_the_start_and_says_so(
    client_of: Clients, run: Callable[..., Workload], alice: User
) -> None:
    run("silent")
    page = client_of(alice).get("/workloads/").content.decode()
    assert "up to 12.0 GPU-hours at risk" in page


def test_home_sums_it_over_my_work_that_may_be_evicted(
    client_of: Clients, running: None, alice: User, admin: User, llm_team: Project
) -> None:
    page = client_of(alice).get("/").content.decode()
    assert "Your 4 running workloads that may be evicted would lose 5.0 GPU-hours if all were evicted now." in page
    assert "evicted now" not in client_of(admin).get("/").content.decode()


def test_rest_names_its_basis(robot: Robot, running: None) -> None:
    rows = {row["name"]: row for row in robot.get("v1/workloads").json()["workloads"]}
    silent, waiting = rows["silent"], rows["waiting"]
    assert (rows["a"]["gpuHoursAtRisk"], rows["a"]["gpuHoursAtRiskBasis"]) == (
        pytest.approx(0.5, abs=0.01),
        "checkpoint",
    )
    assert (silent["gpuHoursAtRisk"], silent["gpuHoursAtRiskBasis"]) == (pytest.approx(1.5, abs=0.01), "median")
    assert (waiting["gpuHoursAtRisk"], waiting["gpuHoursAtRiskBasis"]) == (None, None)
    one = robot.get(f"v1/workloads/{silent['id']}").json()
    assert one["gpuHoursAtRiskBasis"] == "median"


def test_more_running_rows_cost_no_more_queries(client_of: Clients, run: Callable[..., Workload], alice: User) -> None:
    client, counts = client_of(alice), []
    for number in range(12):
        run(f"more-{number}")
        if number in {0, 11}:
            with CaptureQueriesContext(connection) as queries:
                client.get("/workloads/")
            counts.append(len(queries))
    assert counts[0] == counts[1] <= 14
