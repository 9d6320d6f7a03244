"""The Celery application. Tasks carry ids; the database is the record, messages are wake-ups."""

import os
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup

from portal.core import folderbroker
from portal.core.collector import calm_collector

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

folderbroker.install()
app = Celery("rung")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@celeryd_after_setup.connect
def _calm(**_: Any) -> None:
    """Every task is imported now, and no child has been forked yet."""
    calm_collector()
