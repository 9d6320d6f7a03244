"""Priorities and types: everybody reads, platform admins plan, and nothing changes before a plan is applied."""

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.inventory.models import Cluster
from clusters.sync.models import Drift
from portal.audit.models import AuditRecord
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from workloads.dictionary.models import Priority, WorkloadType
from workloads.plans.models import Plan, PlanState

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
PRESET = "/priorities/preset/four-tiers/"


def medium(**more: str) -> dict[str, str]:
    """The edit form of `medium` as it stands."""
    row = Priority.objects.get(name="medium")
    base = {"name": row.name, "value": str(row.value), "description": row.description}
    return {**base, "preemption_policy": row.preemption_policy, **more}


def plan_of(client: Client, where: str, sent: dict[str, str]) -> Plan:
    answer = client.post(where, sent)
    assert answer.status_code == 302, answer.content.decode()
    plan = Plan.objects.get()
    assert answer["Location"] == f"/plans/{plan.pk}/"
    return plan


def test_the_ladder_stands_on_its_values_with_the_line_at_100(client_of: Clients, alice: User) -> None:
    page = client_of(alice).get("/priorities/").content.decode()
    axis = page[page.index('class="axis"') : page.index("</svg>", page.index('class="axis"'))]
    assert re.findall(r'text-anchor="end">(\d+)<', " ".join(axis.split())) == [
        "150",
        "125",
        "90",
        "80",
        "65",
        "40",
        "25",
        "100",
    ]
    assert "100 and above: non-preemptible unless set otherwise" in axis


@pytest.mark.parametrize(
    ("state", "word"),
    [
        pytest.param({"generation": 2, "synced_generation": 1}, "lab: changing", id="behind"),
        pytest.param({"state": "paused", "paused_reason": "Identity changed."}, "lab: paused", id="paused"),
    ],
)
def test_each_rung_says_how_each_cluster_stands(
    client_of: Clients, alice: User, cluster: Cluster, state: dict[str, object], word: str
) -> None:
    Cluster.objects.update(**state)
    assert word in client_of(alice).get("/priorities/").content.decode()


def test_a_drifted_rung_says_what_differs(client_of: Clients, alice: User, cluster: Cluster) -> None:
    Drift.objects.create(
        cluster=cluster,
        category="changed",
        kind="PriorityClass",
        name="low",
        message="value is 7",
        seen_at=cluster.created_at,
    )
    page = client_of(alice).get("/priorities/").content.decode()
    assert page.count("lab: drifted") == 1
    assert "value is 7" in page


def test_only_platform_admins_are_offered_changes(client_of: Clients, alice: User, admin: User) -> None:
    for page in ("/priorities/", "/types/"):
        assert "Edit" not in client_of(alice).get(page).content.decode()
        assert "Edit" in client_of(admin).get(page).content.decode()


@pytest.mark.parametrize("method", ["get", "post"])
def test_others_are_refused_whatever_they_send(client_of: Clients, alice: User, method: str) -> None:
    client = client_of(alice)
    kind = WorkloadType.objects.get(name="Job")
    pages = ["/priorities/add/", "/priorities/low/", PRESET, f"/types/{kind.pk}/"]
    for page in pages:
        assert getattr(client, method)(page).status_code == 403, page
    assert client.post("/priorities/low/retire/").status_code == 403
    assert not Plan.objects.exists()


def test_a_foreign_plan_is_not_shown_nor_applied(client_of: Clients, alice: User, admin: User) -> None:
    plan = plan_of(client_of(admin), "/priorities/medium/", medium(value="85"))
    client = client_of(alice)
    assert client.get(f"/plans/{plan.pk}/").status_code == 404
    assert client.post(f"/plans/{plan.pk}/apply/").status_code == 404
    assert Priority.objects.get(name="medium").value == 80


def test_an_edit_opens_a_plan_and_changes_nothing(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    plan = plan_of(client, "/priorities/medium/", medium(value="85"))
    page = client.get(f"/plans/{plan.pk}/").content.decode()
    assert "1 object replaced on 1 cluster" in page
    assert "replaced on every cluster" in page
    assert Priority.objects.get(name="medium").value == 80


def test_an_unchanged_priority_or_type_opens_no_plan_and_says_so(client_of: Clients, admin: User) -> None:
    client, page = client_of(admin), f"/types/{WorkloadType.objects.get(name='Job').pk}/"
    shown = {name: str(value) for name, value in client.get(page).context["form"].initial.items()}
    emptied = dict.fromkeys(shown, "")  # leaves the defaults as they are
    for where, sent in (("/priorities/medium/", medium()), (page, shown), (page, emptied)):
        answer = client.post(where, sent)
        assert answer.status_code == 422
        assert "Nothing was changed." in answer.content.decode()
    assert not Plan.objects.exists()


def test_crossing_the_line_names_the_workloads_it_turns(client_of: Clients, llm_team: Project, admin: User) -> None:
    priority = Priority.objects.get(name="medium")
    WorkloadFactory(
        project=llm_team,
        name="queued",
        priority=priority,
        priority_source="explicit",
        preemptibility_source="threshold",
    )
    client = client_of(admin)
    plan = plan_of(client, "/priorities/medium/", medium(value="110"))
    page = client.get(f"/plans/{plan.pk}/").content.decode()
    assert "1 waiting workload becomes non-preemptible" in page
    assert ">queued</a>" in page


def test_applying_does_it_once(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    plan = plan_of(client, "/priorities/medium/", medium(value="85"))
    assert client.post(f"/plans/{plan.pk}/apply/")["Location"] == "/priorities/"
    assert Priority.objects.get(name="medium").value == 85
    again = client.post(f"/plans/{plan.pk}/apply/", follow=True)
    assert "already applied" in again.content.decode()
    assert AuditRecord.objects.filter(action="plan.apply", result="Succeeded").count() == 1


def test_a_plan_is_refused_when_something_moved(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    plan = plan_of(client, "/priorities/medium/", medium(value="85"))
    Priority.objects.filter(name="high").update(value=130)
    answer = client.post(f"/plans/{plan.pk}/apply/", follow=True)
    assert "priority high: 125" in answer.content.decode()
    assert Priority.objects.get(name="medium").value == 80


def test_a_discarded_plan_stays_undone(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    plan = plan_of(client, "/priorities/medium/", medium(value="85"))
    client.post(f"/plans/{plan.pk}/discard/")
    plan.refresh_from_db()
    assert plan.state == PlanState.DISCARDED
    assert "Apply" not in client.get(f"/plans/{plan.pk}/").content.decode()


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        pytest.param({"value": "90"}, "value", "90 is already used by medium-high", id="a value that is taken"),
        pytest.param({"value": "1000000001"}, "value", "less than or equal", id="beyond the users' range"),
        pytest.param({"value": "ten"}, "value", "whole number", id="no number"),
        pytest.param({"name": "high"}, "name", "high already exists", id="a name that is taken"),
        pytest.param({"name": "system-x"}, "name", "reserved by Kubernetes", id="the cluster's own prefix"),
        pytest.param({"name": "new", "value": "81"}, "name", "Rename in a separate", id="a rename with something else"),
        pytest.param({"preemption_policy": "Sometimes"}, "preemption_policy", "not one of", id="no such policy"),
    ],
)
def test_t40_a_refusal_is_shown_at_its_field_and_keeps_the_rest(
    client_of: Clients, admin: User, sent: dict[str, str], field: str, words: str
) -> None:
    answer = client_of(admin).post("/priorities/medium/", medium(description="kept", **sent))
    if field == "name" and "value" not in sent:
        answer = client_of(admin).post("/priorities/medium/", medium(**sent))
    assert answer.status_code == 422
    form = answer.context["form"]
    assert words in str(form.errors[field])
    assert form["value"].value() == sent.get("value", "80")
    assert not Plan.objects.exists()


def test_a_new_rung_is_planned_too(client_of: Clients, admin: User, cluster: Cluster) -> None:
    sent = {"name": "urgent", "value": "200", "preemption_policy": "PreemptLowerPriority", "description": ""}
    client = client_of(admin)
    plan = plan_of(client, "/priorities/add/", sent)
    client.post(f"/plans/{plan.pk}/apply/")
    assert "priority urgent, 200, rung 8 of 8" in client.get("/priorities/").content.decode()


def test_t40_an_entry_in_use_is_not_retired_and_its_users_are_named(client_of: Clients, admin: User) -> None:
    answer = client_of(admin).post("/priorities/low/retire/")
    assert answer.status_code == 409
    assert "type PyTorchJob" in answer.content.decode()


def test_an_unused_entry_is_retired_by_plan(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    plan = plan_of(client, "/priorities/medium/retire/", {})
    client.post(f"/plans/{plan.pk}/apply/")
    assert Priority.objects.get(name="medium").retired_at is not None


def test_a_preset_asks_what_its_values_would_get_wrong(client_of: Clients, admin: User) -> None:
    answer = client_of(admin).post(PRESET, {})
    assert answer.status_code == 422
    assert "Choose whether" in answer.content.decode()


@pytest.mark.parametrize(
    ("job", "errors"),
    [
        pytest.param(
            "", {name: [f"Choose whether {name} may be evicted."] for name in ("Deploy", "CronJob")}, id="none"
        ),
        pytest.param(
            "nonsense",
            {"Job": ["Select a valid choice. nonsense is not one of the available choices."]},
            id="an unknown one",
        ),
    ],
)
def test_a_refused_answer_of_a_preset_is_shown_at_its_field_and_the_others_stay(
    client_of: Clients, admin: User, job: str, errors: dict[str, list[str]]
) -> None:
    form = (
        client_of(admin).post(PRESET, {"Train": "preemptible", "Job": job, "Build": "non-preemptible"}).context["form"]
    )
    assert form.errors == errors
    assert (form["Train"].value(), form["Build"].value()) == ("preemptible", "non-preemptible")
    assert not Plan.objects.exists()


def test_a_preset_is_planned_with_the_answers(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    form = client.get(PRESET).context["form"]
    plan = plan_of(client, PRESET, dict.fromkeys(form.fields, "preemptible"))
    page = client.get(f"/plans/{plan.pk}/").content.decode()
    assert "gpu-training" in page
    assert not Priority.objects.filter(name="gpu-training").exists()


def test_an_unknown_preset_is_refused(client_of: Clients, admin: User) -> None:
    assert client_of(admin).get("/priorities/preset/nonsense/").status_code == 422


def test_a_type_is_changed_in_two_steps(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    kind = WorkloadType.objects.get(name="Job")
    sent = {"category": "Train", "priority": "low", "preemptibility": "preemptible"}
    plan = plan_of(client, f"/types/{kind.pk}/", sent)
    assert "Job" in client.get(f"/plans/{plan.pk}/").content.decode()
    kind.refresh_from_db()
    assert kind.priority is not None
    assert kind.priority.name == "high"
    assert client.post(f"/plans/{plan.pk}/apply/")["Location"] == "/types/"
    kind.refresh_from_db()
    assert (kind.priority.name, kind.preemptibility, kind.updated_by) == ("low", "preemptible", "admin")


@pytest.mark.parametrize("page", ["/priorities/", "/types/"])
def test_more_workloads_cost_no_more_queries(client_of: Clients, llm_team: Project, admin: User, page: str) -> None:
    client = client_of(admin)
    counts = []
    for more in (5, 20):
        WorkloadFactory.create_batch(more, project=llm_team)
        with CaptureQueriesContext(connection) as queries:
            client.get(page)
        counts.append(len(queries))
    assert counts[0] == counts[1]
