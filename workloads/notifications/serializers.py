"""Notifications as REST sends and accepts them. Keys are Run:ai's."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rest_framework import serializers

from portal.kit.api.parsers import rfc3339
from portal.kit.api.serializers import TypedJson
from portal.kit.pages.api_snippets import ApiRequest
from workloads.notifications.models import NotificationChannel, Subscription
from workloads.notifications.selectors import ChannelDeliveries

CHANNEL_TYPES = ["email", "slack"]
AUTH_TYPES = ["auth_login", "auth_plain", "auth_none", ""]


class NotificationTypeSchema(serializers.Serializer[Any]):
    """A type of notification."""

    category = serializers.CharField()
    type = serializers.CharField()
    description = serializers.CharField()


class EmailState(serializers.Serializer[Any]):
    """The switch of mail."""

    enabled = serializers.BooleanField(required=False, allow_null=True)


class SlackState(serializers.Serializer[Any]):
    """Known, and always off."""

    enabled = serializers.BooleanField(required=False, allow_null=True, help_text="true is rejected.")
    workspaceName = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=100)


class StateBody(serializers.Serializer[Any]):
    """The switches."""

    enabled = serializers.BooleanField(required=False, allow_null=True, help_text="Whether any of them is on.")
    email = EmailState(required=False, allow_null=True)
    slack = SlackState(required=False, allow_null=True)


class ChannelMeta(serializers.Serializer[Any]):
    """A channel in a list."""

    name = serializers.CharField()
    type = serializers.CharField()


class ConfigBody(serializers.Serializer[Any]):
    """How mail leaves. A password is taken, never given back."""

    username = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=254)
    password = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=1000, trim_whitespace=False, write_only=True
    )
    smtpHost = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=253)
    smtpPort = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=65535)
    authType = serializers.ChoiceField(choices=AUTH_TYPES, required=False, allow_null=True, allow_blank=True)
    smtpTlsEnabled = serializers.BooleanField(required=False, allow_null=True, help_text="Default: true.")
    recipients = serializers.ListField(
        child=serializers.CharField(max_length=254), required=False, allow_null=True, max_length=20
    )
    fromDisplayName = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=100)
    directNotifications = serializers.BooleanField(
        required=False, allow_null=True, help_text="Also to the subscriber's own address; Default: true."
    )
    useAttachments = serializers.BooleanField(required=False, allow_null=True, help_text="true is rejected.")
    subject = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=200)
    apiToken = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=1000, write_only=True, help_text="Refused."
    )

    def get_fields(self) -> dict[str, Any]:
        """With `from`, a word of the language."""
        sender = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=254)
        return {**super().get_fields(), "from": sender}


class ChannelBody(serializers.Serializer[Any]):
    """A channel as it is sent; without a name it is called after its type."""

    name = serializers.CharField(required=False, max_length=63)
    type = serializers.ChoiceField(choices=CHANNEL_TYPES, help_text="email; slack is rejected.")
    config = ConfigBody()


class TrialMessage(serializers.Serializer[Any]):
    """Where a test message goes."""

    to = serializers.CharField(max_length=254, help_text="One e-mail address.")


class TrialSchema(serializers.Serializer[Any]):
    """How it went."""

    taken = serializers.BooleanField(help_text="The mail server accepted it.")
    answer = serializers.CharField(allow_blank=True, help_text="Why it was rejected.")


class ChannelChange(serializers.Serializer[Any]):
    """What is to change of a channel."""

    type = serializers.ChoiceField(choices=CHANNEL_TYPES, required=False, allow_null=True)
    config = ConfigBody(required=False, allow_null=True)


class ChannelSchema(serializers.Serializer[Any]):
    """A channel without its secrets."""

    name = serializers.CharField()
    type = serializers.CharField()
    config = TypedJson(as_=ConfigBody())


class WebhookCreate(serializers.Serializer[Any]):
    """A new webhook."""

    name = serializers.CharField(max_length=63)
    url = serializers.CharField(max_length=1000, help_text="https; http only within RUNG_CLUSTER_ADDRESSES.")


class WebhookChange(serializers.Serializer[Any]):
    """What is to change of a webhook."""

    url = serializers.CharField(max_length=1000, required=False)


class WebhookSecretSchema(serializers.Serializer[Any]):
    """The secret that signs, shown once. A repeated request is answered without it."""

    name = serializers.CharField()
    secret = serializers.CharField(required=False)


class WebhookSchema(serializers.Serializer[Any]):
    """A webhook, and what became of its messages in the last two weeks."""

    name = serializers.CharField()
    url = serializers.CharField()
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    health = serializers.ChoiceField(
        choices=["healthy", "failing", "dead"],
        help_text="failing: messages wait for another attempt; dead: the newest were given up.",
    )
    waiting = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Given up.")
    lastSentAt = serializers.DateTimeField(allow_null=True)
    lastError = serializers.CharField(allow_blank=True)


def webhook_json(row: NotificationChannel, state: ChannelDeliveries) -> dict[str, Any]:
    return {
        "name": row.name,
        "url": row.config["url"],
        "createdAt": rfc3339(row.created_at),
        "updatedAt": rfc3339(row.updated_at),
        "health": state.health,
        "waiting": state.waiting,
        "failed": state.failed,
        "lastSentAt": rfc3339(state.sent_at),
        "lastError": state.trouble,
    }


class SubscribedEvents(serializers.Serializer[Any]):
    """Types of one category."""

    category = serializers.CharField(max_length=100)
    types = serializers.ListField(child=serializers.CharField(max_length=100), max_length=50)


class SubscriptionBody(serializers.Serializer[Any]):
    """A subscription: types of events, and channels."""

    events = SubscribedEvents(many=True)
    channels = serializers.ListField(child=serializers.CharField(max_length=63), max_length=20)
    id = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=36, help_text="Not read: the path names it."
    )


class SubscriptionSchema(serializers.Serializer[Any]):
    """A subscription."""

    id = serializers.UUIDField()
    events = SubscribedEvents(many=True)
    channels = serializers.ListField(child=serializers.CharField())


CHANNELS: Final = "/api/v1/notification-channels"


def subscription_request(
    old: Subscription | None, events: Sequence[Mapping[str, Any]], channels: Sequence[str]
) -> ApiRequest:
    """A subscription, created or changed; deleted where no type is left."""
    path, key = "/api/v1/subscriptions", (str(old.pk),) if old else ()
    group = "notifications.subscriptions"
    if old and not events:
        return ApiRequest("DELETE", f"{path}/{old.pk}", None, f"{group}.delete_subscription", key)
    body = {"events": list(events), "channels": list(channels)}
    if old:
        return ApiRequest("PUT", f"{path}/{old.pk}", body, f"{group}.update_subscription", key)
    return ApiRequest("POST", path, body, f"{group}.create_subscription")


def channel_request(old: NotificationChannel | None, name: str, config: Mapping[str, Any]) -> ApiRequest:
    """A mail channel. No text contains its password."""
    shown = {key: value for key, value in config.items() if key != "password"}
    secrets = {"/config/password": "MAIL_PASSWORD"} if config.get("password") else {}
    body = {"type": "email", "config": shown}
    if old:
        return ApiRequest("PUT", f"{CHANNELS}/{old.name}", body, secrets=secrets)
    return ApiRequest("POST", CHANNELS, {"name": name, **body}, secrets=secrets)


def test_message_request(row: NotificationChannel, to: str) -> ApiRequest:
    return ApiRequest("POST", f"{CHANNELS}/{row.name}/trial-messages", {"to": to})


def channel_delete_request(row: NotificationChannel) -> ApiRequest:
    return ApiRequest("DELETE", f"{CHANNELS}/{row.name}")


def mail_switch_request(*, on: bool) -> ApiRequest:
    return ApiRequest("PATCH", "/api/v1/notification-state", {"email": {"enabled": on}})


WEBHOOKS: Final = "/api/v1/webhooks"


def webhook_request(old: NotificationChannel | None, name: str, url: str) -> ApiRequest:
    """A webhook, made or sent elsewhere; the answer to a new one holds its secret, once."""
    if old:
        return ApiRequest("PATCH", f"{WEBHOOKS}/{old.name}", {"url": url})
    return ApiRequest("POST", WEBHOOKS, {"name": name, "url": url})


def webhook_action_request(row: NotificationChannel, action: str) -> ApiRequest:
    """`secret`: rotate it; `trial-messages`: send a test event."""
    return ApiRequest("POST", f"{WEBHOOKS}/{row.name}/{action}", None)


def webhook_delete_request(row: NotificationChannel) -> ApiRequest:
    return ApiRequest("DELETE", f"{WEBHOOKS}/{row.name}")
