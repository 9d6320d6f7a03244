"""Every operation of the OpenAPI document, asked with generated input: nothing breaks, nothing is undocumented.

The administrator who asks cannot delete itself: the ids in paths are those of others. `make fuzz` asks more.
"""

import os
from collections.abc import Mapping
from typing import Any

import pytest
import schemathesis
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from schemathesis import APIOperation, Case
from schemathesis.checks import CHECKS, load_all_checks

from portal.wsgi import application
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Project
from tests.support.rest_clients import Robot
from tests.support.route_matrix import world_of

EXAMPLES = int(os.environ.get("RUNG_FUZZ_EXAMPLES", "2"))
Operation = APIOperation[Any, Any, Any, Any]

load_all_checks()
CHECKED = CHECKS.get_by_names(
    ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


def operations() -> list[Operation]:
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    schema = schemathesis.openapi.from_dict(document)
    schema.app = application
    return [found.ok() for found in schema.get_all_operations()]


def aimed(value: Any, ids: Mapping[str, str]) -> Any:
    """The generated body with ids that exist wherever it names a place."""
    if isinstance(value, dict):
        return {key: ids.get(key, aimed(inner, ids)) for key, inner in value.items()}
    return [aimed(inner, ids) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_no_input_breaks_it_and_every_answer_is_documented(
    robot: Robot, llm_team: Project, operation: Operation
) -> None:
    token = exchange(robot.account.client_id, robot.secret).text
    world = world_of(llm_team)
    places = {"projectId": str(llm_team.pk), "clusterId": str(llm_team.cluster_id)}

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy())
    def ask(case: Case) -> None:
        case.path_parameters = dict(case.path_parameters or {}) | world.of(operation.path)
        case.body = aimed(case.body, places)
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKED)

    ask()
