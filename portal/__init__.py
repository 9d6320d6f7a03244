"""Wiring only: settings, URLs, Celery, ASGI and WSGI, and below all apps the shared kit and the audit trail."""

from portal.celery import app as celery_app

__all__ = ["celery_app"]
