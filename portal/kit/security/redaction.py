"""Keeps secrets out of logs and audit rows: by the name of the field, and by the look of the text."""

import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

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
