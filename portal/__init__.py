"""Wiring only: settings, URLs, Celery, ASGI and WSGI, and below all apps the shared kit and the audit trail."""
