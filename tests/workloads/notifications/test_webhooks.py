"""Webhooks: every change signed, retried until it is taken or three days old, never to an address out of bounds."""

import html
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from tests.support.repository import ROOT
from tests.support.rest_clients import Robot
from workloads.notifications.models import Delivery, DeliveryState, NotificationChannel
from workloads.notifications.services import channels, delivery
from workloads.notifications.services import webhooks as sending
from workloads.state.models import EventType, Workload
from workloads.state.services import note

pytestmark = pytest.mark.enable_socket
PATH = "v1/webhooks"
PAGE = "/notifications/webhooks/ci/"
DOCUMENT = ROOT / "docs" / "notifications.md"
ANY = {"events": [{"category": "Workload change", "types": ["Any"]}], "channels": ["ci"]}


@dataclass
class Receiver:
    """What a receiver was sent, and what it answers."""

    url: str = ""
    status: int = 204
    location: str = ""
    hangs: bool = False
    requests: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _path, _headers, body in self.requests]


def receiving(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((self.path, dict(self.headers), body))
            if receiver.hangs:
                receiver.over.wait(20)
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    return Handler


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), receiving(found))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/hooks/rung?team=llm"
    yield found
    found.over.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def secret(robot: Robot, receiver: Receiver) -> str:
    """Of the webhook `ci`."""
    made = robot.send("POST", PATH, {"name": "ci", "url": receiver.url})
    assert (made.status_code, made.json()["name"]) == (201, "ci")
    return str(made.json()["secret"])


@pytest.fixture
def workload(llm_team: Project, member: Robot, secret: str) -> Workload:
    """A member follows everything by the webhook."""
    assert member.send("POST", "v1/subscriptions", ANY).status_code == 200
    found: Workload = WorkloadFactory.create(project=llm_team, name="train", phase="Pending")
    return found


def happens(workload: Workload, phase: str = "Running", message: str = "", type_: EventType = EventType.PHASE) -> None:
    workload.phase = phase
    note(workload=workload, at=timezone.now(), type_=type_, message=message)


def turn(later: timedelta = timedelta(0)) -> None:
    delivery.collect()
    delivery.deliver(timezone.now() + later)


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """By the function that the documentation gives to receivers."""
    (text,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(text, found)  # what users copy
    return bool(found["is_from_rung"](secret, headers, body))


def test_every_change_is_sent_signed_and_once_while_mail_is_off(
    receiver: Receiver, secret: str, workload: Workload
) -> None:
    happens(workload, message="It runs now.")
    happens(workload, type_=EventType.SCHEDULING)
    turn()
    turn(timedelta(hours=2))
    assert [each["type"] for each in receiver.events] == ["workload.phase", "workload.scheduling"]
    path, headers, body = receiver.requests[0]
    data = json.loads(body)["data"]
    assert (path, data["message"], data["workloadName"]) == ("/hooks/rung?team=llm", "It runs now.", "train")
    assert headers["webhook-id"] == f"evt_{data['id']}"
    assert abs(int(headers["webhook-timestamp"]) - timezone.now().timestamp()) < 30
    assert verify(secret, headers, body)
    assert not verify(secret, headers, body + b" ")
    assert not verify(secret, {**headers, "webhook-timestamp": "1"}, body)


def test_it_sends_only_what_its_subscriber_may_see(
    receiver: Receiver, workload: Workload, member: Robot, vision_team: Project
) -> None:
    happens(WorkloadFactory.create(project=vision_team, name="theirs"))
    turn()
    happens(workload)
    delivery.collect()
    member.account.memberships.all().delete()
    delivery.deliver()
    assert receiver.requests == []
    assert [each.state for each in Delivery.objects.all()] == [DeliveryState.DROPPED]


def test_what_is_not_taken_comes_again_with_the_same_id_until_it_is(
    receiver: Receiver, robot: Robot, secret: str, workload: Workload
) -> None:
    receiver.status = 500
    happens(workload)
    turn()
    state = robot.get(f"{PATH}/ci").json()
    assert (state["health"], state["waiting"], state["lastError"]) == ("failing", 1, "The webhook answered 500.")
    receiver.status = 200
    turn()
    assert len(receiver.requests) == 1, "it pauses"
    turn(timedelta(minutes=1))
    (_path, first, body), (_path, second, again) = receiver.requests
    assert (first["webhook-id"], body) == (second["webhook-id"], again)
    assert verify(secret, second, again)
    state = robot.get(f"{PATH}/ci").json()
    assert (state["health"], state["waiting"], state["lastError"]) == ("healthy", 0, "")


def test_after_three_days_it_is_given_up_and_that_is_shown(
    receiver: Receiver, robot: Robot, workload: Workload, admin_client: Any
) -> None:
    receiver.status = 503
    happens(workload)
    for hours in (0, 1, 24, 48, 71):
        turn(timedelta(hours=hours))
    assert Delivery.objects.get().state == DeliveryState.WAITING
    turn(timedelta(hours=73))
    assert Delivery.objects.get().state == DeliveryState.FAILED
    assert len(receiver.requests) == 6
    state = robot.get(f"{PATH}/ci").json()
    assert (state["health"], state["failed"]) == ("dead", 1)
    assert state["lastError"] == "Failed after 6 attempts. The webhook answered 503."
    page = admin_client.get("/notifications/").content.decode()
    assert "webhook, dead" in page


def test_a_receiver_that_is_gone_for_good_is_not_asked_again(receiver: Receiver, workload: Workload) -> None:
    receiver.status = 410
    happens(workload)
    turn()
    assert Delivery.objects.get().state == DeliveryState.FAILED


def test_a_rotated_secret_signs_beside_the_old_one_for_a_day(
    receiver: Receiver, robot: Robot, secret: str, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated = robot.send("POST", f"{PATH}/ci/secret").json()["secret"]
    happens(workload)
    turn()
    _path, headers, body = receiver.requests[0]
    assert rotated != secret
    assert verify(rotated, headers, body)
    assert verify(secret, headers, body)
    later = timezone.now() + timedelta(days=1, minutes=1)
    monkeypatch.setattr(sending.timezone, "now", lambda: later)
    monkeypatch.setattr(time, "time", later.timestamp)
    happens(workload)
    turn()
    _path, headers, body = receiver.requests[1]
    assert verify(rotated, headers, body)
    assert not verify(secret, headers, body)


def test_no_answer_page_log_or_audit_record_holds_the_secret(
    robot: Robot, secret: str, admin_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    robot.send("PATCH", f"{PATH}/ci", {"url": "https://ci.example.org/other?token=t0ken"})
    answers = [robot.get(PATH), robot.get(f"{PATH}/ci"), robot.get("v1/notification-channels")]
    shown = " ".join(each.content.decode() for each in [*answers, admin_client.get("/notifications/")])
    sealed = NotificationChannel.objects.get(name="ci").sealed
    robot.send("DELETE", f"{PATH}/ci")
    assert AuditRecord.objects.filter(action="notifications.remove_channel").exists()
    records = str(list(AuditRecord.objects.values()))
    assert secret not in shown + records + caplog.text
    assert "t0ken" not in records
    assert secret.removeprefix("whsec_") not in sealed
    again = robot.send("POST", PATH, {"name": "two", "url": "https://a.example.org"}, **{"Idempotency-Key": "k"})
    replay = robot.send("POST", PATH, {"name": "two", "url": "https://a.example.org"}, **{"Idempotency-Key": "k"})
    assert ("secret" in again.json(), "secret" in replay.json()) == (True, False)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_private_address_is_reached_only_where_the_operator_allows_it(
    receiver: Receiver, workload: Workload, settings: Any, allowed: bool
) -> None:
    if not allowed:
        settings.RUNG_CLUSTER_ADDRESSES = []
        NotificationChannel.objects.filter(name="ci").update(config={"url": receiver.url.replace("http:", "https:")})
    happens(workload)
    turn()
    assert len(receiver.requests) == allowed
    if not allowed:
        assert "not allowed by RUNG_CLUSTER_ADDRESSES" in Delivery.objects.get().trouble


def test_a_redirect_is_not_followed(receiver: Receiver, workload: Workload) -> None:
    receiver.status, receiver.location = 307, receiver.url.replace("/hooks/rung", "/inside")
    happens(workload)
    turn()
    assert [path for path, _headers, _body in receiver.requests] == ["/hooks/rung?team=llm"]
    assert Delivery.objects.get().trouble == "The webhook answered 307."


def test_a_receiver_that_never_answers_is_cut_off(
    receiver: Receiver, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TIMEOUT", 0.3)
    receiver.hangs = True
    for _ in range(3):
        happens(workload)
    started = timezone.now()
    turn()
    assert timezone.now() - started < timedelta(seconds=5)
    assert len(receiver.requests) == 1
    assert {each.state for each in Delivery.objects.all()} == {DeliveryState.WAITING}


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example.org",
        "https://user@a.example.org",
        "https://0x7f.1/",
        "https://a.example.org/#x",
        "https://a.example.org/?a=\r\nHost: b",
        "//a.example.org",
        "https://a.example.org:0/",
    ],
)
def test_what_is_no_url_is_refused_at_its_field(robot: Robot, url: str) -> None:
    answer = robot.send("POST", PATH, {"name": "bad", "url": url})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/url")
    assert not NotificationChannel.objects.exists()


def test_plain_http_needs_an_allowed_network(robot: Robot, settings: Any) -> None:
    settings.RUNG_CLUSTER_ADDRESSES = []
    answer = robot.send("POST", PATH, {"name": "ci", "url": "http://a.example.org"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "https_required")


def test_a_trial_says_whether_it_works(receiver: Receiver, robot: Robot, secret: str) -> None:
    assert robot.send("POST", f"{PATH}/ci/trial-messages?dryRun=true").json() == {"taken": True, "answer": ""}
    assert receiver.requests == []
    assert robot.send("POST", f"{PATH}/ci/trial-messages").json() == {"taken": True, "answer": ""}
    assert verify(secret, *receiver.requests[0][1:])
    receiver.status = 404
    answer = robot.send("POST", f"{PATH}/ci/trial-messages").json()
    assert answer == {"taken": False, "answer": "The webhook answered 404."}


def test_only_platform_admins_manage_webhooks_and_mail_routes_know_none(
    robot: Robot, secret: str, llm_team: Project
) -> None:
    owner = Robot("owner", role=Role.OWNER, project=llm_team)
    assert owner.get(PATH).status_code == 403
    assert owner.send("POST", f"{PATH}/ci/secret").status_code == 403
    assert robot.get("v1/notification-channels").json() == []
    assert robot.get("v1/notification-channels/ci").status_code == 404
    assert robot.send("DELETE", f"{PATH}/ci").status_code == 204
    assert robot.get(f"{PATH}/ci").status_code == 404


def test_every_change_is_not_for_mail(robot: Robot, secret: str) -> None:
    config = {"smtpHost": "127.0.0.1", "authType": "auth_none", "smtpTlsEnabled": False, "from": "a@example.org"}
    channels.add_channel(name="mail", type_="email", config={**config, "recipients": ["b@example.org"]}, actor=SYSTEM)
    answer = robot.send("POST", "v1/subscriptions", {**ANY, "channels": ["ci", "mail"]})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/channels/1")


@pytest.fixture
def browser(client_of: Callable[[User], Client], admin: User) -> Client:
    """A platform admin's."""
    return client_of(admin)


def page(client: Client, path: str = PAGE) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_an_admin_adds_a_webhook_on_a_page_and_sees_its_secret_once(browser: Client, receiver: Receiver) -> None:
    assert 'href="/notifications/add-webhook/"' in page(browser, "/notifications/")
    made = browser.post("/notifications/add-webhook/", {"name": "ci", "url": receiver.url})
    (secret,) = re.findall(r"whsec_[A-Za-z0-9+/=]+", html.unescape(made.content.decode()))
    assert "no-store" in made.headers["Cache-Control"]
    assert AuditRecord.objects.filter(action="notifications.add_webhook", entity_name="ci").exists()
    shown = page(browser)
    assert "whsec_" not in shown
    assert "No messages yet." in shown
    assert "accepted a test event" in browser.post(f"{PAGE}test/", follow=True).content.decode()
    assert verify(secret, *receiver.requests[0][1:])
    receiver.status = 500
    assert "The webhook answered 500." in browser.post(f"{PAGE}test/", follow=True).content.decode()


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"name": "CI", "url": "https://a.example.org"}, "name"),
        ({"name": "ci", "url": "https://a.example.org"}, "__all__"),
        ({"name": "new", "url": "ftp://a.example.org"}, "url"),
        ({"name": "new", "url": ""}, "url"),
    ],
)
def test_what_is_no_webhook_is_refused_at_its_field_of_the_form(
    browser: Client, secret: str, typed: dict[str, str], field: str
) -> None:
    answer = browser.post("/notifications/add-webhook/", typed)
    assert (answer.status_code, list(answer.context["form"].errors)) == (422, [field])
    assert NotificationChannel.objects.count() == 1


def test_the_page_of_a_webhook_changes_it_rotates_its_secret_and_deletes_it(
    browser: Client, secret: str, receiver: Receiver
) -> None:
    saved = browser.post(PAGE, {"url": f"{receiver.url}&more=1"}, follow=True)
    assert "Waiting messages are sent to the new URL." in saved.content.decode()
    assert NotificationChannel.objects.get().config["url"].endswith("more=1")
    refused = browser.post(PAGE, {"url": "no-url"})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["url"])
    rotated = html.unescape(browser.post(f"{PAGE}secret/").content.decode())
    assert "whsec_" in rotated
    assert secret not in rotated
    assert "previous secret" in rotated
    assert "Deleted webhook ci." in browser.post(f"{PAGE}delete/", follow=True).content.decode()
    assert browser.get(PAGE).status_code == 404
    told = set(AuditRecord.objects.values_list("action", flat=True))
    assert {"notifications.change_webhook", "notifications.rotate_webhook_secret"} <= told


def test_the_page_of_a_webhook_lists_its_last_messages_and_their_errors(
    browser: Client, receiver: Receiver, workload: Workload
) -> None:
    happens(workload, message="It runs now.")
    receiver.status = 503
    turn()
    shown = page(browser)
    assert "The webhook answered 503." in shown
    assert "Not delivered yet" in shown
    assert "train" in shown
    assert "failing" in shown


@pytest.mark.parametrize("path", ["", "test/", "secret/", "delete/"])
def test_the_pages_of_webhooks_are_for_platform_admins(
    client_of: Callable[[User], Client], bob: User, secret: str, path: str
) -> None:
    assert client_of(bob).post(f"{PAGE}{path}", {}).status_code == 403
    assert client_of(bob).get("/notifications/add-webhook/").status_code == 403


def test_every_form_of_a_webhook_is_shown_as_a_request(browser: Client, secret: str) -> None:
    for path, request in (("test/", "trial-messages"), ("secret/", "/secret"), ("delete/", "DELETE")):
        answer = browser.post(f"{PAGE}{path}", headers={"HX-Target": "act-copies"})
        assert (answer.status_code, request in answer.content.decode()) == (200, True)
    assert NotificationChannel.objects.count() == 1
