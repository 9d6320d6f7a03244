"""Actors of the shared cast, and what a refusal leaves behind."""

import pytest

from portal.kit.security.actors import Actor, Channel
from tenants.access.models import User
from tests.factories.cast import acting


@pytest.fixture
def as_admin(admin: User) -> Actor:
    """The platform admin."""
    return acting(admin)


@pytest.fixture
def as_alice(alice: User) -> Actor:
    """The owner of llm-team."""
    return acting(alice)


@pytest.fixture
def as_bob(bob: User) -> Actor:
    """A member of llm-team, through the API."""
    return acting(bob, Channel.API)


@pytest.fixture
def as_charlie(charlie: User) -> Actor:
    """A member of another project."""
    return acting(charlie)
