"""Image references: complete, from a registry the project may use, and without anything hidden in them."""

import re
from typing import Any, Final

from workloads.intake.problems import visible
from workloads.intake.rules import ABSENT, Place, storable, wrong_type

LONGEST: Final = 512
ANY_REGISTRY: Final = "*"
DEFAULT_REGISTRY: Final = "docker.io"
_HOST = (
    r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z0-9-]+(?::[0-9]{1,5})?|localhost(?::[0-9]{1,5})?|[a-z0-9-]+:[0-9]{1,5}"
)
_PATH = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_REFERENCE = re.compile(rf"(?P<host>{_HOST})/(?P<path>{_PATH}(?:/{_PATH})*)(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?")
_FIRST = re.compile(rf"(?:{_HOST})/")


def image(value: Any, place: Place) -> Any:
    """`registry/path[:tag][@sha256:digest]`, the registry being one of the project's."""
    if not isinstance(value, str):
        return wrong_type(value, place, "a string")
    if len(value) > LONGEST:
        return place.refuse("bad_image", f"{len(value)} characters; up to {LONGEST} are allowed.")
    if not storable(value, place):
        return ABSENT
    if "@" in value and "@sha256:" not in value:
        return place.refuse("image_credentials", "An image names no user, and a digest starts with @sha256:.")
    match = _REFERENCE.fullmatch(value)
    if match is None:
        return _malformed(value, place)
    if not _granted(f"{match['host']}/{match['path']}", place):
        message = f"The registry {match['host']} is not one this project may use."
        return place.refuse("registry_denied", message, place.scope.allowed_registries)
    return value


def _malformed(value: str, place: Place) -> Any:
    complete = f"{DEFAULT_REGISTRY}/{value if '/' in value else f'library/{value}'}"
    if not _FIRST.match(value) and _REFERENCE.fullmatch(complete):
        message = f"The image names no registry. Write {complete}, or the registry you mean."
        return place.refuse("registry_missing", message, (complete,))
    return place.refuse(
        "bad_image", f"{visible(value)!r} is not an image reference such as registry.example/team/app:1.0."
    )


def _granted(name: str, place: Place) -> bool:
    return any(
        granted == ANY_REGISTRY or name.startswith(f"{granted.rstrip('/')}/")
        for granted in place.scope.allowed_registries
    )
