"""Every setting of the portal; the only place that reads the environment.

`RUNG_DATA` is the folder for database, broker and logs. Everything else has a default that serves the demo;
production sets `DATABASE_URL`, `RUNG_BROKER_URL`, `RUNG_SECRET_KEY` and `RUNG_HOSTS` (see `.env.example`).
"""

from contextlib import suppress
from copy import deepcopy
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import environ
from csp.constants import NONCE, NONE, SELF
from kombu.entity import Queue

from portal.kit.security import logging_config

env = environ.Env()
env.ENVIRON.setdefault("OPENBLAS_NUM_THREADS", "1")  # else numpy starts a thread per core, which nothing here uses

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env.str("RUNG_DATA", default=str(BASE_DIR / "var"))).resolve()
BROKER_DIR = DATA_DIR / "broker"
for folder in (DATA_DIR, BROKER_DIR / "messages", BROKER_DIR / "control"):
    with suppress(OSError):  # an unwritable folder is reported by the system check core.E002
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def stored_key(name: str) -> str:
    """A key that `make demo` made for this data folder; empty elsewhere, which system checks refuse."""
    file = DATA_DIR / name
    return file.read_text().strip() if file.is_file() else ""


DEBUG = env.bool("RUNG_DEBUG", default=False)
SECRET_KEY = env.str("RUNG_SECRET_KEY", default="") or stored_key("secret-key")
SECRET_KEY_FALLBACKS: list[str] = env.list("RUNG_OLD_SECRET_KEYS", default=[])
# Health checks ask this machine by its loopback name, whatever the portal is called outside.
ALLOWED_HOSTS: list[str] = [*env.list("RUNG_HOSTS", default=[]), "127.0.0.1", "localhost", "[::1]"]
CSRF_TRUSTED_ORIGINS: list[str] = env.list("RUNG_ORIGINS", default=[])
# Networks of reverse proxies whose X-Forwarded-* headers are trusted; others are ignored.
RUNG_TRUSTED_PROXIES: list[str] = env.list("RUNG_TRUSTED_PROXIES", default=[])
# "on": wake workers after a commit. "off": leave it to the sweeps (tests).
RUNG_WAKEUPS = env.str("RUNG_WAKEUPS", default="on")
RUNG_DEMO_PASSWORD = env.str("RUNG_DEMO_PASSWORD", default="")
RUNG_DEMO_SPEED = env.int("RUNG_DEMO_SPEED", default=1)
# Registries that tenants' images may come from; "*" allows any.
RUNG_IMAGE_REGISTRIES: list[str] = env.list(
    "RUNG_IMAGE_REGISTRIES",
    default=["docker.io", "nvcr.io", "ghcr.io", "quay.io", "gcr.io", "registry.k8s.io", "mcr.microsoft.com"],
)
# Secrets in project namespaces that pods may name (as a token, to pull an image): the cluster's operator creates them.
RUNG_PROJECT_SECRETS: list[str] = env.list("RUNG_PROJECT_SECRETS", default=["hf-token", "ngc-api-key", "ngc-registry"])
# Digests of the audit trail; empty: derived from the secret key.
RUNG_AUDIT_KEY = env.str("RUNG_AUDIT_KEY", default="")
# Append-only file that notes the head of the audit chain: where the database's owner cannot write, if possible.
RUNG_AUDIT_CHECKPOINTS = env.str("RUNG_AUDIT_CHECKPOINTS", default=str(DATA_DIR / "audit-checkpoints.jsonl"))
# Days for which pods that have left a cluster and its events are kept; records of evictions are kept forever.
RUNG_KEEP_PODS_DAYS = env.int("RUNG_KEEP_PODS_DAYS", default=7)
RUNG_KEEP_EVENTS_DAYS = env.int("RUNG_KEEP_EVENTS_DAYS", default=30)

# --- real clusters ------------------------------------------------------------------------------------------------
# Keys that seal the credentials of clusters, the newest first; `manage.py rotate_credentials --new-key` makes one.
RUNG_CREDENTIAL_KEYS: list[str] = env.list("RUNG_CREDENTIAL_KEYS", default=[]) or stored_key("credential-keys").split()
# Private or loopback networks where API servers, mail servers and webhooks may be; empty: public addresses only.
RUNG_CLUSTER_ADDRESSES = [ip_network(each) for each in env.list("RUNG_CLUSTER_ADDRESSES", default=[])]
# Whether an admin may connect to a cluster without checking its certificate.
RUNG_ALLOW_INSECURE_CLUSTERS = env.bool("RUNG_ALLOW_INSECURE_CLUSTERS", default=False)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "template_partials",
    "import_export",
    "simple_history",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_celery_beat",
    "django_structlog",
    "csp",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.mfa",
    "portal.kit",
    "portal.audit",
    "clusters",
    "tenants",
    "workloads",
    "portal.demo",
]

MIDDLEWARE = [
    "portal.kit.pages.middleware.strip_forged_headers",
    "portal.kit.pages.middleware.name_request",
    "portal.kit.pages.middleware.drop_health_cookies",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "portal.kit.pages.middleware.set_cache_headers",
    "portal.kit.pages.middleware.answer_not_modified",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tenants.access.middleware.limit_session",
    "django_structlog.middlewares.RequestMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
    "portal.audit.request_records.record_denials",
    "portal.kit.pages.middleware.ErrorResponseMiddleware",
    "portal.kit.pages.htmx.HtmxMiddleware",
    "tenants.access.middleware.require_second_factor",
    "portal.kit.pages.middleware.read_settings_once",
]

ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"
AUTH_USER_MODEL = "tenants.User"
LOGIN_URL, LOGIN_REDIRECT_URL, LOGOUT_REDIRECT_URL = "login", "home", "login"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {"workload_filters": "workloads.lifecycle.views.filters"},
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "workloads.lifecycle.views.home.shell",
            ],
        },
    }
]

if DEBUG:  # read templates at every request; template_partials takes the loaders as they are here
    loaders = ["django.template.loaders.filesystem.Loader", "django.template.loaders.app_directories.Loader"]
    TEMPLATES[0] |= {"APP_DIRS": False}
    TEMPLATES[0]["OPTIONS"]["loaders"] = [("template_partials.loader.Loader", loaders)]

DATABASES: dict[str, Any] = {"default": env.db_url("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'rung.sqlite3'}")}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # Several processes share the file: write-ahead log, writers queue up instead of failing.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
else:
    # Pages are read from memory or an SSD. With PostgreSQL's default, which is a disk's, a list is read whole and
    # sorted for as long as its table was never analysed. `?options=` in the address of the database goes before.
    # A server that vanished without a word is noticed within half a minute, not after the kernel's quarter of an hour.
    DATABASES["default"]["OPTIONS"] = {
        "options": "-c random_page_cost=1.1",
        "connect_timeout": 5,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        **DATABASES["default"].get("OPTIONS", {}),
    }
    # Health has a connection of its own, which waits neither for a pooled one nor for a lock.
    DATABASES["health"] = deepcopy(DATABASES["default"])
    DATABASES["health"]["OPTIONS"] |= {"connect_timeout": 2}
    DATABASES["health"]["OPTIONS"]["options"] += " -c statement_timeout=800"
    if env.bool("RUNG_DATABASE_POOL", default=False):
        # Under ASGI every request runs in a thread of its own: a pool instead of persistent connections. Its attempts
        # to reconnect begin again after five seconds: no longer pause than two after the database is back. A pooled
        # connection is checked before it is used, so that a restart of the database costs no request its answer.
        DATABASES["default"]["OPTIONS"]["pool"] = {"min_size": 2, "max_size": 16, "timeout": 5, "reconnect_timeout": 5}
        DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
# Where heartbeats and health are read.
RUNG_HEALTH_DATABASE = "health" if "health" in DATABASES else "default"

CACHES: dict[str, Any] = {"default": env.cache_url("RUNG_CACHE_URL", default="locmemcache://")}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LANGUAGE_CODE, TIME_ZONE, USE_TZ = "en", "UTC", True
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = env.str("RUNG_STATIC_ROOT", default=str(DATA_DIR / "static"))
STORAGES: dict[str, Any] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "portal.kit.pages.static_files.HashedStorage"},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# What one request may carry; larger bodies are refused before they are parsed.
DATA_UPLOAD_MAX_MEMORY_SIZE, DATA_UPLOAD_MAX_NUMBER_FIELDS = 512 * 1024, 500

# --- security -----------------------------------------------------------------------------------------------------
HTTPS = env.bool("RUNG_HTTPS", default=False)
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
if RUNG_TRUSTED_PROXIES:  # the middleware has removed the header from everybody else's requests
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "rung_session", "rung_csrf"
SESSION_COOKIE_AGE = 12 * 3600
# Minutes without a request after which a session ends; 0: only its age ends it. Pages that refresh do not count.
RUNG_SESSION_IDLE_MINUTES = env.int("RUNG_SESSION_IDLE_MINUTES", default=60)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "portal.kit.api.error_responses.csrf_failed"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "style-src-attr": ["'unsafe-inline'"],  # widths of bars and the admin's import diff
        "img-src": [SELF, "data:"],
        "font-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
# Tries per key and window in seconds, exact across processes and restarts. "account" counts a name over all addresses.
RUNG_SIGN_IN_LIMITS = {"name": (10, 300), "account": (100, 3600), "address": (100, 300)}
RUNG_SIGN_IN_LIMITS |= {"code": (10, 300), "code day": (50, 24 * 3600)}

# --- signing in: single sign-on and the second factor (docs/signing-in.md) ----------------------------------------
# The provider's address, exactly as its tokens name it; empty: people sign in with passwords only.
RUNG_OIDC_ISSUER = env.str("RUNG_OIDC_ISSUER", default="")
RUNG_OIDC_CLIENT_ID = env.str("RUNG_OIDC_CLIENT_ID", default="")
RUNG_OIDC_CLIENT_SECRET = env.str("RUNG_OIDC_CLIENT_SECRET", default="")
RUNG_OIDC_NAME = env.str("RUNG_OIDC_NAME", default="Single sign-on")
RUNG_OIDC_SCOPES: list[str] = env.list("RUNG_OIDC_SCOPES", default=["openid", "profile", "email"])
# The claim that lists a user's groups; empty: groups are not changed.
RUNG_OIDC_GROUPS_CLAIM = env.str("RUNG_OIDC_GROUPS_CLAIM", default="groups")
# "their name=ours,…": only these groups count. Empty: every group, under its own name.
RUNG_OIDC_GROUPS: dict[str, str] = {
    theirs.strip(): ours.strip()
    for theirs, _, ours in (each.rpartition("=") for each in env.list("RUNG_OIDC_GROUPS", default=[]))
}
# Certificates of the authority that signed the provider's, for one of one's own.
RUNG_OIDC_CA_FILE = env.str("RUNG_OIDC_CA_FILE", default="")
# Who must have a second factor: "admins" (platform admins), "everyone", or empty.
RUNG_MFA_REQUIRED = env.str("RUNG_MFA_REQUIRED", default="")
MFA_ADAPTER = "tenants.access.services.second_factor.EncryptedSecretsAdapter"
MFA_TOTP_ISSUER, MFA_TOTP_TOLERANCE, MFA_RECOVERY_CODE_DIGITS = "Rung", 1, 12

# Bearer token with which /readyz and /metrics name clusters; empty: they name none.
RUNG_METRICS_TOKEN = env.str("RUNG_METRICS_TOKEN", default="")
# Hours for which a temporary password of a new user, or of a reset, signs in.
RUNG_TEMPORARY_PASSWORD_HOURS = env.int("RUNG_TEMPORARY_PASSWORD_HOURS", default=72)

# Streams of events: seconds between looks, between beats, of a life; open ones of a subject and of all, per process.
RUNG_STREAMS = {"tick": 1.0, "beat": 10.0, "longest": 3600.0, "of_one": 10, "most": 500}

# --- REST ---------------------------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["tenants.access.api.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["portal.kit.api.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["portal.kit.api.parsers.PlainJSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "portal.kit.api.parsers.JSONOnlyNegotiation",
    "DEFAULT_SCHEMA_CLASS": "portal.kit.api.openapi.RouteSchema",
    "EXCEPTION_HANDLER": "portal.kit.api.error_responses.exception_handler",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Rung",
    "VERSION": "0.1.0",
    "DESCRIPTION": "Run:ai's routes and formats, with Rung's additions marked \"Beyond Run:ai\". To try them, "
    "create an [access key](/access-keys/), send it to `POST /api/v1/token`, and paste "
    "`accessToken` into *Authorize*.",
    "SWAGGER_UI_SETTINGS": {"docExpansion": "none", "filter": True, "deepLinking": True},
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v[0-9]",
    "COMPONENT_SPLIT_REQUEST": True,
    "SERVERS": [{"url": "/", "description": "The portal that serves this document"}],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "portal.kit.api.openapi.document_headers",
    ],
    "ENUM_NAME_OVERRIDES": {
        "NotificationChannelType": "workloads.notifications.serializers.CHANNEL_TYPES",
        "PermissionAction": "tenants.access.rules.ACTIONS",
        "PlaceScope": "workloads.policies.serializers.SCOPES",
        "RuleBatchAction": "tenants.access.serializers.access_rules.BATCH_ACTIONS",
        "RuleScopeType": "tenants.access.services.access_rules.SCOPE_TYPES",
        "RuleSubjectType": "tenants.access.services.access_rules.SUBJECT_TYPES",
    },
}

# --- Celery: messages are wake-ups that carry ids; the database is the record of work -----------------------------
# "periodic" is for beat's short work. In production it has its own workers, so that limits are enforced at any load.
QUEUES = ("sync", "workloads", "notify", "maintenance", "periodic")
# How many workers one cluster may hold at a time, of all its applies, reconciles and observations.
RUNG_CLUSTER_WORKERS = env.int("RUNG_CLUSTER_WORKERS", default=3)
# Writes of one credential that a web process works on at a time; more of them wait, pages and other credentials do not.
RUNG_WRITES_AT_ONCE = env.int("RUNG_WRITES_AT_ONCE", default=2)
CELERY_BROKER_URL = env.str("RUNG_BROKER_URL", default="filesystem://localhost")
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = (
    {
        "data_folder_in": str(BROKER_DIR / "messages"),
        "data_folder_out": str(BROKER_DIR / "messages"),
        "control_folder": str(BROKER_DIR / "control"),
        "store_processed": False,
        "polling_interval": 0.1,
    }
    if CELERY_BROKER_URL.startswith("filesystem")
    else {"visibility_timeout": 600, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 10}
)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_SOFT_TIME_LIMIT = 100
CELERY_TASK_TIME_LIMIT = 120
# Celery would close every connection after each task; `portal.celery` closes those that are broken or old.
CELERY_DB_REUSE_MAX = 2**62
CELERY_TASK_DEFAULT_QUEUE = "maintenance"
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_QUEUES = [Queue(name, routing_key=name) for name in QUEUES]
PERIODIC = ("clusters.sweep", "clusters.tick_sandboxes", "clusters.observe_all", "workloads.sweep", "workloads.limits")
MAINTENANCE = ("pools", "forget_keys", "quota_requests", "make_*", "run_*", "detect*", "score_*", "compute_*")
CELERY_TASK_ROUTES = {
    **{task: {"queue": "periodic", "routing_key": "periodic"} for task in PERIODIC},
    "clusters.*": {"queue": "sync", "routing_key": "sync"},
    "workloads.notify": {"queue": "notify", "routing_key": "notify"},
    **{f"workloads.{task}": {"queue": "maintenance", "routing_key": "maintenance"} for task in MAINTENANCE},
    "workloads.*": {"queue": "workloads", "routing_key": "workloads"},
}
# One message at a time, except on folders: there the worker acknowledges only every other second.
CELERY_WORKER_PREFETCH_MULTIPLIER = 32 if CELERY_BROKER_URL.startswith("filesystem") else 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# A client of the broker could end workers or revoke tasks with it, and Rung does not use it.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_WORKER_CONSUMER = "portal.kit.messaging.celery_processes:ReconnectingConsumer"
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "portal.kit.messaging.celery_processes:HeartbeatScheduler"


def periodic(task: str, seconds: float, queue: str, *args: str) -> dict[str, Any]:
    """A beat entry whose message is dropped when it was not consumed before the next two were due."""
    options = {"queue": queue, "expire_seconds": max(10, int(seconds * 2))}
    return {"task": task, "schedule": seconds, "args": args, "options": options}


CELERY_BEAT_SCHEDULE = {
    "clusters.sweep": periodic("clusters.sweep", 10, "periodic"),
    "clusters.tick_sandboxes": periodic("clusters.tick_sandboxes", 1, "periodic"),
    "clusters.observe_all": periodic("clusters.observe_all", 5, "periodic"),
    "clusters.sample": periodic("clusters.sample", 4, "maintenance"),
    "clusters.measure_gpus": periodic("clusters.measure_gpus", 60, "maintenance"),
    "clusters.prune": periodic("clusters.prune", 3600, "maintenance"),
    "workloads.sweep": periodic("workloads.sweep", 5, "periodic"),
    "workloads.limits": periodic("workloads.limits", 30, "periodic"),
    "workloads.forget_keys": periodic("workloads.forget_keys", 3600, "maintenance"),
    "workloads.pools": periodic("workloads.pools", 10, "maintenance"),
    "workloads.score_forecasts": periodic("workloads.score_forecasts", 10, "maintenance"),
    "workloads.compute_starts": periodic("workloads.compute_starts", 10, "maintenance"),
    "workloads.detect": periodic("workloads.detect", 900, "maintenance"),
    "workloads.notify": periodic("workloads.notify", 5, "notify"),
    "workloads.quota_requests": periodic("workloads.quota_requests", 60, "maintenance"),
    "workloads.make_reports": periodic("workloads.make_reports", 10, "maintenance"),
    "workloads.run_replays": periodic("workloads.run_replays", 10, "maintenance"),
    "audit.seal": periodic("audit.seal", 10, "maintenance"),
    "core.maintenance": periodic("core.maintenance", 3600, "maintenance"),
    **{f"core.canary {queue}": periodic("core.canary", 5, queue, queue) for queue in QUEUES},
}

# --- logging ------------------------------------------------------------------------------------------------------
LOGGING = logging_config.dict_config(level=env.str("RUNG_LOG_LEVEL", "INFO"), as_json=env.bool("RUNG_LOG_JSON", False))
DJANGO_STRUCTLOG_CELERY_ENABLED = False
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True  # `name_request` has set it
logging_config.configure_structlog()
