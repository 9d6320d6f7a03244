"""The Celery application. Tasks carry ids; the database is the record, messages are wake-ups."""

import os

from celery import Celery

from portal.core import folderbroker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

folderbroker.install()
app = Celery("rung")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
