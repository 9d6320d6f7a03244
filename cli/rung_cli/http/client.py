"""The API client: credentials of an address, a token for a secret, lists of any length."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from rung_cli.config import credential_store
from rung_cli.config.credential_store import Credentials
from rung_cli.errors import ApiError, NotSignedIn, Unreachable
from rung_cli.http.addresses import origin_of
from rung_cli.http.transport import ApiCall, Query, RestTransport
from rung_cli.output.stderr import note, progress

EARLY: Final = 60
"""A token is renewed this many seconds before its end."""


def exchange(wire: RestTransport, client_id: str, secret: str) -> tuple[str, float]:
    """A token and when it ends (epoch seconds). NotSignedIn: a wrong secret. Unreachable: no portal."""
    body = {"grantType": "client_credentials", "clientId": client_id, "clientSecret": secret}
    try:
        answer = wire.send(ApiCall("POST", "v1/token", body=body))
    except ApiError as refusal:
        if not refusal.answer:  # whatever answers there, it is no portal
            text = f"No portal at {wire.address}: {refusal.message}."
            raise Unreachable(text, hint="Check the address: --url, RUNG_URL or the profile's.") from None
        raise NotSignedIn(refusal.message, hint="Check RUNG_CLIENT_ID and the secret, or run: rung login") from None
    token = answer.get("accessToken") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise NotSignedIn("The server returned no token.", hint="Is this the address of a portal?")
    return token, time.time() + float(answer.get("expiresIn") or 0)


@dataclass
class Signer:
    """The token for one profile at one address."""

    wire: RestTransport
    profile: str
    _now: Credentials | None = None

    def token(self) -> str:
        """A token that lives; a new one where the old one ends. NotSignedIn without credentials."""
        known = self._now or self._find()
        if known.token and known.expires - time.time() > EARLY:
            self._now = known
            return known.token
        return self._renewed(known)

    def renew(self) -> str:
        """After a 401: a new token for the same secret."""
        return self._renewed(self._now or self._find())

    def _find(self) -> Credentials:
        origin = origin_of(self.wire.address)
        if secret := os.environ.get("RUNG_CLIENT_SECRET"):
            if client_id := os.environ.get("RUNG_CLIENT_ID"):
                return Credentials(origin, client_id, secret)
            raise NotSignedIn("RUNG_CLIENT_SECRET is set but RUNG_CLIENT_ID is not.")
        stored = credential_store.load(self.profile)
        if stored is None:
            raise NotSignedIn(f"Not signed in to {origin} (profile {self.profile}).", hint="Sign in: rung login")
        if stored.origin != origin:
            text = f"Profile {self.profile} is signed in to {stored.origin}. Its token is not sent elsewhere."
            raise NotSignedIn(text, hint=f"Sign in there too: rung login {origin} --profile NAME")
        return stored

    def _renewed(self, known: Credentials) -> str:
        if not known.secret:
            raise NotSignedIn("The session has expired.", hint="Sign in again: rung login")
        token, expires = exchange(self.wire, known.client_id, known.secret)
        self._now = known.with_token(token, expires)
        if not os.environ.get("RUNG_CLIENT_SECRET"):
            credential_store.save(self.profile, self._now)
        return token


class Api:
    """Signed requests. The paths are those of the OpenAPI document, without `/api/`."""

    def __init__(self, wire: RestTransport, signer: Signer) -> None:
        self.wire = wire
        self._signer = signer
        self.plans: list[Mapping[str, Any]] = []
        """Change plans that came with the answers of dry runs, the newest last."""

    def ask(self, call: ApiCall) -> Any:
        """The answer; a token that died on the way is renewed once."""
        token = self._signer.token()
        try:
            answer = self.wire.send(call, token)
        except NotSignedIn:
            renewed = self._signer.renew()
            answer = self.wire.send(call, renewed)
        if "dryRun" in call.query and isinstance(answer, dict) and isinstance(answer.get("plan"), dict):
            self.plans.append(answer["plan"])
        return answer

    def token(self) -> str:
        """For what is not asked here: a stream."""
        return self._signer.token()

    def get(self, path: str, **query: str | int | bool) -> Any:
        """Read."""
        return self.ask(ApiCall("GET", path, query=query))

    def text(self, path: str) -> str:
        """Read a file."""
        found: str = self.ask(ApiCall("GET", path, text=True))
        return found

    def post(self, path: str, body: Any, *, key: str = "", dry_run: bool = False) -> Any:
        """Write, once per key; without one it gets its own. A dry run changes nothing."""
        return self.ask(
            ApiCall("POST", path, query=_dry_run_query(dry_run=dry_run), body=body, key=key or str(uuid.uuid4()))
        )

    def put(self, path: str, body: Any, *, dry_run: bool = False) -> Any:
        """Set; twice is once, so it may be sent again."""
        return self.ask(ApiCall("PUT", path, query=_dry_run_query(dry_run=dry_run), body=body, key=str(uuid.uuid4())))

    def patch(self, path: str, body: Any, *, dry_run: bool = False) -> Any:
        """Change what the body names, to what it names: twice is once too."""
        return self.ask(ApiCall("PATCH", path, query=_dry_run_query(dry_run=dry_run), body=body, key=str(uuid.uuid4())))

    def delete(self, path: str, *, dry_run: bool = False, **query: str | int) -> Any:
        """DELETE. Not retried when its arrival is unknown: the second answer would be 404."""
        return self.ask(ApiCall("DELETE", path, query={**query, **_dry_run_query(dry_run=dry_run)}))

    def read(self, path: str, body: Any) -> Any:
        """A POST that changes nothing: its key only lets it be sent again."""
        return self.ask(ApiCall("POST", path, body=body, key=str(uuid.uuid4())))


def _dry_run_query(*, dry_run: bool) -> dict[str, str | int | bool]:
    return {"dryRun": True} if dry_run else {}


LARGEST: Final = 500
WAYS: Final = frozenset({"next", "nextOffset", "nextAfter"})


def rows(api: Api, path: str, name: str, *, query: Query, most: int | None = None) -> list[dict[str, Any]]:
    """Up to `most` rows of the list under `name`; None is all of them."""
    size = LARGEST if most is None else min(most, LARGEST)
    found = list(islice(each(api, path, name, query=query, size=size), most))
    progress("")
    return found


def each(api: Api, path: str, name: str, *, query: Query, size: int = LARGEST) -> Iterator[dict[str, Any]]:
    """Row by row, asking for the next page when it is needed: by cursor where the list has one, else by offset.

    After a cursor nothing is skipped or repeated when rows come and go, and the last page is as quick as the first.
    """
    requested = {key: value for key, value in query.items() if value != ""}
    place: Query | None = {}
    read = 0
    while place is not None:
        page = api.get(path, **requested, **place, limit=size)
        yield from page[name]
        read += len(page[name])
        place = _next(page, read, full=len(page[name]) == size)
        progress("" if place is None else f"{read} read …")


def _next(page: Mapping[str, Any], read: int, *, full: bool) -> Query | None:
    """What to ask with for the page after this one; None after the last. Some lists say it apart, in other words.

    Lists that say nothing of it (nodes, node pools, access rules) go on until a page is not full.
    """
    ways = page.get("pagination") or page
    if not WAYS & ways.keys():
        return {"offset": read} if full else None
    if cursor := ways.get("nextAfter"):
        return {"after": str(cursor)}
    return None if ways.get("next", ways.get("nextOffset")) is None else {"offset": read}


def unless_busy(ask: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The server's answer; empty, with a note, if it gives none after all retries. ApiError where it refuses."""
    try:
        return ask()
    except Unreachable as error:
        note(f"No preview: {error.message}")
        return {}
