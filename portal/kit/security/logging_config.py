"""Logging: one structlog pipeline for our lines and those of libraries. Secrets are redacted here and in audit rows."""

import logging
import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import structlog

HIDDEN = "[redacted]"
SECRET_FIELD = re.compile(
    r"pass(word|wd)|secret|token|authorization|credential|kubeconfig|cookie|sealed|(private|client)[-_]?key", re.I
)
SECRET_TEXT = re.compile(
    r"\b(?:bearer|basic)\s+[\w.~+/=-]{8,}"  # credentials in a header
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # a JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*"
    r"|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"  # user and password in an address
    r"|\b(?:password|passwd|secret|token)s?\s?[=:]\s?[^\s,;]+",  # written out
    re.IGNORECASE,
)


def redact(value: Any, *, field: str = "") -> Any:
    """The value without secrets, of the same shape."""
    if SECRET_FIELD.search(field) and not isinstance(value, bool | int | float | None):
        return HIDDEN
    if isinstance(value, str):
        return SECRET_TEXT.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {key: redact(part, field=str(key)) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [redact(part) for part in value]
    return value


def redact_event(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: redact(value, field=key) if key != "event" else redact(value) for key, value in event.items()}


SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    redact_event,
]


class WithoutHealthChecks(logging.Filter):
    """Drops the lines about health checks, which come every few seconds and say themselves what is wrong."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True for lines to keep."""
        line = f"{record.msg} {record.args}"
        return "/readyz" not in line and "/healthz" not in line


def configure_structlog() -> None:
    """Send structlog through the standard library, whose handlers `dict_config` describes."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def dict_config(*, level: str, as_json: bool) -> dict[str, Any]:
    """Django's LOGGING: everything to standard error, as JSON lines or as plain key=value text."""
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "processors": [
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            redact_event,
            renderer,
        ],
        "foreign_pre_chain": SHARED,
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"rung": formatter},
        "filters": {"health": {"()": WithoutHealthChecks}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "rung", "filters": ["health"]}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": ["stderr"], "level": level, "propagate": False},
            "django.request": {"level": "ERROR"},
            "django_structlog": {"level": "WARNING"},
            "celery.beat": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "uvicorn.access": {"level": "WARNING"},
        },
    }
