"""Notifications: types, switches, mail channels, and the caller's own subscriptions."""

from typing import Any, Final
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import flag_in
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation, validated_body
from portal.kit.security.request_identity import actor_of
from workloads.notifications.models import NotificationChannel, NotificationState, Subscription
from workloads.notifications.rules import EMAIL, NOTIFICATION_TYPES
from workloads.notifications.selectors import delivery_states
from workloads.notifications.serializers import (
    ChannelBody,
    ChannelChange,
    ChannelMeta,
    ChannelSchema,
    NotificationTypeSchema,
    StateBody,
    SubscriptionBody,
    SubscriptionSchema,
    TrialMessage,
    TrialSchema,
    WebhookChange,
    WebhookCreate,
    WebhookSchema,
    WebhookSecretSchema,
    webhook_json,
)
from workloads.notifications.services import channels, webhooks

ADMINS: Final = RoutePermission("manage_organisation", "installation")
OWN: Final = RoutePermission(at="self")


class NotificationTypes(Route):
    """Types of notifications."""

    access = {"GET": RoutePermission()}

    @operation("get_notification_types", "List the types of notifications", NotificationTypeSchema(many=True))
    def get(self, request: Request) -> Response:
        """By category."""
        return Response(
            [{"category": k.category, "type": k.type, "description": k.description} for k in NOTIFICATION_TYPES]
        )


class State(Route):
    """The switches of the installation."""

    access = {"GET": ADMINS, "PATCH": ADMINS}

    @operation("get_notification_state", "Read whether notifications are enabled", StateBody)
    def get(self, request: Request) -> Response:
        """Off until an admin turns them on."""
        channels.require_channels(actor_of(request))
        return Response(_state_json(channels.state()))

    @operation("update_notification_state", "Enable or disable notifications", StateBody, request=StateBody)
    def patch(self, request: Request) -> Response:
        """Events while they were off are never sent."""
        body = validated_body(StateBody, request.data)
        email, slack = ((body.get(name) or {}).get("enabled") for name in ("email", "slack"))
        row = channels.set_state(actor=actor_of(request), enabled=body.get("enabled"), email=email, slack=slack)
        return Response(_state_json(row))


class Channels(Route):
    """The channels, by name and type; new ones."""

    access = {"GET": RoutePermission(), "POST": ADMINS}

    @operation(
        "get_notification_channels",
        "List channels",
        ChannelMeta(many=True),
        description="Names and types only, for use in subscriptions.",
    )
    def get(self, request: Request) -> Response:
        """By name."""
        rows = channels.channels(actor_of(request)).filter(type=EMAIL)
        return Response([{"name": each.name, "type": each.type} for each in rows])

    @operation("create_notification_channel_config", "Add a channel", request=ChannelBody)
    def post(self, request: Request) -> Response:
        """Nothing is sent for it; `validate-notification-channel` tries it."""
        body = validated_body(ChannelBody, request.data)
        channels.add_channel(
            name=body.get("name", ""), type_=body["type"], config=body["config"], actor=actor_of(request)
        )
        return Response(status=200)


class ChannelDetail(Route):
    """One channel."""

    access = {"GET": ADMINS, "PUT": ADMINS, "PATCH": ADMINS, "DELETE": ADMINS}

    @operation("get_notification_channel_config", "Read a channel", ChannelSchema)
    def get(self, request: Request, channel_name: str) -> Response:
        """All but its password."""
        row = channels.channel_named(name=channel_name, actor=actor_of(request))
        return Response({"name": row.name, "type": row.type, "config": row.config})

    @operation(
        "update_notification_channel_config",
        "Replace a channel's configuration",
        description="Without a password the stored one is kept, unless server, port or user change.",
        request=ChannelBody,
    )
    def put(self, request: Request, channel_name: str) -> Response:
        """What is absent takes its default."""
        return self._change(request, channel_name, merge=False)

    @operation(
        "patch_notification_channel_config",
        "Change a channel's configuration",
        description="Without a password the stored one is kept, unless server, port or user change.",
        request=ChannelChange,
    )
    def patch(self, request: Request, channel_name: str) -> Response:
        """What is absent or null stays."""
        return self._change(request, channel_name, merge=True)

    def _change(self, request: Request, name: str, *, merge: bool) -> Response:
        actor = actor_of(request)
        row: NotificationChannel = channels.channel_named(name=name, actor=actor)
        body = validated_body(ChannelChange if merge else ChannelBody, request.data)
        config, type_ = body.get("config") or {}, body.get("type") or row.type
        channels.change_channel(row=row, type_=type_, config=config, actor=actor, merge=merge)
        return Response(status=200)

    @operation("delete_notification_channel_config", "Remove a channel", status=204)
    def delete(self, request: Request, channel_name: str) -> Response:
        """Subscriptions stay, without it; what waited for it is dropped."""
        actor = actor_of(request)
        channels.remove_channel(row=channels.channel_named(name=channel_name, actor=actor), actor=actor)
        return Response(status=204)


class ChannelTrial(Route):
    """A channel that is tried before it is kept."""

    access = {"POST": RoutePermission("manage_organisation", "installation", reads=True)}

    @operation(
        "validate_notification_channel",
        "Test a channel's connection",
        bool,
        description="true if the server is reachable and accepts the sign-in. Nothing is sent or stored.",
        request=ChannelBody,
    )
    def post(self, request: Request) -> Response:
        """A server that does not answer is false after some seconds."""
        actor = actor_of(request)
        body = validated_body(ChannelBody, request.data)
        return Response(channels.works(type_=body["type"], config=body["config"], actor=actor))


class TrialMessages(Route):
    """A message that shows whether a channel works."""

    access = {"POST": ADMINS}

    @operation(
        "send_trial_message",
        "Send a test message by a channel",
        TrialSchema,
        description="Beyond Run:ai. By the channel as it is kept, now, whether e-mail enabled or off. With "
        "`dryRun` its server is asked whether it lets us in, and nothing is sent.",
        request=TrialMessage,
    )
    def post(self, request: Request, channel_name: str) -> Response:
        """Did its server take it, and if not, why? Waits for the server."""
        actor = actor_of(request)
        row = channels.channel_named(name=channel_name, actor=actor)
        to, sends = validated_body(TrialMessage, request.data)["to"], not flag_in(request.query_params, "dryRun")
        trouble = channels.send_trial(row=row, to=to, actor=actor, sends=sends)
        return Response({"taken": not trouble, "answer": trouble})


class Webhooks(Route):
    """The webhooks; new ones."""

    access = {"GET": ADMINS, "POST": ADMINS}
    shown_once = ("secret",)

    @operation("list_webhooks", "List webhooks", WebhookSchema(many=True), description="Beyond Run:ai.")
    def get(self, request: Request) -> Response:
        """By name, with what became of their messages."""
        rows = list(webhooks.webhooks(actor_of(request)))
        states = delivery_states(rows)
        return Response([webhook_json(each, states[each.pk]) for each in rows])

    @operation(
        "create_webhook",
        "Add a webhook",
        WebhookSecretSchema,
        201,
        description="Beyond Run:ai. Subscriptions name it like any channel. The secret is shown once.",
        request=WebhookCreate,
    )
    def post(self, request: Request) -> Response:
        """Nothing is sent before a subscription uses it."""
        body = validated_body(WebhookCreate, request.data)
        row, secret = webhooks.add_webhook(name=body["name"], url=body["url"], actor=actor_of(request))
        return Response({"name": row.name, "secret": secret}, status=201)


class WebhookDetail(Route):
    """One webhook."""

    access = {"GET": ADMINS, "PATCH": ADMINS, "DELETE": ADMINS}

    @operation("get_webhook", "Read a webhook", WebhookSchema, description="Beyond Run:ai. Without its secret.")
    def get(self, request: Request, webhook_name: str) -> Response:
        """With what became of its messages."""
        row = webhooks.webhook_named(name=webhook_name, actor=actor_of(request))
        return Response(webhook_json(row, delivery_states([row])[row.pk]))

    @operation(
        "update_webhook", "Change a webhook's URL", WebhookSchema, description="Beyond Run:ai.", request=WebhookChange
    )
    def patch(self, request: Request, webhook_name: str) -> Response:
        """What waits goes to the new URL too."""
        actor = actor_of(request)
        row = webhooks.webhook_named(name=webhook_name, actor=actor)
        if url := validated_body(WebhookChange, request.data).get("url"):
            row = webhooks.change_webhook(row=row, url=url, actor=actor)
        return Response(webhook_json(row, delivery_states([row])[row.pk]))

    @operation("delete_webhook", "Remove a webhook", status=204, description="Beyond Run:ai.")
    def delete(self, request: Request, webhook_name: str) -> Response:
        """Subscriptions stay, without it; what waited for it is dropped."""
        actor = actor_of(request)
        channels.remove_channel(row=webhooks.webhook_named(name=webhook_name, actor=actor), actor=actor)
        return Response(status=204)


class WebhookSecret(Route):
    """The secret of a webhook."""

    access = {"POST": ADMINS}
    shown_once = ("secret",)

    @operation(
        "rotate_webhook_secret",
        "Rotate a webhook's secret",
        WebhookSecretSchema,
        description="Beyond Run:ai. Shown once. For a day messages are signed with the old secret, too.",
    )
    def post(self, request: Request, webhook_name: str) -> Response:
        """The new secret."""
        actor = actor_of(request)
        row = webhooks.webhook_named(name=webhook_name, actor=actor)
        return Response({"name": row.name, "secret": webhooks.rotate_webhook_secret(row=row, actor=actor)})


class WebhookTrials(Route):
    """A request that shows whether a webhook works."""

    access = {"POST": ADMINS}

    @operation(
        "send_webhook_trial",
        "Send a test event by a webhook",
        TrialSchema,
        description="Beyond Run:ai. With `dryRun` only its address is checked.",
    )
    def post(self, request: Request, webhook_name: str) -> Response:
        """Was it answered 2xx, and if not, why? Waits for the server."""
        actor, sends = actor_of(request), not flag_in(request.query_params, "dryRun")
        row = webhooks.webhook_named(name=webhook_name, actor=actor)
        trouble = webhooks.try_webhook(row=row, actor=actor, sends=sends)
        return Response({"taken": not trouble, "answer": trouble})


class Subscriptions(Route):
    """The caller's own subscriptions; new ones."""

    access = {"GET": OWN, "POST": OWN}

    @operation("get_my_subscriptions", "List your subscriptions", SubscriptionSchema(many=True))
    def get(self, request: Request) -> Response:
        """Oldest first."""
        return Response([_subscription_json(each) for each in channels.subscriptions_of(actor_of(request))])

    @operation(
        "create_subscription",
        "Subscribe",
        SubscriptionSchema,
        description="Covers new events of workloads that you can see.",
        request=SubscriptionBody,
    )
    def post(self, request: Request) -> Response:
        """The subscription with its id."""
        body = validated_body(SubscriptionBody, request.data)
        row = channels.subscribe(events=body["events"], names=body["channels"], actor=actor_of(request))
        return Response(_subscription_json(row))


class SubscriptionDetail(Route):
    """One of the caller's own subscriptions."""

    access = {"PUT": OWN, "DELETE": OWN}

    @operation("update_subscription", "Change a subscription", SubscriptionSchema, request=SubscriptionBody)
    def put(self, request: Request, subscription_id: UUID) -> Response:
        """404 for another subject's."""
        actor = actor_of(request)
        channels.own_subscription(key=subscription_id, actor=actor)
        body = validated_body(SubscriptionBody, request.data)
        row = channels.change_subscription(
            key=subscription_id, events=body["events"], names=body["channels"], actor=actor
        )
        return Response(_subscription_json(row))

    @operation("delete_subscription", "Unsubscribe", status=204)
    def delete(self, request: Request, subscription_id: UUID) -> Response:
        """Also what was on its way is not sent any more."""
        channels.unsubscribe(key=subscription_id, actor=actor_of(request))
        return Response(status=204)


def _state_json(row: NotificationState) -> dict[str, Any]:
    return {"enabled": row.email, "email": {"enabled": row.email}, "slack": {"enabled": False}}


def _subscription_json(row: Subscription) -> dict[str, Any]:
    return {"id": str(row.pk), "events": row.events, "channels": [each.name for each in row.channels.all()]}
