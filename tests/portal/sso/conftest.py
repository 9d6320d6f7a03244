"""What tests of the portal share."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from pytest_django.fixtures import Settings

from tests.support.identity_provider import IdentityProvider, identity_provider


@pytest.fixture
def provider(socket_enabled: None, settings: Settings) -> Iterator[IdentityProvider]:
    """A provider that is configured."""
    cache.clear()
    with identity_provider() as running:
        settings.RUNG_OIDC_ISSUER = running.issuer
        settings.RUNG_OIDC_CLIENT_ID = running.client_id
        settings.RUNG_OIDC_CLIENT_SECRET = running.client_secret
        settings.RUNG_OIDC_NAME = "Example login"
        yield running
