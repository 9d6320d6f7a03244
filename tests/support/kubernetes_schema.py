"""Kubernetes' own schemas: whether a manifest is valid."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kubernetes_validate import utils

KUBERNETES: Final = "1.36"

# The library reads the definitions again for each manifest, which takes ten times as long as to validate it.
utils.schema_contents = cache(utils.schema_contents)


def validate(manifest: Mapping[str, Any]) -> None:
    """Raises `kubernetes_validate.ValidationError` for a field that is unknown, missing or of another type."""
    utils.validate(manifest, KUBERNETES, strict=True)
