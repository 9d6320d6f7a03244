"""Timeline entries for notifications, and the state of their deliveries."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db.models import Count, Max, Q, QuerySet

from portal.kit.security.actors import Actor, ActorKind
from tenants.access.models import User
from tenants.access.rules import Permission
from tenants.access.selectors import Access, access_for, visible_among
from workloads.notifications.models import Delivery, DeliveryState, Notice, NotificationChannel, Subscription
from workloads.notifications.rules import KNOWN, QUOTA, NotificationType, notification_types_of
from workloads.state.models import Workload, WorkloadEvent


@dataclass(frozen=True, slots=True)
class ReadableDelivery:
    """One message to a subscriber. `workload`, `notice`: what it is about, none where they may not see it any more.

    `to`: none but their own.
    """

    delivery: Delivery
    kind: NotificationType
    workload: Workload | None
    to: str
    notice: Notice | None = None


@dataclass(frozen=True, slots=True)
class ChannelDeliveries:
    """What became of a channel's messages in the last two weeks, those that wait included.

    `health`: `failing` while messages wait after an attempt that failed, `dead` once the newest were given up.
    """

    health: str = "healthy"
    waiting: int = 0
    failed: int = 0
    sent_at: datetime | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ChannelUse:
    """A channel, how many subscriptions name it, and what became of its messages."""

    channel: NotificationChannel
    subscriptions: int
    deliveries: ChannelDeliveries

    @property
    def waiting(self) -> int:
        return self.deliveries.waiting


def feed_after(position: int) -> QuerySet[WorkloadEvent]:
    """Entries of the change feed behind this position, in order."""
    return WorkloadEvent.objects.filter(position__gt=position).select_related("workload").order_by("position")


def own_address(kind: str, key: str) -> str:
    """A subject's own mail address; programs have none."""
    return _addresses({key}).get(key, "") if kind == ActorKind.USER else ""


def own_addresses(wishes: Sequence[Subscription]) -> dict[UUID, str]:
    """The own mail addresses of those who wish, by wish."""
    people = {each.pk: each.subject_id for each in wishes if each.subject_kind == ActorKind.USER}
    found = _addresses(people.values())
    return {wish: found[person] for wish, person in people.items() if person in found}


def _addresses(people: Collection[str]) -> dict[str, str]:
    rows = User.objects.filter(pk__in=people, is_active=True).values_list("pk", "email")
    return {str(person): address for person, address in rows if is_mail_address(address)}


def deliveries_of(actor: Actor) -> QuerySet[Delivery]:
    """What the subject's own subscriptions asked for."""
    own = Delivery.objects.filter(subscription__subject_kind=str(actor.kind), subscription__subject_id=actor.id)
    return own.select_related("event__workload__project", "notice__project", "notice__department", "channel")


def deliveries_by(row: NotificationChannel) -> QuerySet[Delivery]:
    """What a channel sends, the newest first."""
    return Delivery.objects.filter(channel=row).select_related("event__workload__project", "channel").order_by("-pk")


def readable_deliveries(actor: Actor, rows: Sequence[Delivery]) -> list[ReadableDelivery]:
    """These messages as their subscriber may read them now: a channel's other addresses are its admins' to know."""
    held = access_for(actor)
    seen = visible_among(actor, {key for each in rows if (key := _project_of(each)) is not None})
    mine = own_address(str(actor.kind), actor.id)
    return [_readable_delivery(each, held, seen, mine) for each in rows]


def channel_uses() -> list[ChannelUse]:
    rows = NotificationChannel.objects.annotate(subscribed=Count("subscriptions"))
    states = delivery_states(rows)
    return [ChannelUse(each, each.subscribed, states[each.pk]) for each in rows]


def use_of(row: NotificationChannel) -> ChannelUse:
    return ChannelUse(row, row.subscriptions.count(), delivery_states([row])[row.pk])


def delivery_states(rows: Iterable[NotificationChannel]) -> dict[UUID, ChannelDeliveries]:
    """What became of the messages of these channels, by channel."""
    keys = [each.pk for each in rows]
    counts = (
        Delivery.objects.filter(channel__in=keys)
        .order_by()
        .values("channel")
        .annotate(
            waiting=Count("pk", filter=Q(state=DeliveryState.WAITING)),
            failed=Count("pk", filter=Q(state=DeliveryState.FAILED)),
            sent_at=Max("done_at", filter=Q(state=DeliveryState.SENT)),
            failed_at=Max("done_at", filter=Q(state=DeliveryState.FAILED)),
        )
    )
    found = {each["channel"]: each for each in counts}
    return {key: _deliveries(key, found.get(key)) for key in keys}


def _deliveries(key: UUID, counts: Mapping[str, Any] | None) -> ChannelDeliveries:
    if counts is None:
        return ChannelDeliveries()
    troubled = Delivery.objects.filter(channel=key, state__in=(DeliveryState.WAITING, DeliveryState.FAILED))
    trouble = troubled.exclude(trouble="").order_by("-pk").values_list("state", "trouble").first()
    state, words = trouble or ("", "")
    healthy = trouble is None or (
        state == DeliveryState.FAILED and counts["sent_at"] and counts["sent_at"] > counts["failed_at"]
    )
    name = "healthy" if healthy else "failing" if state == DeliveryState.WAITING else "dead"
    return ChannelDeliveries(name, counts["waiting"], counts["failed"], counts["sent_at"], "" if healthy else words)


def _readable_delivery(row: Delivery, held: Access, seen: set[int], mine: str) -> ReadableDelivery:
    to, visible = row.address if row.address == mine else "", _project_of(row) in seen
    if row.notice:
        if row.notice.project_id is None:
            visible = held.can(Permission(row.notice.permission), department=row.notice.department)
        return ReadableDelivery(row, KNOWN[QUOTA, row.notice.type], None, to, row.notice if visible else None)
    event = row.workload_event
    kind = notification_types_of(event.type, event.phase, event.reason)[0]
    return ReadableDelivery(row, kind, event.workload if visible else None, to)


def _project_of(row: Delivery) -> int | None:
    return row.notice.project_id if row.notice else row.workload_event.workload.project_id


def is_mail_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return len(text) <= 254 and text.isascii() and text.isprintable()
