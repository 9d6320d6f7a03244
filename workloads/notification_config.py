"""A channel's configuration as it was sent, checked field by field, apart from its password."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from clusters.addresses import server_of
from clusters.errors import AddressRefused
from portal.core.errors import Problem
from workloads.mailing import Server

TYPES: Final = ("email",)
SIGN_IN: Final = ("auth_login", "auth_plain")
NO_SIGN_IN: Final = ("auth_none", "")
SUBJECT: Final = "Run:ai notification - {{ .category }} {{ .reason }}"
MOST_RECIPIENTS: Final = 20
_PLACE: Final = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
_PLACES: Final = ("category", "reason", "workload", "project")
_DEFAULTS: Final[Mapping[str, Any]] = {
    "username": "",
    "smtpHost": "",
    "smtpPort": 587,
    "from": "",
    "authType": "auth_login",
    "smtpTlsEnabled": True,
    "recipients": [],
    "fromDisplayName": "Rung",
    "directNotifications": True,
    "subject": SUBJECT,
}


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with its defaults, without the password and what is always absent."""
    return {key: default if given.get(key) is None else given[key] for key, default in _DEFAULTS.items()}


def problems_of(config: Mapping[str, Any], given: Mapping[str, Any], password: str) -> Sequence[Problem]:
    """All that is wrong with a completed configuration, with pointers."""
    found = [*_host_problems(config["smtpHost"]), *_text_problems(config), *_address_problems(config)]
    if given.get("apiToken"):
        found.append(_problem("apiToken", "unsupported", "Mail servers take none."))
    if given.get("useAttachments"):
        found.append(_problem("useAttachments", "unsupported", "Rung attaches nothing: leave it out."))
    return [*found, *_sign_in_problems(config, password)]


def server_for(config: Mapping[str, Any], password: str) -> Server:
    """How its server is reached."""
    signs_in = config["authType"] in SIGN_IN
    return Server(
        config["smtpHost"],
        config["smtpPort"],
        config["smtpTlsEnabled"],
        config["username"] if signs_in else "",
        password if signs_in else "",
    )


def subject_of(config: Mapping[str, Any], values: Mapping[str, str]) -> str:
    """The subject with its places filled in; what fills them is never read as a place itself."""
    return _PLACE.sub(lambda match: values.get(match[1], ""), config["subject"])


def _problem(field: str, code: str, message: str, allowed: Sequence[str] = ()) -> Problem:
    return Problem(f"/config/{field}", code, message, tuple(allowed))


def _host_problems(host: str) -> list[Problem]:
    if not host:
        return [_problem("smtpHost", "required", "The name of the mail server is needed.")]
    try:
        found = server_of(f"https://[{host}]" if ":" in host else f"https://{host}")
    except AddressRefused:
        found = None
    good = found is not None and found.port == 443 and not found.path
    return [] if good else [_problem("smtpHost", "bad_host", "A host name or a plainly written IP address is taken.")]


def _text_problems(config: Mapping[str, Any]) -> list[Problem]:
    texts = ("fromDisplayName", "subject", "username")
    found = [
        _problem(name, "control_character", "It must be one line of printable text.")
        for name in texts
        if not config[name].isprintable()
    ]
    if unknown := set(_PLACE.findall(config["subject"])) - set(_PLACES):
        named = ", ".join(sorted(unknown))[:100]
        found.append(_problem("subject", "unknown_place", f"Nothing fills in {named}.", _PLACES))
    return found


def _address_problems(config: Mapping[str, Any]) -> list[Problem]:
    sender = _problem("from", "bad_address", "One plain mail address is needed.")
    found = [] if is_mail_address(config["from"]) else [sender]
    if len(config["recipients"]) > MOST_RECIPIENTS:
        found.append(_problem("recipients", "too_many", f"Up to {MOST_RECIPIENTS} addresses are taken."))
    found += [
        _problem(f"recipients/{place}", "bad_address", f"{each[:80]!r} is not one plain mail address.")
        for place, each in enumerate(config["recipients"][:MOST_RECIPIENTS])
        if not is_mail_address(each)
    ]
    if not config["directNotifications"] and not config["recipients"]:
        found.append(_problem("recipients", "required", "Without direct notifications it needs recipients."))
    return found


def _sign_in_problems(config: Mapping[str, Any], password: str) -> list[Problem]:
    if config["authType"] in NO_SIGN_IN:
        return []
    found = [] if config["smtpTlsEnabled"] else [_problem("smtpTlsEnabled", "required", "A password needs TLS.")]
    if not config["username"]:
        found.append(_problem("username", "required", "Who signs in is needed, or authType auth_none."))
    if not password:
        message = "The password is needed: it is new here, or the server or user name changed."
        found.append(_problem("password", "required", message))
    return found


def is_mail_address(text: str) -> bool:
    """Is it one plain address?"""
    try:
        validate_email(text)
    except ValidationError:
        return False
    return len(text) <= 254 and text.isascii() and text.isprintable()
