"""The two halves of a sign-in through a provider, as a browser makes them, and what came of it."""

from urllib.parse import urlsplit

import requests
from django.test import Client
from django.urls import reverse

from portal.audit.models import AuditRecord
from tenants.access.models import User


def at_provider(client: Client, onward: str = "") -> str:
    """Start at Rung and sign in over there; answers the address that the provider sends the browser back to."""
    sent = client.get(reverse("single-sign-on"), {"next": onward} if onward else {})
    assert sent.status_code == 302, sent.content
    return at(sent["Location"])


def at(address: str) -> str:
    """Sign in at the provider's address."""
    return requests.get(address, allow_redirects=False, timeout=5).headers["Location"]


def back(client: Client, address: str) -> int:
    """Follow the provider's redirect to Rung."""
    parts = urlsplit(address)
    return client.get(f"{parts.path}?{parts.query}").status_code


def come_in(client: Client, onward: str = "") -> int:
    return back(client, at_provider(client, onward))


def signed_in(client: Client) -> User | None:
    found = client.session.get("_auth_user_id")
    return User.objects.get(pk=found) if found else None


def refusal() -> tuple[str, str]:
    """Result and code of the newest record."""
    last = AuditRecord.objects.order_by("-id")[0]
    assert last.action == "session.start"
    return last.result, last.detail.get("code", "")


def refused(client: Client, code: str) -> bool:
    return signed_in(client) is None and refusal() == ("Denied", code)
