"""Rows of the shared kit: claimed periods, heartbeats, counted tries, version of settings, answers kept for retries."""

from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import models
from django.db.models.functions import Now
from django.http import HttpRequest
from simple_history.models import HistoricalRecords


class Period(models.Model):
    """One run of a periodic job. The unique (job, start) makes every period happen once, with any number of beats."""

    job = models.CharField(max_length=100)
    start = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "start"], name="core_period_once")]

    def __str__(self) -> str:
        return f"{self.job} at {self.start:%Y-%m-%d %H:%M:%S}"


class Heartbeat(models.Model):
    """The last time a kind of process proved that it works: a task consumed, a beat fired, a cluster observed."""

    name = models.CharField(max_length=100, primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} at {self.at:%Y-%m-%d %H:%M:%S}"


class LimiterBucket(models.Model):
    """Tries counted for one key in its current window. The key is a hash: no user name or address is kept."""

    key = models.CharField(max_length=64, primary_key=True)
    started_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    count = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.count} since {self.started_at:%H:%M:%S}"


class SettingsVersion(models.Model):
    """A row for each change of settings, inserted by triggers; see `portal.kit.db.read_cache`."""

    changed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.pk)


class StoredResponse(models.Model):
    """What a POST with an idempotency key was answered; see `portal.kit.api.routes`."""

    subject = models.CharField(max_length=80)
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subject", "key"], name="core_one_answer_per_key")]

    def __str__(self) -> str:
        return f"{self.status} at {self.created_at:%Y-%m-%d %H:%M:%S}"


def _signed_in_user(request: HttpRequest | None = None, **_: object) -> AbstractBaseUser | None:
    """The signed-in author of history rows; programs leave it empty."""
    user = getattr(request, "user", None)
    return user if isinstance(user, AbstractBaseUser) and user.pk else None


def change_history(**options: Any) -> HistoricalRecords:
    """A row's history, with the reason of each change."""
    return HistoricalRecords(
        history_change_reason_field=models.TextField(null=True), get_user=_signed_in_user, **options
    )
