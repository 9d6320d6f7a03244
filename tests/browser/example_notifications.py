"""What the pages of notifications show: a channel, two subscriptions, and messages in every state."""

from datetime import timedelta

from django.utils import timezone

from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tests.factories.cast import acting
from workloads.notifications.models import Delivery, DeliveryState
from workloads.notifications.rules import EVICTION, PREEMPTED, STATUS
from workloads.notifications.services.channels import add_channel, subscribe
from workloads.state.models import Workload, WorkloadEvent

SERVER = {"smtpHost": "mail.example.org", "authType": "auth_none", "from": "rung@example.org"}
OUTCOMES = (
    (DeliveryState.SENT, 1, ""),
    (DeliveryState.WAITING, 0, ""),
    (DeliveryState.WAITING, 3, "Mail server error 421."),
    (DeliveryState.FAILED, 1, "The mail server rejected the address (550)."),
    (DeliveryState.DROPPED, 0, "The subscriber can no longer see the workload."),
)


def told_by_mail(user: User) -> dict[str, str]:
    """Addresses of the pages by name, once there is something on them."""
    User.objects.filter(pk=user.pk).update(email="admin@example.org")
    channel = add_channel(name="email", type_="email", config=SERVER, actor=SYSTEM)
    evictions = [{"category": EVICTION, "types": [PREEMPTED]}]
    wish = subscribe(events=evictions, names=["email"], actor=acting(user))
    subscribe(events=[{"category": STATUS, "types": ["Failed", "Completed"]}], names=["email"], actor=acting(user))
    now, workload = timezone.now(), Workload.objects.earliest("created_at")
    for number, (state, attempts, trouble) in enumerate(OUTCOMES):
        failed = {"type": "phase", "phase": "Failed", "message": "It failed."}
        event = WorkloadEvent.objects.create(workload=workload, at=now, **failed)
        Delivery.objects.create(
            event=event,
            subscription=wish,
            channel=channel,
            address="admin@example.org" if number else "team-of-the-night-shift@example.org",
            state=state,
            attempts=attempts,
            trouble=trouble,
            due_at=now + timedelta(minutes=9),
            done_at=None if state == DeliveryState.WAITING else now,
        )
    one = "/notifications/channels/email/"
    return {"notifications": "/notifications/", "new channel": "/notifications/add-channel/", "a channel": one}
