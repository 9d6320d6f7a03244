"""A channel is tried over REST as it is on its page: by the server that it names, now."""

import pytest

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tests.support.mail import mail_server
from tests.support.rest_clients import Robot
from tests.workloads.notifications.mail_config import config
from workloads.notifications.services import channels

pytestmark = [pytest.mark.django_db, pytest.mark.enable_socket]
PATH = "v1/notification-channels/mail/trial-messages"


def test_a_message_is_sent_and_the_servers_answer_told(robot: Robot) -> None:
    with mail_server() as server:
        channels.add_channel(name="mail", type_="email", config=config(server.port), actor=SYSTEM)
        taken = robot.send("POST", PATH, {"to": "a@example.org"})
        assert (taken.status_code, taken.json()) == (200, {"taken": True, "answer": ""})
        assert server.arrived[0]["Subject"] == "Rung: test of channel mail"
        server.refused["b@example.org"] = 550
        refused = robot.send("POST", PATH, {"to": "b@example.org"}).json()
    assert not refused["taken"]
    assert "550" in refused["answer"]
    assert AuditRecord.objects.filter(action="notifications.try_channel").count() == 2


def test_a_dry_run_asks_the_server_and_sends_nothing(robot: Robot) -> None:
    with mail_server() as server:
        channels.add_channel(name="mail", type_="email", config=config(server.port), actor=SYSTEM)
        answer = robot.send("POST", f"{PATH}?dryRun=true", {"to": "a@example.org"})
        assert (answer.status_code, answer.json()["taken"]) == (200, True)
        assert (server.connections, server.arrived) == (1, [])


def test_what_is_no_address_is_refused_at_its_field(robot: Robot) -> None:
    channels.add_channel(name="mail", type_="email", config=config(1), actor=SYSTEM)
    answer = robot.send("POST", PATH, {"to": "a@example.org\r\nBcc: b@example.org"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/to")


def test_an_absent_channel_is_404_and_it_is_no_affair_of_members(robot: Robot, member: Robot) -> None:
    assert robot.send("POST", PATH, {"to": "a@example.org"}).status_code == 404
    assert member.send("POST", PATH, {"to": "a@example.org"}).status_code == 403
