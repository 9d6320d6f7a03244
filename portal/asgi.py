"""ASGI entry point."""

import os
from importlib import import_module

from django.conf import settings
from django.core.asgi import get_asgi_application

from portal.core.collector import calm_collector

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
application = get_asgi_application()
import_module(settings.ROOT_URLCONF)  # the first request would load it
calm_collector()
