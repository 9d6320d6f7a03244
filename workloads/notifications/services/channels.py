"""Channels, the mail switch, subscriptions and test messages: audited, passwords encrypted."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.core.mail import EmailMessage
from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet
from django.utils.translation import gettext as _

from clusters.connection.services.gateways import secret_box
from portal.audit.models import Result
from portal.audit.services import audited_transaction, record, record_refusals
from portal.kit.db.transactions import external_call
from portal.kit.errors import Conflict, NotFound, ValidationFailed
from portal.kit.security.actors import Actor, ActorKind
from portal.kit.security.encryption import DecryptionFailed, NoEncryptionKey
from tenants.access.rules import Permission
from tenants.access.selectors import require
from workloads.notifications.models import NotificationChannel, NotificationState, Subscription
from workloads.notifications.rules import CHANGES, EMAIL, KNOWN
from workloads.notifications.selectors import is_mail_address
from workloads.notifications.services.mail import (
    NO_SIGN_IN,
    TYPES,
    DeliveryError,
    MailServer,
    SmtpConnection,
    completed,
    message_of,
    problems_of,
    server_for,
)
from workloads.state.models import WorkloadEvent

MOST_SUBSCRIPTIONS: Final = 20
CHANNEL_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ONLY_MAIL: Final = "Only the type email is supported."


def require_channels(actor: Actor) -> None:
    """Channels and switches belong to the platform admins."""
    require(actor, Permission.MANAGE_ORGANISATION)


def state() -> NotificationState:
    """The switches; off until an admin turns them on."""
    return NotificationState.objects.filter(pk=1).first() or NotificationState(pk=1)


def set_state(
    *, actor: Actor, enabled: bool | None = None, email: bool | None = None, slack: bool | None = None
) -> NotificationState:
    """Turn mail on or off; `enabled` says it where `email` does not. Events while it was off are never sent."""
    with audited_transaction(actor=actor, action="notifications.set", **_entity("notification-state", "notifications")):
        require_channels(actor)
        if slack:
            raise ValidationFailed.at("/slack/enabled", "unsupported", _ONLY_MAIL)
        row, _made = NotificationState.objects.select_for_update().get_or_create(pk=1)
        was, wanted = row.email, enabled if email is None else email
        row.email = was if wanted is None else wanted
        if row.email and not was:
            row.since_event = latest_event()
        row.save()
        detail = {"email": row.email}
        record(actor, "notifications.set", row, detail=detail, **_entity("notification-state", "notifications"))
    return row


def channels(actor: Actor) -> QuerySet[NotificationChannel]:
    """Every channel; anybody signed in may know the names, since subscriptions name them."""
    return NotificationChannel.objects.all()


def has_mail_server() -> bool:
    """Without one, nothing can be mailed however the switch is set."""
    return NotificationChannel.objects.filter(type=EMAIL).exists()


def channel_titles() -> dict[str, str]:
    """Each channel by name, with the reason where it sends nothing now."""
    off = "" if state().email else _(" (e-mail is disabled)")
    rows = NotificationChannel.objects.values_list("name", "type")
    return {name: f"{name}{off if type_ == EMAIL else ''}" for name, type_ in rows}


def channel_named(*, name: str, actor: Actor) -> NotificationChannel:
    """The mail channel, for those who manage channels. NotFound where there is none."""
    require_channels(actor)
    found = NotificationChannel.objects.filter(name=name, type=EMAIL).first() if CHANNEL_NAME.fullmatch(name) else None
    if found is None:
        raise NotFound
    return found


def add_channel(*, name: str, type_: str, config: Mapping[str, Any], actor: Actor) -> NotificationChannel:
    """A new channel, called after its type unless it is given a name. Conflict where the name is taken."""
    with audited_transaction(
        actor=actor, action="notifications.add_channel", **_entity("notification-channel", name or type_)
    ):
        require_channels(actor)
        check_channel_type(type_)
        if not CHANNEL_NAME.fullmatch(name or type_):
            raise ValidationFailed.at("/name", "bad_name", "Use up to 63 lower-case letters, digits and dashes.")
        row = NotificationChannel(name=name or type_, type=type_)
        _fill(row, config, password=str(config.get("password") or ""))
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            raise Conflict(f"Channel {row.name} already exists.", code="name_taken") from None
        _record(actor, "notifications.add_channel", row)
    return row


def change_channel(
    *, row: NotificationChannel, type_: str, config: Mapping[str, Any], actor: Actor, merge: bool
) -> NotificationChannel:
    """Put another configuration in its place, or merge one in.

    Without a password the stored one stays, unless server, port or user change: it is never sent to another one.
    """
    with audited_transaction(
        actor=actor, action="notifications.change_channel", **_entity("notification-channel", row.name)
    ):
        require_channels(actor)
        check_channel_type(type_)
        channel = locked_channel(row)
        before, password = channel.bound_to, _password(channel)
        given = {**channel.config, **{key: value for key, value in config.items() if value is not None}}
        wanted = given if merge else dict(config)
        channel.config = completed(wanted)
        password = str(config.get("password") or "") or (password if channel.bound_to == before else "")
        _fill(channel, wanted, password=password)
        channel.save()
        _record(actor, "notifications.change_channel", channel)
    return channel


def remove_channel(*, row: NotificationChannel, actor: Actor) -> None:
    """Nothing leaves by it any more; what waited for it is dropped with it."""
    with audited_transaction(
        actor=actor, action="notifications.remove_channel", **_entity("notification-channel", row.name)
    ):
        require_channels(actor)
        channel = locked_channel(row)
        _record(actor, "notifications.remove_channel", channel)
        channel.delete()


def password_of(row: NotificationChannel) -> str:
    """The stored password; empty where there is none. Raises DeliveryError if it does not open."""
    try:
        return secret_box().open(row.sealed, bound_to=row.bound_to)["password"] if row.sealed else ""
    except (DecryptionFailed, NoEncryptionKey, KeyError):
        raise DeliveryError("The stored password cannot be decrypted. Enter it again.") from None


def subscriptions_of(actor: Actor) -> QuerySet[Subscription]:
    """The subject's own. A key bound to a project or department reaches those that were made under its bounds."""
    own = _all_subscriptions_of(actor)
    if actor.limits and actor.limits.bound:
        own = own.filter(project_id=actor.limits.project_id, department_id=actor.limits.department_id)
    return own.prefetch_related("channels")


def _all_subscriptions_of(actor: Actor) -> QuerySet[Subscription]:
    return Subscription.objects.filter(subject_kind=str(actor.kind), subject_id=actor.id)


def subscribe(*, events: Sequence[Mapping[str, Any]], names: Sequence[str], actor: Actor) -> Subscription:
    """A new subscription, to events from now on."""
    with audited_transaction(actor=actor, action="notifications.subscribe", **_entity("subscription", actor.name)):
        if actor.kind is ActorKind.SYSTEM:
            raise NotFound
        if _all_subscriptions_of(actor).count() >= MOST_SUBSCRIPTIONS:
            raise Conflict(
                f"You have the maximum of {MOST_SUBSCRIPTIONS} subscriptions. Edit one of them.", code="too_many"
            )
        row = Subscription()
        _want(row, events, names, actor)
        _record_subscription(actor, "notifications.subscribe", row)
    return row


def change_subscription(
    *, key: UUID, events: Sequence[Mapping[str, Any]], names: Sequence[str], actor: Actor
) -> Subscription:
    """Change a subscription from now on. NotFound for another subject's."""
    with audited_transaction(
        actor=actor, action="notifications.change_subscription", **_entity("subscription", actor.name)
    ):
        row = own_subscription(key=key, actor=actor)
        _want(row, events, names, actor)
        _record_subscription(actor, "notifications.change_subscription", row)
    return row


def unsubscribe(*, key: UUID, actor: Actor) -> None:
    """Delete a subscription. NotFound for another subject's."""
    with audited_transaction(actor=actor, action="notifications.unsubscribe", **_entity("subscription", actor.name)):
        row = own_subscription(key=key, actor=actor)
        _record_subscription(actor, "notifications.unsubscribe", row)
        row.delete()


def latest_event() -> int:
    """The newest entry of any timeline."""
    return WorkloadEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0


def own_subscription(*, key: UUID, actor: Actor) -> Subscription:
    """The subject's own subscription; NotFound for another subject's."""
    row = subscriptions_of(actor).filter(pk=key).first()
    if row is None:
        raise NotFound
    return row


def _want(row: Subscription, events: Sequence[Mapping[str, Any]], names: Sequence[str], actor: Actor) -> None:
    for place, each in enumerate(events):
        for number, name in enumerate(each["types"]):
            if (each["category"], name) not in KNOWN:
                allowed = [kind.type for kind in KNOWN.values() if kind.category == each["category"]]
                message = "Unknown notification type in this category."
                raise ValidationFailed.at(f"/events/{place}/types/{number}", "unknown_type", message, allowed=allowed)
    if len(events) > len(KNOWN):
        raise ValidationFailed.at("/events", "too_many", f"At most {len(KNOWN)} entries.")
    found = [_channel_at(place, name) for place, name in enumerate(names)]
    if CHANGES in {each["category"] for each in events}:
        _check_all_webhooks(found)
    row.events = [{"category": each["category"], "types": list(each["types"])} for each in events]
    row.ask(actor)
    row.since_event = latest_event()
    row.save()
    row.channels.set(found)


def _channel_at(place: int, name: str) -> NotificationChannel:
    found = NotificationChannel.objects.filter(name=name).first() if CHANNEL_NAME.fullmatch(name) else None
    if found is None:
        raise ValidationFailed.at(f"/channels/{place}", "unknown_channel", "No channel has this name.")
    return found


def _check_all_webhooks(found: Sequence[NotificationChannel]) -> None:
    for place, each in enumerate(found):
        if each.type == EMAIL:
            message = "Not by e-mail: a message for every change would be too many."
            raise ValidationFailed.at(f"/channels/{place}", "webhooks_only", message)


def check_channel_type(type_: str) -> None:
    """ValidationFailed for everything but mail."""
    if type_ not in TYPES:
        raise ValidationFailed.at("/type", "unsupported", _ONLY_MAIL, allowed=TYPES)


def checked_config(config: Mapping[str, Any], password: str) -> dict[str, Any]:
    """All that a channel needs, with its defaults. ValidationFailed with a problem per field."""
    wanted = completed(config)
    if problems := problems_of(wanted, config, password):
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)
    return wanted


def _fill(row: NotificationChannel, config: Mapping[str, Any], *, password: str) -> None:
    row.config = checked_config(config, password)
    row.sealed = row.key_id = ""
    if password and row.config["authType"] not in NO_SIGN_IN:
        try:
            keys = secret_box()
        except NoEncryptionKey:
            message = "Rung has no encryption key for passwords. The operator must set RUNG_CREDENTIAL_KEYS."
            raise ValidationFailed.at("/config/password", "no_key", message) from None
        row.sealed, row.key_id = keys.seal({"password": password}, bound_to=row.bound_to), keys.key_id


def locked_channel(row: NotificationChannel) -> NotificationChannel:
    found = NotificationChannel.objects.select_for_update().filter(pk=row.pk).first()
    if found is None:
        raise NotFound
    return found


def _password(row: NotificationChannel) -> str:
    try:
        return password_of(row)
    except DeliveryError:
        return ""


def _record(actor: Actor, action: str, row: NotificationChannel) -> None:
    # A webhook's URL may hold a token.
    detail = {"config": row.config} if row.type == EMAIL else {}
    record(actor, action, row, detail=detail, **_entity("notification-channel", row.name))


def _record_subscription(actor: Actor, action: str, row: Subscription) -> None:
    names = [each.name for each in row.channels.all()]
    record(actor, action, row, detail={"events": row.events, "channels": names}, **_entity("subscription", actor.name))


def _entity(kind: str, name: str) -> dict[str, str]:
    return {"entity_type": kind, "entity_name": name}


ACTION: Final = "notifications.try_channel"
_HEADERS: Final[Mapping[str, str]] = {"Auto-Submitted": "auto-generated"}


def send_trial(*, row: NotificationChannel, to: str, actor: Actor, sends: bool = True) -> str:
    """One message now; answers why it was not taken, empty where it was. Waits for the server, in no transaction.

    `sends`: else the server is only asked whether it lets us in.
    """
    about = {"entity_type": "notification-channel", "entity_name": row.name}
    with record_refusals(actor=actor, action=ACTION, **about):
        require_channels(actor)
        if not is_mail_address(to):
            raise ValidationFailed.at("/to", "bad_address", "Enter one e-mail address.")
    trouble = _sent(row, to, actor, sends=sends)
    result = Result.FAILED if trouble else Result.SUCCEEDED
    record(actor, ACTION, row, result=result, detail={"to": to, "answer": trouble}, **about)
    return trouble


def works(*, type_: str, config: Mapping[str, Any], actor: Actor) -> bool:
    """Can this server be reached, and does it let us in? Sends no mail and keeps no configuration."""
    about = {"entity_type": "notification-channel", "entity_name": str(config.get("smtpHost", ""))[:200]}
    password = str(config.get("password") or "")
    with record_refusals(actor=actor, action=ACTION, **about):
        require_channels(actor)
        check_channel_type(type_)
        server = server_for(checked_config(config, password), password)
    trouble = _tried(server, ())
    result = Result.FAILED if trouble else Result.SUCCEEDED
    detail = {"port": server.port, "username": server.username, "answer": trouble}
    record(actor, ACTION, None, result=result, detail=detail, **about)
    return not trouble


def _sent(row: NotificationChannel, to: str, actor: Actor, *, sends: bool) -> str:
    body = f"Test message of the Rung channel {row.name}, sent by {actor.name}."
    message = message_of(row.config, to=to, subject=f"Rung: test of channel {row.name}", body=body, headers=_HEADERS)
    try:
        server = server_for(row.config, password_of(row))
    except DeliveryError as trouble:
        return str(trouble)
    return _tried(server, [message] if sends else ())


def _tried(server: MailServer, messages: Sequence[EmailMessage]) -> str:
    """Why it did not take them, or us; empty where it did."""

    def send() -> str:
        try:
            with SmtpConnection(server) as connection:
                for each in messages:
                    connection.send(each)
        except DeliveryError as trouble:
            return str(trouble)
        return ""

    # What is done there is done under the key of its request, so that the same request at the same moment does it once.
    return send() if messages else external_call(send)
