"""Subscriptions, channels, and each message until it is delivered or given up."""

import uuid
from datetime import datetime

from django.db import models
from django.db.models import Q

from tenants.organisation.models import Department, Project
from workloads.state.models import DeferredRequest, WorkloadEvent


class NotificationState(models.Model):
    """The installation's switch of mail, one row, and how far the change feed has been read."""

    email = models.BooleanField(default=False)
    since_event = models.BigIntegerField(default=0, help_text="No mail is sent of events up to this one: it was off.")
    read_to = models.BigIntegerField(default=0, help_text="Position of the last entry that was read.")

    def __str__(self) -> str:
        return "notifications"


class NotificationChannel(models.Model):
    """A mail server or a webhook that messages leave by. Its secret is sealed; a password, to where it may be sent."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    type = models.CharField(max_length=10, default="email")
    config = models.JSONField(default=dict, help_text="All but the secret: Run:ai's keys of mail, `url` of a webhook.")
    sealed = models.TextField(blank=True)
    key_id = models.CharField(max_length=16, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def bound_to(self) -> tuple[str, ...]:
        """The server that may get the password: a change of any of it needs the password again."""
        values = (str(self.config.get(key) or "") for key in ("smtpHost", "smtpPort", "username"))
        return ("notification-channel", str(self.pk), *values)


class Subscription(DeferredRequest):
    """A subject's subscription to some types of events, within the scope of the credential that created it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    events = models.JSONField(default=list, help_text="[{category, types}].")
    channels = models.ManyToManyField(NotificationChannel, related_name="subscriptions")
    since_event = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["subject_kind", "subject_id"], name="workloads_subscriber")]

    def __str__(self) -> str:
        return f"{self.subject_name}: {self.pk}"


class Notice(models.Model):
    """News of a project or department, or of neither, that is about no workload.

    For one subject, or for those with a permission there; of neither: in the whole installation.
    """

    type = models.CharField(max_length=40)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    department = models.ForeignKey(Department, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    subject_kind = models.CharField(max_length=20, blank=True)
    subject_id = models.CharField(max_length=64, blank=True)
    permission = models.CharField(max_length=40, blank=True)
    title = models.CharField(max_length=200)
    text = models.TextField()
    path = models.CharField(max_length=200, help_text="Of its page.")
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.title

    @property
    def place(self) -> str:
        """The name of its project or department; empty: of neither."""
        owner = self.project or self.department
        return owner.name if owner else ""


class DeliveryState(models.TextChoices):
    """State of a message."""

    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"


class Delivery(models.Model):
    """One message about one event or notice to one address by one channel. There is never a second.

    `subscription`: the first that asked for it. To a mailbox of the channel it goes as long as any of them does.
    """

    event = models.ForeignKey(WorkloadEvent, on_delete=models.CASCADE, null=True, related_name="+")
    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, null=True, related_name="+")
    subscription = models.ForeignKey(Subscription, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    channel = models.ForeignKey(NotificationChannel, on_delete=models.CASCADE, related_name="deliveries")
    address = models.CharField(max_length=254)
    state = models.CharField(max_length=8, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    trouble = models.CharField(max_length=300, blank=True, help_text="Why it has not arrived.")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["event", "channel", "address"], name="workloads_delivery_once"),
            models.UniqueConstraint(fields=["notice", "channel", "address"], name="workloads_notice_once"),
            models.CheckConstraint(
                condition=Q(event__isnull=True) ^ Q(notice__isnull=True), name="workloads_delivery_one_subject"
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="workloads_delivery_due", condition=models.Q(state="waiting")),
        ]

    def __str__(self) -> str:
        return f"{self.event_id or self.notice_id} to {self.address}"

    @property
    def workload_event(self) -> WorkloadEvent:
        """The event that it is about, where it is about no notice."""
        if self.event is None:
            raise ValueError("a message about a notice")
        return self.event

    @property
    def happened_at(self) -> datetime:
        return self.notice.at if self.notice else self.workload_event.at
