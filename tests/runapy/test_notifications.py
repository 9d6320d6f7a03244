"""Notifications through Run:ai's own client: types, the switches, a channel of mail, subscriptions, and a mail."""

from typing import Any

import pytest
from django.utils import timezone
from runai import models
from runai.exceptions import (
    ConflictException,
    ForbiddenException,
    NotFoundException,
    UnprocessableEntityException,
)
from runai.runai_client import RunaiClient

from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from tests.runapy.conftest import client_of
from tests.support.mail import mail_server
from workloads.notifications.services import delivery
from workloads.state.models import EventType
from workloads.state.services import note

SECRET = "hunter-2!"  # nobody's


def channel(port: int = 587, **more: Any) -> models.NotificationChannel:
    config = {
        "smtp_host": "127.0.0.1",
        "smtp_port": port,
        "var_from": "rung@example.org",
        "auth_type": "auth_none",
        "smtp_tls_enabled": False,
        "recipients": ["ops@example.org"],
        **more,
    }
    return models.NotificationChannel(type="email", config=models.NotificationChannelConfig(**config))


def signed_in() -> models.NotificationChannel:
    return channel(auth_type="auth_login", smtp_tls_enabled=True, username="u", password=SECRET)


def test_a_script_turns_them_on_adds_a_channel_subscribes_and_is_mailed(
    runai: RunaiClient, live_server: object, llm_team: Project
) -> None:
    told = runai.notifications
    assert told.notification_state.get_notification_state().data["enabled"] is False
    state = models.NotificationState(enabled=True, email=models.EmailNotificationsState(enabled=True))
    told.notification_state.update_notification_state(notification_state=state)
    assert models.NotificationState.from_dict(told.notification_state.get_notification_state().data).email.enabled
    kinds = told.notification_types.get_notification_types().data
    assert {models.NotificationType.from_dict(each).category for each in kinds} >= {"Workload status change"}
    member = client_of(live_server, "watching", Role.MEMBER, project=llm_team)
    with mail_server() as server:
        assert told.notification_channels.validate_notification_channel(channel(server.port)).data is True
        assert (server.connections, server.arrived) == (1, [])
        told.notification_channels.create_notification_channel_config(channel(server.port))
        assert member.notifications.notification_channels.get_notification_channels().data == [
            {"name": "email", "type": "email"}
        ]
        wish = models.Subscription(
            events=[models.SubscriptionEvent(category="Workload status change", types=["Running"])], channels=["email"]
        )
        made = member.notifications.subscriptions.create_subscription(subscription=wish).data
        assert [made] == member.notifications.subscriptions.get_my_subscriptions().data
        workload = WorkloadFactory(project=llm_team, name="bert", phase="Running")
        note(workload=workload, at=timezone.now(), type_=EventType.PHASE)
        delivery.collect()
        assert delivery.deliver() == 1
        assert [mail["To"] for mail in server.arrived] == ["ops@example.org"]
        assert server.arrived[0]["Subject"] == "Run:ai notification - Workload status change Running"
    assert told.notification_channels.validate_notification_channel(channel(server.port)).data is False


def test_a_channel_is_read_without_its_password_changed_and_removed(runai: RunaiClient) -> None:
    channels = runai.notifications.notification_channels
    assert channels.create_notification_channel_config(signed_in()).status_code == 200
    with pytest.raises(ConflictException):
        channels.create_notification_channel_config(channel())
    read = channels.get_notification_channel_config("email").data
    typed = models.NotificationChannelResponse.from_dict(read)
    assert (typed.name, typed.config.smtp_host, typed.config.password) == ("email", "127.0.0.1", None)
    change = models.NotificationChannelForPatch(config=models.NotificationChannelConfig(username="u", subject="Look"))
    assert channels.patch_notification_channel_config("email", change).status_code == 200
    after = channels.get_notification_channel_config("email").data
    assert (after["config"]["subject"], after["config"]["username"]) == ("Look", "u")
    assert SECRET not in str([read, after])
    elsewhere = models.NotificationChannelConfig(smtp_host="mail.example.org")
    with pytest.raises(UnprocessableEntityException, match="Enter the password"):
        channels.patch_notification_channel_config("email", models.NotificationChannelForPatch(config=elsewhere))
    assert channels.update_notification_channel_config("email", channel()).status_code == 200
    assert channels.delete_notification_channel_config("email").status_code == 204
    with pytest.raises(NotFoundException):
        channels.get_notification_channel_config("email")


def test_slack_is_refused_and_says_what_there_is(runai: RunaiClient) -> None:
    wanted = models.NotificationChannel(type="slack", config=models.NotificationChannelConfig(api_token="xoxb"))
    with pytest.raises(UnprocessableEntityException, match="the type email is supported"):
        runai.notifications.notification_channels.create_notification_channel_config(wanted)
    state = models.NotificationState(enabled=True, slack=models.SlackNotificationsState(enabled=True))
    with pytest.raises(UnprocessableEntityException, match="Only the type email is supported"):
        runai.notifications.notification_state.update_notification_state(notification_state=state)


def test_a_member_has_subscriptions_of_their_own_and_no_channels(
    runai: RunaiClient, live_server: object, llm_team: Project
) -> None:
    runai.notifications.notification_channels.create_notification_channel_config(channel())
    member = client_of(live_server, "watching", Role.MEMBER, project=llm_team).notifications
    with pytest.raises(ForbiddenException):
        member.notification_channels.get_notification_channel_config("email")
    with pytest.raises(ForbiddenException):
        member.notification_channels.validate_notification_channel(channel())
    events = [models.SubscriptionEvent(category="Workload preemption", types=["Preempted"])]
    wish = models.Subscription(events=events, channels=["email"])
    key = member.subscriptions.create_subscription(subscription=wish).data["id"]
    with pytest.raises(NotFoundException):
        runai.notifications.subscriptions.delete_subscription(key)
    assert runai.notifications.subscriptions.get_my_subscriptions().data == []
    unknown = models.Subscription(events=[], channels=["pager"])
    with pytest.raises(UnprocessableEntityException):
        member.subscriptions.update_subscription(key, subscription_for_put=unknown)
    changed = models.SubscriptionForPut(events=[], channels=["email"])
    assert member.subscriptions.update_subscription(key, subscription_for_put=changed).data["events"] == []
    assert member.subscriptions.delete_subscription(key).status_code == 204
    assert member.subscriptions.get_my_subscriptions().data == []
