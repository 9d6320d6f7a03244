"""A client id and its secret for a bearer token: `POST /api/v1/token` in every spelling that Run:ai's clients use, and
`POST /api/v2/token` as OAuth2 has it.
"""

from collections.abc import Mapping
from typing import Final

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.parsers import StrictFormParser
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.errors import BadRequest, RungError
from portal.kit.security.request_identity import client_ip, request_origin
from tenants.access.serializers.subjects import (
    GRANTS,
    OAuthError,
    OAuthRequest,
    OAuthResponse,
    TokenError,
    TokenRequest,
    TokenResponse,
)
from tenants.access.services.tokens import Token as Given
from tenants.access.services.tokens import exchange, throttle_guess

CLIENT_ID: Final = ("appid", "clientid", "client_id")
CLIENT_SECRET: Final = ("appsecret", "clientsecret", "client_secret")
LONGEST: Final = 512


class TokenExchange(Route):
    """Tokens for service accounts and access keys. A wrong secret is 400, as Run:ai answers: 401 would be repeated."""

    access = {"POST": RoutePermission(at="nowhere", reads=True)}

    authentication_classes = ()
    permission_classes = ()

    @extend_schema(
        operation_id="grant_token",
        summary="Get a bearer token",
        request=TokenRequest,
        responses={200: TokenResponse, 400: TokenError, 413: TokenError, 422: TokenError, 429: TokenError},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange a secret. Wrong guesses are counted; right ones are not."""
        token = issue_token(request, *read_credentials(request.data))
        answer = {"accessToken": token.text, "idToken": "", "refreshToken": "", "expiresIn": token.seconds}
        return Response(answer, headers={"Cache-Control": "no-store"})


class OAuthTokenExchange(Route):
    """The client-credentials grant of OAuth2, for any library of it: a form in, its own errors out, as 400.

    But too large a body is 413 and too many tries are 429, with codes of ours.
    """

    access = {"POST": RoutePermission(at="nowhere", reads=True)}

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (StrictFormParser,)

    @extend_schema(
        operation_id="grant_token_v2",
        summary="Get a bearer token, as OAuth2",
        request={"application/x-www-form-urlencoded": OAuthRequest},
        responses={200: OAuthResponse, 400: OAuthError, 413: OAuthError, 429: OAuthError},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange a secret."""
        try:
            token = issue_token(request, *_client_in(request.data))
        except RungError as error:
            return oauth_error(error)
        answer = {"access_token": token.text, "token_type": "Bearer", "expires_in": token.seconds}
        return Response(answer, headers={"Cache-Control": "no-store"})


def oauth_error(error: RungError) -> Response:
    """The refusal as RFC 6749 words it."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    body = {"error": error.code, "error_description": error.message}
    return Response(body, status=error.status, headers=headers)


def _client_in(form: object) -> tuple[str, str]:
    grant = form.get("grant_type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or not grant:
        raise BadRequest(_("Send grant_type, client_id and client_secret as a form."), code="invalid_request")
    if grant not in GRANTS:
        raise BadRequest(_("grant_type must be client_credentials."), code="unsupported_grant_type")
    return _only(form, ("client_id",)), _only(form, ("client_secret",))


def issue_token(request: Request, client_id: str, secret: str) -> Given:
    """A token for the right secret. Raises BadRequest for a wrong one, TooMany for one too many."""
    address = client_ip(request) or ""
    with throttle_guess("token", name=client_id, address=address):
        return exchange(client_id, secret, arrival=request_origin(request))


def read_credentials(body: object) -> tuple[str, str]:
    """Client id and secret of a token request. Raises BadRequest."""
    if not isinstance(body, Mapping):
        raise BadRequest(_("Send a JSON object."), code="invalid_request")
    given = {str(key).lower(): value for key, value in body.items()}
    if len(given) != len(body):
        raise BadRequest(_("Duplicate key in different spellings."), code="invalid_request")
    if given.get("granttype", given.get("grant_type")) not in GRANTS:
        text = _("grantType must be one of %(grants)s.") % {"grants": ", ".join(GRANTS)}
        raise BadRequest(text, code="unsupported_grant_type")
    return _only(given, CLIENT_ID), _only(given, CLIENT_SECRET)


def _only(given: Mapping[str, object], names: tuple[str, ...]) -> str:
    found = [given[name] for name in names if given.get(name) is not None]
    if len(found) == 1 and isinstance(found[0], str) and 0 < len(found[0]) <= LONGEST:
        return found[0]
    text = _("Send exactly one of %(names)s, with at most %(most)s characters.")
    raise BadRequest(text % {"names": ", ".join(names), "most": LONGEST}, code="invalid_request")
