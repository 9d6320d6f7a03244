"""Service accounts and access keys by their older names, applications and user applications: for older scripts."""

from drf_spectacular.utils import extend_schema, extend_schema_view

from portal.kit.api.serializers import ERROR_RESPONSES
from tenants.access.api import access_keys, service_accounts
from tenants.access.serializers.subjects import (
    AccessKeySchema,
    AdministeredKeySchema,
    ApplicationCreated,
    ApplicationSecretCreated,
)


@extend_schema_view(
    get=extend_schema(operation_id="get_applications", deprecated=True),
    post=extend_schema(
        operation_id="create_application", responses={201: ApplicationCreated, **ERROR_RESPONSES}, deprecated=True
    ),
)
class Applications(service_accounts.ServiceAccounts):
    """Service accounts."""

    shown_once = ("secret",)


@extend_schema_view(
    get=extend_schema(operation_id="get_application", deprecated=True),
    patch=extend_schema(operation_id="update_application", deprecated=True),
    delete=extend_schema(operation_id="delete_application", deprecated=True),
)
class ApplicationDetail(service_accounts.ServiceAccountDetail):
    """A service account."""


@extend_schema_view(
    post=extend_schema(
        operation_id="regenerate_application_secret",
        responses={200: ApplicationSecretCreated, **ERROR_RESPONSES},
        deprecated=True,
    )
)
class ApplicationSecret(service_accounts.ServiceAccountSecret):
    """A service account's secret."""

    shown_once = ("secret",)


@extend_schema_view(
    get=extend_schema(
        operation_id="get_user_applications",
        responses={200: AccessKeySchema(many=True), **ERROR_RESPONSES},
        deprecated=True,
    ),
    post=extend_schema(
        operation_id="create_user_application", responses={201: ApplicationCreated, **ERROR_RESPONSES}, deprecated=True
    ),
)
class UserApplications(access_keys.AccessKeys):
    """Access keys, as a bare array."""

    shown_once = ("secret",)
    listed_as = ""


@extend_schema_view(
    get=extend_schema(operation_id="get_user_application", deprecated=True),
    delete=extend_schema(operation_id="delete_user_application", deprecated=True),
)
class UserApplicationDetail(access_keys.AccessKeyDetail):
    """An access key."""


@extend_schema_view(
    post=extend_schema(
        operation_id="regenerate_user_application_secret",
        responses={200: ApplicationSecretCreated, **ERROR_RESPONSES},
        deprecated=True,
    )
)
class UserApplicationSecret(access_keys.AccessKeySecret):
    """An access key's secret."""

    shown_once = ("secret",)


@extend_schema_view(
    get=extend_schema(
        operation_id="get_user_applications_administration",
        responses={200: AdministeredKeySchema(many=True), **ERROR_RESPONSES},
        deprecated=True,
    )
)
class AdministeredApplications(access_keys.AdministeredKeys):
    """Everybody's access keys, as a bare array."""

    listed_as = ""


@extend_schema_view(delete=extend_schema(operation_id="delete_user_application_administration", deprecated=True))
class AdministeredApplicationDetail(access_keys.AdministeredKeyDetail):
    """Somebody's access key."""
