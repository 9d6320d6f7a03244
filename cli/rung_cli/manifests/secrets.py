"""Secrets of documents: `{env: NAME}` says which environment variable has one. A document never holds it."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from rung_cli.errors import UsageError


def secret_error(spec: Mapping[str, Any], name: str) -> Iterator[str]:
    """What is no reference to a variable."""
    found = spec.get(name)
    if found is not None and not (
        isinstance(found, dict) and found.keys() == {"env"} and isinstance(found["env"], str)
    ):
        yield f"/spec/{name} must be {{env: NAME}}, the environment variable that has it."


def secret(spec: Mapping[str, Any], name: str, source: str) -> str:
    """The value of the variable that the field names; empty where the document names none. UsageError if unset."""
    if not spec.get(name):
        return ""
    variable = spec[name]["env"]
    if not (found := os.environ.get(variable)):
        raise UsageError(f"{source}: /spec/{name}: the environment variable {variable} is not set.")
    return found
