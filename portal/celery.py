"""The Celery application. Tasks carry ids; the database is the record, messages are wake-ups."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("rung")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
