"""The OpenAPI document and the page that shows it."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from portal.kit.api.openapi import EXAMPLES
from tests.support.openapi_client import GeneratedClient

SERVED = {
    "/api/v1/whoami": {"get"},
    "/api/v1/workloads/{workload_id}/logs": {"get"},
    "/api/v1/workloads/{workload_id}/clone": {"post"},
    "/api/v2/workloads/explain": {"post"},
    "/api/v1/notification-types": {"get"},
    "/api/v1/notification-state": {"get", "patch"},
    "/api/v1/notification-channels": {"get", "post"},
    "/api/v1/notification-channels/{channel_name}": {"get", "put", "patch", "delete"},
    "/api/v1/notification-channels/{channel_name}/trial-messages": {"post"},
    "/api/v1/validate-notification-channel": {"post"},
    "/api/v1/webhooks": {"get", "post"},
    "/api/v1/webhooks/{webhook_name}": {"get", "patch", "delete"},
    "/api/v1/webhooks/{webhook_name}/secret": {"post"},
    "/api/v1/webhooks/{webhook_name}/trial-messages": {"post"},
    "/api/v1/subscriptions": {"get", "post"},
    "/api/v1/subscriptions/{subscription_id}": {"put", "delete"},
    "/api/v1/org-unit/priority-caps": {"get"},
    "/api/v1/org-unit/projects/{unit_id}/priority-caps/{priority_name}": {"get", "put", "delete"},
    "/api/v1/org-unit/time-limits": {"get"},
    "/api/v1/org-unit/idle-limits": {"get"},
    "/api/v1/org-unit/min-runtimes": {"get"},
    **{
        f"/api/v1/org-unit/{units}/{{unit_id}}/{rule}": {"get", "put", "delete"}
        for units in ("projects", "departments")
        for rule in ("time-limits/{category_name}", "idle-limits/{category_name}", "min-runtime")
    },
    "/api/v1/evictions": {"get"},
    "/api/v1/evictions/count": {"get"},
    "/api/v1/findings": {"get"},
    "/api/v1/findings/{finding_id}": {"get"},
    "/api/v1/quota-requests": {"get", "post"},
    "/api/v1/quota-requests/{request_id}": {"get"},
    "/api/v1/quota-requests/{request_id}/approve": {"post"},
    "/api/v1/quota-requests/{request_id}/decline": {"post"},
    "/api/v1/quota-requests/{request_id}/withdraw": {"post"},
    "/api/v1/replays": {"get", "post"},
    "/api/v1/replays/{replay_id}": {"get"},
    "/api/v1/replays/{replay_id}/cancel": {"post"},
    "/api/v1/replays/{replay_id}/file": {"get"},
    "/api/v1/org-unit/reports": {"get", "post"},
    "/api/v1/org-unit/reports/count": {"get"},
    "/api/v1/org-unit/reports/availability": {"get"},
    "/api/v1/org-unit/reports/{report_id}": {"get", "delete"},
    "/api/v1/org-unit/reports/{report_id}/file": {"get"},
    "/api/v1/plans": {"get", "post"},
    "/api/v1/plans/{plan_id}": {"get"},
    "/api/v1/plans/{plan_id}/apply": {"post"},
    "/api/v1/plans/{plan_id}/approve": {"post"},
    "/api/v1/plan-approvals": {"get", "put"},
    "/api/v1/plans/{plan_id}/discard": {"post"},
    "/api/v1/plans/{plan_id}/rollback": {"post"},
    "/api/v1/token": {"post"},
    "/api/v2/token": {"post"},
    "/api/v1/access-keys": {"get", "post"},
    "/api/v1/access-keys/{key_id}": {"get", "delete"},
    "/api/v1/access-keys/{key_id}/secret": {"post"},
    "/api/v1/administration/access-keys": {"get"},
    "/api/v1/administration/access-keys/{key_id}": {"delete"},
    "/api/v1/user-applications": {"get", "post"},
    "/api/v1/user-applications/{key_id}": {"get", "delete"},
    "/api/v1/user-applications/{key_id}/secret": {"post"},
    "/api/v1/administration/user-applications": {"get"},
    "/api/v1/administration/user-applications/{key_id}": {"delete"},
    "/api/v1/service-accounts": {"get", "post"},
    "/api/v1/service-accounts/{account_id}": {"get", "patch", "delete"},
    "/api/v1/service-accounts/{account_id}/secret": {"post"},
    "/api/v1/apps": {"get", "post"},
    "/api/v1/apps/{account_id}": {"get", "patch", "delete"},
    "/api/v1/apps/{account_id}/secret": {"post"},
    "/api/v1/users": {"get", "post"},
    "/api/v1/users/count": {"get"},
    "/api/v1/users/{user_id}": {"get", "delete"},
    "/api/v1/users/{user_id}/password": {"post"},
    "/api/v1/users/{user_id}/logout": {"post"},
    "/api/v1/me/password": {"post"},
    "/api/v1/authorization/access-rules": {"get", "post"},
    "/api/v1/authorization/access-rules/count": {"get"},
    "/api/v1/authorization/access-rules/batch": {"post"},
    "/api/v1/authorization/access-rules/batch-create": {"post"},
    "/api/v1/authorization/access-rules/{rule_id}": {"get", "delete"},
    "/api/v1/authorization/me/access-rules": {"get"},
    "/api/v1/authorization/me/access-rules/count": {"get"},
    "/api/v1/authorization/permissions": {"get"},
    "/api/v1/authorization/permission-sets": {"get"},
    "/api/v1/authorization/permission-sets/{set_id}": {"get"},
    "/api/v1/authorization/permitted-scopes": {"post"},
    "/api/v1/authorization/roles": {"get"},
    "/api/v1/authorization/roles/{role_id}": {"get"},
    "/api/v2/authorization/roles": {"get", "post"},
    "/api/v2/authorization/roles/{role_id}": {"get", "put", "delete"},
    "/api/v1/org-unit/projects": {"get", "post"},
    "/api/v1/org-unit/projects/count": {"get"},
    "/api/v1/org-unit/projects/{unit_id}": {"get", "put", "delete"},
    "/api/v1/org-unit/projects/{unit_id}/resources": {"put", "patch"},
    "/api/v1/org-unit/departments": {"get", "post"},
    "/api/v1/org-unit/departments/count": {"get"},
    "/api/v1/org-unit/departments/{unit_id}": {"get", "put", "delete"},
    "/api/v1/org-unit/departments/{unit_id}/resources": {"put", "patch"},
    "/api/v1/clusters": {"get", "post"},
    "/api/v1/clusters/{cluster_id}": {"get", "put", "delete"},
    "/api/v1/clusters/{cluster_id}/syncs": {"get", "post"},
    "/api/v1/clusters/{cluster_id}/sync-dry-runs": {"post"},
    "/api/v1/clusters/{cluster_id}/differences": {"get"},
    "/api/v1/clusters/{cluster_id}/differences/repair": {"post"},
    "/api/v1/clusters/{cluster_id}/differences/adopt": {"post"},
    "/api/v1/clusters/{cluster_id}/pod-security": {"put"},
    "/api/v1/clusters/{cluster_id}/defer-preemptors": {"put"},
    "/api/v1/clusters/{cluster_id}/pause": {"post"},
    "/api/v1/clusters/{cluster_id}/unpause": {"post"},
    "/api/v1/clusters/{cluster_id}/connection-test": {"post"},
    "/api/v1/clusters/{cluster_id}/connection": {"get", "put"},
    "/api/v1/clusters/{cluster_id}/metrics-source": {"get", "put", "delete"},
    "/api/v1/clusters/{cluster_id}/scheduler-plans": {"post"},
    "/api/v1/clusters/{cluster_id}/scheduler": {"put"},
    "/api/v1/clusters/{cluster_id}/nodes": {"get"},
    "/api/v1/clusters/{cluster_id}/activity": {"get"},
    "/api/v1/clusters/{cluster_id}/forecast-accuracy": {"get"},
    "/api/v1/clusters/{cluster_id}/metrics": {"get"},
    "/api/v1/clusters/{cluster_id}/nodepools/{pool_name}/metrics": {"get"},
    "/api/v1/nodes": {"get"},
    "/api/v1/nodes/count": {"get"},
    "/api/v1/nodes/telemetry": {"get"},
    "/api/v1/nodes/{node_id}/metrics": {"get"},
    "/api/v1/node-pools": {"get", "post"},
    "/api/v1/node-pools/count": {"get"},
    "/api/v1/node-pools/{pool_id}": {"get", "put", "patch", "delete"},
    "/api/v1/quotas": {"get"},
    "/api/v1/quotas/what-if": {"post"},
    "/api/v1/org-unit/priorities": {"get"},
    "/api/v1/org-unit/projects/telemetry": {"get"},
    "/api/v1/org-unit/projects/node-pool-resources": {"get"},
    "/api/v1/org-unit/projects/node-pool-resources/count": {"get"},
    "/api/v1/org-unit/projects/{unit_id}/metrics": {"get"},
    "/api/v1/org-unit/projects/{unit_id}/borrowing": {"get"},
    "/api/v1/org-unit/departments/{unit_id}/borrowing": {"get"},
    "/api/v1/org-unit/departments/{unit_id}/enforce-deserved": {"put"},
    "/api/v1/org-unit/departments/telemetry": {"get"},
    "/api/v1/org-unit/departments/node-pool-resources": {"get"},
    "/api/v1/org-unit/departments/node-pool-resources/count": {"get"},
    "/api/v1/org-unit/departments/{unit_id}/metrics": {"get"},
    "/api/v1/eviction-matrix": {"get"},
    "/api/v1/workload-priorities": {"get", "post"},
    "/api/v1/workload-priorities/{priority_id}": {"get", "put", "patch", "delete"},
    "/api/v1/workload-types": {"get", "post"},
    "/api/v1/workload-types/{type_id}": {"get", "put", "delete"},
    "/api/v1/workload-categories": {"get"},
    "/api/v1/workload-categories/{category_id}": {"get"},
    "/api/v1/workloads/telemetry": {"get"},
    "/api/v1/workloads/{workload_id}/metrics": {"get"},
    "/api/v1/workloads/{workload_id}/pods/{pod_id}/metrics": {"get"},
    "/api/v1/workloads": {"get"},
    "/api/v1/workloads/count": {"get"},
    "/api/v1/workloads/pods": {"get"},
    "/api/v1/workloads/pods/count": {"get"},
    "/api/v1/workloads/batch": {"post"},
    "/api/v1/workloads/stream": {"get"},
    "/api/v1/workloads/{workload_id}": {"get"},
    "/api/v1/workloads/{workload_id}/pods": {"get"},
    "/api/v1/workloads/{workload_id}/events": {"get"},
    "/api/v1/workloads/{workload_id}/alternatives": {"get"},
    "/api/v1/workloads/{workload_id}/waiting": {"get"},
    "/api/v1/workloads/{workload_id}/history": {"get"},
    "/api/v1/workloads/{workload_id}/stream": {"get"},
    "/api/v1/workloads/workspaces": {"post"},
    "/api/v1/workloads/trainings": {"post"},
    "/api/v1/workloads/distributed": {"post"},
    "/api/v1/workloads/inferences": {"post"},
    "/api/v1/workloads/distributed-inferences": {"post"},
    "/api/v1/workloads/inferences/{inference_id}": {"get", "patch", "delete"},
    "/api/v1/workloads/distributed-inferences/{distributed_inference_id}": {"get", "patch", "delete"},
    "/api/v1/workloads/{kind}/{workload_id}": {"get", "delete"},
    "/api/v2/workloads/nim-services": {"post"},
    "/api/v2/workloads/nim-services/{nim_service_id}": {"get", "patch"},
    "/api/v1/workloads/{kind}/{workload_id}/suspend": {"post"},
    "/api/v1/workloads/{kind}/{workload_id}/resume": {"post"},
    "/api/v1/workloads/{kind}/{workload_id}/retry": {"post"},
    "/api/v1/audit/log": {"get"},
    "/api/v1/audit/log/file": {"get"},
    "/api/v2/policy": {"get"},
    "/api/v2/policy/{kind}": {"get", "put", "patch", "delete"},
    "/api/v1/workload-templates": {"get"},
    "/api/v1/workload-templates/count": {"get"},
    "/api/v1/workload-templates/name-availability": {"get"},
    "/api/v1/workload-templates/{kind}": {"get", "post"},
    "/api/v1/workload-templates/{template_id}": {"get"},
    "/api/v1/workload-templates/{kind}/{template_id}": {"get", "put", "patch", "delete"},
    "/api/v1/workload-templates/inferences/{inference_template_id}": {"get", "delete"},
    "/api/v1/asset/{kind}": {"get", "post"},
    "/api/v1/asset/{kind}/{asset_id}": {"get", "put", "delete"},
    "/api/v2/workloads": {"post"},
    "/api/v2/workloads/{workload_id}": {"get", "put", "delete"},
}


def bodies(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Operation id, media type and content of every request body."""
    for methods in document["paths"].values():
        for route in methods.values():
            for media_type, content in route.get("requestBody", {}).get("content", {}).items():
                yield route["operationId"], media_type, content


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """As it is served; making it takes seconds."""
    return Client().get("/api/openapi.json").json()  # type: ignore[no-any-return]


def test_it_names_every_route_that_is_served_and_no_other(document: dict[str, Any]) -> None:
    assert {path: set(verbs) for path, verbs in document["paths"].items()} == SERVED


def test_every_route_says_what_a_refusal_looks_like(document: dict[str, Any]) -> None:
    for path, verbs in document["paths"].items():
        for verb, route in verbs.items():
            assert set(route["responses"]) & {"400", "422"}, (path, verb)


def test_a_generator_finds_a_name_for_every_operation_and_a_server(document: dict[str, Any]) -> None:
    client = GeneratedClient("http://rung.example.org", document)
    assert len(client.operations) == sum(len(verbs) for verbs in document["paths"].values())
    assert [each["url"] for each in document["servers"]] == ["/"]


def test_every_body_has_a_media_type_that_a_client_can_send(document: dict[str, Any]) -> None:
    types = {operation: media_type for operation, media_type, _content in bodies(document)}
    assert types.pop("grant_token_v2") == "application/x-www-form-urlencoded"
    assert set(types.values()) == {"application/json"}


def test_every_body_is_typed_and_has_an_example_that_fits(document: dict[str, Any]) -> None:
    client = GeneratedClient("http://rung.example.org", document)
    for operation, _media_type, content in bodies(document):
        assert {"$ref", "items"} & set(content["schema"]), operation
        (example,) = content["examples"].values()
        assert client.problems(content["schema"], example["value"]) == [], operation


KUBERNETES = {"manifest", "rawManifest", "workloadManifest", "resourceInterface"}
"""Objects of any kind: their fields are those of Kubernetes."""
MUST_BE_EMPTY = {"nodeType", "nodeAffinityRequired", "podAffinity", "terminateAfterPreemption", "multiNode"}
ROWS = {"changes", "fields"}
"""Lists of [field, before, after]: the values are those of any field."""


def untyped(schema: Any, name: str = "") -> Iterator[str]:
    """Names of fields that say nothing of their value, or of an object only that it is one."""
    if not isinstance(schema, dict) or not schema.keys().isdisjoint({"$ref", "enum"}):
        return
    parts = [(name, schema.get("items")), *((name, each) for key in ("allOf", "oneOf") for each in schema.get(key, ()))]
    parts += schema.get("properties", {}).items()
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict) and inner:
        parts.append((name, inner))
    parts = [(at, each) for at, each in parts if each is not None]
    if not parts and schema.get("type", "object") == "object":
        yield name
    for at, each in parts:
        yield from untyped(each, at)


def test_nested_objects_are_typed(document: dict[str, Any]) -> None:
    found = {each for schema in document["components"]["schemas"].values() for each in untyped(schema)}
    assert found - KUBERNETES - MUST_BE_EMPTY - ROWS == set()


def test_no_example_is_left_of_a_body_that_is_gone(document: dict[str, Any]) -> None:
    names = {
        content["schema"].get("$ref", content["schema"].get("items", {}).get("$ref")).rpartition("/")[2]
        for _operation, _media_type, content in bodies(document)
    }
    assert set(EXAMPLES) == {name.removeprefix("Patched").removesuffix("Request") for name in names}


def test_responses_name_the_headers_that_come_with_them(document: dict[str, Any]) -> None:
    def headers(path: str, verb: str, status: str) -> set[str]:
        return set(document["paths"][path][verb]["responses"][status].get("headers", ()))

    assert headers("/api/v1/workloads", "get", "200") == {"X-Request-ID", "ETag"}
    assert headers("/api/v1/workloads", "get", "404") == {"X-Request-ID"}
    assert headers("/api/v2/workloads", "post", "202") == {"X-Request-ID", "Idempotent-Replayed"}
    assert headers("/api/v2/workloads", "post", "200") == {"X-Request-ID", "Idempotent-Replayed", "Rung-Dry-Run"}
    assert headers("/api/v1/token", "post", "200") == {"X-Request-ID"}
    assert headers("/api/v1/workloads/{workload_id}/stream", "get", "429") == {"X-Request-ID", "Retry-After"}
    assert headers("/api/v1/whoami", "get", "503") == {"X-Request-ID", "Retry-After"}


def test_it_is_generated_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json")
    assert '"openapi"' in capsys.readouterr().out


def test_its_page_is_served_from_here(client: Client, db: None) -> None:
    page = client.get("/api/docs")
    assert page.status_code == 200
    assert b"https://" not in page.content
    assert "'unsafe-inline'" in page["Content-Security-Policy"].split("style-src ")[1].split(";")[0]
