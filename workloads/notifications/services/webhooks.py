"""Webhooks: channels that send each entry of the change feed as a signed POST, by the Standard Webhooks headers.

A request goes to an address that was checked just before, follows no redirect and reads no body. Its signature is
HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<body>`; for a day after a rotation the old secret signs too.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from threading import Timer
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from clusters.connection.services.gateways import secret_box
from clusters.ports.connection import parse_server_url
from clusters.ports.gateway import AddressRefused
from portal.audit.models import Result
from portal.audit.services import audited_transaction, record, record_refusals
from portal.kit.db.transactions import external_call
from portal.kit.errors import Conflict, NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.encryption import DecryptionFailed, NoEncryptionKey
from workloads.notifications.models import NotificationChannel
from workloads.notifications.rules import WEBHOOK
from workloads.notifications.services.channels import CHANNEL_NAME, locked_channel, require_channels
from workloads.notifications.services.mail import DeliveryError, pinned_address

TIMEOUT: Final = 10.0
"""Seconds for a whole request, however slowly the answer comes."""
OVERLAP: Final = timedelta(days=1)
"""For so long the secret before a rotation signs too."""
PREFIX: Final = "whsec_"
_QUERY: Final = re.compile(r"[A-Za-z0-9._~%&=+:@/?-]{0,500}")


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """Where a webhook is sent. `target`: path and query. Plain HTTP reaches only what the operator allowed."""

    tls: bool
    host: str
    port: int
    target: str

    @property
    def server(self) -> str:
        """Without path and query, which may hold a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """One event. A receiver knows a repeated one by its `id`."""

    id: str
    body: bytes


def parse_webhook_url(text: str) -> WebhookUrl:
    """The parts of `https://host[:port][/path][?query]`, or of such an http URL. ValidationFailed at /url."""
    scheme, _, rest = text.partition("://")
    address, _mark, query = rest.partition("?")
    authority, slash, path = address.partition("/")
    tls = scheme == "https"
    if scheme not in {"https", "http"} or not _QUERY.fullmatch(query):
        raise ValidationFailed.at("/url", "bad_url", "Enter https://host:port, optionally with a path and a query.")
    default = "" if tls or re.search(r":\d+$", authority) else ":80"
    try:
        found = parse_server_url(f"https://{authority}{default}{slash}{path}")
    except AddressRefused as error:
        raise ValidationFailed.at("/url", "bad_url", error.message) from None
    if not tls and not settings.RUNG_CLUSTER_ADDRESSES:
        raise ValidationFailed.at("/url", "https_required", "The URL must begin with https://.")
    target = (slash + path or "/") + (f"?{query}" if query else "")
    return WebhookUrl(tls, found.host, found.port, target)


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """One entry of the header `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


def webhook_message(message_id: str, type_: str, at: str | None, data: Mapping[str, Any]) -> WebhookMessage:
    """An event as a body: `type`, such as `workload.phase`, `timestamp` and `data`."""
    body = {"type": type_, "timestamp": at, "data": data}
    return WebhookMessage(message_id, json.dumps(body, separators=(",", ":")).encode())


class WebhookConnection:
    """Sends messages to one URL, each over a connection of its own; leave it by `with`."""

    def __init__(self, url: WebhookUrl, secrets: Sequence[str]) -> None:
        self._url, self._secrets, self.lost = url, secrets, False
        self._address = pinned_address(url.host, url.port)
        allowed = settings.RUNG_CLUSTER_ADDRESSES
        if not url.tls and not any(ip_address(self._address) in network for network in allowed):
            raise DeliveryError("Plain HTTP is sent to addresses of RUNG_CLUSTER_ADDRESSES only.", final=True)

    def __enter__(self) -> "WebhookConnection":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing stays open."""

    def send(self, message: WebhookMessage) -> None:
        """Hand one message over. Raises DeliveryError unless it is answered 2xx; 410 is final."""
        try:
            status = self._posted(message)
        except (OSError, HTTPException, ValueError) as error:
            self.lost = True
            raise _delivery_error(error) from None
        if not 200 <= status < 300:
            raise DeliveryError(f"The webhook answered {status}.", final=status == 410)

    def _posted(self, message: WebhookMessage) -> int:
        sent_at = int(timezone.now().timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Rung",
            "webhook-id": message.id,
            "webhook-timestamp": str(sent_at),
            "webhook-signature": " ".join(signature(each, message.id, sent_at, message.body) for each in self._secrets),
            "Connection": "close",
        }
        line = _PinnedHTTP(self._url, self._address)
        try:
            line.request("POST", self._url.target, message.body, headers)
            answer: HTTPResponse = line.getresponse()
            return answer.status
        finally:
            line.close()


class _PinnedHTTP(HTTPConnection):
    """Connects to the checked address; names and certificates stay those of the host. Cut after TIMEOUT."""

    def __init__(self, url: WebhookUrl, address: str) -> None:
        self.default_port = 443 if url.tls else 80
        super().__init__(url.host, url.port, timeout=TIMEOUT)
        self._address, self._tls = address, url.tls
        self._cutter = Timer(TIMEOUT, self._cut)
        self._cutter.daemon = True

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), TIMEOUT)
        self.sock = plain
        self._cutter.start()
        if self._tls:
            self.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)

    def close(self) -> None:
        self._cutter.cancel()
        super().close()

    def _cut(self) -> None:
        with suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)


def _delivery_error(error: Exception) -> DeliveryError:
    """What went wrong, without the words of the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeliveryError("The certificate of the webhook's server is not trusted.")
    return DeliveryError(f"The webhook's server is not reachable ({type(error).__name__}).")


def connection_to(row: NotificationChannel) -> WebhookConnection:
    """Ready to send. Raises DeliveryError where the secret does not open or the address is out of bounds."""
    return WebhookConnection(parse_webhook_url(row.config["url"]), _secrets_of(row))


def webhooks(actor: Actor) -> QuerySet[NotificationChannel]:
    """Every webhook, by name. Raises Forbidden for who does not manage channels."""
    require_channels(actor)
    return NotificationChannel.objects.filter(type=WEBHOOK)


def webhook_named(*, name: str, actor: Actor) -> NotificationChannel:
    """Raises NotFound where there is none of that name."""
    found = webhooks(actor).filter(name=name).first() if CHANNEL_NAME.fullmatch(name) else None
    if found is None:
        raise NotFound
    return found


def add_webhook(*, name: str, url: str, actor: Actor) -> tuple[NotificationChannel, str]:
    """A webhook and its secret, which is never shown again. Conflict where a channel has the name."""
    with audited_transaction(actor=actor, action="notifications.add_webhook", **_entity(name)):
        require_channels(actor)
        if not CHANNEL_NAME.fullmatch(name):
            raise ValidationFailed.at("/name", "bad_name", "Use up to 63 lower-case letters, digits and dashes.")
        parse_webhook_url(url)
        row, secret = NotificationChannel(name=name, type=WEBHOOK, config={"url": url}), _new_secret()
        _seal(row, {"secret": secret})
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            raise Conflict(f"Channel {name} already exists.", code="name_taken") from None
        _record(actor, "notifications.add_webhook", row)
    return row, secret


def change_webhook(*, row: NotificationChannel, url: str, actor: Actor) -> NotificationChannel:
    """Send to another URL from now on, also what waits. The secret stays: it signs, and is never sent."""
    with audited_transaction(actor=actor, action="notifications.change_webhook", **_entity(row.name)):
        require_channels(actor)
        parse_webhook_url(url)
        channel = locked_channel(row)
        channel.config = {"url": url}
        channel.save()
        _record(actor, "notifications.change_webhook", channel)
    return channel


def rotate_webhook_secret(*, row: NotificationChannel, actor: Actor) -> str:
    """A new secret. The old one signs beside it for a day, so that receivers can change without losing a message."""
    with audited_transaction(actor=actor, action="notifications.rotate_webhook_secret", **_entity(row.name)):
        require_channels(actor)
        channel, secret = locked_channel(row), _new_secret()
        rotated = {"secret": secret}
        with suppress(DeliveryError):
            rotated |= {"previous": _opened(channel)["secret"], "until": (timezone.now() + OVERLAP).isoformat()}
        _seal(channel, rotated)
        channel.save()
        _record(actor, "notifications.rotate_webhook_secret", channel)
    return secret


def try_webhook(*, row: NotificationChannel, actor: Actor, sends: bool = True) -> str:
    """Send a test event now; answers why it was not taken, empty where it was. Waits for the server.

    `sends`: else only its address is checked.
    """
    action, about = "notifications.try_webhook", _entity(row.name)
    with record_refusals(actor=actor, action=action, **about):
        require_channels(actor)
    message = webhook_message(f"test_{secrets.token_hex(8)}", "workload.test", timezone.now().isoformat(), {})

    def send() -> str:
        try:
            with connection_to(row) as connection:
                if sends:
                    connection.send(message)
        except DeliveryError as trouble:
            return str(trouble)
        return ""

    trouble = send() if sends else external_call(send)
    record(
        actor, action, row, result=Result.FAILED if trouble else Result.SUCCEEDED, detail={"answer": trouble}, **about
    )
    return trouble


def _new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def _seal(row: NotificationChannel, secret: Mapping[str, str]) -> None:
    try:
        box = secret_box()
    except NoEncryptionKey:
        message = "Rung has no encryption key for secrets. The operator must set RUNG_CREDENTIAL_KEYS."
        raise ValidationFailed.at("", "no_key", message) from None
    row.sealed, row.key_id = box.seal(secret, bound_to=row.bound_to), box.key_id


def _opened(row: NotificationChannel) -> Mapping[str, str]:
    try:
        return secret_box().open(row.sealed, bound_to=row.bound_to)
    except (DecryptionFailed, NoEncryptionKey):
        raise DeliveryError("The stored secret cannot be decrypted. Rotate it.") from None


def _secrets_of(row: NotificationChannel) -> list[str]:
    """The newest first."""
    found = _opened(row)
    until: datetime | None = parse_datetime(found.get("until", ""))
    previous = [found["previous"]] if until is not None and timezone.now() < until else []
    return [found["secret"], *previous]


def _entity(name: str) -> dict[str, str]:
    return {"entity_type": "webhook", "entity_name": name}


def _record(actor: Actor, action: str, row: NotificationChannel) -> None:
    record(actor, action, row, detail={"server": parse_webhook_url(row.config["url"]).server}, **_entity(row.name))
