"""Entries of timelines that somebody may want to be told of, and what became of telling them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db.models import Count, Q, QuerySet

from portal.kit.security.actors import Actor, ActorKind
from tenants.access.models import User
from tenants.access.selectors import visible_projects
from workloads.notifications.models import Delivery, DeliveryState, NotificationChannel, Subscription
from workloads.notifications.rules import PHASES, REASONS, NotificationType, notification_type_of
from workloads.state.models import EventType, Workload, WorkloadEvent


@dataclass(frozen=True, slots=True)
class ReadableDelivery:
    """One message to somebody. `workload`: none where they may not see it any more; `to`: none but their own."""

    delivery: Delivery
    kind: NotificationType | None
    workload: Workload | None
    to: str


@dataclass(frozen=True, slots=True)
class ChannelUse:
    """A channel, how many subscriptions name it, and how many messages wait for it."""

    channel: NotificationChannel
    subscriptions: int
    waiting: int


def notifiable_entries(after: int) -> QuerySet[WorkloadEvent]:
    """Entries of the change feed behind this position that have a type of notification, in order."""
    told = Q(type=EventType.PREEMPTION) | Q(type=EventType.PHASE, phase__in=PHASES)
    told |= Q(type=EventType.ACTION, reason__in=REASONS)
    return WorkloadEvent.objects.filter(told, position__gt=after).select_related("workload").order_by("position")


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
    return own.select_related("event__workload__project", "channel")


def readable_deliveries(actor: Actor, rows: Sequence[Delivery]) -> list[ReadableDelivery]:
    """These messages as their subscriber may read them now: a channel's other addresses are its admins' to know."""
    projects = {each.event.workload.project_id for each in rows}
    seen = set(visible_projects(actor).filter(pk__in=projects).values_list("pk", flat=True))
    mine = own_address(str(actor.kind), actor.id)
    return [_readable_delivery(each, seen, mine) for each in rows]


def channel_uses() -> list[ChannelUse]:
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING).order_by().values_list("channel")
    counts = dict(waiting.annotate(count=Count("pk")))
    rows = NotificationChannel.objects.annotate(subscribed=Count("subscriptions"))
    return [ChannelUse(each, each.subscribed, counts.get(each.pk, 0)) for each in rows]


def use_of(row: NotificationChannel) -> ChannelUse:
    waiting = row.deliveries.filter(state=DeliveryState.WAITING)
    return ChannelUse(row, row.subscriptions.count(), waiting.count())


def _readable_delivery(row: Delivery, seen: set[int], mine: str) -> ReadableDelivery:
    event = row.event
    workload = event.workload if event.workload.project_id in seen else None
    kind = notification_type_of(event.type, event.phase, event.reason)
    return ReadableDelivery(row, kind, workload, row.address if row.address == mine else "")


def is_mail_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return len(text) <= 254 and text.isascii() and text.isprintable()
