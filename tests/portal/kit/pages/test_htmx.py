"""One URL for page and part: redirects, messages and refusals as htmx needs them."""

from collections.abc import Callable

import pytest
from django.test import Client

from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from workloads.state.models import Phase

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


@pytest.fixture
def address(llm_team: Project, alice: User) -> str:
    """The page of a running workload of alice."""
    ids = {"submitted_by": "alice", "submitted_by_id": str(alice.pk)}
    made = WorkloadFactory.create(project=llm_team, name="train", phase=Phase.RUNNING, **ids)
    return f"/workloads/{made.pk}/"


def test_a_redirect_moves_the_browser_and_not_the_fragment(client_of: Clients, alice: User, address: str) -> None:
    answer = client_of(alice).post(f"{address}stop/", headers=HTMX)
    assert (answer.status_code, answer["HX-Redirect"]) == (204, address)


def test_messages_travel_beside_the_part_once(client_of: Clients, alice: User, address: str) -> None:
    client = client_of(alice)
    client.post(f"{address}stop/", headers=HTMX)
    part = {**HTMX, "HX-Target": "workload"}
    first = client.get(address, headers=part).content.decode()
    assert 'hx-swap-oob="true"' in first
    assert "Stopping train." in first
    assert "hx-swap-oob" not in client.get(address, headers=part).content.decode()


def test_a_whole_page_carries_its_messages_itself(client_of: Clients, alice: User, address: str) -> None:
    client = client_of(alice)
    client.post(f"{address}stop/")
    page = client.get(address).content.decode()
    assert "Stopping train." in page
    assert "hx-swap-oob" not in page


def test_a_boosted_request_gets_the_page(client_of: Clients, alice: User, address: str) -> None:
    headers = {**HTMX, "HX-Boosted": "true", "HX-Target": "workload"}
    assert "<html" in client_of(alice).get(address, headers=headers).content.decode()


def test_a_refusal_is_a_message_for_htmx_and_a_page_for_others(client_of: Clients, alice: User, address: str) -> None:
    client = client_of(alice)
    for headers, whole in ((HTMX, False), ({}, True)):
        answer = client.post(f"{address}retry/", headers=headers)
        assert answer.status_code == 409
        assert ("<html" in answer.content.decode()) is whole
        assert ("HX-Retarget" in answer) is not whole
        assert "can be retried" in answer.content.decode()


def test_the_page_of_a_refusal_leads_back_to_the_page_of_the_button(
    client_of: Clients, alice: User, address: str
) -> None:
    client, back = client_of(alice), f'href="http://testserver{address}?tab=events"'
    for referer, leads_back in (
        (f"http://testserver{address}?tab=events", True),
        (f"http://elsewhere{address}", False),
    ):
        page = client.post(f"{address}retry/", headers={"Referer": referer}).content.decode()
        assert (back in page) is leads_back
        assert "elsewhere" not in page
    assert ">Back<" not in client.post(f"{address}retry/").content.decode()


def test_the_api_keeps_its_own_shape_under_htmx(client: Client) -> None:
    answer = client.get("/api/v1/workloads", headers=HTMX)
    assert answer.status_code == 401
    assert answer["Content-Type"].startswith("application/json")
