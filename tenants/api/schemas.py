"""What the tenants' routes take and answer: for the OpenAPI document. Keys are Run:ai's."""

from typing import Any, Final

from rest_framework import serializers

GRANTS: Final = ("app_token", "client_credentials")


class TokenRequest(serializers.Serializer[Any]):
    """Keys are read ignoring case; `clientId` and `clientSecret` may be called `AppId` and `AppSecret`."""

    grantType = serializers.ChoiceField(choices=GRANTS)
    clientId = serializers.CharField()
    clientSecret = serializers.CharField()


class TokenResponse(serializers.Serializer[Any]):
    """A bearer token for the next `expiresIn` seconds."""

    accessToken = serializers.CharField()
    idToken = serializers.CharField(allow_blank=True)
    refreshToken = serializers.CharField(allow_blank=True)
    expiresIn = serializers.IntegerField()


class TokenError(serializers.Serializer[Any]):
    """Run:ai's error shape."""

    code = serializers.IntegerField()
    message = serializers.CharField()
    details = serializers.CharField()


class OAuthRequest(serializers.Serializer[Any]):
    """The client-credentials grant."""

    grant_type = serializers.ChoiceField(choices=GRANTS)
    client_id = serializers.CharField()
    client_secret = serializers.CharField()


class OAuthResponse(serializers.Serializer[Any]):
    """A bearer token for the next `expires_in` seconds."""

    access_token = serializers.CharField()
    token_type = serializers.CharField()
    expires_in = serializers.IntegerField()


class OAuthError(serializers.Serializer[Any]):
    """OAuth2's error."""

    error = serializers.CharField()
    error_description = serializers.CharField()
