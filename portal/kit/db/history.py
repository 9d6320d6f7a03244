"""History tables: every change of a row with its author and the reason."""

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import models
from django.http import HttpRequest
from simple_history.models import HistoricalRecords


def _signed_in_user(request: HttpRequest | None = None, **_: object) -> AbstractBaseUser | None:
    """Who signed in, for rows that go with another one; programs leave the author empty. Others are signed."""
    user = getattr(request, "user", None)
    return user if isinstance(user, AbstractBaseUser) and user.pk else None


def change_history(**options: Any) -> HistoricalRecords:
    """A row's history, with the reason of each change."""
    return HistoricalRecords(
        history_change_reason_field=models.TextField(null=True), get_user=_signed_in_user, **options
    )
