"""What the OpenAPI document says of every route without its view repeating it."""

from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from portal.core.routes import Route

DRY_RUN: Final = OpenApiParameter(
    "dryRun", bool, description="Beyond Run:ai: do it, answer with 200 what it would have been, and take it back."
)
KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Beyond Run:ai: up to 200 printable ASCII characters. The same request is answered, not done, again.",
)


class RouteSchema(AutoSchema):
    """Adds what `Route` reads itself."""

    def get_override_parameters(self) -> list[Any]:
        """`dryRun` for every write that changes something, and the key for POST."""
        rule = self.view.access.get(self.method) if isinstance(self.view, Route) else None
        if rule is None or rule.reads or self.method == "GET":
            return []
        return [DRY_RUN, KEY] if self.method == "POST" else [DRY_RUN]
