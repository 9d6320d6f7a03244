"""The Celery application. Tasks carry ids; the database is the record, messages are wake-ups."""

import os
from typing import Any, Final

from celery import Celery
from celery.signals import celeryd_after_setup, task_postrun, task_prerun, worker_process_init
from django.db import close_old_connections, connections

from portal.kit.messaging import folder_broker
from portal.kit.messaging.gc_tuning import collect_rarely, tune_gc

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

collect_rarely()
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
        "workloads.quota_requests",
        "workloads.replay",
        "workloads.reports",
        "workloads.submission",
    ]
)


KEPT_SECONDS: Final = 300
"""How long a worker process keeps a connection to PostgreSQL."""


@worker_process_init.connect
def keep_connections(**_: Any) -> None:
    """In a forked process, which runs one task at a time: use a connection for many tasks, checked before each."""
    for alias in connections:
        if connections[alias].vendor == "postgresql":
            connections.settings[alias] |= {"CONN_MAX_AGE": KEPT_SECONDS, "CONN_HEALTH_CHECKS": True}


@task_prerun.connect
@task_postrun.connect
def close_obsolete_connections(task: Any, **_: Any) -> None:
    """Close those that are broken or old; outside of forked processes every task opens its own."""
    if not task.request.is_eager:
        close_old_connections()


@celeryd_after_setup.connect
def _calm(**_: Any) -> None:
    """Every task is imported now, and no child has been forked yet."""
    tune_gc()
