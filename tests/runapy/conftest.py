"""The unmodified Run:ai client, as a script that moves here would use it: over HTTP, with a service account."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.runai_client import RunaiClient

from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import subjects
from tenants.organisation.models import Project

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder asks over sockets, and commits."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.enable_socket)
            item.add_marker(pytest.mark.django_db(transaction=True))


def client_of(address: object, name: str, role: str, **scope: Any) -> RunaiClient:
    """Their client, signed in as a new service account."""
    account, secret = subjects.create_service_account(name=name, actor=SYSTEM, role=role, **scope)
    settings = Configuration(client_id=account.client_id, client_secret=secret, runai_base_url=str(address))
    _speaking.append(ApiClient(settings))
    return RunaiClient(_speaking[-1])


_speaking: list[ApiClient] = []


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    """No line stays open: a server whose last client is collected only after it has ended fails the session."""
    yield
    while _speaking:
        _speaking.pop().close()


@pytest.fixture
def runai(live_server: object, llm_team: Project) -> RunaiClient:
    """A platform admin's client."""
    return client_of(live_server, "moving-script", Role.PLATFORM_ADMIN)
