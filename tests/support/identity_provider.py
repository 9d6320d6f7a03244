"""An OpenID provider on loopback, made of the standard library and PyJWT: it lets its one person in without asking.

It knows nothing of Rung. By default it does everything right, PKCE and codes that work once included; what it says can
be bent at every place: `claims` of the token, `sign`, `configuration`, `userinfo`, `lax`.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Claims = dict[str, Any]
ABSENT: Final = object()
"""As the value of a claim: leave it out."""


@cache
def new_key(whose: str) -> rsa.RSAPrivateKey:
    """A key, made once in a run: making one takes longer than a test."""
    return rsa.generate_private_key(65537, 2048)


@dataclass
class IdentityProvider:
    """A running provider. `requested`: every requested path; `left`: those whose answer was not read to its end."""

    issuer: str
    client_id: str = "rung"
    client_secret: str = "a secret: with/odd+characters"
    person: Claims = field(default_factory=lambda: {"sub": "248289761001", "preferred_username": "dora"})
    claims: Claims = field(default_factory=dict)
    header: Claims = field(default_factory=dict)
    configuration: Claims = field(default_factory=dict)
    userinfo: Claims = field(default_factory=dict)
    answers: Claims = field(default_factory=dict)
    sign: Callable[["IdentityProvider", Claims], str] | None = None
    lax: bool = False
    kid: str = "one"
    other_keys: list[Claims] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    codes: dict[str, Claims] = field(default_factory=dict)
    seconds_ahead: float = 0

    @property
    def key(self) -> rsa.RSAPrivateKey:
        """What it signs with."""
        return new_key(self.kid)

    @property
    def public_pem(self) -> bytes:
        """What everybody knows."""
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def discovery(self) -> Claims:
        """The document at the well-known address."""
        named = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        }
        return {**named, **self.configuration}

    def keys(self) -> Claims:
        """Its public key."""
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**key, "kid": self.kid, "use": "sig", "alg": "RS256"}, *self.other_keys]}

    def authorized(self, query: dict[str, str]) -> str:
        """Where the browser goes with its code."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        more = {"code": code, "state": query["state"], "iss": self.issuer, **self.answers}
        return f"{query['redirect_uri']}?{urlencode({k: v for k, v in more.items() if v is not ABSENT})}"

    def traded(self, form: dict[str, str], basic: str) -> tuple[int, Claims]:
        """Tokens for a code that it gave out for this client, address and verifier, and that was not traded before."""
        shown = base64.b64decode(basic.removeprefix("Basic ")).decode() if basic else ""
        client = [unquote_plus(part) for part in shown.split(":", 1)]
        granted = self.codes.get(form["code"]) if self.lax else self.codes.pop(form["code"], None)
        if client != [self.client_id, self.client_secret] and form.get("client_secret") != self.client_secret:
            return 401, {"error": "invalid_client"}
        if granted is None or not (self.lax or self._is_for(granted, form)):
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "let-me-see", "token_type": "Bearer", "id_token": self.token(granted["nonce"])}

    def token(self, nonce: str) -> str:
        """An identity token."""
        now = int(time.time() + self.seconds_ahead)
        usual = {"iss": self.issuer, "aud": self.client_id, "iat": now, "exp": now + 300, "nonce": nonce}
        said = {**usual, **self.person, **self.claims}
        said = {name: value for name, value in said.items() if value is not ABSENT}
        return self.sign(self, said) if self.sign else self.signed(said)

    def signed(self, claims: Claims, key: rsa.RSAPrivateKey | None = None) -> str:
        """Signed as it should be, or with a key of somebody else."""
        return jwt.encode(claims, key or self.key, algorithm="RS256", headers={"kid": self.kid, **self.header})

    def _is_for(self, granted: Claims, form: dict[str, str]) -> bool:
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return granted["redirect_uri"] == form["redirect_uri"] and granted["code_challenge"] == challenge


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Listens until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    provider = IdentityProvider(f"http://127.0.0.1:{server.server_port}")
    server.provider = provider  # type: ignore[attr-defined]  # the handler's way to it
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5

    def handle(self) -> None:
        """A client that goes in the middle is no error."""
        with suppress(ConnectionError):
            super().handle()

    @property
    def provider(self) -> IdentityProvider:
        """Whose requests these are."""
        found: IdentityProvider = self.server.provider  # type: ignore[attr-defined]
        return found

    def do_GET(self) -> None:
        """Documents, and the person's way in."""
        parts = urlsplit(self.path)
        self.provider.requested.append(parts.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match parts.path:
            case "/.well-known/openid-configuration":
                self._say(200, self.provider.discovery())
            case "/keys":
                self._say(200, self.provider.keys())
            case "/authorize":
                self._say(302, {}, location=self.provider.authorized(query))
            case "/userinfo" if self.headers.get("Authorization") == "Bearer let-me-see":
                self._say(200, {**self.provider.person, **self.provider.userinfo})
            case _:
                self._say(404, {})

    def do_POST(self) -> None:
        """A code for tokens."""
        self.provider.requested.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self._say(*self.provider.traded(form, self.headers.get("Authorization", "")))

    def _say(self, status: int, said: Claims, location: str = "") -> None:
        data = json.dumps(said).encode()
        try:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.provider.left.append(self.path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's own name
        """Quiet."""
