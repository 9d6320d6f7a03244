"""Notifications in the browser: what I am told of, what became of it, and the channels that admins keep."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Membership, User
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.workloads import WorkloadFactory
from tests.support.mail import MailServer, mail_server
from tests.workloads.notifications.mail_config import config, signing_in
from workloads.notifications.models import Delivery, NotificationChannel, Subscription
from workloads.notifications.rules import EVICTION, NOTIFICATION_TYPES, STATUS
from workloads.notifications.services import channels, delivery, webhooks
from workloads.state.models import EventType, Workload
from workloads.state.services import note

pytestmark = pytest.mark.enable_socket
Clients = Callable[[User], Client]
MINE, ADD, CHANNEL = "/notifications/", "/notifications/add-channel/", "/notifications/channels/email/"
STATE, EVICTED = "workload-status-change", "workload-preemption"
WANTED = {STATE: ["Running", "Failed"], EVICTED: ["Preempted"], "channels": ["email"]}
TYPED = {
    "name": "email",
    "smtp_host": "mail.example.org",
    "smtp_port": "587",
    "smtp_tls_enabled": "on",
    "auth_type": "auth_login",
    "username": "rung",
    "password": "hunter-2!",
    "sender": "rung@example.org",
    "from_display_name": "Rung",
    "subject": "{{ .workload }}",
    "direct_notifications": "on",
    "recipients": "",
}


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture
def channel(db: None, server: MailServer) -> NotificationChannel:
    """Mail is on, by the server."""
    channels.set_state(actor=SYSTEM, enabled=True)
    return channels.add_channel(name="", type_="email", config=config(server.port), actor=SYSTEM)


@pytest.fixture
def in_bobs_name(client_of: Clients, bob: User) -> Client:
    """bob's browser; he has an address."""
    User.objects.filter(pk=bob.pk).update(email="bob@example.org")
    return client_of(bob)


@pytest.fixture
def training(llm_team: Project) -> Workload:
    found: Workload = WorkloadFactory(project=llm_team, name="bert", phase="Running")
    return found


def happens(workload: Workload) -> None:
    note(workload=workload, at=timezone.now(), type_=EventType.PHASE, reason="", message="It runs now.")


def words(client: Client, path: str = MINE) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_what_is_ticked_is_told_saved_and_ticked_again(
    in_bobs_name: Client, bob: User, channel: NotificationChannel
) -> None:
    page = words(in_bobs_name)
    assert all(each.description in page for each in NOTIFICATION_TYPES)
    assert "Your address is bob@example.org" in page
    answer = in_bobs_name.post(MINE, WANTED, follow=True)
    assert "Subscribed to Preempted, Running, Failed via email." in answer.content.decode()
    (wish,) = channels.subscriptions_of(acting(bob))
    assert wish.events == [
        {"category": EVICTION, "types": ["Preempted"]},
        {"category": STATUS, "types": ["Running", "Failed"]},
    ]
    assert words(in_bobs_name).count("checked") == 4


def test_nothing_ticked_ends_it(in_bobs_name: Client, channel: NotificationChannel) -> None:
    in_bobs_name.post(MINE, WANTED)
    answer = in_bobs_name.post(MINE, {"channels": ["email"]}, follow=True)
    assert "Unsubscribed." in answer.content.decode()
    assert not Subscription.objects.exists()


@pytest.mark.parametrize(
    ("typed", "at"),
    [
        ({}, "__all__"),
        ({**WANTED, "channels": []}, "channels"),
        ({**WANTED, "channels": ["email", "other"]}, "channels"),
        ({**WANTED, EVICTED: ["Preempted", "<script>"]}, EVICTED),
        ({**WANTED, STATE: ["TimeLimitNear"]}, STATE),
    ],
)
def test_what_cannot_be_told_is_refused_at_its_field(
    in_bobs_name: Client, channel: NotificationChannel, typed: dict[str, Any], at: str
) -> None:
    answer = in_bobs_name.post(MINE, typed)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [at]
    assert "<script>" not in answer.content.decode().replace("<script src", "")
    assert not Subscription.objects.exists()


def test_several_subscriptions_are_listed_and_changed_one_by_one(
    in_bobs_name: Client, bob: User, channel: NotificationChannel
) -> None:
    in_bobs_name.post(MINE, WANTED)
    in_bobs_name.post(f"{MINE}?subscription=new", {STATE: ["Completed"], "channels": ["email"]})
    first, second = channels.subscriptions_of(acting(bob))
    page = words(in_bobs_name)
    assert "Your subscriptions" in page
    assert f"?subscription={second.pk}" in page
    in_bobs_name.post(f"{MINE}?subscription={second.pk}", {STATE: ["Degraded"], "channels": ["email"]})
    second.refresh_from_db()
    first.refresh_from_db()
    assert second.events == [{"category": STATUS, "types": ["Degraded"]}]
    assert len(first.events) == 2


@pytest.mark.parametrize("key", ["theirs", "no-uuid", "0" * 40])
def test_somebody_elses_subscription_is_absent(
    in_bobs_name: Client, charlie: User, channel: NotificationChannel, key: str
) -> None:
    events = [{"category": STATUS, "types": ["Running"]}]
    theirs = channels.subscribe(events=events, names=["email"], actor=acting(charlie))
    address = f"{MINE}?subscription={theirs.pk if key == 'theirs' else key}"
    assert in_bobs_name.get(address).status_code == 404
    assert in_bobs_name.post(address, {}).status_code == 404
    assert Subscription.objects.get() == theirs


def test_without_a_channel_it_says_who_makes_one(client_of: Clients, bob: User, admin: User) -> None:
    page = words(client_of(bob))
    assert "Ask a platform admin to add a mail server" in page
    assert "E-mail is disabled" in page
    assert ADD not in page
    theirs = words(client_of(admin))
    assert ADD in theirs
    assert "Ask a platform admin" not in theirs


def test_e_mail_is_offered_only_where_there_is_a_mail_server(
    client_of: Clients, bob: User, admin: User, server: MailServer
) -> None:
    webhooks.add_webhook(name="ci", url="https://ci.example.org/hooks", actor=SYSTEM)
    page, theirs = words(client_of(bob)), words(client_of(admin))
    assert "-mail me" not in page
    assert "No mail server is configured: events go to webhooks only." in page
    assert 'disabled aria-describedby="no-mail-server">Enable e-mail' in theirs
    assert "E-mail needs a mail server: add a channel first." in theirs
    channels.add_channel(name="", type_="email", config=config(server.port), actor=SYSTEM)
    page, theirs = words(client_of(bob)), words(client_of(admin))
    assert "E-mail me about workloads when" in page
    assert "email (e-mail is disabled)" in page
    assert "no-mail-server" not in theirs
    channels.set_state(actor=SYSTEM, enabled=True)
    assert "e-mail is disabled" not in words(client_of(bob))


def test_messages_are_listed_with_what_became_of_them(
    in_bobs_name: Client, server: MailServer, channel: NotificationChannel, training: Workload
) -> None:
    in_bobs_name.post(MINE, WANTED)
    happens(training)
    delivery.collect()
    assert "Waiting" in words(in_bobs_name)
    server.refused["bob@example.org"] = 550
    delivery.deliver()
    page = words(in_bobs_name)
    assert f"/workloads/{training.pk}/" in page
    assert "Failed" in page
    assert "The mail server rejected the address (550)." in page
    happens(training)
    server.refused.clear()
    delivery.collect()
    delivery.deliver()
    assert "Sent" in words(in_bobs_name)


def test_the_list_names_neither_what_may_not_be_seen_nor_whom_else_a_channel_writes_to(
    in_bobs_name: Client, client_of: Clients, alice: User, bob: User, channel: NotificationChannel, training: Workload
) -> None:
    more = {"recipients": ["secret-team@example.org"]}
    channels.change_channel(row=channel, type_="email", config=more, actor=SYSTEM, merge=True)
    in_bobs_name.post(MINE, WANTED)
    happens(training)
    delivery.collect()
    Membership.objects.filter(user=bob).delete()
    delivery.deliver()
    page = words(in_bobs_name)
    assert page.count("no longer visible to you") == 2
    assert "The subscriber can no longer see the workload." in page
    assert "the channel's address" in page
    assert "bert" not in page
    assert "secret-team" not in page
    assert "bob@example.org" not in words(client_of(alice))


def test_a_long_list_is_paged_with_as_many_queries(
    in_bobs_name: Client, channel: NotificationChannel, training: Workload
) -> None:
    in_bobs_name.post(MINE, WANTED)

    def requested() -> int:
        in_bobs_name.get(MINE)
        with CaptureQueriesContext(connection) as queries:
            in_bobs_name.get(MINE)
        return len(queries)

    happens(training)
    delivery.collect()
    few = requested()
    for _ in range(29):
        happens(training)
    delivery.collect()
    assert requested() == few
    first = in_bobs_name.get(MINE).context["page"]
    last = in_bobs_name.get(MINE, {"after": first.next}).context["page"]
    assert (len(first.rows), len(last.rows), last.next) == (25, 5, "")
    assert in_bobs_name.get(MINE, {"after": "forged"}).status_code == 400


def test_an_admin_adds_a_channel_whose_password_is_never_shown(client_of: Clients, admin: User) -> None:
    client = client_of(admin)
    answer = client.post(ADD, {**TYPED, "recipients": "ops@example.org\r\n\r\n team@example.org "}, follow=True)
    row = NotificationChannel.objects.get()
    assert row.config["recipients"] == ["ops@example.org", "team@example.org"]
    assert row.config["smtpHost"] == "mail.example.org"
    assert channels.password_of(row) == "hunter-2!"
    page = answer.content.decode() + words(client, CHANNEL)
    assert "hunter" not in page
    assert row.sealed not in page
    refused = client.post(ADD, {**TYPED, "sender": "nobody", "name": "other"})
    assert refused.status_code == 422
    assert "hunter" not in refused.content.decode()


def test_a_kept_password_stays_for_the_same_server_only(client_of: Clients, admin: User) -> None:
    client = client_of(admin)
    client.post(ADD, TYPED)
    kept = {**TYPED, "password": ""}
    assert client.post(CHANNEL, {**kept, "subject": "other"})["Location"] == CHANNEL
    row = NotificationChannel.objects.get()
    assert row.config["subject"] == "other"
    assert channels.password_of(row) == "hunter-2!"
    for change in ({"smtp_host": "evil.example"}, {"smtp_port": "465"}, {"username": "other"}):
        answer = client.post(CHANNEL, {**kept, **change})
        assert answer.status_code == 422
        assert "password" in answer.context["form"].errors
    row.refresh_from_db()
    assert row.config["smtpHost"] == "mail.example.org"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Not A Name"),
        ("name", "../admin"),
        ("smtp_host", "mail.example.org/path"),
        ("smtp_host", "0x7f.1"),
        ("smtp_port", "0"),
        ("smtp_port", "65536"),
        ("smtp_port", "587; DROP"),
        ("smtp_tls_enabled", ""),
        ("auth_type", "auth_ntlm"),
        ("username", ""),
        ("username", "a\r\nb"),
        ("password", ""),
        ("sender", "a@example.org\r\nBcc: x@evil.example"),
        ("from_display_name", "Rung\r\nBcc: x@evil.example"),
        ("subject", "Rung\nBcc: x@evil.example"),
        ("subject", "{{ .secret }}"),
        ("recipients", "a@example.org, b@example.org"),
        ("recipients", "\n".join(f"a{number}@example.org" for number in range(21))),
    ],
)
def test_t59_a_channel_that_could_inject_or_reach_too_far_is_refused_at_its_field(
    client_of: Clients, admin: User, field: str, value: str
) -> None:
    answer = client_of(admin).post(ADD, {**TYPED, field: value})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert not NotificationChannel.objects.exists()


def test_a_name_that_is_taken_is_told_and_nothing_is_overwritten(client_of: Clients, admin: User) -> None:
    client = client_of(admin)
    client.post(ADD, TYPED)
    answer = client.post(ADD, {**TYPED, "smtp_host": "other.example.org"})
    assert "Channel email already exists" in answer.content.decode()
    assert NotificationChannel.objects.get().config["smtpHost"] == "mail.example.org"


def test_a_test_message_arrives_or_the_page_says_what_the_server_answered(
    client_of: Clients, admin: User, server: MailServer, channel: NotificationChannel
) -> None:
    client = client_of(admin)
    answer = client.post(f"{CHANNEL}test/", {"to": "ops@example.org"}, follow=True)
    assert "The mail server accepted a test message for ops@example.org." in answer.content.decode()
    (mail,) = server.arrived
    assert (mail["To"], mail["Subject"]) == ("ops@example.org", "Rung: test of channel email")
    server.refused["gone@example.org"] = 550
    answer = client.post(f"{CHANNEL}test/", {"to": "gone@example.org"}, follow=True)
    assert "The mail server rejected the address (550)." in answer.content.decode()
    server.greeting = 421
    answer = client.post(f"{CHANNEL}test/", {"to": "ops@example.org"}, follow=True)
    assert "Mail server error 421." in answer.content.decode()
    tried = AuditRecord.objects.filter(action="notifications.try_channel").order_by("pk")
    assert sorted(each.result for each in tried) == ["Failed", "Failed", "Succeeded"]


@pytest.mark.parametrize("to", ["", "nobody", "a@example.org\r\nBcc: x@evil.example", "a@example.org, b@example.org"])
def test_t59_a_test_message_goes_to_one_plain_address_only(
    client_of: Clients, admin: User, server: MailServer, channel: NotificationChannel, to: str
) -> None:
    answer = client_of(admin).post(f"{CHANNEL}test/", {"to": to})
    assert answer.status_code == 422
    assert list(answer.context["trial"].errors) == ["to"]
    assert server.connections == 0


def test_mail_is_switched_on_and_off(client_of: Clients, admin: User) -> None:
    client = client_of(admin)
    assert "e-mail disabled" in words(client)
    client.post("/notifications/switch/", {"on": "yes"})
    assert channels.state().email
    client.post("/notifications/switch/", {"on": "perhaps"})
    assert channels.state().email
    answer = client.post("/notifications/switch/", {"on": "no"}, follow=True)
    assert "E-mail disabled. No messages are sent" in answer.content.decode()
    assert not channels.state().email


def test_a_channel_is_deleted_with_what_waits_for_it(
    in_bobs_name: Client, client_of: Clients, admin: User, channel: NotificationChannel, training: Workload
) -> None:
    in_bobs_name.post(MINE, WANTED)
    happens(training)
    delivery.collect()
    client = client_of(admin)
    page = words(client, CHANNEL)
    assert "1 subscription loses this channel" in page
    assert "1 waiting message is dropped" in page
    assert client.post(f"{CHANNEL}delete/")["Location"] == MINE
    assert not NotificationChannel.objects.exists()
    assert not Delivery.objects.exists()
    assert client.get(CHANNEL).status_code == 404


def test_only_platform_admins_see_and_change_channels(
    in_bobs_name: Client, alice: User, client_of: Clients, server: MailServer, channel: NotificationChannel
) -> None:
    row = channels.add_channel(name="sealed", type_="email", config=signing_in(password="p"), actor=SYSTEM)
    for client in (in_bobs_name, client_of(alice)):
        assert "127.0.0.1" not in words(client)
        for address in (ADD, CHANNEL, "/notifications/channels/absent/"):
            assert client.get(address).status_code == 403
            assert client.post(address, TYPED).status_code == 403
        for verb in (f"{CHANNEL}test/", f"{CHANNEL}delete/", "/notifications/switch/"):
            assert client.post(verb, {"to": "a@example.org", "on": "no"}).status_code == 403
    assert NotificationChannel.objects.count() == 2
    assert channels.state().email
    assert server.connections == 0
    assert channels.password_of(row) == "p"
