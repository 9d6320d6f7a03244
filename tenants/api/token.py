"""`POST /api/v1/token`: a client id and its secret for a bearer token, in every spelling that Run:ai's clients use."""

from collections.abc import Mapping
from typing import Final

from django.conf import settings
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core import limiter
from portal.core.errors import BadRequest
from portal.core.http import client_ip, request_id
from portal.core.routes import Route, Rule
from tenants.api.schemas import GRANTS, TokenError, TokenRequest, TokenResponse
from tenants.services.service_accounts import exchange
from tenants.tokens import LIFETIME

CLIENT_ID: Final = ("appid", "clientid", "client_id")
CLIENT_SECRET: Final = ("appsecret", "clientsecret", "client_secret")
LONGEST: Final = 512


class Token(Route):
    """Tokens for service accounts. A wrong secret is 400, as Run:ai answers: its client would repeat a 401."""

    access = {"POST": Rule(at="nowhere", reads=True)}

    authentication_classes = ()
    permission_classes = ()

    @extend_schema(
        operation_id="grant_token",
        summary="Get a bearer token",
        request=TokenRequest,
        responses={200: TokenResponse, 400: TokenError, 429: TokenError},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange a secret. Wrong guesses are counted; right ones are not."""
        client_id, secret = credentials_in(request.data)
        address = client_ip(request) or ""
        keys = {"name": f"{address} {client_id}", "address": address}
        for scope, key in keys.items():
            tries, seconds = settings.RUNG_SIGN_IN_LIMITS[scope]
            limiter.hit(f"token {scope}", key, limit=tries, per=seconds)
        token = exchange(client_id, secret, source_ip=address or None, request_id=request_id())
        for scope, key in keys.items():
            limiter.give_back(f"token {scope}", key)
        answer = {"accessToken": token, "idToken": "", "refreshToken": "", "expiresIn": LIFETIME}
        return Response(answer, headers={"Cache-Control": "no-store"})


def credentials_in(body: object) -> tuple[str, str]:
    """Client id and secret of a token request. Raises BadRequest."""
    if not isinstance(body, Mapping):
        raise BadRequest(_("Send a JSON object."), code="invalid_request")
    given = {str(key).lower(): value for key, value in body.items()}
    if len(given) != len(body):
        raise BadRequest(_("A key stands twice in different spellings."), code="invalid_request")
    if given.get("granttype", given.get("grant_type")) not in GRANTS:
        text = _("grantType must be one of %(grants)s.") % {"grants": ", ".join(GRANTS)}
        raise BadRequest(text, code="unsupported_grant_type")
    return _only(given, CLIENT_ID), _only(given, CLIENT_SECRET)


def _only(given: Mapping[str, object], names: tuple[str, ...]) -> str:
    found = [given[name] for name in names if given.get(name) is not None]
    if len(found) == 1 and isinstance(found[0], str) and 0 < len(found[0]) <= LONGEST:
        return found[0]
    text = _("Give exactly one of %(names)s, a text of at most %(most)s characters.")
    raise BadRequest(text % {"names": ", ".join(names), "most": LONGEST}, code="invalid_request")
