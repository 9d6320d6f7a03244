"""Rows of the shared kit: claimed periods (beat may run twice) and heartbeats (who has worked lately)."""

from django.db import models


class Period(models.Model):
    """One run of a periodic job. The unique (job, start) makes every period happen once, however many beats there are."""

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
