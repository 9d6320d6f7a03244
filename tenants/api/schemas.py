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
