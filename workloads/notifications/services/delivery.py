"""From the change feed to mails and webhooks: one per event, channel and address; slow servers hold up only these.

1. collect: the change feed is read on; an entry becomes a row for each subscriber who may see it
2. deliver: rows that are due are taken with a lease, then sent without any transaction; a failed one comes later again
A worker that dies between the server's yes and the row's leaves a lease that runs out: that one message comes twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Min, QuerySet
from django.urls import reverse
from django.utils import timezone

from clusters.watch.rules import clean_message
from portal.kit.api.parsers import rfc3339
from portal.kit.db.read_cache import cached_reads
from portal.kit.security.actors import Actor, ActorKind
from tenants.access.models import User
from tenants.access.rules import Permission
from tenants.access.selectors import can, visible_projects
from tenants.organisation.models import Project
from workloads.notifications.models import (
    Delivery,
    DeliveryState,
    Notice,
    NotificationChannel,
    NotificationState,
    Subscription,
)
from workloads.notifications.rules import QUOTA, WEBHOOK, NotificationType, notification_types_of, subscribed_types
from workloads.notifications.selectors import feed_after, own_addresses
from workloads.notifications.services import mail
from workloads.notifications.services.channels import password_of
from workloads.notifications.services.mail import DeliveryError, SmtpConnection, message_of, server_for, subject_of
from workloads.notifications.services.webhooks import (
    WebhookConnection,
    WebhookMessage,
    connection_to,
    webhook_message,
)
from workloads.plans.models import Plan
from workloads.state.models import WorkloadEvent
from workloads.state.selectors.workloads import change_json, hidden_namespaces, quietly
from workloads.state.services import PLACED_AT_ONCE, place_events

BATCH: Final = 2000
PLACED_BATCHES: Final = 10
"""At most so many in one run; the next one goes on."""
MAILS: Final = 100
"""At most so many by one channel in one run."""
TRIES: Final = 8
"""Of a mail."""
GIVEN_UP_AFTER: Final = timedelta(days=3)
"""A webhook is tried for so long after its event."""
FIRST_PAUSE: Final = timedelta(seconds=20)
LONGEST_PAUSE: Final = timedelta(hours=1)
LEASE: Final = timedelta(minutes=5)
KEPT: Final = timedelta(days=14)
RUN: Final = timedelta(seconds=40)
EventWithTypes = tuple[WorkloadEvent, tuple[NotificationType, ...]]


def collect() -> None:
    """Make rows of what is new in the change feed: for mail while it is on, for webhooks always."""
    for _batch in range(PLACED_BATCHES):
        if place_events() < PLACED_AT_ONCE:
            break
    with transaction.atomic():
        row, _made = NotificationState.objects.select_for_update().get_or_create(pk=1)
        fresh = list(feed_after(row.read_to)[:BATCH])
        if not fresh:
            return
        row.read_to = fresh[-1].position or row.read_to
        row.save(update_fields=["read_to"])
        with cached_reads():
            _queue([(each, _kinds(each)) for each in fresh], row, timezone.now())


def deliver(now: datetime | None = None) -> int:
    """Send what is due, channel by channel; answers how many arrived. Never raises for a server."""
    began, moment = timezone.now(), now or timezone.now()
    due = Delivery.objects.filter(state=DeliveryState.WAITING, due_at__lte=moment)
    if not NotificationState.objects.filter(pk=1, email=True).exists():
        due = due.filter(channel__type=WEBHOOK)
    longest_waiting = due.order_by().values("channel").annotate(first=Min("due_at")).order_by("first")
    known = NotificationChannel.objects.in_bulk()
    sent = 0
    for key in list(longest_waiting.values_list("channel", flat=True)):
        if key in known and timezone.now() - began < RUN:
            sent += _deliver_by_channel(known[key], moment)
    return sent


def send_notice(notice: Notice) -> None:
    """Store it with a message to each subscriber that it is for. Call it in the transaction of what it is about."""
    notice.save(force_insert=True)
    with_mail = NotificationState.objects.filter(pk=1, email=True).exists()
    rows: list[Delivery] = []
    subscriptions = [each for each in Subscription.objects.prefetch_related("channels") if _is_for(notice, each)]
    addresses = own_addresses(subscriptions)
    for subscription in subscriptions:
        for channel in subscription.channels.all():
            if with_mail or channel.type == WEBHOOK:
                rows += _rows(
                    Delivery(notice=notice), subscription, channel, addresses.get(subscription.pk, ""), notice.at
                )
    Delivery.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def announce_plan(plan: Plan) -> None:
    """Tell those who may approve a plan that it waits for them. Those of its first permission, when it needs several.

    Who lacks another one of them does not see the plan.
    """
    scope = plan.scopes.select_related("project", "department").first()
    send_notice(
        Notice(
            type="PlanNeedsApproval",
            project=scope.project if scope else None,
            department=scope.department if scope else None,
            permission=scope.permission if scope else "",
            title=f"Approval needed: {plan.title}"[:200],
            text=plan.effect["sentence"],
            path=reverse("workloads:plan", args=[plan.pk]),
            at=plan.created_at,
        )
    )


def _is_for(notice: Notice, subscription: Subscription) -> bool:
    """Is it subscribed to, meant for the subscriber, and still theirs to read?"""
    if (QUOTA, notice.type) not in subscribed_types(subscription.events):
        return False
    if notice.subject_id and (notice.subject_kind, notice.subject_id) != (
        subscription.subject_kind,
        subscription.subject_id,
    ):
        return False
    permission = Permission(notice.permission or Permission.VIEW_PROJECT)
    return can(subscription.asker, permission, project=notice.project, department=notice.department)


def forget_old() -> int:
    """Drop what ended long ago, and the subscriptions of people who are gone; answers how many messages."""
    subscriptions = Subscription.objects.filter(subject_kind=ActorKind.USER)
    there = User.objects.filter(pk__in=set(subscriptions.values_list("subject_id", flat=True))).values_list(
        "pk", flat=True
    )
    subscriptions.exclude(subject_id__in=[str(each) for each in there]).delete()
    ended = Delivery.objects.exclude(state=DeliveryState.WAITING).filter(done_at__lt=timezone.now() - KEPT)
    return ended.delete()[0]


def _kinds(event: WorkloadEvent) -> tuple[NotificationType, ...]:
    return notification_types_of(event.type, event.phase, event.reason)


def _queue(events: Sequence[EventWithTypes], state: NotificationState, now: datetime) -> None:
    projects = {event.workload.project_id for event, _kinds in events}
    rows: list[Delivery] = []
    seen: dict[tuple[object, ...], set[int]] = {}
    subscriptions = list(Subscription.objects.prefetch_related("channels"))
    addresses = own_addresses(subscriptions)
    for subscription in subscriptions:
        mine = [event for event, kinds in events if _wants(subscription, event, kinds)]
        if not mine:
            continue
        who = (subscription.subject_kind, subscription.subject_id, subscription.project_id, subscription.department_id)
        if who not in seen:
            seen[who] = set(_seen_by(subscription).filter(pk__in=projects).values_list("pk", flat=True))
        for channel in subscription.channels.all():
            for event in mine:
                mailed = channel.type == WEBHOOK or (state.email and event.pk > state.since_event)
                if mailed and event.workload.project_id in seen[who]:
                    rows += _rows(Delivery(event=event), subscription, channel, addresses.get(subscription.pk, ""), now)
    Delivery.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def _wants(subscription: Subscription, event: WorkloadEvent, kinds: Iterable[NotificationType]) -> bool:
    named = {(kind.category, kind.type) for kind in kinds}
    return event.pk > subscription.since_event and not named.isdisjoint(subscribed_types(subscription.events))


def _seen_by(subscription: Subscription) -> QuerySet[Project]:
    return visible_projects(subscription.asker)


def _rows(
    about: Delivery, subscription: Subscription, channel: NotificationChannel, own: str, now: datetime
) -> Iterator[Delivery]:
    """`about`: one with the event or the notice alone."""
    subject = {"event": about.event, "notice": about.notice}
    for address in [""] if channel.type == WEBHOOK else _addresses(channel, own):
        yield Delivery(**subject, subscription=subscription, channel=channel, address=address, due_at=now)


def _addresses(channel: NotificationChannel, own: str) -> list[str]:
    to = {own} if own and channel.config["directNotifications"] else set[str]()
    return sorted(to | set(channel.config["recipients"]))


def _connection(channel: NotificationChannel) -> SmtpConnection | WebhookConnection:
    if channel.type == WEBHOOK:
        return connection_to(channel)
    return SmtpConnection(server_for(channel.config, password_of(channel)))


def _deliver_by_channel(channel: NotificationChannel, now: datetime) -> int:
    """One connection for all that is due by this channel. A server that does not answer is asked once per run."""
    mine = _leased(channel, now)
    if not mine:
        return 0
    sent, began = 0, timezone.now()
    try:
        with _connection(channel) as connection:
            while mine and not connection.lost and timezone.now() - began < timedelta(seconds=mail.LONGEST / 2):
                sent += _send(connection, channel, mine.pop(0), now)
    except DeliveryError as trouble:
        _schedule_retries(mine, str(trouble), now)
        return sent
    _schedule_retries(mine, "Not sent in time.", now, counted=False)
    return sent


def _leased(channel: NotificationChannel, now: datetime) -> list[Delivery]:
    """Rows that are due and from now on this worker's: each is taken by compare-and-set."""
    due = Delivery.objects.filter(channel=channel, state=DeliveryState.WAITING, due_at__lte=now)
    about = ("event__workload__project", "notice__project", "notice__department", "subscription", "channel")
    rows = due.order_by("pk").select_related(*about)[:MAILS]
    return [row for row in list(rows) if _taken(row, now)]


def _taken(row: Delivery, now: datetime) -> bool:
    waiting = Delivery.objects.filter(pk=row.pk, state=DeliveryState.WAITING, due_at=row.due_at)
    return waiting.update(due_at=max(now, timezone.now()) + LEASE) == 1


def _send(
    connection: SmtpConnection | WebhookConnection, channel: NotificationChannel, row: Delivery, now: datetime
) -> bool:
    subscription = next(_still_wanted_by(row, channel), None)
    if subscription is None:
        what = "workload" if row.notice is None else "project"
        _end(row, DeliveryState.DROPPED, f"The subscriber can no longer see the {what}.", now)
        return False
    try:
        if isinstance(connection, WebhookConnection):
            connection.send(_webhook_message(row, subscription.asker))
        else:
            connection.send(_message(channel, row, subscription.asker))
    except DeliveryError as trouble:
        _fail(row, trouble, now)
        return False
    _end(row, DeliveryState.SENT, "", now)
    return True


def _still_wanted_by(row: Delivery, channel: NotificationChannel) -> Iterator[Subscription]:
    """Whose message it is, if they still want it and may see what it is about; both may have changed since."""
    requested = [row.subscription] if row.subscription else []
    shared = channel.type == WEBHOOK or row.address in channel.config["recipients"]
    for subscription in channel.subscriptions.all() if shared else requested:
        if _is_for(row.notice, subscription) if row.notice else _may_read(subscription, row.workload_event):
            yield subscription


def _may_read(subscription: Subscription, event: WorkloadEvent) -> bool:
    return (
        _wants(subscription, event, _kinds(event))
        and _seen_by(subscription).filter(pk=event.workload.project_id).exists()
    )


def _webhook_message(row: Delivery, actor: Actor) -> WebhookMessage:
    """The same whatever the attempt: a receiver knows by the id what it has already."""
    if notice := row.notice:
        data = {"title": notice.title, "text": notice.text, "project": notice.place, "path": notice.path}
        return webhook_message(f"ntc_{notice.pk}", f"notice.{notice.type}", rfc3339(notice.at), data)
    event = row.workload_event
    data = change_json(event, hidden_namespaces(event.workload, actor))
    return webhook_message(f"evt_{event.position}", f"workload.{event.type}", data["at"], data)


def _message(channel: NotificationChannel, row: Delivery, actor: Actor) -> EmailMessage:
    if row.notice:
        return _notice_message(channel, row, row.notice)
    event, workload = row.workload_event, row.workload_event.workload
    kind = _kinds(event)[0]
    values = {
        "category": kind.category,
        "reason": kind.type,
        "workload": workload.name,
        "project": workload.project.name,
    }
    message = quietly(clean_message(event.message), hidden_namespaces(workload, actor))
    lines = [
        f"Workload {workload.name} in project {workload.project.name}: {kind.type}",
        f"At {event.at:%Y-%m-%d %H:%M:%S} UTC. {kind.description}",
        *([message] if message else []),
    ]
    return _mail(channel, row, values, lines, f"event-{event.pk}")


def _notice_message(channel: NotificationChannel, row: Delivery, notice: Notice) -> EmailMessage:
    values = {"category": QUOTA, "reason": notice.type, "project": notice.place}
    lines = [notice.title, f"At {notice.at:%Y-%m-%d %H:%M:%S} UTC.", notice.text, f"In Rung: {notice.path}"]
    return _mail(channel, row, values, lines, f"notice-{notice.pk}")


def _mail(
    channel: NotificationChannel, row: Delivery, values: Mapping[str, str], lines: Sequence[str], name: str
) -> EmailMessage:
    headers = {"Message-ID": f"<{name}.{row.pk}@{channel.config['from'].rpartition('@')[2]}>"}
    headers["Auto-Submitted"] = "auto-generated"
    body = "\n".join([*lines, "", "You receive this message because you subscribed to it in Rung."])
    subject = subject_of(channel.config, values)
    return message_of(channel.config, to=row.address, subject=subject, body=body, headers=headers)


def _fail(row: Delivery, trouble: DeliveryError, now: datetime) -> None:
    if trouble.final:
        row.attempts += 1
        _end(row, DeliveryState.FAILED, str(trouble), now)
    else:
        _schedule_retries([row], str(trouble), now)


def _schedule_retries(rows: Iterable[Delivery], trouble: str, now: datetime, *, counted: bool = True) -> None:
    """Retry each delivery after a pause that doubles; after the last attempt it failed, with the reason."""
    by_attempts: Mapping[tuple[int, bool], list[Delivery]] = defaultdict(list)
    for row in rows:
        attempts = row.attempts + counted
        by_attempts[attempts, _given_up(row, attempts, now)].append(row)
    for (attempts, given_up), same in by_attempts.items():
        waiting = Delivery.objects.filter(pk__in=[each.pk for each in same], state=DeliveryState.WAITING)
        if given_up:
            words = f"Failed after {attempts} attempts. {trouble}"[:300]
            waiting.update(state=DeliveryState.FAILED, attempts=attempts, trouble=words, done_at=now)
        else:
            pause = min(FIRST_PAUSE * 2 ** min(max(attempts - 1, 0), 10), LONGEST_PAUSE)
            waiting.update(due_at=now + pause, attempts=attempts, trouble=trouble[:300])


def _given_up(row: Delivery, attempts: int, now: datetime) -> bool:
    if row.channel.type == WEBHOOK:
        return now - row.happened_at > GIVEN_UP_AFTER
    return attempts >= TRIES


def _end(row: Delivery, state: DeliveryState, trouble: str, now: datetime) -> None:
    attempts = row.attempts + (state is DeliveryState.SENT)
    Delivery.objects.filter(pk=row.pk).update(state=state, trouble=trouble[:300], done_at=now, attempts=attempts)
