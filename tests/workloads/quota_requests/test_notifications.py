"""Who hears of a request, its decision and its end: subscribers that it is for, as long as they may read it."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone

from portal.kit.security.actors import Actor
from tenants.access.models import Membership, User
from tests.workloads.quota_requests.conftest import Asks
from workloads.notifications.models import Delivery, Notice, NotificationChannel, Subscription
from workloads.notifications.services.channels import subscribe
from workloads.notifications.services.delivery import _still_wanted_by
from workloads.quota_requests.services import approve_request, decline_request, end_due, withdraw_request

EVENTS = [{"category": "Quota requests", "types": ["QuotaRequested", "QuotaDecided", "QuotaEnded"]}]


@pytest.fixture(autouse=True)
def hook(db: None) -> NotificationChannel:
    """A webhook: messages are rows; delivery has its own tests."""
    return NotificationChannel.objects.create(name="hook", type="webhook", config={"url": "https://192.0.2.1/"})


@pytest.fixture
def subscribed(as_bob: Actor, as_dora: Actor, as_charlie: Actor, as_alice: Actor) -> None:
    for actor in (as_bob, as_dora, as_charlie, as_alice):
        subscribe(events=EVENTS, names=["hook"], actor=actor)


def told() -> list[tuple[str, str]]:
    """Types and the subscription that each message is for, oldest first."""
    rows = Delivery.objects.order_by("pk").values_list("notice__type", "subscription__subject_name")
    return [(str(type_), str(name)) for type_, name in rows]


def test_those_who_may_decide_hear_of_a_request_and_its_author_of_the_decision(
    subscribed: None, asks: Asks, as_dora: Actor
) -> None:
    row = asks()
    assert told() == [("QuotaRequested", "dora")]
    decline_request(key=row.pk, reason="Not now", actor=as_dora)
    assert told()[1:] == [("QuotaDecided", "bob")]
    notice = Notice.objects.get(type="QuotaDecided")
    assert (notice.title, notice.text) == ("dora declined your quota request for llm-team in h100.", "Not now")
    assert notice.path == f"/quota-requests/{row.pk}/"


def test_both_sides_hear_of_its_end(subscribed: None, asks: Asks, as_dora: Actor) -> None:
    row = asks(until=timezone.now().date())
    row = approve_request(key=row.pk, base=row.base, actor=as_dora)
    assert row.ends_at is not None
    end_due(row.ends_at)
    assert sorted(told()[2:]) == [("QuotaEnded", "bob"), ("QuotaEnded", "dora")]
    assert Notice.objects.last().title == "2 GPUs of llm-team in h100 were taken back."  # type: ignore[union-attr]


def test_a_refused_request_tells_nothing(subscribed: None, asks: Asks, as_bob: Actor) -> None:
    row = asks()
    withdraw_request(key=row.pk, actor=as_bob)
    assert told() == [("QuotaRequested", "dora")]


def test_a_message_is_dropped_once_its_reader_may_not_decide_any_more(
    subscribed: None, asks: Asks, dora: User, hook: NotificationChannel
) -> None:
    asks()
    row = Delivery.objects.get()
    assert [wish.subject_name for wish in _still_wanted_by(row, hook)] == ["dora"]
    Membership.objects.filter(user=dora).delete()
    assert list(_still_wanted_by(Delivery.objects.get(), hook)) == []


def test_without_mail_no_mail_is_queued(asks: Asks, as_dora: Actor) -> None:
    channel = NotificationChannel.objects.create(
        name="mail", config={"from": "a@example.org", "recipients": ["b@example.org"], "directNotifications": False}
    )
    wish = Subscription(events=EVENTS)
    wish.ask(as_dora)
    wish.save()
    wish.channels.set([channel])
    asks()
    assert told() == []


def test_the_page_of_notifications_lists_it_with_a_link(
    subscribed: None, asks: Asks, client_of: Callable[[User], Client], dora: User
) -> None:
    row = asks()
    page = client_of(dora).get("/notifications/").content.decode()
    assert f'<a href="/quota-requests/{row.pk}/">bob requests 2 GPUs more for llm-team in h100.</a>' in page
    assert "Quota is requested or decided" in page
