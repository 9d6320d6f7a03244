"""The Celery application. Tasks carry ids; the database is the record, messages are wake-ups."""

import os
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup

from portal.kit.messaging import folder_broker
from portal.kit.messaging.gc_tuning import tune_gc

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

folder_broker.install()
app = Celery("rung")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(
    [
        "portal.audit",
        "portal.kit.messaging",
        "clusters.sandbox",
        "clusters.sync",
        "clusters.watch",
        "workloads.lifecycle",
        "workloads.notifications",
        "workloads.reports",
        "workloads.submission",
    ]
)


@celeryd_after_setup.connect
def _calm(**_: Any) -> None:
    """Every task is imported now, and no child has been forked yet."""
    tune_gc()
