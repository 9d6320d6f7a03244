"""The portal's settings with the bare peer beside it: the same process, middleware, database and authentication."""

import os
import tempfile

if "RUNG_DATA" not in os.environ:  # the benchmark itself; the servers it starts have RUNG_DATA
    _folder = tempfile.TemporaryDirectory(prefix="rung-bench-", ignore_cleanup_errors=True)
    os.environ["RUNG_DATA"] = _folder.name
    os.environ["RUNG_SECRET_KEY"] = "only-for-benchmarks-0123456789-abcdefghijklmnopqrstuvwxyz"
os.environ.setdefault("RUNG_LOG_LEVEL", "ERROR")

from portal.settings import *  # noqa: F403 - the environment comes first
from portal.settings import INSTALLED_APPS as PORTAL_APPS

INSTALLED_APPS = [*PORTAL_APPS, "benchmarks.bare"]
ROOT_URLCONF = "benchmarks.bare.urls"
ALLOWED_HOSTS = ["testserver", "127.0.0.1", "localhost"]
