"""Every operation of the OpenAPI document, asked with generated input: nothing breaks, nothing is undocumented.

Valid input and invalid: bodies, parameters and headers that break their schemas. The administrator who asks cannot
delete itself: valid ids in paths are those of others. `make fuzz` asks more.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tenants.access.services.credentials import exchange
from tests.support.rest_clients import Robot
from tests.support.route_matrix import World

EXAMPLES = int(os.environ.get("RUNG_FUZZ_EXAMPLES", "2"))
Operation = APIOperation[Any, Any, Any, Any]

load_all_checks()
CHECKED = CHECKS.get_by_names(
    ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


def operations() -> list[Operation]:
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    schema = schemathesis.openapi.from_dict(document)
    schema.app = get_wsgi_application()
    return [found.ok() for found in schema.get_all_operations()]


def no_such_host(*_requested: object, **_how: object) -> NoReturn:
    """No generated host name is looked up in the network."""
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def aimed(value: Any, ids: Mapping[str, str]) -> Any:
    """The generated body with ids that exist wherever it names a place."""
    if isinstance(value, dict):
        return {key: ids.get(key, aimed(inner, ids)) for key, inner in value.items()}
    return [aimed(inner, ids) for inner in value] if isinstance(value, list) else value


@pytest.mark.django_db
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_no_input_breaks_it_and_every_answer_is_documented(
    shared_robot: Robot, shared_world: World, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", no_such_host)
    token = exchange(shared_robot.account.client_id, shared_robot.secret).text
    project = shared_world.project
    places = {"projectId": str(project.pk), "clusterId": str(project.cluster_id)}

    known = shared_world.of(operation.path)
    valid = operation.as_strategy(path_parameters=dict(known))
    broken = operation.as_strategy(GenerationMode.NEGATIVE, path_parameters=dict(known))
    bounds = settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )

    @bounds
    @given(case=valid)
    def ask(case: Case) -> None:
        case.body = aimed(case.body, places)
        call(case, token)

    @bounds
    @given(case=broken)
    def ask_wrongly(case: Case) -> None:
        call(case, token)

    @bounds
    @given(case=operation.as_strategy(GenerationMode.NEGATIVE))
    def ask_elsewhere(case: Case) -> None:
        call(case, token)

    ask()
    for wrongly in (ask_wrongly, *([ask_elsewhere] if operation.path_parameters else [])):
        with suppress(Unsatisfiable):  # an operation without a parameter or body that could be wrong
            wrongly()


def call(case: Case, token: str) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKED)
