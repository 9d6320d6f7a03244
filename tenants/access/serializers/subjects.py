"""Request and response bodies of users, access keys, service accounts and tokens."""

from typing import Any, Final

from rest_framework import serializers

from portal.kit.api.serializers import schema
from tenants.access.models import ACCOUNT_NAME

EXPIRES: Final = "Beyond Run:ai: expiry time. Without it, the key does not expire."


class SubjectCreate(serializers.Serializer[Any]):
    """A name, and perhaps an end."""

    name = serializers.CharField(max_length=63, validators=[ACCOUNT_NAME])
    expiresAt = serializers.DateTimeField(required=False, allow_null=True, help_text=EXPIRES)


class AccessKeyCreate(SubjectCreate):
    """A key of the caller's own."""

    readOnly = serializers.BooleanField(required=False, default=False, help_text="Beyond Run:ai: read-only.")
    projectId = serializers.CharField(
        required=False, allow_null=True, max_length=20, help_text="Beyond Run:ai: restrict to this project."
    )
    departmentId = serializers.CharField(
        required=False, allow_null=True, max_length=20, help_text="Beyond Run:ai: restrict to this department."
    )


class AccessKeySchema(serializers.Serializer[Any]):
    """A key, without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    clientId = serializers.CharField()
    createdAt = serializers.DateTimeField()
    lastLogin = serializers.DateTimeField(allow_null=True, help_text="When a token was last requested.")
    expiresAt = serializers.DateTimeField(allow_null=True, help_text=EXPIRES)
    readOnly = serializers.BooleanField()
    projectId = serializers.CharField(allow_null=True)
    departmentId = serializers.CharField(allow_null=True)


class AccessKeyCreated(AccessKeySchema):
    """A new key: the only time that its secret is seen."""

    clientSecret = serializers.CharField(required=False, help_text="Absent in the response to a repeated request.")


class AdministeredKeySchema(AccessKeySchema):
    """A key, and whose it is."""

    createdBy = serializers.CharField()


AccessKeyList = schema("AccessKeyList", "One's own keys.", accessKeys=AccessKeySchema(many=True))
AdministeredKeyList = schema("AdministeredKeyList", "Everybody's keys.", accessKeys=AdministeredKeySchema(many=True))


class SecretCreated(serializers.Serializer[Any]):
    """A new secret: the only time that it is seen."""

    clientSecret = serializers.CharField(required=False, help_text="Absent in the response to a repeated request.")


AccountChange = schema("AccountChange", "Let it in or shut it out.", enabled=serializers.BooleanField())


class AccountSchema(serializers.Serializer[Any]):
    """A service account, without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    clientId = serializers.CharField()
    createdBy = serializers.CharField(allow_blank=True)
    enabled = serializers.BooleanField()
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    lastLogin = serializers.DateTimeField(allow_null=True, help_text="When a token was last requested.")
    expiresAt = serializers.DateTimeField(allow_null=True, help_text=EXPIRES)
    tenantId = serializers.CharField()


class AccountCreated(serializers.Serializer[Any]):
    """A new account: the only time that its secret is seen."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    clientId = serializers.CharField()
    clientSecret = serializers.CharField(required=False, help_text="Absent in the response to a repeated request.")


class ApplicationSecretCreated(serializers.Serializer[Any]):
    """A new secret by its older name."""

    secret = serializers.CharField(required=False)


class ApplicationCreated(serializers.Serializer[Any]):
    """A new application or user application: the only time that its secret is seen."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    clientId = serializers.CharField()
    secret = serializers.CharField(required=False)
    createdAt = serializers.DateTimeField(required=False)


class UserSchema(serializers.Serializer[Any]):
    """A person."""

    id = serializers.CharField()
    username = serializers.CharField()
    createdBy = serializers.CharField(allow_blank=True)
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField(allow_null=True)
    lastLogin = serializers.DateTimeField(allow_null=True)
    isLocal = serializers.BooleanField(help_text="False for users without a local password.")
    groups = serializers.ListField(child=serializers.CharField())


class UserCreate(serializers.Serializer[Any]):
    """A person to be. Nothing is mailed: hand the temporary password over yourself."""

    email = serializers.EmailField(max_length=150)
    resetPassword = serializers.BooleanField(
        required=False, allow_null=True, help_text="Not supported: true is rejected."
    )
    notify = serializers.BooleanField(required=False, allow_null=True, help_text="Not supported: true is rejected.")


class UserCreated(serializers.Serializer[Any]):
    """A new person: the only time that the temporary password is seen."""

    id = serializers.CharField()
    username = serializers.CharField()
    tempPassword = serializers.CharField(required=False)


class TemporaryPassword(serializers.Serializer[Any]):
    """A temporary password: the only time that it is seen."""

    tempPassword = serializers.CharField(required=False)


class PasswordChange(serializers.Serializer[Any]):
    """Another password for oneself."""

    currentPassword = serializers.CharField(max_length=4096, trim_whitespace=False)
    newPassword = serializers.CharField(max_length=4096, trim_whitespace=False)


class EmptySchema(serializers.Serializer[Any]):
    """An empty object."""


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
