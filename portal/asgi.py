"""ASGI entry point."""

import gc
import os
from importlib import import_module

from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
application = get_asgi_application()

# Everything that stays for the life of the process is loaded now and then left out of garbage collection: a full
# collection over it held every request of the process for a tenth of a second, once in a few hundred requests.
import_module(settings.ROOT_URLCONF)
gc.collect()
gc.freeze()
