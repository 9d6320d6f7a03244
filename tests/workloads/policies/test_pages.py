"""Policies in the browser: what is set, what holds for a project, and the form; and what the submit page says."""

from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster
from tenants.access.models import AccessRole, Role, User
from tenants.organisation.models import Department, Project
from tests.factories.cast import acting, applied
from tests.factories.tenants import MembershipFactory
from tests.factories.workloads import PolicyFactory
from workloads.dictionary.models import Priority
from workloads.dictionary.services.changes import rename_priority
from workloads.plans.models import Plan
from workloads.policies.models import Policy
from workloads.state.models import Workload

Clients = Callable[[User], Client]
LIST, ADD = "/policies/", "/policies/add/"
SUBMIT = {"project": "llm-team", "type": "Training", "name": "train", "image": "nvcr.io/nvidia/pytorch:24.05-py3"}


def words(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def sent(**more: Any) -> dict[str, Any]:
    """Training everywhere: medium unless somebody chooses, and nothing but low and medium."""
    base = {"kind": "training", "place": "the whole installation", "name": "house rules", "priority_default": "medium"}
    return {**base, "priority_options": ["low", "medium"], **more}


def test_an_admin_sets_a_policy_that_the_list_tells(client_of: Clients, admin: User, llm_team: Project) -> None:
    client = client_of(admin)
    answer = client.post(ADD, sent(priority_required="on", preemptibility_locked="on"))
    assert not Policy.objects.exists()
    applied(client, answer)
    row = Policy.objects.get()
    assert row.document == {
        "defaults": {"priorityClass": "medium"},
        "rules": {
            "priorityClass": {"options": [{"value": "low"}, {"value": "medium"}], "required": True},
            "preemptibility": {"canEdit": False},
        },
    }
    page = words(client, LIST)
    assert "Priority must be low or medium." in page
    assert "Effective policy for llm-team" in page
    assert "set by policy of the whole installation" in page


def test_the_form_comes_back_as_it_was_set_and_sets_it_again(
    client_of: Clients, admin: User, research: Department
) -> None:
    client = client_of(admin)
    place = f"department {research.name} on {research.cluster.name}"
    applied(client, client.post(ADD, sent(kind="distributed", place=place)))
    row = Policy.objects.get()
    assert row.document["defaults"] == {"worker": {"priorityClass": "medium"}}
    page = words(client, f"{LIST}{row.pk}/")
    assert '<option value="medium" selected>' in page
    assert page.count("checked") == 2
    applied(client, client.post(f"{LIST}{row.pk}/", {"name": "looser"}))
    row.refresh_from_db()
    assert (row.name, row.document, row.department) == ("looser", {}, research)


def test_an_unchanged_policy_opens_no_plan_and_says_so(client_of: Clients, admin: User) -> None:
    client = client_of(admin)
    applied(client, client.post(ADD, sent(priority_required="on")))
    page, plans = f"{LIST}{Policy.objects.get().pk}/", Plan.objects.count()
    answer = client.post(page, sent(priority_required="on"))
    assert answer.status_code == 422
    assert "Nothing was changed." in answer.content.decode()
    assert Plan.objects.count() == plans
    applied(client, client.post(page, sent()))
    assert "required" not in Policy.objects.get().document["rules"]["priorityClass"]


def test_the_form_loosens_nothing_of_what_was_renamed_or_retired_meanwhile(client_of: Clients, admin: User) -> None:
    shown = [{"value": "medium", "displayed": "As usual"}, {"value": "low"}, {"value": "very-low"}]
    row = PolicyFactory(document={"rules": {"priorityClass": {"options": shown}}})
    rename_priority(name="medium", new_name="normal", actor=acting(admin))
    Priority.objects.filter(name="very-low").update(retired_at=timezone.now())
    client = client_of(admin)
    page = words(client, f"{LIST}{row.pk}/")
    assert page.count("checked") == 3
    assert "very-low, no longer offered" in page
    applied(client, client.post(f"{LIST}{row.pk}/", {"name": "x", "priority_options": ["normal", "low"]}))
    row.refresh_from_db()
    kept = [{"value": "low"}, {"value": "normal", "displayed": "As usual"}]
    assert sorted(row.document["rules"]["priorityClass"]["options"], key=lambda each: each["value"]) == kept


def test_an_edit_is_offered_to_whoever_may_make_it(client_of: Clients, bob: User, research: Department) -> None:
    names = AccessRole.objects.create(
        key="priorities", name="Priorities", permission_sets=["manage-workload-properties"]
    )
    MembershipFactory(user=bob, project=None, department=None, role=names.key)
    everywhere, below = PolicyFactory(), PolicyFactory(scope="department", department=research)
    page = words(client_of(bob), LIST)
    assert f"{LIST}{everywhere.pk}/" in page
    assert f"{LIST}{below.pk}/" not in page


def test_a_policy_that_is_there_is_opened_and_not_overwritten(client_of: Clients, admin: User) -> None:
    row = PolicyFactory()
    answer = client_of(admin).post(ADD, sent(), follow=True)
    assert answer.request["PATH_INFO"] == f"{LIST}{row.pk}/"
    assert Policy.objects.get().document == row.document


def test_a_default_that_is_no_option_is_refused_at_its_field(client_of: Clients, admin: User) -> None:
    answer = client_of(admin).post(ADD, sent(priority_default="high"))
    assert answer.status_code == 422
    assert "high is not one of this policy" in answer.context["form"].errors["priority_default"][0]
    assert not Policy.objects.exists()


def test_a_policy_is_taken_away(client_of: Clients, admin: User) -> None:
    row = PolicyFactory()
    client = client_of(admin)
    applied(client, client.post(f"{LIST}{row.pk}/lift/"))
    assert not Policy.objects.exists()


def test_an_admin_of_a_department_is_offered_what_is_theirs_only(
    client_of: Clients, research: Department, llm_team: Project, vision_team: Project
) -> None:
    membership = MembershipFactory(user__username="dana", project=None, department=research, role=Role.DEPARTMENT_ADMIN)
    client = client_of(membership.user)
    page = words(client, ADD)
    assert "department research" in page
    assert "project llm-team" in page
    assert "the whole installation" not in page
    assert "vision-team" not in page
    assert client.post(ADD, sent(place="the whole installation")).status_code == 422
    assert client.post(ADD, sent(place="project vision-team")).status_code == 422
    house = PolicyFactory()
    assert client.get(f"{LIST}{house.pk}/").status_code == 403
    assert client.post(f"{LIST}{house.pk}/lift/").status_code == 403
    assert Policy.objects.get() == house


def test_members_read_what_holds_for_them_and_set_nothing(client_of: Clients, bob: User, vision_team: Project) -> None:
    PolicyFactory()
    foreign = PolicyFactory(scope="project", project=vision_team, name="theirs")
    client = client_of(bob)
    page = words(client, LIST)
    assert "Priority defaults to low" in page
    assert "theirs" not in page
    assert ADD not in page
    assert client.get(ADD).status_code == 403
    assert client.get(f"{LIST}{foreign.pk}/").status_code == 404


def test_the_submit_page_says_what_a_policy_imposes_and_refuses_at_the_field(
    client_of: Clients, bob: User, research: Department, llm_team: Project
) -> None:
    options = [{"value": "low"}, {"value": "medium"}]
    document = {"defaults": {"priorityClass": "medium"}, "rules": {"priorityClass": {"options": options}}}
    PolicyFactory(scope="department", department=research, document=document)
    client = client_of(bob)
    checking = {"HX-Request": "true", "HX-Target": "forecast"}
    panel = " ".join(client.post("/workloads/submit/", SUBMIT, headers=checking).content.decode().split())
    assert "Priority must be low or medium: set by policy of department research." in panel
    assert "Priority medium: set by policy of department research." in panel
    assert "set by policy" in panel

    refused = client.post("/workloads/submit/", {**SUBMIT, "priority": "high"})
    assert refused.status_code == 400
    assert "policy of department research" in refused.context["form"].errors["priority"][0]
    assert not Workload.objects.exists()


def test_what_two_scopes_leave_nothing_of_is_told_where_it_is_seen(
    client_of: Clients, admin: User, llm_team: Project, cluster: Cluster
) -> None:
    for place, value in (({}, "low"), ({"scope": "project", "project": llm_team}, "high")):
        PolicyFactory(**place, document={"rules": {"priorityClass": {"options": [{"value": value}]}}})
    assert "No priorityClass is allowed" in words(client_of(admin), f"{LIST}?project=llm-team")


def test_more_policies_cost_the_list_no_more_queries(
    client_of: Clients, admin: User, research: Department, llm_team: Project
) -> None:
    client = client_of(admin)

    def requested() -> int:
        client.get(LIST)
        with CaptureQueriesContext(connection) as queries:
            client.get(LIST)
        return len(queries)

    document = {"rules": {"priorityClass": {"options": [{"value": "low"}]}}}
    PolicyFactory(document=document)
    few = requested()
    for kind in ("workspace", "distributed", "inference"):
        PolicyFactory(kind=kind, document=document if kind != "distributed" else {})
        PolicyFactory(kind=kind, scope="department", department=research)
        PolicyFactory(kind=kind, scope="project", project=llm_team)
    assert requested() == few
