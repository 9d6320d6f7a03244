"""ASGI entry point."""

import os
from importlib import import_module

from django.conf import settings
from django.core.asgi import get_asgi_application

from portal.kit.api.request_limits import BodyLimit, WriteConcurrencyLimit
from portal.kit.messaging.gc_tuning import tune_gc

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
application = BodyLimit(WriteConcurrencyLimit(get_asgi_application(), settings.RUNG_WRITES_AT_ONCE))
import_module(settings.ROOT_URLCONF)  # the first request would load it
tune_gc()
