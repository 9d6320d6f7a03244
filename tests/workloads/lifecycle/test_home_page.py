"""Home: what needs me, my newest work, and nobody else's."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import Cluster
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import QuotaRequestFactory, WorkloadFactory
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import EventType, Phase, Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


@pytest.fixture
def mine(llm_team: Project, alice: User) -> dict[str, object]:
    """What makes a workload alice's."""
    return {"project": llm_team, "submitted_by": "alice", "submitted_by_id": str(alice.pk)}


def needs(client: Client) -> dict[str, str]:
    return {need.workload.name: need.why for need in client.get("/").context["needs"]}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        pytest.param({"preempted_count": 1}, "evicted", id="evicted and not back"),
        pytest.param({"preempted_count": 1, "phase": Phase.RUNNING}, None, id="evicted and running again"),
        pytest.param({"age": 11}, "waiting", id="waiting longer than ten minutes"),
        pytest.param({"age": 2}, None, id="waiting for two"),
        pytest.param({"apply_error": "connection refused"}, "unreachable", id="not handed over"),
        pytest.param({"age": 60, "desired_phase": "Stopped", "phase": Phase.STOPPED}, None, id="stopped on purpose"),
    ],
)
def test_what_needs_me_is_named(
    client_of: Clients, alice: User, mine: dict[str, object], row: dict[str, object], why: str | None
) -> None:
    since = timezone.now() - timedelta(minutes=int(str(row.pop("age", 0))))
    WorkloadFactory(name="one", phase_at=since, **mine, **row)
    assert needs(client_of(alice)) == ({"one": why} if why else {})


def test_what_the_scheduler_said_has_its_age_and_leads_to_why_it_waits_now(
    client_of: Clients, alice: User, mine: dict[str, object]
) -> None:
    now = timezone.now()
    said = "No node fits it: 10 node(s) didn't have enough resources: GPUs."
    since = now - timedelta(minutes=40)
    row = WorkloadFactory(name="one", phase_at=since, phase_message=said, **mine)
    row.timeline.create(at=now - timedelta(minutes=12), type=EventType.SCHEDULING, message=said)
    page = " ".join(client_of(alice).get("/").content.decode().split())
    alert = page[page.index("Long wait") :]
    assert re.search(r'12 min ago</time>: No node fits it: .* <a href="(.+?)">Why it waits now</a>', alert)[1] == (
        f"/workloads/{row.pk}/"
    )
    later = "No node fits it: 9 node(s) didn't have enough resources: GPUs."
    Workload.objects.filter(pk=row.pk).update(phase_message=later, updated_at=now - timedelta(minutes=7))
    page = " ".join(client_of(alice).get("/").content.decode().split())
    assert "7 min ago</time>: No node fits it: 9" in page, "the same reason with other numbers is no new entry"


def test_somebody_elses_wait_is_theirs(client_of: Clients, bob: User, mine: dict[str, object]) -> None:
    WorkloadFactory(name="one", preempted_count=1, **mine)
    client = client_of(bob)
    assert needs(client) == {}
    assert "No workloads yet." in client.get("/").content.decode()


def test_admins_are_led_to_what_failed_to_apply(client_of: Clients, llm_team: Project, admin: User, bob: User) -> None:
    WorkloadFactory.create_batch(2, project=llm_team, failed_to_apply=True)
    link = 'href="/workloads/?result=failed-to-apply">2 workloads</a>'
    assert link in client_of(admin).get("/").content.decode()
    assert link not in client_of(bob).get("/").content.decode()


def test_my_newest_come_first(client_of: Clients, alice: User, mine: dict[str, object]) -> None:
    now = timezone.now()
    for age in range(10):
        WorkloadFactory(name=f"train-{age}", created_at=now - timedelta(hours=age), **mine)
    newest = client_of(alice).get("/").context["newest"]
    assert [row.name for row in newest] == [f"train-{age}" for age in range(8)]


def test_it_refreshes_itself_alone(client_of: Clients, alice: User, mine: dict[str, object]) -> None:
    WorkloadFactory(name="one", **mine)
    page = client_of(alice).get("/", headers={"HX-Request": "true", "HX-Target": "today"}).content.decode()
    assert "<html" not in page
    assert ">one</a>" in page


def test_an_admin_sees_what_needs_attention_on_all_clusters(
    client_of: Clients, admin: User, alice: User, llm_team: Project, cluster: Cluster
) -> None:
    now = timezone.now()
    victims = [WorkloadFactory(project=llm_team, gpu_milli=2000) for _ in range(2)]
    for victim, hours in ((victims[0], 1), (victims[0], 2), (victims[1], 30)):
        at = now - timedelta(hours=hours)
        PreemptionRecord.objects.create(
            cluster=cluster, pod_uid=str(hours), pod_name="pod", at=at, victim=victim, cause="preempt"
        )
    QuotaRequestFactory(project=llm_team, node_pool=cluster.node_pools.get(name="h100"))
    Cluster.objects.update(observed_at=now - timedelta(minutes=6))
    page = " ".join(client_of(admin).get("/").content.decode().split())
    for words in (
        "2 workloads</a>",
        "4 GPUs requested",
        "> 1 workload <",
        "1 open</a>",
        "0 open</a>",
        "1 not current",
        "1 simulated",
    ):
        assert words in page, words
    assert "All clusters" not in client_of(alice).get("/").content.decode()


def test_the_author_of_a_quota_request_reads_the_answer_for_three_days(
    client_of: Clients, alice: User, bob: User, llm_team: Project
) -> None:
    pool = llm_team.cluster.node_pools.get(name="h100")
    row = QuotaRequestFactory(project=llm_team, node_pool=pool, author_id=str(alice.pk), state="declined")
    row.decided_by, row.decision_reason, row.decided_at = "carol", "No GPUs left", timezone.now()
    row.save()
    page = " ".join(client_of(alice).get("/").content.decode().split())
    assert "Quota request declined" in page
    assert f'href="/quota-requests/{row.pk}/"> 1 GPU more for llm-team in h100' in page
    assert "carol declined it" in page
    assert "“No GPUs left”" in page
    assert "Quota request declined" not in client_of(bob).get("/").content.decode()
    row.state, row.granted_milli, row.granted_until = "approved", row.gpu_milli, timezone.now().date()
    row.save()
    page = client_of(alice).get("/").content.decode()
    assert "Quota request approved" in page
    row.decided_at -= timedelta(days=3)
    row.save()
    assert "Quota request approved" not in client_of(alice).get("/").content.decode()


def test_who_sets_a_quota_sees_requests_to_decide(
    client_of: Clients, admin: User, alice: User, llm_team: Project
) -> None:
    QuotaRequestFactory(project=llm_team, node_pool=llm_team.cluster.node_pools.get(name="h100"))
    link = 'href="/quota-requests/">1 quota request</a>'
    assert link in client_of(admin).get("/").content.decode()
    assert link not in client_of(alice).get("/").content.decode()
