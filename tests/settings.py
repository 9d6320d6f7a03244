"""The portal's settings for tests: a data folder that goes away, cheap hashes, plain static files, no wake-ups."""

import os
import tempfile
from ipaddress import ip_network
from typing import Any

_folder = tempfile.TemporaryDirectory(prefix="rung-tests-", ignore_cleanup_errors=True)
os.environ["RUNG_DATA"] = _folder.name
os.environ["RUNG_SECRET_KEY"] = "only-for-tests-0123456789-abcdefghijklmnopqrstuvwxyz"
os.environ["RUNG_LOG_LEVEL"] = "CRITICAL"
for name in (
    "DATABASE_URL",
    "RUNG_BROKER_URL",
    "RUNG_HOSTS",
    "RUNG_DEBUG",
    "RUNG_HTTPS",
    "RUNG_TRUSTED_PROXIES",
    "RUNG_CLUSTER_ADDRESSES",
    "RUNG_OIDC_ISSUER",
    "RUNG_MFA_REQUIRED",
):
    os.environ.pop(name, None)

from portal.settings import *  # noqa: E402, F403 - the environment comes first
from portal.settings import DATABASES  # noqa: E402

ALLOWED_HOSTS: list[str] = ["testserver", "127.0.0.1", "localhost"]
RUNG_WAKEUPS = "off"
RUNG_CREDENTIAL_KEYS = ["b25seS1mb3ItdGVzdHMtb25seS1mb3ItdGVzdHMtMDE="]
RUNG_CLUSTER_ADDRESSES = [ip_network("127.0.0.0/8")]  # where the real parts of tests listen
CACHES: dict[str, Any] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES: dict[str, Any] = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_AUTOREFRESH = True
# One connection serves all tests of a process: of the 128 statements that sqlite3 keeps, few come again in time.
DATABASES["default"]["OPTIONS"]["cached_statements"] = 2000
