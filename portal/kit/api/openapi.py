"""What the OpenAPI document says of every route without its view repeating it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from portal.kit.api.routes import Route
from portal.kit.api.serializers import AcceptedSchema, ErrorSchema

WRITING: Final = ("400", "409", "413", "422")
DRY_RUN: Final = OpenApiParameter(
    "dryRun", bool, description="Beyond Run:ai: validate and return the result with 200 without saving."
)
KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Beyond Run:ai: up to 200 printable ASCII characters. A repeated request gets the stored response "
    "and is not executed again.",
)
KNOWN: Final = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    description="Beyond Run:ai: the `ETag` of a previous response. Answers 304 without a body if nothing changed.",
)
EXAMPLES: Final[Mapping[str, Any]] = json.loads(Path(__file__).with_name("openapi_examples.json").read_text("utf-8"))
"""A request body by the name of its serializer; for a list of these, a list."""
HEADERS: Final[Mapping[str, str]] = {
    "X-Request-ID": "Identifies the request in the logs of the server and in the audit trail.",
    "ETag": "A weak validator of the response, for `If-None-Match`.",
    "Retry-After": "Seconds after which to send the request again.",
    "Idempotent-Replayed": "`true`: the stored response to an earlier request with the same `Idempotency-Key`.",
    "Rung-Dry-Run": "`true`: nothing was saved.",
}


MATCH: Final = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="Beyond Run:ai: the `ETag` of a previous response. Answers 412 without a change if it is stale.",
)


class RouteSchema(AutoSchema):
    """Adds what `Route` reads itself, and that a known answer is not sent again."""

    def map_parsers(self) -> list[str]:
        """JSON: the parsers read a body whatever its content type says, but generators need one they can send."""
        return ["application/json"]

    def get_examples(self) -> list[OpenApiExample]:
        """The request body of this operation, from `openapi_examples.json`."""
        if self.method not in {"POST", "PUT", "PATCH"}:
            return []
        reader, media_type = self.get_request_serializer(), None
        if isinstance(reader, dict):
            ((media_type, reader),) = reader.items()
        reader = getattr(reader, "child", reader)
        name = (reader if isinstance(reader, type) else type(reader)).__name__
        if name not in EXAMPLES:
            return []
        return [OpenApiExample("example", value=EXAMPLES[name], request_only=True, media_type=media_type)]

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        """A GET may say 304, and any operation 503."""
        operation = super().get_operation(*args, **kwargs)
        if not operation:
            return operation
        responses = operation["responses"]
        responses.setdefault("503", self._body(ErrorSchema, "503") | {"description": "The database is not available."})
        if self.method == "GET":
            responses.setdefault("304", {"description": "Not modified."})
        return operation

    def get_override_parameters(self) -> list[Any]:
        """`dryRun` for every write that changes something, the key for POST, the known answer for GET."""
        rule = self.view.access.get(self.method) if isinstance(self.view, Route) else None
        if self.method == "GET":
            return [KNOWN]
        if rule is None or rule.reads:
            return []
        return [DRY_RUN, KEY] if self.method == "POST" else [DRY_RUN, MATCH]

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        """What a write may answer besides: a dry run's 200, and what is wrong with any body."""
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        if not isinstance(self.view, Route) or self.method == "GET":
            return bodies
        if not self.view.access[self.method].reads:
            bodies.setdefault("200", self._of_dry_run(bodies))
        for status in WRITING if self.method == "POST" else (*WRITING, "412"):
            bodies.setdefault(status, self._body(ErrorSchema, status))
        return dict(sorted(bodies.items()))

    def _of_dry_run(self, bodies: Mapping[str, Any]) -> dict[str, Any]:
        done = next((body for status, body in bodies.items() if status[0] == "2" and "content" in body), None)
        found = done or self._body(AcceptedSchema, "200")
        return {
            **found,
            "description": "With `dryRun`: the response without saving, and `plan` where such changes are planned.",
        }

    def _body(self, schema: type[Any], status: str) -> dict[str, Any]:
        found = self._get_response_for_code(schema, status)  # type: ignore[no-untyped-call]  # the library leaves it so
        return dict(found)


def document_headers(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Say of every response which headers come with it. Called by drf-spectacular for the finished document."""
    result["components"]["headers"] = {
        name: {"description": about, "schema": {"type": "string"}} for name, about in HEADERS.items()
    }
    for routes in result["paths"].values():
        for route in routes.values():
            for status, response in route["responses"].items():
                names = _headers_of(route, status)
                response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return result


def _headers_of(route: Mapping[str, Any], status: str) -> Iterator[str]:
    named = {each["name"] for each in route.get("parameters", ())}
    yield "X-Request-ID"
    if "304" in route["responses"] and status in {"200", "304"}:
        yield "ETag"
    if status in {"429", "503"}:
        yield "Retry-After"
    if KEY.name in named and status[0] == "2":
        yield "Idempotent-Replayed"
    if DRY_RUN.name in named and status == "200":
        yield "Rung-Dry-Run"
