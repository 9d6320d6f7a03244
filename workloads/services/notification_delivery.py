"""From entries of the timeline to mails: one per event, channel and address; slow servers hold up nothing but mail.

1. collect: entries that somebody wants and may see become rows, once each: the database keeps the second one out
2. deliver: rows that are due are taken with a lease, then sent without any transaction; a failed one comes later again
A worker that dies between the server's yes and the row's leaves a lease that runs out: that one message comes twice.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.core.mail import EmailMessage
from django.db import transaction
from django.utils import timezone

from clusters.logtext import clean_message
from portal.core.actors import Actor
from tenants.permissions import visible_projects
from workloads.mailing import Connection, MailTrouble, message_of
from workloads.models import (
    Delivery,
    DeliveryState,
    NotificationChannel,
    NotificationState,
    Subscription,
    WorkloadEvent,
)
from workloads.notification_config import server_for, subject_of
from workloads.notification_types import Kind, kind_of, wanted_of
from workloads.selectors.history import hidden_namespaces, quietly
from workloads.selectors.notifications import own_address, tellable
from workloads.services.notifications import password_of

OVERLAP: Final = 500
"""Entries read again each time: transactions commit in another order than they drew their numbers."""
BATCH: Final = 2000
MAILS: Final = 100
"""At most so many by one channel in one run."""
TRIES: Final = 8
FIRST_PAUSE: Final = timedelta(seconds=20)
LONGEST_PAUSE: Final = timedelta(hours=1)
LEASE: Final = timedelta(minutes=5)
KEPT: Final = timedelta(days=14)
RUN: Final = timedelta(seconds=40)
Moment = tuple[WorkloadEvent, Kind]


def collect() -> None:
    """Make rows of what is new. Nothing while notifications are off."""
    with transaction.atomic():
        row = NotificationState.objects.select_for_update().filter(pk=1, email=True).first()
        if row is None:
            return
        found = list(tellable(max(row.since_event, row.read_to - OVERLAP))[: BATCH + OVERLAP])
        digest = hashlib.sha256(",".join(str(each.pk) for each in found).encode()).hexdigest()
        if digest == row.last_read:
            return
        if found:
            row.read_to = max(row.read_to, found[-1].pk)
        row.last_read = digest
        row.save(update_fields=["read_to", "last_read"])
        moments = [(each, kind) for each in found if (kind := kind_of(each.type, each.phase, each.reason))]
        _queue(moments, timezone.now())


def deliver(now: datetime | None = None) -> int:
    """Send what is due, channel by channel; answers how many arrived. Never raises for a server."""
    began, moment = timezone.now(), now or timezone.now()
    if not NotificationState.objects.filter(pk=1, email=True).exists():
        return 0
    due = Delivery.objects.filter(state=DeliveryState.WAITING, due_at__lte=moment)
    waiting = due.order_by().values_list("channel_id", flat=True).distinct()
    sent = 0
    for channel in NotificationChannel.objects.filter(pk__in=list(waiting)).order_by("updated_at"):
        if timezone.now() - began < RUN:
            sent += _by(channel, moment)
    return sent


def forget_old() -> int:
    """Drop what ended long ago, but nothing that is still read again; answers how many."""
    row = NotificationState.objects.filter(pk=1).first()
    ended = Delivery.objects.exclude(state=DeliveryState.WAITING).filter(done_at__lt=timezone.now() - KEPT)
    return ended.filter(event__lt=row.read_to - BATCH).delete()[0] if row else 0


def _queue(moments: Sequence[Moment], now: datetime) -> None:
    if not moments:
        return
    projects = {event.workload.project_id for event, _kind in moments}
    rows: list[Delivery] = []
    for wish in Subscription.objects.prefetch_related("channels"):
        wanted = wanted_of(wish.events)
        since = wish.since_event
        mine = [event for event, kind in moments if event.pk > since and (kind.category, kind.type) in wanted]
        if not mine:
            continue
        seen = set(visible_projects(wish.asker).filter(pk__in=projects).values_list("pk", flat=True))
        own = own_address(wish.subject_kind, wish.subject_id)
        for channel in wish.channels.all():
            for event in mine:
                if event.workload.project_id in seen:
                    rows += _rows(event, wish, channel, own, now)
    Delivery.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def _rows(
    event: WorkloadEvent, wish: Subscription, channel: NotificationChannel, own: str, now: datetime
) -> Iterator[Delivery]:
    to = {own} if own and channel.config["directNotifications"] else set[str]()
    for address in sorted(to | set(channel.config["recipients"])):
        yield Delivery(event=event, subscription=wish, channel=channel, address=address, due_at=now)


def _by(channel: NotificationChannel, now: datetime) -> int:
    """One connection for all that is due by this channel. A server that does not answer is asked once per run."""
    mine = _leased(channel, now)
    if not mine:
        return 0
    sent, began = 0, timezone.now()
    try:
        with Connection(server_for(channel.config, password_of(channel))) as connection:
            while mine and not connection.lost and timezone.now() - began < RUN:
                sent += _send(connection, channel, mine.pop(0), now)
    except MailTrouble as trouble:
        _later(mine, str(trouble), now)
        return sent
    _later(mine, "Its turn did not come.", now, counted=False)
    return sent


def _leased(channel: NotificationChannel, now: datetime) -> list[Delivery]:
    """Rows that are due and from now on this worker's: each is taken by compare-and-set."""
    due = Delivery.objects.filter(channel=channel, state=DeliveryState.WAITING, due_at__lte=now)
    rows = due.order_by("pk").select_related("event__workload__project", "subscription")[:MAILS]
    return [row for row in list(rows) if _taken(row, now)]


def _taken(row: Delivery, now: datetime) -> bool:
    standing = Delivery.objects.filter(pk=row.pk, state=DeliveryState.WAITING, due_at=row.due_at)
    return standing.update(due_at=max(now, timezone.now()) + LEASE) == 1


def _send(connection: Connection, channel: NotificationChannel, row: Delivery, now: datetime) -> bool:
    actor, workload = row.subscription.asker, row.event.workload
    if not visible_projects(actor).filter(pk=workload.project_id).exists():
        _end(row, DeliveryState.DROPPED, "The subscriber may not see the workload any more.", now)
        return False
    try:
        connection.send(_message(channel, row, actor))
    except MailTrouble as trouble:
        _fail(row, trouble, now)
        return False
    _end(row, DeliveryState.SENT, "", now)
    return True


def _message(channel: NotificationChannel, row: Delivery, actor: Actor) -> EmailMessage:
    event, workload = row.event, row.event.workload
    kind = kind_of(event.type, event.phase, event.reason)
    category, what = (kind.category, kind.type) if kind else ("", event.reason)
    values = {"category": category, "reason": what, "workload": workload.name, "project": workload.project.name}
    said = quietly(clean_message(event.message), hidden_namespaces(workload, actor))
    lines = [
        f"Workload {workload.name} in project {workload.project.name}: {what}",
        f"At {event.at:%Y-%m-%d %H:%M:%S} UTC. {kind.description if kind else ''}",
        *([said] if said else []),
        "",
        "You get this because of a subscription in Rung.",
    ]
    headers = {"Message-ID": f"<event-{event.pk}.{row.pk}@{channel.config['from'].rpartition('@')[2]}>"}
    headers["Auto-Submitted"] = "auto-generated"
    subject = subject_of(channel.config, values)
    return message_of(channel.config, to=row.address, subject=subject, body="\n".join(lines), headers=headers)


def _fail(row: Delivery, trouble: MailTrouble, now: datetime) -> None:
    if trouble.final:
        row.attempts += 1
        _end(row, DeliveryState.FAILED, str(trouble), now)
    else:
        _later([row], str(trouble), now)


def _later(rows: Iterable[Delivery], trouble: str, now: datetime, *, counted: bool = True) -> None:
    """Each comes again after a growing pause, the last time as a failure that says why."""
    by_attempts: Mapping[int, list[Delivery]] = defaultdict(list)
    for row in rows:
        by_attempts[row.attempts + counted].append(row)
    for attempts, same in by_attempts.items():
        standing = Delivery.objects.filter(pk__in=[each.pk for each in same], state=DeliveryState.WAITING)
        if attempts >= TRIES:
            words = f"Given up after {attempts} tries. {trouble}"[:300]
            standing.update(state=DeliveryState.FAILED, attempts=attempts, trouble=words, done_at=now)
        else:
            pause = min(FIRST_PAUSE * 2 ** max(attempts - 1, 0), LONGEST_PAUSE)
            standing.update(due_at=now + pause, attempts=attempts, trouble=trouble[:300])


def _end(row: Delivery, state: DeliveryState, trouble: str, now: datetime) -> None:
    attempts = row.attempts + (state is DeliveryState.SENT)
    Delivery.objects.filter(pk=row.pk).update(state=state, trouble=trouble[:300], done_at=now, attempts=attempts)
