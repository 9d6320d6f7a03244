"""Asking the provider: bounded in time and size, without redirects, proxies or credentials of the surroundings."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import requests

from portal.oidc.provider import Provider, ProviderAway, Unbelieved, is_safe

MOST_BYTES: Final = 1024 * 1024
SECONDS: Final = 10.0


def ask(
    provider: Provider,
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    basic: tuple[str, str] | None = None,
    bearer: str = "",
) -> dict[str, Any]:
    """The JSON object at the address; with `form` it is posted. Unbelieved for a "no", ProviderAway for no answer."""
    if not is_safe(url):
        raise Unbelieved("The provider names an address without https.", code="unsafe_address")
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
    try:
        with requests.Session() as session:
            session.trust_env = False  # no netrc, no proxies, no bundles that somebody else set
            with session.request(
                "GET" if form is None else "POST",
                url,
                data=form,
                auth=basic,
                headers=headers,
                timeout=(3, 5),
                allow_redirects=False,
                stream=True,
                verify=provider.ca_file or True,
            ) as answer:  # what is not read to its end keeps its connection otherwise
                return _read(answer.status_code, _bounded(answer))
    except (requests.RequestException, OSError) as error:
        raise ProviderAway("The provider of the single sign-on does not answer.") from error


def _bounded(answer: requests.Response) -> bytes:
    """The body, if it is small enough and comes soon enough."""
    until, body = time.monotonic() + SECONDS, b""
    for part in answer.iter_content(8192):
        body += part
        if len(body) > MOST_BYTES or time.monotonic() > until:
            raise ProviderAway("The provider's answer is too long or too slow.")
    return body


def _read(status: int, body: bytes) -> dict[str, Any]:
    if status >= 500 or 300 <= status < 400:
        raise ProviderAway(f"The provider of the single sign-on answered {status}.")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProviderAway("The provider's answer cannot be read.") from error
    if not isinstance(said, dict):
        raise ProviderAway("The provider's answer cannot be read.")
    if status != 200:
        raise Unbelieved("The provider did not accept this sign-in.", code="provider_refused")
    return said
