"""What the OpenAPI document says of every route without its view repeating it."""

from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

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


MATCH: Final = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="Beyond Run:ai: the `ETag` of a previous response. Answers 412 without a change if it is stale.",
)


class RouteSchema(AutoSchema):
    """Adds what `Route` reads itself, and that a known answer is not sent again."""

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        """A GET may say 304."""
        operation = super().get_operation(*args, **kwargs)
        if operation and self.method == "GET":
            operation["responses"].setdefault("304", {"description": "Not modified."})
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
        """What a write may answer besides: a rehearsal's 200, and what is wrong with any body."""
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        if not isinstance(self.view, Route) or self.method == "GET":
            return bodies
        if not self.view.access[self.method].reads:
            bodies.setdefault("200", self._rehearsed(bodies))
        for status in WRITING if self.method == "POST" else (*WRITING, "412"):
            bodies.setdefault(status, self._body(ErrorSchema, status))
        return dict(sorted(bodies.items()))

    def _rehearsed(self, bodies: Mapping[str, Any]) -> dict[str, Any]:
        done = next((body for status, body in bodies.items() if status[0] == "2" and "content" in body), None)
        found = done or self._body(AcceptedSchema, "200")
        return {**found, "description": "With `dryRun`: the response without saving."}

    def _body(self, schema: type[Any], status: str) -> dict[str, Any]:
        found = self._get_response_for_code(schema, status)  # type: ignore[no-untyped-call]  # the library leaves it so
        return dict(found)
